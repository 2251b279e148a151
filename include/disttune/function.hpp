// Function-level tuning: a launcher that tunes itself for each key it meets.
//
//   struct Tile {
//     int block = 256;
//     static constexpr auto tuned = disttune::fields(disttune::field("BLOCK", &Tile::block));
//   };
//   auto scale = disttune::autotune("scale", disttune::grid(&Tile::block, {256, 512, 1024}),
//       [](std::span<float> x, float) { return x.size(); },                  // key
//       [](const Tile& t, std::span<float> x, float a) { … })                // launch
//       .version("1");
//   scale(x, 2.0f);   // tunes once for this size, then calls
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "disttune/config.hpp"
#include "disttune/detail/attempt.hpp"
#include "disttune/detail/choice_table.hpp"
#include "disttune/detail/signature.hpp"
#include "disttune/device.hpp"
#include "disttune/group.hpp"
#include "disttune/record.hpp"
#include "disttune/version.hpp"

DISTTUNE_NAMESPACE_BEGIN

namespace detail {

/// Names what a launch may change through an argument of type A: equal names for equal data.
template <class A>
void name_data(std::remove_reference_t<A>& a, std::vector<std::uintptr_t>& out) {
  const void* data = nullptr;
  if constexpr (std::is_convertible_v<std::remove_cvref_t<A>, void*>)
    data = static_cast<void*>(a);
  else if constexpr (requires { static_cast<void*>(a.data()); })
    data = static_cast<void*>(a.data());
  else if constexpr (std::is_lvalue_reference_v<A> && !std::is_const_v<std::remove_reference_t<A>>)
    data = std::addressof(a);
  if (data != nullptr) out.push_back(reinterpret_cast<std::uintptr_t>(data));
}

}  // namespace detail

/// What one call asks for: `launcher.with({.verbose = true})(args…)`. The group is not kept.
struct CallOptions {
  bool tune = true;               ///< false: entry 0 runs, nothing is looked up
  ProcessGroup* group = nullptr;  ///< null: the launcher's own group, else none
  bool verbose = false;           ///< this call's progress on standard error
};

/// A tuned launcher; made by `autotune` or `tuned_kernel`. Calls are thread-safe: a warm call takes
/// no lock and allocates nothing; one cold key is tuned once while other callers of it wait.
/// Setters work on a temporary only, while the launcher is made. Movable, not copyable.
///
/// What a launch throws that is no std::exception is taken for an interrupt: it ends the tuning and
/// passes. Throws, besides what the launch throws: NoValidConfig, NotTuned, CaptureError,
/// Disagreement, PeerFailed, GroupTimeout, DeviceLost; std::invalid_argument for an unknown option
/// value.
template <class Signature, class Key, class Launch>
class Tuned {
  static_assert(sizeof(Launch) == 0,
                "disttune: a launch takes the configuration first: launch(config, args...)");
};

template <class R, class Cfg, class... Args, class Key, class Launch>
class Tuned<R(Cfg, Args...), Key, Launch> {
  using C = std::remove_cvref_t<Cfg>;
  using Result = std::conditional_t<std::is_void_v<R>, std::monostate, std::remove_cvref_t<R>>;
  static_assert(
      AnyConfig<C>,
      "disttune: the launcher's first parameter is the configuration: disttune::Config or a "
      "struct with a static constexpr member `tuned`");
  static_assert(
      (!std::is_rvalue_reference_v<Args> && ...),
      "disttune: a launcher runs many times while it is tuned, so it cannot take T&&; take "
      "T& or const T&");
  static_assert(
      ((std::is_reference_v<Args> || std::copy_constructible<Args>)&&...),
      "disttune: a parameter taken by value is copied for each run, and this type cannot be "
      "copied; take it by reference");
  static_assert(std::is_invocable_v<const Key&, const std::remove_reference_t<Args>&...>,
                "disttune: the key function takes the launcher's parameters without the "
                "configuration, by value or const reference");
  static_assert(std::is_invocable_r_v<R, const Launch&, const C&, Args...>,
                "disttune: the launch must be callable as const with a const configuration");
  static_assert(
      !std::is_void_v<std::invoke_result_t<const Key&, const std::remove_reference_t<Args>&...>>,
      "disttune: the key function returns what decides the choice, not void");
  using Owned =
      detail::owned_t<std::invoke_result_t<const Key&, const std::remove_reference_t<Args>&...>>;

