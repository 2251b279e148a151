// A timeline of tunings for chrome://tracing or ui.perfetto.dev.
#pragma once

#include <memory>
#include <string>

#include "disttune/observer.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

/// An observer that writes every visit, miss and decision to `file` in the Trace Event Format (JSON
/// array form, which readers accept without its closing bracket: the file is complete whenever the
/// process ends). One process row a rank, one thread row a thread; times in microseconds of the
/// steady clock. A visit begins where its thread's previous event ended. Thread-safe. The file is
/// replaced. Throws Error when it cannot be opened; a line that cannot be written later is lost
/// silently, since an observer cannot fail a tuning.
///
///   const auto token = disttune::add_observer(disttune::trace_file("tuning.trace.json"));
[[nodiscard]] std::shared_ptr<Observer> trace_file(const std::string& file);

DISTTUNE_NAMESPACE_END
