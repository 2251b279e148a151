// CUDA timing on a real GPU. Skipped, with the reason, where there is none. Unlike other tests
// these look at real times; their bounds are wide, and what they compare is far apart.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "devices/cuda_gpu.hpp"
#include "devices/host_gate.hpp"
#include "disttune/cuda.hpp"
#include "disttune/error.hpp"

namespace disttune::devices {
namespace {

using namespace std::chrono_literals;

Deadline in(std::chrono::steady_clock::duration time) {
  return std::chrono::steady_clock::now() + time;
}

std::int64_t median(std::vector<std::int64_t> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

class CudaGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = CudaGpu::missing()) GTEST_SKIP() << *reason;
    gpu = std::make_unique<CudaGpu>();
    stream = gpu->create_stream();
    gpu->spin(stream, 1);  // loads the module: the first use of a kernel waits for a closed gate
    gpu->synchronize();
  }
  void TearDown() override {
    if (gpu) gpu->destroy_stream(stream);
  }
  std::unique_ptr<StreamTimer> open(std::size_t samples) {
    return cuda(stream).device->open(stream, samples);
  }

  std::unique_ptr<CudaGpu> gpu;
  void* stream = nullptr;
};

TEST_F(CudaGpuTest, TheDeviceSaysWhoItIs) {
  const Stream target = cuda(stream);
  const std::string text(target.device->fingerprint().text());
  std::printf("fingerprint %s\nsoftware    %s\ninformation %s\n", text.c_str(),
              std::string(target.device->software().text()).c_str(),
              std::string(target.device->information().text()).c_str());
  EXPECT_NE(text.find("\"kind\": \"cuda\""), std::string::npos);
  EXPECT_EQ(text.find("\"multiprocessors\": 0"), std::string::npos);
  EXPECT_EQ(text.find("\"l2_bytes\": 0"), std::string::npos);
  EXPECT_EQ(target.device->fingerprint(), target.device->fingerprint());
  EXPECT_NE(target.device->software().text().find("\"driver\""), std::string::npos);
  EXPECT_EQ(target.device->clock(), "device");
  EXPECT_EQ(target.device->index(), 0);
}

TEST_F(CudaGpuTest, TheManagementLibrarySaysTheSameOfItsClock) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) GTEST_SKIP() << "no libnvidia-ml.so.1";
  const auto call = [&](const char* name, auto... arguments) {
    using Function = int (*)(decltype(arguments)...);
    const auto function = reinterpret_cast<Function>(dlsym(library, name));
    return function == nullptr ? -1 : function(arguments...);
  };
  unsigned devices = 0;
  void* device = nullptr;
  unsigned long long reasons = 0;
  ASSERT_EQ(call("nvmlInit_v2"), 0);
  ASSERT_EQ(call("nvmlDeviceGetCount_v2", &devices), 0);
  if (devices != 1) GTEST_SKIP() << "which of several is ours is what is tested elsewhere";
  ASSERT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 0U, &device), 0);
  ASSERT_EQ(call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons), 0);
  constexpr unsigned long long k_slowed = 0x8 | 0x20 | 0x40 | 0x80;
  EXPECT_EQ(cuda(stream).device->throttled(), (reasons & k_slowed) != 0) << reasons;
}