  using Check = std::conditional_t<
      std::is_void_v<R>,
      std::function<std::optional<std::string>(const C&, std::remove_reference_t<Args>&...)>,
      std::function<std::optional<std::string>(const C&, const Result&,
                                               std::remove_reference_t<Args>&...)>>;

 public:
  Tuned(std::string name, Space<C> space, Key key, Launch launch, bool kernel = false)
      : m(std::make_unique<State>(std::move(name), std::move(space), std::move(key),
                                  std::move(launch), kernel)) {}

  /// With it the launcher's identity is its name and version and nothing else: records are shared
  /// with a Python launcher of equal name and version. Raise it when the launch changes.
  [[nodiscard]] Tuned version(std::string v) && {
    m->version = std::move(v);
    return std::move(*this);
  }
  /// A digest of the source instead: `.source(DISTTUNE_SOURCE_DIGEST)` with the CMake function
  /// `disttune_source_digest(target FILES …)`. Without effect beside a version.
  [[nodiscard]] Tuned source(std::string digest) && {
    m->source = std::move(digest);
    return std::move(*this);
  }
  /// Which stream a call's work goes to, e.g. `disttune::cuda(stream)`. Default: the host. A warm
  /// call asks only where the devices of the process differ (Device::uniform); a launcher that goes
  /// to several kinds of device, the host among them, lets its key say which.
  [[nodiscard]] Tuned on(std::function<Stream(const std::remove_reference_t<Args>&...)> f) && {
    m->on = std::move(f);
    return std::move(*this);
  }
  /// True keeps a candidate for these arguments.
  [[nodiscard]] Tuned prune(
      std::function<bool(const C&, const std::remove_reference_t<Args>&...)> f) && {
    m->prune = std::move(f);
    return std::move(*this);
  }
  /// A text means that the launch failed: for launchers that return a status.
  [[nodiscard]] Tuned fails_when(std::function<std::optional<std::string>(const Result&)> f) &&
      requires(!std::is_void_v<R>) {
    m->fails = std::move(f);
    return std::move(*this);
  }
  /// Compiles or loads a candidate without launching it; called from several threads at once.
  [[nodiscard]] Tuned prepare(
      std::function<void(const C&, const std::remove_reference_t<Args>&...)> f) && {
    m->prepare = std::move(f);
    return std::move(*this);
  }
  /// Queued before every run of a tuning (its final run too), outside the sample: puts back what a
  /// run changes.
  [[nodiscard]] Tuned before_each(std::function<void(std::remove_reference_t<Args>&...)> f) && {
    m->before_each = std::move(f);
    return std::move(*this);
  }
  /// Looks at one untimed run of each candidate: `check(config, result, args…)`, without `result`
  /// where the launch returns nothing. A text says what is wrong (`wrong_result`).
  [[nodiscard]] Tuned check(Check f) && {
    m->check = std::move(f);
    m->options.checked = true;
    return std::move(*this);
  }
  /// The ranks that decide together with this one.
  [[nodiscard]] Tuned group(std::shared_ptr<ProcessGroup> g) && {
    m->group = std::move(g);
    return std::move(*this);
  }
  [[nodiscard]] Tuned strategy(std::string name) && {
    m->options.strategy = std::move(name);
    return std::move(*this);
  }
  [[nodiscard]] Tuned warmup(int runs) && {
    m->options.warmup = detail::checked_count("warmup", runs, 0);
    return std::move(*this);
  }
  [[nodiscard]] Tuned repeat(int runs) && {
    m->options.repeat = detail::checked_count("repeat", runs, 1);
    return std::move(*this);
  }
  /// "auto", "device", "host" or "graph".
  [[nodiscard]] Tuned timer(std::string name) && {
    m->options.timer =
        detail::checked_choice("timer", std::move(name), {"auto", "device", "host", "graph"});
    return std::move(*this);
  }
  /// A clock of the caller's, in nanoseconds; a sample is the difference of two readings.
  [[nodiscard]] Tuned timer(std::function<std::int64_t()> clock) && {
    m->options.clock = std::move(clock);
    return std::move(*this);
  }
  /// "hot" or "cold": whether the device's cache is flushed before each timed run.
  [[nodiscard]] Tuned cache(std::string name) && {
    m->options.cache = detail::checked_choice("cache", std::move(name), {"hot", "cold"});
    return std::move(*this);
  }
  /// The folder of records, instead of HOME's.
  [[nodiscard]] Tuned store(std::string folder) && {
    m->options.store = std::move(folder);
    return std::move(*this);
  }

