// A real CUDA device for tests, through the driver opened at run time: no header, no toolkit, no
// compiler. Kernels are PTX texts, which the driver translates itself.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace disttune::devices {

inline constexpr const char* k_ptx = R"(
.version 7.0
.target sm_70
.address_size 64

.visible .entry spin(.param .u64 nanoseconds) {
  .reg .pred %p;
  .reg .u64 %begin, %now, %limit;
  ld.param.u64 %limit, [nanoseconds];
  mov.u64 %begin, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %p, %now, %limit;
  @%p bra again;
  ret;
}

.visible .entry fault() {
  .reg .u64 %address;
  mov.u64 %address, 64;
  st.global.u32 [%address], 1;
  ret;
}

// Walks a chain of byte offsets, each load waiting for the one before.
.visible .entry chase(.param .u64 data, .param .u64 steps, .param .u64 result) {
  .reg .pred %p;
  .reg .u64 %base, %left, %out, %at;
  ld.param.u64 %base, [data];
  ld.param.u64 %left, [steps];
  ld.param.u64 %out, [result];
  mov.u64 %at, %base;
next:
  ld.global.cg.u64 %at, [%at];
  add.u64 %at, %at, %base;
  sub.u64 %left, %left, 1;
  setp.gt.u64 %p, %left, 0;
  @%p bra next;
  st.global.u64 [%out], %at;
  ret;
}
)";

/// The driver functions that tests need beside those under test. Every failure throws.
class CudaGpu {
 public:
  using Pointer = unsigned long long;

  /// Nothing, or why there is no device to test on.
  static std::optional<std::string> missing() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return "no CUDA driver here";
    auto* const init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
    if (const int code = init(0)) return "cuInit failed with " + std::to_string(code);
    return std::nullopt;
  }

  explicit CudaGpu(int ordinal = 0) : m_library(dlopen("libcuda.so.1", RTLD_NOW)) {
    call<int(int*, int)>("cuDeviceGet", &m_device, ordinal);
    call<int(void**, int)>("cuDevicePrimaryCtxRetain", &m_context, m_device);
    make_current();
    call<int(void**, const void*)>("cuModuleLoadData", &m_module, k_ptx);
    m_spin = kernel("spin");
    m_fault = kernel("fault");
    m_chase = kernel("chase");
  }

  void make_current() { call<int(void*)>("cuCtxSetCurrent", m_context); }
  [[nodiscard]] static int count() {
    int devices = 0;
    auto* const library = dlopen("libcuda.so.1", RTLD_NOW);
    reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"))(&devices);
    return devices;
  }
  [[nodiscard]] void* current() {
    void* context = nullptr;
    call<int(void**)>("cuCtxGetCurrent", &context);
    return context;
  }

  /// One that does not wait for the default stream, unless asked to.
  void* create_stream(bool waits_for_default = false) {
    void* stream = nullptr;
    call<int(void**, unsigned)>("cuStreamCreate", &stream, waits_for_default ? 0u : 1u);
    return stream;
  }
  void destroy_stream(void* stream) { call<int(void*)>("cuStreamDestroy_v2", stream); }
  void synchronize() { call<int()>("cuCtxSynchronize"); }

  void spin(void* stream, std::uint64_t ns) {
    void* arguments[] = {&ns};
    launch(m_spin, stream, arguments);
  }
  void fault(void* stream) { launch(m_fault, stream, nullptr); }

  Pointer allocate(std::size_t bytes) {
    Pointer address = 0;
    call<int(Pointer*, std::size_t)>("cuMemAlloc_v2", &address, bytes);
    return address;
  }
  void free(Pointer address) { call<int(Pointer)>("cuMemFree_v2", address); }
  /// A chain through `bytes`, a hop of a page and a bit each time.
  Pointer make_chain(std::size_t bytes, std::uint64_t& steps) {
    constexpr std::size_t k_hop = 4096 + 256;
    std::vector<std::uint64_t> chain(bytes / 8);
    steps = bytes / k_hop;
    for (std::size_t i = 0; i < steps; ++i) {
      chain[i * k_hop / 8] = (i + 1) % steps * k_hop;
    }
    const Pointer address = allocate(bytes);
    call<int(Pointer, const void*, std::size_t)>("cuMemcpyHtoD_v2", address, chain.data(), bytes);
    return address;
  }
  void chase(void* stream, Pointer data, std::uint64_t steps, Pointer result) {
    void* arguments[] = {&data, &steps, &result};
    launch(m_chase, stream, arguments);
  }
  [[nodiscard]] std::size_t free_memory() {
    std::size_t left = 0;
    std::size_t total = 0;
    call<int(std::size_t*, std::size_t*)>("cuMemGetInfo_v2", &left, &total);
    return left;
  }

  void begin_capture(void* stream) { call<int(void*, int)>("cuStreamBeginCapture_v2", stream, 0); }
  void* end_capture(void* stream) {
    void* graph = nullptr;
    call<int(void*, void**)>("cuStreamEndCapture", stream, &graph);
    return graph;
  }
  void destroy_graph(void* graph) { call<int(void*)>("cuGraphDestroy", graph); }
  void host_function(void* stream, void (*function)(void*), void* argument) {
    call<int(void*, void (*)(void*), void*)>("cuLaunchHostFunc", stream, function, argument);
  }
  /// The raw answer of cuStreamQuery.
  [[nodiscard]] int query(void* stream) {
    return reinterpret_cast<int (*)(void*)>(dlsym(m_library, "cuStreamQuery"))(stream);
  }

 private:
  template <class Function, class... Arguments>
  void call(const char* name, Arguments... arguments) {
    auto* const function = reinterpret_cast<Function*>(dlsym(m_library, name));
    if (function == nullptr) throw std::runtime_error(std::string("no ") + name);
    if (const int code = function(arguments...)) {
      throw std::runtime_error(std::string(name) + " failed with " + std::to_string(code));
    }
  }
  void* kernel(const char* name) {
    void* function = nullptr;
    call<int(void**, void*, const char*)>("cuModuleGetFunction", &function, m_module, name);
    return function;
  }
  void launch(void* function, void* stream, void** arguments) {
    call<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
             void**, void**)>("cuLaunchKernel", function, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream,
                              arguments, static_cast<void**>(nullptr));
  }

  void* m_library;
  int m_device = 0;
  void* m_context = nullptr;
  void* m_module = nullptr;
  void* m_spin = nullptr;
  void* m_fault = nullptr;
  void* m_chase = nullptr;
};

}  // namespace disttune::devices