TEST_F(CudaGpuTest, TheGateHoldsQueuedWorkUntilItIsReleased) {
  auto timer = open(1);
  ASSERT_TRUE(timer->hold());
  EXPECT_EQ(timer->gate(), "stream_wait");
  timer->start(0);
  gpu->spin(stream, 200'000);
  timer->stop(0);
  EXPECT_FALSE(timer->synchronize(in(50ms)));
  std::thread([&] { timer->release(); }).join();
  ASSERT_TRUE(timer->synchronize(in(10s)));
  EXPECT_GE(timer->elapsed_ns(0), 195'000);
  EXPECT_LT(timer->elapsed_ns(0), 1'000'000);
}

TEST_F(CudaGpuTest, HostTimeIsInTheSampleOnlyWithoutTheGate) {
  auto timer = open(2);
  const auto sample = [&](std::size_t i) {
    timer->start(i);
    std::this_thread::sleep_for(5ms);
    gpu->spin(stream, 100'000);
    timer->stop(i);
  };
  sample(0);
  ASSERT_TRUE(timer->synchronize(in(10s)));
  ASSERT_TRUE(timer->hold());
  sample(1);
  timer->release();
  ASSERT_TRUE(timer->synchronize(in(10s)));
  std::printf("ungated %lld ns, gated %lld ns\n", static_cast<long long>(timer->elapsed_ns(0)),
              static_cast<long long>(timer->elapsed_ns(1)));
  EXPECT_GE(timer->elapsed_ns(0), 5'000'000);
  EXPECT_LT(timer->elapsed_ns(1), 2'000'000);
}

TEST_F(CudaGpuTest, GatedSamplesOfAKnownKernelAgree) {
  constexpr std::size_t k_samples = 50;
  auto timer = open(k_samples);
  ASSERT_TRUE(timer->hold());
  for (std::size_t i = 0; i < k_samples; ++i) {
    timer->start(i);
    gpu->spin(stream, 20'000);
    timer->stop(i);
  }
  timer->release();
  ASSERT_TRUE(timer->synchronize(in(10s)));
  std::vector<std::int64_t> samples;
  for (std::size_t i = 0; i < k_samples; ++i) {
    samples.push_back(timer->elapsed_ns(i));
    EXPECT_GT(samples.back(), 0) << i;
  }
  std::sort(samples.begin(), samples.end());
  std::printf("20000 ns kernel: least %lld, median %lld, most %lld ns\n",
              static_cast<long long>(samples.front()),
              static_cast<long long>(samples[k_samples / 2]),
              static_cast<long long>(samples.back()));
  EXPECT_GE(samples.front(), 19'000);
  EXPECT_LT(median(samples), 40'000);
}

TEST_F(CudaGpuTest, TheFlushMakesTheCacheCold) {
  std::uint64_t steps = 0;
  const CudaGpu::Pointer chain = gpu->make_chain(16 << 20, steps);
  const CudaGpu::Pointer result = gpu->allocate(8);
  gpu->chase(stream, chain, steps, result);
  gpu->synchronize();
  constexpr std::size_t k_samples = 9;
  std::int64_t medians[2] = {};
  for (const bool cold : {false, true}) {
    auto timer = open(k_samples);
    for (std::size_t i = 0; i < k_samples; ++i) {
      gpu->chase(stream, chain, steps, result);
      if (cold) timer->flush();
      timer->start(i);
      gpu->chase(stream, chain, steps, result);
      timer->stop(i);
    }
    ASSERT_TRUE(timer->synchronize(in(10s)));
    std::vector<std::int64_t> samples;
    for (std::size_t i = 0; i < k_samples; ++i) samples.push_back(timer->elapsed_ns(i));
    medians[cold ? 1 : 0] = median(samples);
  }
  std::printf("%llu dependent loads: hot %lld ns, cold %lld ns\n",
              static_cast<unsigned long long>(steps), static_cast<long long>(medians[0]),
              static_cast<long long>(medians[1]));
  EXPECT_GT(medians[1], medians[0] + medians[0] / 5);
  gpu->free(chain);
  gpu->free(result);
}

TEST_F(CudaGpuTest, S71NothingStaysAllocated) {
  { open(1)->flush(); }  // what the driver itself keeps after a first use
  gpu->synchronize();
  const std::size_t before = gpu->free_memory();
  std::size_t during = 0;
  for (int i = 0; i < 20; ++i) {
    auto timer = open(64);
    ASSERT_TRUE(timer->hold());
    timer->flush();
    timer->start(0);
    gpu->spin(stream, 1'000);
    timer->stop(0);
    during = gpu->free_memory();
    timer->release();
    ASSERT_TRUE(timer->synchronize(in(10s)));
  }
  EXPECT_EQ(gpu->free_memory(), before);
  EXPECT_LT(during, before) << "the flush buffer was there meanwhile";
}

TEST_F(CudaGpuTest, ATimerThatGoesWithItsGateClosedOpensIt) {
  auto timer = open(1);
  timer->flush();
  ASSERT_TRUE(timer->hold());
  gpu->spin(stream, 1'000);
  EXPECT_EQ(gpu->query(stream), 600);
  timer.reset();
  gpu->synchronize();
  EXPECT_EQ(gpu->query(stream), 0);
}

TEST_F(CudaGpuTest, ACaptureInProgressIsSeenAndSurvives) {
  const Stream target = cuda(stream);
  EXPECT_FALSE(target.device->capturing(stream));
  gpu->begin_capture(stream);
  EXPECT_TRUE(target.device->capturing(stream));
  EXPECT_THROW(static_cast<void>(open(4)), CaptureError);
  gpu->spin(stream, 1'000);
  void* const graph = gpu->end_capture(stream);  // throws if the capture was broken
  ASSERT_NE(graph, nullptr);
  gpu->destroy_graph(graph);
  EXPECT_FALSE(target.device->capturing(stream));
}

TEST_F(CudaGpuTest, TheDefaultStreamIsDrawnIntoTheCaptureOfAStreamThatWaitsForIt) {
  void* const other = gpu->create_stream(true);
  gpu->begin_capture(other);
  EXPECT_TRUE(cuda(nullptr).device->capturing(nullptr));
  gpu->spin(other, 1'000);
  void* const graph = gpu->end_capture(other);
  ASSERT_NE(graph, nullptr);
  gpu->destroy_graph(graph);
  gpu->destroy_stream(other);
}

TEST_F(CudaGpuTest, AHeldStreamDoesNotHoldAnother) {
  if (const char* limit = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
      limit != nullptr && std::string(limit) == "1") {
    GTEST_SKIP() << "with one hardware queue a held stream holds all";
  }
  void* const other = gpu->create_stream();
  auto held = open(1);
  auto free = cuda(other).device->open(other, 1);
  ASSERT_TRUE(held->hold());
  gpu->spin(stream, 1'000);
  free->start(0);
  gpu->spin(other, 50'000);
  free->stop(0);
  EXPECT_TRUE(free->synchronize(in(10s)));
  EXPECT_GE(free->elapsed_ns(0), 45'000);
  EXPECT_EQ(gpu->query(stream), 600);
  held->release();
  EXPECT_TRUE(held->synchronize(in(10s)));
  held.reset();
  free.reset();
  gpu->destroy_stream(other);
}

TEST_F(CudaGpuTest, AGraphIsReplayedAndTimed) {
  auto timer = open(2);
  ASSERT_TRUE(timer->begin_capture());
  gpu->spin(stream, 30'000);
  gpu->spin(stream, 30'000);
  timer->end_capture();
  timer->replay();
  ASSERT_TRUE(timer->synchronize(in(10s)));
  ASSERT_TRUE(timer->hold());
  for (std::size_t i = 0; i < 2; ++i) {
    timer->start(i);
    timer->replay();
    timer->stop(i);
  }
  timer->release();
  ASSERT_TRUE(timer->synchronize(in(10s)));
  EXPECT_GE(timer->elapsed_ns(1), 58'000);
  EXPECT_LT(timer->elapsed_ns(1), 1'000'000);
}

TEST_F(CudaGpuTest, ALauncherThatBreaksItsCaptureIsRefusedAndTheStreamGoesOn) {
  auto timer = open(1);
  ASSERT_TRUE(timer->begin_capture());
  gpu->spin(stream, 1'000);
  EXPECT_NE(gpu->query(stream), 0) << "what a launcher that synchronises does";
  EXPECT_THROW(timer->end_capture(), Error);
  timer->start(0);
  gpu->spin(stream, 30'000);
  timer->stop(0);
  ASSERT_TRUE(timer->synchronize(in(10s)));
  EXPECT_GE(timer->elapsed_ns(0), 29'000);
}

TEST_F(CudaGpuTest, TheDefaultStreamIsTimedButNotCaptured) {
  auto timer = cuda(nullptr).device->open(nullptr, 1);
  ASSERT_TRUE(timer->hold());
  timer->start(0);
  gpu->spin(nullptr, 30'000);
  timer->stop(0);
  EXPECT_FALSE(timer->synchronize(in(20ms)));
  timer->release();
  ASSERT_TRUE(timer->synchronize(in(10s)));
  EXPECT_GE(timer->elapsed_ns(0), 29'000);
  EXPECT_FALSE(timer->begin_capture());
}

TEST_F(CudaGpuTest, AHostFunctionHoldsAStreamToo) {
  HostGate gate;
  gate.close();
  gpu->host_function(stream, &HostGate::block, &gate);
  gpu->spin(stream, 1'000);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(gpu->query(stream), 600);
  gate.release();
  gpu->synchronize();
  EXPECT_EQ(gpu->query(stream), 0);
}

TEST_F(CudaGpuTest, AnotherThreadWithoutAContextMayUseTheTimer) {
  auto timer = open(1);
  std::thread([&] {
    EXPECT_EQ(gpu->current(), nullptr);
    timer->start(0);
    timer->stop(0);
    EXPECT_TRUE(timer->synchronize(in(10s)));
    EXPECT_GE(timer->elapsed_ns(0), 0);
    EXPECT_EQ(gpu->current(), nullptr) << "left as it was";
  }).join();
}

TEST_F(CudaGpuTest, S79TheStreamsDeviceIsUsedAndTheCurrentOneComesBack) {
  if (CudaGpu::count() < 2) GTEST_SKIP() << "one device here";
  CudaGpu second(1);
  void* const other = second.create_stream();
  gpu->make_current();
  void* const before = gpu->current();
  const Stream target = cuda(other);
  EXPECT_EQ(target.device->index(), 1);
  auto timer = target.device->open(other, 1);
  timer->flush();
  ASSERT_TRUE(timer->hold());
  timer->start(0);
  second.spin(other, 30'000);
  timer->stop(0);
  timer->release();
  ASSERT_TRUE(timer->synchronize(in(10s)));
  EXPECT_GE(timer->elapsed_ns(0), 29'000);
  timer.reset();
  EXPECT_EQ(gpu->current(), before);
}

// These ruin their process, so each runs in one of its own.
class CudaGpuDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    // A new program image: CUDA does not survive a fork.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (const auto reason = CudaGpu::missing()) GTEST_SKIP() << *reason;
  }
};

[[noreturn]] void fault_and_report() {
  CudaGpu gpu;
  void* const stream = gpu.create_stream();
  auto timer = cuda(stream).device->open(stream, 1);
  if (timer->fault()) std::_Exit(2);
  timer->start(0);
  gpu.fault(stream);
  timer->stop(0);
  try {
    timer->synchronize(in(10s));
    std::_Exit(3);
  } catch (const DeviceLost& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  if (!timer->fault()) std::_Exit(4);
  try {
    timer->start(0);
    std::_Exit(5);
  } catch (const DeviceLost&) {
  }
  timer.reset();
  std::_Exit(0);
}

TEST_F(CudaGpuDeathTest, S47AStickyErrorLosesTheDevice) {
  EXPECT_EXIT(fault_and_report(), testing::ExitedWithCode(0), "CUDA_ERROR_ILLEGAL_ADDRESS");
}

[[noreturn]] void hang_and_leave() {
  CudaGpu gpu;
  void* const stream = gpu.create_stream();
  auto timer = cuda(stream).device->open(stream, 1);
  timer->flush();
  timer->start(0);
  gpu.spin(stream, std::uint64_t{1} << 60);
  timer->stop(0);
  if (timer->synchronize(in(200ms))) std::_Exit(2);
  if (timer->fault()) std::_Exit(3);
  timer.reset();
  std::fprintf(stderr, "the timer is gone\n");
  std::_Exit(0);
}

TEST_F(CudaGpuDeathTest, WorkThatNeverEndsDoesNotHoldTheProcess) {
  EXPECT_EXIT(hang_and_leave(), testing::ExitedWithCode(0), "the timer is gone");
}

}  // namespace
}  // namespace disttune::devices
