#include "devices/ascend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "devices/ascend_timer.hpp"
#include "devices/driver_library.hpp"
#include "devices/unavailable.hpp"
#include "disttune/ascend.hpp"
#include "disttune/error.hpp"

namespace disttune::devices {

namespace {

constexpr int k_no_context = 107002;

// The device itself is gone or broken, for every context. Errors of a kernel (507014 and its like)
// are not here: whether they stay depends on the stream's failure mode, and `fault` finds out.
constexpr std::array k_lost{207004, 507010, 507053, 507054, 507055, 507056, 507899, 507901};

struct Name {
  int code;
  const char* text;
};
constexpr std::array k_names{
    Name{100000, "invalid parameter"},
    Name{100001, "the runtime is not initialised"},
    Name{107000, "invalid parameter"},
    Name{107001, "invalid device, or the driver is not loaded"},
    Name{107002, "no current context"},
    Name{107003, "the stream is not of the current context"},
    Name{107006, "invalid time stamp"},
    Name{107017, "invalid handle"},
    Name{107019, "wait timed out"},
    Name{107020, "task timed out"},
    Name{107022, "device task aborted"},
    Name{107023, "stream aborted"},
    Name{200000, "no host memory"},
    Name{207000, "not supported here"},
    Name{207001, "no memory"},
    Name{207004, "no device"},
    Name{207007, "no events left"},
    Name{207008, "no streams left"},
    Name{207018, "no device memory"},
    Name{507000, "internal error"},
    Name{507010, "lost heartbeat"},
    Name{507014, "AI Core timeout"},
    Name{507015, "AI Core exception"},
    Name{507016, "AI Core trap"},
    Name{507017, "AI CPU timeout"},
    Name{507018, "AI CPU exception"},
    Name{507034, "vector core timeout"},
    Name{507035, "vector core exception"},
    Name{507036, "vector core trap"},
    Name{507053, "device memory error"},
    Name{507054, "uncorrectable memory error"},
    Name{507055, "suspect memory error"},
    Name{507056, "link error"},
    Name{507899, "driver error"},
    Name{507901, "connection to the device closed"},
};

// aclDeviceInfo
constexpr int k_ai_cores = 0;
constexpr int k_vector_cores = 1;
constexpr int k_l2_bytes = 2;

/// -1: unknown.
std::int64_t capability(const Ascend& acl, std::uint32_t device, int what) {
  std::int64_t value = -1;
  const bool known = acl->capability != nullptr && acl->capability(device, what, &value) == 0;
  return known ? value : -1;
}

}  // namespace

class AscendDevice final : public Device {
 public:
  AscendDevice(std::shared_ptr<const Ascend> acl, int device, bool uniform)
      : m_acl(std::move(acl)), m_device(device), m_uniform(uniform) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "ascend"; }
  [[nodiscard]] Value fingerprint() const override {
    const char* const soc = (*m_acl)->soc_name();
    const auto device = static_cast<std::uint32_t>(m_device);
    return Value::dict({
        {"kind", "ascend"},
        {"soc", soc != nullptr ? soc : "unknown"},
        {"ai_cores", capability(*m_acl, device, k_ai_cores)},
        {"vector_cores", capability(*m_acl, device, k_vector_cores)},
        {"l2_bytes", capability(*m_acl, device, k_l2_bytes)},
        {"memory_gib", memory_gib()},
    });
  }
  [[nodiscard]] Value software() const override;
  [[nodiscard]] int index() const override { return m_device; }
  [[nodiscard]] bool uniform() const override { return m_uniform; }
  [[nodiscard]] bool capturing(void* stream) const override {
    const AscendScope scope(*m_acl, context());
    return ascend_capturing(*m_acl, stream);
  }
  [[nodiscard]] std::unique_ptr<StreamTimer> open(void* stream, std::size_t samples) override {
    const AscendScope scope(*m_acl, context());
    m_acl->check(scope.code(), "making the stream's context current");
    return std::make_unique<AscendTimer>(m_acl, m_device, stream, samples);
  }

  /// A stream of this device was named in `context`.
  void named_in(void* context) noexcept { m_context.store(context, std::memory_order_relaxed); }

