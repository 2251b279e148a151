// Whether a CUDA device has slowed down: what NVML is asked, when, and what counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device_contract/contract_library.hpp"
#include "devices/cuda.hpp"
#include "devices/gpu_device.hpp"
#include "devices/nvml.hpp"

namespace disttune::devices {
namespace {

constexpr const char* k_gpu = "0000:40:00.0";
constexpr std::int64_t k_too_hot = 0x40;

/// A contract library in which GPU 40 is too hot.
struct Hot {
  explicit Hot(const char* path) : lib(path) {
    lib.reset();
    lib.set("reasons 40", k_too_hot);
  }
  contract::Library lib;
};

TEST(Nvml, HeatAndLackOfPowerCountAndTheNormalReasonsDoNot) {
  Hot nvml(NVML_CONTRACT);
  const Nvml asked(NVML_CONTRACT);
  for (const std::int64_t bit : {0x8, 0x20, 0x40, 0x80}) {
    nvml.lib.set("reasons 40", bit);
    EXPECT_TRUE(asked.throttled(k_gpu)) << bit;
    nvml.lib.set("reasons 40", bit | 0x5);
    EXPECT_TRUE(asked.throttled(k_gpu)) << bit;
  }
  // Idle, the caller's clocks, the power limit under full load, boost in step, display clocks.
  for (const std::int64_t bit : {0x0, 0x1, 0x2, 0x4, 0x10, 0x100, 0x117}) {
    nvml.lib.set("reasons 40", bit);
    EXPECT_FALSE(asked.throttled(k_gpu)) << bit;
  }
  EXPECT_EQ(nvml.lib.calls("nvmlInit_v2"), 1);
  EXPECT_STREQ(nvml.lib.misuse(), "");
}

TEST(Nvml, AnOlderOneIsAskedByTheOlderName) {
  Hot nvml(NVML_CONTRACT_OLD);
  EXPECT_TRUE(Nvml(NVML_CONTRACT_OLD).throttled(k_gpu));
  EXPECT_EQ(nvml.lib.calls("nvmlDeviceGetCurrentClocksThrottleReasons"), 1);
  EXPECT_STREQ(nvml.lib.misuse(), "");
}

TEST(Nvml, WithoutTheLibraryOrTheFunctionNothingIsKnown) {
  EXPECT_FALSE(Nvml("/nowhere/libnvidia-ml.so.1").throttled(k_gpu));
  Hot nvml(NVML_CONTRACT_ANCIENT);
  EXPECT_FALSE(Nvml(NVML_CONTRACT_ANCIENT).throttled(k_gpu));
  EXPECT_EQ(nvml.lib.calls("nvmlInit_v2"), 0);
}

TEST(Nvml, WhatItRefusesIsNotKnown) {
  Hot nvml(NVML_CONTRACT);
  const Nvml asked(NVML_CONTRACT);
  EXPECT_FALSE(asked.throttled("0000:99:00.0")) << "not one of its GPUs";
  // Uninitialised, not supported, no permission, GPU lost, unknown.
  for (const int code : {1, 3, 4, 15, 999}) {
    for (const char* name :
         {"nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetCurrentClocksEventReasons"}) {
      nvml.lib.fail_next(name, code, 0);
      EXPECT_FALSE(asked.throttled(k_gpu)) << name << ' ' << code;
      EXPECT_TRUE(asked.throttled(k_gpu)) << "the next time it may know";
    }
  }
  EXPECT_STREQ(nvml.lib.misuse(), "");
}

TEST(Nvml, WhereItDoesNotStartItIsNotAskedAgain) {
  for (const int code : {4, 9, 18}) {  // no permission, no driver, another driver's library
    Hot nvml(NVML_CONTRACT);
    const Nvml asked(NVML_CONTRACT);
    nvml.lib.fail_next("nvmlInit_v2", code, 0);
    EXPECT_FALSE(asked.throttled(k_gpu));
    EXPECT_FALSE(asked.throttled(k_gpu));
    EXPECT_EQ(nvml.lib.calls("nvmlInit_v2"), 1);
    EXPECT_EQ(nvml.lib.calls("nvmlDeviceGetHandleByPciBusId_v2"), 0);
    EXPECT_STREQ(nvml.lib.misuse(), "");
  }
}

TEST(Nvml, ThreadsThatAskFirstTogetherStartItOnce) {
  constexpr int k_threads = 8;
  for (int i = 0; i < 20; ++i) {
    Hot nvml(NVML_CONTRACT);
    const Nvml asked(NVML_CONTRACT);
    std::barrier together(k_threads);
    std::array<char, k_threads> said{};
    std::vector<std::thread> threads;
    for (char& mine : said) {
      threads.emplace_back([&] {
        together.arrive_and_wait();
        mine = asked.throttled(k_gpu) ? 1 : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::count(said.begin(), said.end(), 1), k_threads);
    EXPECT_EQ(nvml.lib.calls("nvmlInit_v2"), 1);
    EXPECT_STREQ(nvml.lib.misuse(), "");
  }
}

/// A CUDA device with a stream, and NVML beside it.
class NvmlOfCuda : public ::testing::Test {
 protected:
  NvmlOfCuda() {
    cuda.reset();
    cuda.make_current(0);
  }
  [[nodiscard]] std::shared_ptr<Device> device(int ordinal) {
    return platform.stream(cuda.create_stream(ordinal)).device;
  }

  contract::Library cuda{CUDA_CONTRACT};
  Hot nvml{NVML_CONTRACT};
  GpuPlatform platform{"cuda", [] { return load_cuda(CUDA_CONTRACT, NVML_CONTRACT); }};
};

TEST_F(NvmlOfCuda, ADeviceIsTheGpuAtItsBusAddress) {
  EXPECT_TRUE(device(0)->throttled());
  EXPECT_FALSE(device(1)->throttled());
  nvml.lib.set("reasons 40", 0);
  nvml.lib.set("reasons 41", k_too_hot);
  EXPECT_FALSE(device(0)->throttled());
  EXPECT_TRUE(device(1)->throttled());
  EXPECT_EQ(nvml.lib.calls("nvmlInit_v2"), 1) << "once for all devices";
  EXPECT_STREQ(cuda.misuse(), "");
  EXPECT_STREQ(nvml.lib.misuse(), "");
}

TEST_F(NvmlOfCuda, ADriverThatGivesNoBusAddressLeavesItUnknown) {
  cuda.fail_next("cuDeviceGetPCIBusId", 201, 0);
  EXPECT_FALSE(device(0)->throttled());
  EXPECT_EQ(nvml.lib.calls("nvmlInit_v2"), 0);
}

TEST_F(NvmlOfCuda, NothingElseThatADeviceIsAskedStartsIt) {
  const auto one = device(0);
  static_cast<void>(one->fingerprint());
  static_cast<void>(one->software());
  static_cast<void>(one->information());
  void* const stream = cuda.create_stream(0);
  static_cast<void>(one->capturing(stream));
  {
    const auto timer = one->open(stream, 1);
    timer->start(0);
    timer->stop(0);
    EXPECT_TRUE(timer->synchronize(std::chrono::steady_clock::now() + std::chrono::seconds(20)));
  }
  for (const char* name : {"nvmlInit_v2", "nvmlDeviceGetHandleByPciBusId_v2",
                           "nvmlDeviceGetCurrentClocksEventReasons"}) {
    EXPECT_EQ(nvml.lib.calls(name), 0) << name;
  }
}

}  // namespace
}  // namespace disttune::devices
