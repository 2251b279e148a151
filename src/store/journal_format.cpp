#include "store/journal_format.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/text.hpp"
#include "disttune/error.hpp"
#include "store/json_cursor.hpp"
#include "store/json_text.hpp"

namespace disttune::store {
namespace {

constexpr std::string_view k_journal_name = "disttune.journal";
constexpr std::int64_t k_journal_version = 1;
constexpr std::size_t k_usual_line = 256;

void append_name(std::string& out, std::string_view name) {
  out += out.empty() ? "{\"" : ", \"";
  out += name;
  out += "\": ";
}
void text_field(std::string& out, std::string_view name, std::string_view text) {
  append_name(out, name);
  append_json(out, text);
}
void number_field(std::string& out, std::string_view name, std::int64_t value) {
  append_name(out, name);
  append_json(out, value);
}

/// One line, whatever it is; unknown fields are skipped.
struct Line {
  std::string journal, key, policy, prepare, begin, end, interrupted, at, status, reason;
  std::int64_t version = 0;
  ProcessId process;
  std::vector<std::int64_t> samples_ns;
};

Line read_line(std::string_view text) {
  Line out;
  JsonCursor cursor(text);
  const std::pair<std::string_view, std::string*> texts[] = {{"journal", &out.journal},
                                                             {"key", &out.key},
                                                             {"policy", &out.policy},
                                                             {"prepare", &out.prepare},
                                                             {"begin", &out.begin},
                                                             {"end", &out.end},
                                                             {"interrupted", &out.interrupted},
                                                             {"at", &out.at},
                                                             {"status", &out.status},
                                                             {"reason", &out.reason},
                                                             {"host", &out.process.host},
                                                             {"boot", &out.process.boot}};
  const std::pair<std::string_view, std::int64_t*> numbers[] = {
      {"version", &out.version}, {"pid", &out.process.pid}, {"start", &out.process.start}};
  cursor.object([&](std::string_view name) {
    for (const auto& [known, target] : texts)
      if (known == name) return void(*target = cursor.string());
    for (const auto& [known, target] : numbers)
      if (known == name) return void(*target = cursor.integer());
    if (name != "samples_ns") return void(cursor.raw());
    cursor.array([&] {
      out.samples_ns.push_back(cursor.integer());
      if (out.samples_ns.back() < 0) cursor.fail("before this: a negative sample");
    });
  });
  cursor.finish();
  return out;
}

/// Folds the lines of one journal.
class Fold {
 public:
  explicit Fold(const Value& policy) : m_policy(policy) {}

  void header(const Line& line) {
    m_out.process = line.process;
    if (m_out.at.empty()) m_out.at = line.at;
    m_out.key = line.key;
    m_policy_equal = line.policy == m_policy.text();
  }

  void note(const Line& line) {
    if (!line.prepare.empty()) {
      m_out.preparing = line.prepare == "begin";
    } else if (!line.begin.empty()) {
      m_out.begun = {Value::parse(line.begin), line.at};
    } else if (!line.end.empty()) {
      ended(line);
    } else if (!line.interrupted.empty()) {
      m_out.begun.reset();
    }
  }

  [[nodiscard]] JournalContent take() { return std::move(m_out); }

 private:
  void ended(const Line& line) {
    const Value candidate = Value::parse(line.end);
    const std::optional<Status> status = parse_status(line.status);
    if (!status) throw StoreError("unknown status");
    if (m_out.begun && m_out.begun->candidate == candidate) m_out.begun.reset();
    m_out.ended.push_back(candidate);
    if (!m_policy_equal) return;
    std::erase_if(m_out.measured,
                  [&](const Remains::Measured& m) { return m.candidate == candidate; });
    m_out.measured.push_back({candidate, *status, line.reason, line.samples_ns});
  }

  const Value& m_policy;
  bool m_policy_equal = false;
  JournalContent m_out;
};

}  // namespace

std::string journal_prefix(const std::filesystem::path& record_file) {
  return record_file.stem().string() + ".journal-";
}

std::filesystem::path journal_file(const std::filesystem::path& record_file,
                                   const ProcessId& process, int n) {
  std::string name = fmt::format("{}{}-{}-{}", journal_prefix(record_file),
                                 core::safe_name(process.host), process.pid, process.start);
  if (n > 1) name += fmt::format("-{}", n);
  return record_file.parent_path() / name;
}

std::string journal_header(const Value& key_text, const Value& policy, const ProcessId& process) {
  std::string out;
  text_field(out, "journal", k_journal_name);
  number_field(out, "version", k_journal_version);
  text_field(out, "host", process.host);
  text_field(out, "boot", process.boot);
  number_field(out, "pid", process.pid);
  number_field(out, "start", process.start);
  text_field(out, "at", core::utc_now());
  text_field(out, "policy", policy.text());
  text_field(out, "key", key_text.text());
  return out + "}\n";
}

std::string begin_line(const Value& candidate) {
  std::string out;
  out.reserve(k_usual_line);
  text_field(out, "begin", candidate.text());
  text_field(out, "at", core::utc_now());
  return out + "}\n";
}

std::string end_line(const Value& candidate, Status status, std::string_view reason,
                     std::span<const std::int64_t> samples_ns) {
  std::string out;
  out.reserve(k_usual_line);
  text_field(out, "end", candidate.text());
  text_field(out, "status", to_string(status));
  text_field(out, "reason", reason);
  append_name(out, "samples_ns");
  append_json(out, samples_ns);
  return out + "}\n";
}

std::string interrupted_line(const Value& candidate) {
  std::string out;
  text_field(out, "interrupted", candidate.text());
  return out + "}\n";
}

std::string prepare_line(std::string_view what) {
  std::string out;
  text_field(out, "prepare", what);
  return out + "}\n";
}

std::optional<JournalContent> read_journal(std::string_view text, const Value& policy) {
  Fold fold(policy);
  bool started = false;
  try {
    for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos;
         text.remove_prefix(end + 1)) {
      const Line line = read_line(text.substr(0, end));
      if (!line.journal.empty()) {
        // A process that takes up a journal of its own begins with a header again.
        if (line.journal != k_journal_name || line.version != k_journal_version) break;
        fold.header(line);
        started = true;
      } else if (started) {
        fold.note(line);
      } else {
        break;
      }
    }
  } catch (const Error&) {
    // A damaged line ends the journal; a last one without its line break was cut and is not read.
  }
  if (!started) return std::nullopt;
  return fold.take();
}

}  // namespace disttune::store