  R operator()(Args... args) const { return call(CallOptions{}, args...); }

  /// The same launcher with options for one call.
  class With {
   public:
    R operator()(Args... args) const { return m_tuned->call(m_options, args...); }
    /// Where the choice for these arguments comes from, or why there is none.
    [[nodiscard]] Explanation explain(const std::remove_reference_t<Args>&... args) const {
      const detail::Call call = m_tuned->describe_call(m_options, args...);
      const State& s = *m_tuned->m;
      const C* chosen =
          s.table.find(std::invoke(s.key, args...), m_tuned->place(call.group, args...));
      Explanation e = detail::explain(s.launcher(), call, [&](std::size_t i) {
        return chosen != nullptr || !s.prune || s.prune(s.space[i], args...);
      });
      if (chosen != nullptr) {
        e.source = "memory";
        e.config = to_config(*chosen);
        e.miss_reason.clear();
      }
      return e;
    }
    /// The record for these arguments, if there is one.
    [[nodiscard]] std::optional<Record> result(const std::remove_reference_t<Args>&... args) const {
      return detail::result(m_tuned->m->launcher(), m_tuned->describe_call(m_options, args...));
    }

   private:
    friend Tuned;
    With(const Tuned* tuned, CallOptions options) : m_tuned(tuned), m_options(options) {}
    const Tuned* m_tuned;
    CallOptions m_options;
  };
  [[nodiscard]] With with(CallOptions options) const& { return With(this, options); }

  [[nodiscard]] Explanation explain(const std::remove_reference_t<Args>&... args) const {
    return with({}).explain(args...);
  }
  [[nodiscard]] std::optional<Record> result(const std::remove_reference_t<Args>&... args) const {
    return with({}).result(args...);
  }
  /// What these arguments run now without tuning: null when the key is not decided in this process.
  [[nodiscard]] const C* choice(const std::remove_reference_t<Args>&... args) const {
    return m->table.find(std::invoke(m->key, args...), place(m->group.get(), args...));
  }
  /// Forgets this process's choices, or the one for these arguments: the next call looks into the
  /// store again. Records stay. Thread-safe; calls in progress keep the choice that they have. With
  /// a group on all its ranks or none: a cold call meets the others.
  void clear() const { m->table.clear(); }
  void erase(const std::remove_reference_t<Args>&... args) const {
    m->table.erase(std::invoke(m->key, args...), place(m->group.get(), args...));
  }
  [[nodiscard]] const Space<C>& space() const noexcept { return m->space; }
  [[nodiscard]] const std::string& name() const noexcept { return m->name; }
  /// The folder that holds this launcher's records.
  [[nodiscard]] std::string folder() const { return detail::folder(m->launcher()); }

