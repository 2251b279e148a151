// A CUDA kernel that is compiled at run time, once for each candidate, and tuned on a stream of its
// own. Needs the CUDA toolkit to build and a device to run.
#include <cuda.h>
#include <nvrtc.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "disttune/cuda.hpp"
#include "disttune/disttune.hpp"
#include "report.hpp"

namespace {

struct Tiling {
  int tile = 16;   // a block moves a square of so many floats a side
  int lines = 16;  // and has so many lines of threads
  int pad = 0;     // floats between the lines in shared memory; 1 avoids bank conflicts
  static constexpr auto tuned = disttune::fields(disttune::field("TILE", &Tiling::tile),
                                                 disttune::field("LINES", &Tiling::lines),
                                                 disttune::field("PAD", &Tiling::pad));
};

constexpr const char* k_source = R"(
extern "C" __global__ void transpose(const float* in, float* out, unsigned rows, unsigned columns) {
  __shared__ float tile[TILE][TILE + PAD];
  unsigned x = blockIdx.x * TILE + threadIdx.x;
  unsigned y = blockIdx.y * TILE + threadIdx.y;
  for (unsigned i = 0; i < TILE; i += LINES)
    if (x < columns && y + i < rows)
      tile[threadIdx.y + i][threadIdx.x] = in[(size_t)(y + i) * columns + x];
  __syncthreads();
  x = blockIdx.y * TILE + threadIdx.x;
  y = blockIdx.x * TILE + threadIdx.y;
  for (unsigned i = 0; i < TILE; i += LINES)
    if (x < rows && y + i < columns)
      out[(size_t)(y + i) * rows + x] = tile[threadIdx.x][threadIdx.y + i];
}
)";

void check(CUresult code) {
  const char* text = nullptr;
  if (code == CUDA_SUCCESS) return;
  cuGetErrorString(code, &text);
  throw std::runtime_error(text != nullptr ? text : "unknown CUDA error");
}
void check(nvrtcResult code) {
  if (code != NVRTC_SUCCESS) throw std::runtime_error(nvrtcGetErrorString(code));
}

/// The first device's primary context, and one stream.
struct Gpu {
  Gpu() {
    check(cuDeviceGet(&device, 0));
    check(cuDevicePrimaryCtxRetain(&context, device));
    check(cuCtxSetCurrent(context));
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  [[nodiscard]] std::string architecture() const {
    int major = 0, minor = 0;
    check(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    check(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    return "--gpu-architecture=sm_" + std::to_string(major) + std::to_string(minor);
  }
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
};

/// Every candidate's kernel, compiled when first asked for. Thread-safe.
class Kernels {
 public:
  explicit Kernels(const Gpu& gpu) : m_gpu(gpu) {}

  CUfunction get(const Tiling& t) {
    const auto key = std::tuple(t.tile, t.lines, t.pad);
    {
      const std::lock_guard lock(m_mutex);
      if (const auto found = m_functions.find(key); found != m_functions.end())
        return found->second;
    }
    const CUfunction made = compile(t);
    const std::lock_guard lock(m_mutex);
    return m_functions.emplace(key, made).first->second;
  }

 private:
  [[nodiscard]] CUfunction compile(const Tiling& t) const {
    const std::vector<std::string> options{m_gpu.architecture(), "-DTILE=" + std::to_string(t.tile),
                                           "-DLINES=" + std::to_string(t.lines),
                                           "-DPAD=" + std::to_string(t.pad)};
    std::vector<const char*> texts;
    for (const std::string& option : options) texts.push_back(option.c_str());
    nvrtcProgram program = nullptr;
    check(nvrtcCreateProgram(&program, k_source, "transpose.cu", 0, nullptr, nullptr));
    check(nvrtcCompileProgram(program, static_cast<int>(texts.size()), texts.data()));
    std::size_t size = 0;
    check(nvrtcGetCUBINSize(program, &size));
    std::vector<char> binary(size);
    check(nvrtcGetCUBIN(program, binary.data()));
    nvrtcDestroyProgram(&program);
    check(cuCtxSetCurrent(m_gpu.context));  // candidates are prepared by several threads
    CUmodule module = nullptr;
    check(cuModuleLoadData(&module, binary.data()));
    CUfunction function = nullptr;
    check(cuModuleGetFunction(&function, module, "transpose"));
    return function;
  }

  const Gpu& m_gpu;
  std::mutex m_mutex;
  std::map<std::tuple<int, int, int>, CUfunction> m_functions;
};

unsigned blocks(unsigned length, int tile) {
  const auto side = static_cast<unsigned>(tile);
  return (length + side - 1) / side;
}

int run() {
  using disttune::grid;
  constexpr unsigned rows = 4096, columns = 3072;
  constexpr std::size_t count = std::size_t{rows} * columns;
  const Gpu gpu;
  Kernels kernels(gpu);
  std::vector<float> values(count), result(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 8191);
  CUdeviceptr in = 0, out = 0;
  check(cuMemAlloc(&in, count * sizeof(float)));
  check(cuMemAlloc(&out, count * sizeof(float)));
  check(cuMemcpyHtoD(in, values.data(), count * sizeof(float)));

  const auto is_transposed = [&] {
    check(cuMemcpyDtoHAsync(result.data(), out, count * sizeof(float), gpu.stream));
    check(cuStreamSynchronize(gpu.stream));
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < columns; ++c)
        if (result[c * rows + r] != values[r * columns + c]) return false;
    return true;
  };

  int launches = 0;
  const auto transpose =
      disttune::autotune(
          "example_transpose",
          grid(&Tiling::tile, {16, 32}) * grid(&Tiling::lines, {16, 8, 4}) *
              grid(&Tiling::pad, {0, 1}),
          [](CUdeviceptr, CUdeviceptr, unsigned r, unsigned c) {
            return std::tuple(r, c, "float32");
          },
          [&](const Tiling& t, CUdeviceptr from, CUdeviceptr to, unsigned r, unsigned c) {
            ++launches;
            void* arguments[] = {&from, &to, &r, &c};
            check(cuLaunchKernel(kernels.get(t), blocks(c, t.tile), blocks(r, t.tile), 1,
                                 static_cast<unsigned>(t.tile), static_cast<unsigned>(t.lines), 1,
                                 0, gpu.stream, arguments, nullptr));
          })
          .version("1")
          .on([&](CUdeviceptr, CUdeviceptr, unsigned, unsigned) {
            return disttune::cuda(gpu.stream);
          })
          .prepare([&](const Tiling& t, CUdeviceptr, CUdeviceptr, unsigned, unsigned) {
            static_cast<void>(kernels.get(t));
          })
          .check([&](const Tiling&, CUdeviceptr, CUdeviceptr, unsigned,
                     unsigned) -> std::optional<std::string> {
            if (is_transposed()) return std::nullopt;
            return "not the transposed matrix";
          });

  const disttune::Explanation before = transpose.explain(in, out, rows, columns);
  transpose(in, out, rows, columns);
  const bool right = is_transposed();
  std::printf("transposing %u x %u floats\n", rows, columns);
  print_report(before, transpose.result(in, out, rows, columns), launches);
  if (right) return EXIT_SUCCESS;
  std::puts("wrong: not the transposed matrix");
  return EXIT_FAILURE;
}

}  // namespace

int main() {
  try {
    check(cuInit(0));
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "transpose_cuda: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
