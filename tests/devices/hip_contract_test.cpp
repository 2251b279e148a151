// What is HIP's own: devices instead of contexts, old runtimes, fingerprints.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "device_contract/contract_library.hpp"
#include "devices/gpu_device.hpp"
#include "devices/hip.hpp"
#include "disttune/error.hpp"
#include "disttune/hip.hpp"

namespace disttune::devices {
namespace {

Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

std::shared_ptr<const GpuDriver> load(const std::string& path) {
  return load_hip(std::span(&path, 1));
}

TEST(HipContract, FingerprintNamesTheHardwareAndNothingElse) {
  contract::Library lib(HIP_CONTRACT);
  lib.reset();
  const auto driver = load(HIP_CONTRACT);
  EXPECT_EQ(driver->fingerprint(0), Value::dict({{"kind", "hip"},
                                                 {"name", "Contract Instinct"},
                                                 {"capability", "9.4"},
                                                 {"multiprocessors", 304},
                                                 {"memory_gib", 206},
                                                 {"memory_bus_bits", 8192},
                                                 {"l2_bytes", 4 << 20},
                                                 {"wavefront", 64}}));
  EXPECT_NE(driver->software().text().find("\"hip_runtime\": 60443483"), std::string::npos);
  EXPECT_STREQ(lib.misuse(), "");
}

TEST(HipContract, ADeviceWhoseStreamsCannotWaitIsNotAskedTo) {
  contract::Library lib(HIP_CONTRACT);
  lib.reset();
  lib.make_current(0);
  lib.set("stream_wait", 0);
  void* const stream = lib.create_stream(0);
  const GpuPlatform platform("hip", [] { return load(HIP_CONTRACT); });
  auto timer = platform.stream(stream).device->open(stream, 1);
  ASSERT_TRUE(timer->hold());
  EXPECT_EQ(timer->gate(), "host_function");
  timer->release();
  EXPECT_TRUE(timer->synchronize(soon()));
  EXPECT_EQ(lib.calls("hipStreamWaitValue32"), 0);
}

TEST(HipContract, AnOldRuntimeServesWithTheCurrentDeviceAndAHostFunction) {
  contract::Library lib(HIP_CONTRACT_OLD);
  lib.reset();
  lib.make_current(1);
  void* const stream = lib.create_stream(1);
  const GpuPlatform platform("hip", [] { return load(HIP_CONTRACT_OLD); });
  const Stream target = platform.stream(stream);
  EXPECT_EQ(target.device->index(), 1);
  EXPECT_FALSE(target.device->capturing(stream));
  {
    auto timer = target.device->open(stream, 1);
    ASSERT_TRUE(timer->hold());
    EXPECT_EQ(timer->gate(), "host_function");
    timer->start(0);
    lib.kernel(stream, 3'000);
    timer->stop(0);
    timer->release();
    ASSERT_TRUE(timer->synchronize(soon()));
    EXPECT_EQ(timer->elapsed_ns(0), 3'000);
    EXPECT_FALSE(timer->begin_capture());
  }
  EXPECT_STREQ(lib.misuse(), "");
  EXPECT_STREQ(lib.live(), "");
}

TEST(HipContract, ARuntimeWithoutANeededFunctionIsNamed) {
  try {
    static_cast<void>(load(HIP_CONTRACT_ANCIENT));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("hipHostMalloc"), std::string::npos) << error.what();
  }
}

TEST(Hip, MakingAStreamNeedsNoDriver) {
  int object = 0;
  const Stream stream = hip(&object);
  ASSERT_TRUE(stream.device);
  EXPECT_EQ(stream.device->kind(), "hip");
  EXPECT_EQ(stream.handle, &object);
}

}  // namespace
}  // namespace disttune::devices