 private:
  /// Streams belong to a context. Between naming one and using it the caller may go to another
  /// device; then it is the context in which this device's streams were last named.
  [[nodiscard]] void* context() const {
    std::int32_t current = -1;
    const bool here = (*m_acl)->get_device(&current) == 0 && current == m_device;
    void* const named = m_context.load(std::memory_order_relaxed);
    return here || named == nullptr ? m_acl->current_context() : named;
  }
  [[nodiscard]] std::int64_t memory_gib() const {
    constexpr int k_total_memory = 301;
    constexpr int k_hbm = 1;
    std::int64_t bytes = 0;
    std::size_t free = 0;
    std::size_t total = 0;
    const auto device = static_cast<std::uint32_t>(m_device);
    if ((*m_acl)->device_info == nullptr ||
        (*m_acl)->device_info(device, k_total_memory, &bytes) != 0) {
      const AscendScope scope(*m_acl, context());  // of the current device
      if ((*m_acl)->memory_info == nullptr || (*m_acl)->memory_info(k_hbm, &free, &total) != 0) {
        return -1;
      }
      bytes = static_cast<std::int64_t>(total);
    }
    return (bytes + (std::int64_t{1} << 29)) >> 30;
  }

  std::shared_ptr<const Ascend> m_acl;
  int m_device;
  bool m_uniform;
  std::atomic<void*> m_context{nullptr};
};

Value AscendDevice::software() const {
  std::vector<std::pair<Value, Value>> items;
  std::int32_t major = 0;
  std::int32_t minor = 0;
  std::int32_t patch = 0;
  if ((*m_acl)->version != nullptr && (*m_acl)->version(&major, &minor, &patch) == 0) {
    items.emplace_back("acl", fmt::format("{}.{}.{}", major, minor, patch));
  }
  if ((*m_acl)->package_version != nullptr) {
    for (const char* package : {"runtime", "hccl", "opp", "compiler", "driver", "firmware"}) {
      std::string name = package;
      std::array<char, 129> text{};  // the interface promises at most 128
      // Packages that are not installed have no version file.
      if ((*m_acl)->package_version(name.data(), text.data()) == 0 && text.front() != '\0') {
        items.emplace_back(std::string("cann_") + package, std::string(text.data()));
      }
    }
  }
  return Value::dict(std::move(items));
}

Ascend::Ascend(std::span<const std::string> libraries) {
  const DriverLibrary library("Ascend runtime (CANN)", libraries);
  AscendFunctions& f = m_functions;
  library.find(f.version, "aclrtGetVersion");
  const auto need = [&](auto*& function, const char* name) {
    if (library.find(function, name)) return;
    std::int32_t part[3] = {};
    const bool known = f.version != nullptr && f.version(&part[0], &part[1], &part[2]) == 0;
    throw Error(missing_function(
        fmt::format("Ascend runtime ({})", library.name()), name,
        known ? fmt::format("interface {}.{}.{}", part[0], part[1], part[2]) : "unknown"));
  };
  need(f.get_device, "aclrtGetDevice");
  need(f.get_context, "aclrtGetCurrentContext");
  need(f.set_context, "aclrtSetCurrentContext");
  need(f.device_count, "aclrtGetDeviceCount");
  need(f.soc_name, "aclrtGetSocName");
  // The newer kind may be recorded again without a reset.
  if (!library.find(f.create_event, "aclrtCreateEventExWithFlag")) {
    need(f.create_event, "aclrtCreateEventWithFlag");
  }
  need(f.destroy_event, "aclrtDestroyEvent");
  need(f.record, "aclrtRecordEvent");
  need(f.elapsed, "aclrtEventElapsedTime");
  need(f.stream_query, "aclrtStreamQuery");
  need(f.stream_synchronize, "aclrtSynchronizeStream");
  need(f.allocate, "aclrtMalloc");
  need(f.free, "aclrtFree");
  need(f.fill, "aclrtMemset");
  need(f.fill_async, "aclrtMemsetAsync");
  need(f.copy, "aclrtMemcpy");
  need(f.create_stream, "aclrtCreateStream");
  need(f.destroy_stream, "aclrtDestroyStream");

  library.find(f.value_wait, "aclrtValueWait");
  library.find(f.value_write, "aclrtValueWrite");
  library.find(f.host_function, "aclrtLaunchHostFunc");
  library.find(f.callback, "aclrtLaunchCallback");
  library.find(f.subscribe, "aclrtSubscribeReport");
  library.find(f.unsubscribe, "aclrtUnSubscribeReport");
  library.find(f.process_report, "aclrtProcessReport");
  library.find(f.capture_info, "aclmdlRICaptureGetInfo");
  library.find(f.capability, "aclGetDeviceCapability");
  library.find(f.device_info, "aclrtGetDeviceInfo");
  library.find(f.memory_info, "aclrtGetMemInfo");
  library.find(f.package_version, "aclsysGetVersionStr");
  library.find(f.recent_message, "aclGetRecentErrMsg");
}

