// Contextual tuning: kernels that make sense only inside an outer function are tuned during
// complete runs of it.
//
//   auto gemm = disttune::tuned_kernel("gemm", space, key, launch);
//   auto step = disttune::contextual("step", {.n_warmup = 3, .n_repeat = 5},
//                                    [&](Span x) { gemm(x); all_gather(x); return norm(x); });
//   float r = step(x);    // runs the function again and again until its kernels are decided;
//                         // the result is that of one more run with the winners
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "disttune/detail/attempt.hpp"
#include "disttune/detail/signature.hpp"
#include "disttune/group.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

struct ContextualOptions {
  std::optional<int> n_warmup = {};  ///< untimed launches a candidate, ≥ 0; none: WARMUP, else 3
  std::optional<int> n_repeat = {};  ///< timed launches a candidate, ≥ 1; none: REPEAT, else 5
  ProcessGroup* group = nullptr;     ///< all its ranks make the call together
  /// "cold": flush before each timed launch; "hot"; empty: CACHE, else "cold".
  std::string cache = {};
  std::string strategy = {};  ///< empty: STRATEGY, else "fixed"
  std::string timer = {};     ///< "auto", "device", "host"; empty: TIMER, else "auto"
  /// A clock of the caller's: nanoseconds now; a sample is the difference of two readings.
  std::function<std::int64_t()> clock = {};
  std::string clock_name = {};  ///< what messages call it
  int rank = -1;                ///< names the log file; below 0: the rank in `group`, 0 without one
  /// Keep choices in the store (HOME), so that another process needs one run of the outer function.
  bool persist = false;
};

namespace detail {

/// Told ahead of the last pass what was decided; with a group only after all ranks have confirmed.
using ContextDecided = std::function<void(const Launcher& kernel, const Value& key,
                                          const TuningRecord& tuning, std::size_t winner)>;

/// Runs `outer` until no kernel that it reaches is left to tune, then once more; just once when it
/// reaches nothing to tune. The Pass is valid during each run, from any thread. What `outer` throws
/// passes and leaves nothing behind.
void run_contextual(const std::string& name, const ContextualOptions& options,
                    const std::function<void(Pass&)>& outer, const ContextDecided& decided = {});

/// The same for a caller that runs the first pass himself and needs this only where that pass met
/// something to tune. In the order `pass` (handed to the first pass's launches), `complete`; or
/// `abandon` where the first pass threw, unless `settled_by_complete`.
class ContextualCall {
 public:
  ContextualCall(std::string name, ContextualOptions options, ContextDecided decided = {});
  ~ContextualCall();
  ContextualCall(const ContextualCall&) = delete;
  ContextualCall& operator=(const ContextualCall&) = delete;

  [[nodiscard]] Pass& pass() noexcept;
  /// The other passes. Throws what `run_contextual` throws.
  void complete(const std::function<void(Pass&)>& outer);
  /// Tells the other ranks that this one's call has ended.
  void abandon(std::string_view why) noexcept;
  /// Whether the first pass threw over a kernel that has nothing left to run on this rank of a
  /// group: then not `abandon` but `complete`, which throws NoValidConfig on all ranks.
  [[nodiscard]] bool settled_by_complete();
  /// A line of the front end's own in the log. From any thread.
  void note(std::string_view line) noexcept;

 private:
  friend void run_contextual(const std::string&, const ContextualOptions&,
                             const std::function<void(Pass&)>&, const ContextDecided&);
  struct Impl;
  std::unique_ptr<Impl> m_impl;
};

}  // namespace detail

/// An outer function whose tuned kernels are decided during its runs; made by `contextual`. One
/// call at a time in a thread: NestedContext otherwise. Throws also what tuned launchers throw.
template <class Signature, class F>
class Contextual;

template <class R, class... Args, class F>
class Contextual<R(Args...), F> {
  static_assert((!std::is_rvalue_reference_v<Args> && ...),
                "disttune: an outer function runs many times while its kernels are tuned, so it "
                "cannot take T&&; "
                "take T& or const T&");
  static_assert(((std::is_reference_v<Args> || std::copy_constructible<Args>)&&...),
                "disttune: a parameter taken by value is copied for each run, and this type cannot "
                "be copied; take "
                "it by reference");

 public:
  Contextual(std::string name, ContextualOptions options, F outer)
      : m_name(std::move(name)), m_options(std::move(options)), m_outer(std::move(outer)) {
    if (m_options.n_warmup) detail::checked_count("n_warmup", *m_options.n_warmup, 0);
    if (m_options.n_repeat) detail::checked_count("n_repeat", *m_options.n_repeat, 1);
    if (!m_options.cache.empty()) detail::checked_choice("cache", m_options.cache, {"hot", "cold"});
    if (!m_options.timer.empty())
      detail::checked_choice("timer", m_options.timer, {"auto", "device", "host"});
  }

  R operator()(Args... args) const {
    using Kept =
        std::conditional_t<std::is_void_v<R>, char,
                           std::conditional_t<std::is_reference_v<R>,
                                              std::add_pointer_t<std::remove_reference_t<R>>, R>>;
    std::optional<Kept> result;
    detail::run_contextual(m_name, m_options, [&](detail::Pass&) {
      result.reset();
      // Lvalues: parameters taken by value are copied for each run.
      if constexpr (std::is_void_v<R>)
        std::invoke(m_outer, args...);
      else if constexpr (std::is_reference_v<R>)
        result.emplace(&std::invoke(m_outer, args...));
      else
        result.emplace(std::invoke(m_outer, args...));
    });
    if constexpr (std::is_reference_v<R>)
      return static_cast<R>(**result);
    else if constexpr (!std::is_void_v<R>)
      return *std::move(result);
  }

 private:
  std::string m_name;
  ContextualOptions m_options;
  F m_outer;
};

/// Makes an outer function that tunes the `tuned_kernel`s it reaches. std::invalid_argument for
/// counts out of range.
template <class Signature = void, class F>
[[nodiscard]] auto contextual(std::string name, ContextualOptions options, F outer) {
  return Contextual<detail::signature_t<Signature, F>, F>(std::move(name), std::move(options),
                                                          std::move(outer));
}

DISTTUNE_NAMESPACE_END
