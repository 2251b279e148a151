#include "measure/failure.hpp"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <typeinfo>

#include "core/text.hpp"

namespace disttune::timing {
namespace {

std::string type_name(const std::exception& error) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 && text ? text.get() : typeid(error).name();
  // The inline namespace of the version means nothing to a reader.
  if (const std::string_view inner = "disttune::v"; name.starts_with(inner))
    if (const auto end = name.find("::", inner.size()); end != std::string::npos)
      name.replace(0, end, "disttune");
  return name;
}

}  // namespace

std::string describe_exception(std::string_view stage, const std::exception& error) {
  const std::string_view what = error.what();
  return what.empty() ? fmt::format("{}: {}", stage, type_name(error))
                      : fmt::format("{}: {}: {}", stage, type_name(error), what);
}

VisitEnd failure_of(std::string_view stage, const std::exception& error) {
  if (const auto* known = dynamic_cast<const detail::CandidateFailed*>(&error))
    return {known->status(), core::bounded(known->what())};
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return {memory ? Status::out_of_resources : Status::launch_failed,
          core::bounded(describe_exception(stage, error))};
}

}  // namespace disttune::timing