bool Ascend::lost(int code) const noexcept {
  return std::find(k_lost.begin(), k_lost.end(), code) != k_lost.end();
}

std::string Ascend::describe(int code) const {
  const auto* const found =
      std::find_if(k_names.begin(), k_names.end(), [&](const Name& n) { return n.code == code; });
  return fmt::format("ACL error {} ({})", code,
                     found != k_names.end() ? found->text : "see acl_base.h");
}

void Ascend::check(int code, std::string_view call) const {
  if (code == 0) return;
  std::string text = fmt::format("disttune: ascend: {} failed with {}", call, describe(code));
  // Asking takes the message away and invalidates the one before, so it is copied at once.
  if (m_functions.recent_message != nullptr) {
    if (const char* message = m_functions.recent_message(); message != nullptr && *message) {
      text += fmt::format(": {}", message);
    }
  }
  if (lost(code)) throw DeviceLost(text + "; the device is lost, only a new process heals it");
  throw Error(text);
}

void* Ascend::current_context() const {
  void* context = nullptr;
  const int code = m_functions.get_context(&context);
  if (code == k_no_context || (code == 0 && context == nullptr)) {
    throw Error(
        "disttune: ascend: this thread has no current device; call aclInit once and "
        "aclrtSetDevice on this thread before");
  }
  check(code, "asking for the current context");
  return context;
}

AscendScope::AscendScope(const Ascend& acl, void* context) noexcept : m_acl(acl) {
  if (acl->get_context(&m_before) != 0) m_before = nullptr;
  if (m_before == context) return;
  m_code = acl->set_context(context);
  m_changed = m_code == 0;
}

AscendScope::~AscendScope() {
  // A thread that had none keeps this one: there is no call that takes a context away.
  if (m_changed && m_before != nullptr) m_acl->set_context(m_before);
}

AscendPlatform::AscendPlatform(std::span<const std::string> libraries) {
  try {
    m_acl = std::make_shared<Ascend>(libraries);
    list_devices();
  } catch (const Error& error) {
    m_unavailable = std::make_shared<UnavailableDevice>("ascend", error.what());
  }
}

AscendPlatform::AscendPlatform(std::shared_ptr<const Ascend> acl) : m_acl(std::move(acl)) {
  list_devices();
}

void AscendPlatform::list_devices() {
  std::uint32_t count = 0;
  m_acl->check((*m_acl)->device_count(&count), "counting devices");
  if (count == 0) {
    throw Error(
        "disttune: the Ascend runtime shows no device to this process; check "
        "ASCEND_RT_VISIBLE_DEVICES");
  }
  // One SoC serves all; only virtual devices of unequal size differ, and then in their cores.
  bool uniform = true;
  for (std::uint32_t other = 1; other < count; ++other) {
    for (const int what : {k_ai_cores, k_vector_cores, k_l2_bytes}) {
      uniform = uniform && capability(*m_acl, other, what) == capability(*m_acl, 0, what);
    }
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    m_devices.push_back(std::make_shared<AscendDevice>(m_acl, static_cast<int>(i), uniform));
  }
}

Stream AscendPlatform::stream(void* handle) const {
  if (m_unavailable) return {m_unavailable, handle};
  if (m_devices.size() == 1) return {m_devices.front(), handle};
  void* const context = m_acl->current_context();
  std::int32_t device = 0;
  m_acl->check((*m_acl)->get_device(&device), "asking for the current device");
  const auto& found = m_devices.at(static_cast<std::size_t>(device));
  found->named_in(context);
  return {found, handle};
}

}  // namespace disttune::devices

DISTTUNE_NAMESPACE_BEGIN

Stream ascend(void* stream) {
  // Never destroyed: launchers at namespace scope may be called until the very end.
  static auto* const platform = [] {
    const std::array<std::string, 2> names{"libacl_rt.so", "libascendcl.so"};
    return new devices::AscendPlatform(names);
  }();
  return platform->stream(stream);
}

DISTTUNE_NAMESPACE_END