 private:
  struct State {
    State(std::string n, Space<C> s, Key k, Launch l, bool is_kernel)
        : name(std::move(n)),
          space(std::move(s)),
          key(std::move(k)),
          launch(std::move(l)),
          kernel(is_kernel) {
      if (name.empty()) throw std::invalid_argument("disttune: a launcher needs a name");
      if (space.empty())
        throw std::invalid_argument("disttune: the configuration space of '" + name + "' is empty");
    }
    /// Made at the first miss, so that construction stays free of work.
    const detail::Launcher& launcher() const {
      std::call_once(made, [&] {
        detail::LauncherSpec spec;
        spec.name = name;
        for (std::size_t i = 0; i < space.size(); ++i)
          spec.candidates.push_back(to_config(space[i]));
        spec.options = options;
        spec.identity = [this] {
          std::vector<std::pair<Value, Value>> parts{{Value("name"), Value(name)}};
          if (!version.empty())
            parts.emplace_back(Value("version"), Value(version));
          else if (!source.empty())
            parts.emplace_back(Value("source"), Value(source));
          return Value::dict(std::move(parts));
        };
        handle = std::make_unique<detail::Launcher>(std::move(spec));
      });
      return *handle;
    }
    std::string name;
    Space<C> space;
    Key key;
    Launch launch;
    bool kernel;
    std::string version, source;
    detail::LauncherOptions options;
    std::function<Stream(const std::remove_reference_t<Args>&...)> on;
    std::function<bool(const C&, const std::remove_reference_t<Args>&...)> prune;
    std::function<std::optional<std::string>(const Result&)> fails;
    std::function<void(const C&, const std::remove_reference_t<Args>&...)> prepare;
    std::function<void(std::remove_reference_t<Args>&...)> before_each;
    Check check;
    std::shared_ptr<ProcessGroup> group;
    detail::ChoiceTable<Owned, C> table;
    std::atomic<bool> devices_differ{false};  ///< then a warm call asks which device it is on
    mutable std::once_flag made;
    mutable std::unique_ptr<detail::Launcher> handle;
  };

  template <class Q>
  struct Bound final : detail::Attempt {
    Bound(State& s, const Q& k, std::uint64_t (*p)(const State&, const detail::Call&),
          const detail::Call& c, std::remove_reference_t<Args>&... a)
        : state(s), key(k), place_of(p), call(c), args(a...) {}

    bool admits(std::size_t i) override {
      return !state.prune ||
             apply([&](auto&... a) { return state.prune(state.space[i], std::as_const(a)...); });
    }
    bool can_prepare() const override { return static_cast<bool>(state.prepare); }
    void prepare(std::size_t i) override {
      apply([&](auto&... a) { state.prepare(state.space[i], std::as_const(a)...); });
    }
    void begin_visit(std::size_t, std::size_t runs) override { results.reserve(runs); }
    void before_run() override {
      if (state.before_each) apply([&](auto&... a) { state.before_each(a...); });
    }
    void run(std::size_t i) override {
      // Lvalues: parameters taken by value are copied for each run.
      apply([&](auto&... a) {
        if constexpr (std::is_void_v<R>) {
          launch(state, state.space[i], a...);
        } else if constexpr (std::is_reference_v<R>) {
          auto&& result = launch(state, state.space[i], a...);
          results.push_back(std::addressof(result));
          refuse_failure(result);
        } else {
          results.push_back(launch(state, state.space[i], a...));
          refuse_failure(results.back());
        }
      });
    }
    std::optional<std::string> check(std::size_t i) override {
      run(i);
      try {
        return apply([&](auto&... a) -> std::optional<std::string> {
          if constexpr (std::is_void_v<R>)
            return state.check(state.space[i], a...);
          else if constexpr (std::is_reference_v<R>)
            return state.check(state.space[i], std::as_const(*results.back()), a...);
          else
            return state.check(state.space[i], results.back(), a...);
        });
      } catch (const std::exception& e) {
        throw detail::CallersException(e.what(), std::current_exception());
      }
    }
    void drop_results() noexcept override { results.clear(); }
    std::vector<std::uintptr_t> data() override {
      std::vector<std::uintptr_t> out;
      if (state.before_each) apply([&](auto&... a) { (detail::name_data<Args>(a, out), ...); });
      return out;
    }
    void before_final_run(std::size_t) override { before_run(); }
    void decided(std::size_t i) override {
      state.table.put(key, place_of(state, call), state.space[i]);
      // Calls of the kernel by itself, after the contextual call, take what that has decided.
      if (in_pass(state))
        state.table.put(key, Tuned::place_of(place_of_group(call.group), state, call),
                        state.space[i]);
    }

