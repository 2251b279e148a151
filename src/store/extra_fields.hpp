// Fields that this version does not know, kept as they were written.
//
// `extra` of a record or a tuning is a JSON object. At its top are the unknown fields themselves;
// unknown fields of an inner object sit under that object's name ("function", "how" …), those of a
// candidate under "candidates" and the candidate's identity. So one text holds them all, and they
// find their place again when the record is written.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace disttune::store {

class ExtraFields {
 public:
  ExtraFields() = default;
  /// Throws StoreError when `json` is no JSON object.
  static ExtraFields parse(std::string_view json);

  [[nodiscard]] bool empty() const noexcept { return m_fields.empty(); }
  /// The last of two fields of one name counts.
  void set(std::string_view name, std::string_view json);
  [[nodiscard]] std::string_view find(std::string_view name) const noexcept;  ///< empty: none
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& all() const noexcept {
    return m_fields;
  }
  [[nodiscard]] std::string json() const;  ///< "{}" when empty
  /// Appends `, "name": value` for every field whose name is not among `known`.
  template <class Known>
  void append_unknown(std::string& out, const Known& known) const {
    for (const auto& [name, value] : m_fields)
      if (!known(name)) append_field(out, name, value);
  }

 private:
  static void append_field(std::string& out, std::string_view name, std::string_view json);
  std::vector<std::pair<std::string, std::string>> m_fields;
};

}  // namespace disttune::store
