#include "disttune/trace.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "disttune/error.hpp"

DISTTUNE_NAMESPACE_BEGIN
namespace {

using Json = nlohmann::ordered_json;

class TraceFile final : public Observer {
 public:
  explicit TraceFile(const std::string& file) : m_out(file, std::ios::trunc) {
    if (!m_out)
      throw Error(
          fmt::format("disttune: trace_file: cannot write {} ({})", file, std::strerror(errno)));
    m_out << "[" << std::flush;
  }

  void miss(const Miss& e) noexcept override {
    write(e.function, "miss", e.rank, false,
          {{"key", e.key.key.text()}, {"reason", e.reason}, {"candidates", e.candidates}});
  }
  void visit_done(const VisitDone& e) noexcept override {
    write(fmt::format("#{} {}", e.index, e.config.display()), "visit", e.rank, true,
          {{"function", e.function},
           {"status", to_string(e.status)},
           {"reason", e.reason},
           {"samples_ns", e.samples_ns}});
  }
  void decided(const Decided& e) noexcept override {
    write(e.function, "decided", e.rank, false,
          {{"winner", e.tuning.winner ? e.tuning.winner->text() : std::string_view("none")},
           {"file", e.file}});
  }

 private:
  void write(std::string_view name, std::string_view category, int rank, bool lasting,
             Json arguments) noexcept {
    try {
      const std::int64_t now = std::chrono::duration_cast<std::chrono::microseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count();
      const std::lock_guard lock(m_mutex);
      const auto [thread, fresh] =
          m_threads.try_emplace(std::this_thread::get_id(), Row{m_threads.size(), now});
      const std::int64_t since = std::exchange(thread->second.last, now);
      Json event{{"name", name}, {"cat", category}, {"ph", lasting ? "X" : "i"}};
      event["ts"] = lasting ? since : now;
      if (lasting)
        event["dur"] = now - since;
      else
        event["s"] = "t";
      event["pid"] = rank < 0 ? 0 : rank;
      event["tid"] = thread->second.number;
      event["args"] = std::move(arguments);
      m_out << std::exchange(m_separator, ",") << "\n"
            << event.dump(-1, ' ', false, Json::error_handler_t::replace) << std::flush;
    } catch (const std::exception&) {  // out of memory: a line less
    }
  }

  struct Row {
    std::size_t number;
    std::int64_t last;  ///< when its previous event ended, in microseconds
  };
  std::mutex m_mutex;
  std::ofstream m_out;
  const char* m_separator = "";
  std::map<std::thread::id, Row> m_threads;
};

}  // namespace

std::shared_ptr<Observer> trace_file(const std::string& file) {
  return std::make_shared<TraceFile>(file);
}

DISTTUNE_NAMESPACE_END