    template <class F>
    decltype(auto) apply(F&& f) {
      return std::apply(std::forward<F>(f), args);
    }
    void refuse_failure(const Result& r) const {
      if (!state.fails) return;
      if (auto why = state.fails(r)) throw detail::CandidateFailed(Status::launch_failed, *why);
    }

    State& state;
    const Q& key;
    std::uint64_t (*place_of)(const State&, const detail::Call&);
    const detail::Call& call;
    std::tuple<std::remove_reference_t<Args>&...> args;
    std::vector<std::conditional_t<std::is_reference_v<R>,
                                   std::add_pointer_t<std::remove_reference_t<R>>, Result>>
        results;
  };

  R call(const CallOptions& options, std::remove_reference_t<Args>&... args) const {
    const State& s = *m;
    if (!options.tune) [[unlikely]]
      return launch(s, s.space[0], std::forward<Args>(args)...);
    ProcessGroup* group = options.group != nullptr ? options.group : s.group.get();
    auto&& key =
        told(group, [&]() -> decltype(auto) { return std::invoke(s.key, std::as_const(args)...); });
    if (const C* c = s.table.find(key, place(group, args...))) [[likely]]
      return launch(s, *c, std::forward<Args>(args)...);
    return miss(key, options, group, args...);
  }

  template <class... Given>
  static R launch(const State& s, const C& config, Given&&... args) {
    if constexpr (std::is_void_v<R>)
      static_cast<void>(std::invoke(s.launch, config, std::forward<Given>(args)...));
    else
      return std::invoke(s.launch, config, std::forward<Given>(args)...);
  }

  /// What `ask` raises before the call is known: the other ranks must not wait for it.
  template <class F>
  static decltype(auto) told(ProcessGroup* group, const F& ask) {
    try {
      return ask();
    } catch (const std::exception& e) {
      if (group != nullptr) detail::abandon_call(*group, e.what());
      throw;
    } catch (...) {
      if (group != nullptr) detail::abandon_call(*group, "an exception");
      throw;
    }
  }

  /// One word: the group's shape, and the device where the visible ones differ.
  std::uint64_t place(const ProcessGroup* group,
                      const std::remove_reference_t<Args>&... args) const {
    const std::uint64_t ranks = ranks_of(*m, group);
    if (!m->devices_differ.load(std::memory_order_relaxed)) [[likely]]
      return ranks;
    return detail::mix(ranks, device_word(m->on(args...)));
  }
  static std::uint64_t device_word(const Stream& stream) {
    if (!stream.device) return 0;
    return detail::mix(std::hash<std::string_view>{}(stream.device->kind()),
                       static_cast<std::uint64_t>(stream.device->index()));
  }
  static bool in_pass(const State& s) noexcept {
    return s.kernel && detail::current_pass != nullptr;
  }
  static std::uint64_t place_of_group(const ProcessGroup* group) noexcept {
    return group == nullptr ? 0 : group->place();
  }
  static std::uint64_t ranks_of(const State& s, const ProcessGroup* group) noexcept {
    if (in_pass(s)) [[unlikely]]
      return detail::current_pass->place;
    return place_of_group(group);
  }
  static std::uint64_t place_of(const State& s, const detail::Call& call) {
    return place_of(ranks_of(s, call.group), s, call);
  }
  static std::uint64_t place_of(std::uint64_t ranks, const State& s, const detail::Call& call) {
    return s.devices_differ.load(std::memory_order_relaxed)
               ? detail::mix(ranks, device_word(call.stream))
               : ranks;
  }

  detail::Call describe_call(const CallOptions& options,
                             const std::remove_reference_t<Args>&... args) const {
    detail::Call call;
    call.key = describe(std::invoke(m->key, args...));
    if (m->on) call.stream = m->on(args...);
    call.group = options.group != nullptr ? options.group : m->group.get();
    call.verbose = options.verbose;
    return call;
  }

  template <class Q>
  [[gnu::noinline, gnu::cold]] R miss(const Q& key, const CallOptions& options, ProcessGroup* group,
                                      std::remove_reference_t<Args>&... args) const {
    State& s = *m;
    detail::Call call;
    told(group, [&] {
      call.key = describe(key);
      if (s.on) call.stream = s.on(std::as_const(args)...);
    });
    call.group = group;
    call.verbose = options.verbose;
    if (call.stream.device && !call.stream.device->uniform()) s.devices_differ.store(true);
    Bound<Q> attempt(s, key, &place_of, call, args...);
    try {
      return decide_and_run(s, call, attempt, args...);
    } catch (const detail::CallersException& e) {
      std::rethrow_exception(e.cause());
    }
  }

  template <class B>
  R decide_and_run(State& s, const detail::Call& call, B& attempt,
                   std::remove_reference_t<Args>&... args) const {
    if (detail::Pass* pass = detail::current_pass; pass != nullptr && s.kernel) {
      if (s.space.size() == 1) return launch(s, s.space[0], std::forward<Args>(args)...);
      pass->answer(s.launcher(), call, attempt);
      if constexpr (std::is_reference_v<R>)
        return static_cast<R>(*attempt.results.back());
      else if constexpr (std::is_void_v<R>)
        return;
      else
        return std::move(attempt.results.back());
    }
    const detail::Outcome outcome = detail::decide(s.launcher(), call, attempt);
    if (outcome.restore) attempt.before_run();
    return launch(s, s.space[outcome.candidate], std::forward<Args>(args)...);
  }

  std::unique_ptr<State> m;
};

namespace detail {
template <class Signature, class C, class Key, class Launch>
[[nodiscard]] auto make_tuned(std::string name, Space<C> space, Key key, Launch launch,
                              bool kernel) {
  using Given = signature_t<Signature, Launch>;
  static_assert(takes_config<Given, C>::value,
                "disttune: the space's configurations are of another type than the launch's first "
                "parameter");
  return Tuned<Given, Key, Launch>(std::move(name), std::move(space), std::move(key),
                                   std::move(launch), kernel);
}
}  // namespace detail

/// Makes a launcher that tunes itself. `launch(config, args…)` does the work; `key(args…)` says
/// what decides the choice. Generic lambdas need the signature: `autotune<float(const Tile&,
/// Span)>(…)`. No I/O, no environment, no driver: launchers may be namespace-scope objects.
/// std::invalid_argument for an empty name or space.
template <class Signature = void, class C, class Key, class Launch>
[[nodiscard]] auto autotune(std::string name, Space<C> space, Key key, Launch launch) {
  return detail::make_tuned<Signature>(std::move(name), std::move(space), std::move(key),
                                       std::move(launch), false);
}

/// The same for a kernel inside a contextual call: there it is tuned during the outer function's
/// runs; called alone it tunes itself.
template <class Signature = void, class C, class Key, class Launch>
[[nodiscard]] auto tuned_kernel(std::string name, Space<C> space, Key key, Launch launch) {
  return detail::make_tuned<Signature>(std::move(name), std::move(space), std::move(key),
                                       std::move(launch), true);
}

DISTTUNE_NAMESPACE_END
