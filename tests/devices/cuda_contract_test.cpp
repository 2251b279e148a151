// What is CUDA's own: versioned entry points, contexts, old drivers, fingerprints.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "device_contract/contract_library.hpp"
#include "devices/cuda.hpp"
#include "devices/gpu_device.hpp"
#include "disttune/cuda.hpp"
#include "disttune/error.hpp"

namespace disttune::devices {
namespace {

Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

TEST(CudaContract, EntryPointsAreAskedForByTheAbiTheyAreCalledWith) {
  contract::Library lib(CUDA_CONTRACT);
  lib.reset();
  const auto driver = load_cuda(CUDA_CONTRACT);
  EXPECT_EQ(driver->device_count(), 2);
  EXPECT_STREQ(lib.misuse(), "");
}

TEST(CudaContract, FingerprintNamesTheHardwareAndNothingElse) {
  contract::Library lib(CUDA_CONTRACT);
  lib.reset();
  const auto driver = load_cuda(CUDA_CONTRACT);
  EXPECT_EQ(driver->fingerprint(1), Value::dict({{"kind", "cuda"},
                                                 {"name", "Contract GPU"},
                                                 {"capability", "9.0"},
                                                 {"multiprocessors", 132},
                                                 {"memory_gib", 140},
                                                 {"l2_bytes", 60 << 20},
                                                 {"mig", false}}));
  lib.set("mig", 1);
  EXPECT_NE(driver->fingerprint(0).text().find("\"mig\": True"), std::string::npos);
  EXPECT_NE(driver->software().text().find("\"cuda\": \"13.0\""), std::string::npos);
  EXPECT_NE(driver->information(0).text().find("1980000"), std::string::npos);
}

TEST(CudaContract, MemoryIsRoundedSoThatReservedPagesMakeNoOtherDevice) {
  contract::Library lib(CUDA_CONTRACT);
  lib.reset();
  const auto driver = load_cuda(CUDA_CONTRACT);
  const Value before = driver->fingerprint(0);
  lib.set("memory", 150040150016 - (100 << 20));
  EXPECT_EQ(driver->fingerprint(0), before);
}

TEST(CudaContract, DevicesAreUniformWhenTheirFingerprintsAreEqual) {
  contract::Library lib(CUDA_CONTRACT);
  lib.reset();
  lib.make_current(0);
  const auto load = [] { return load_cuda(CUDA_CONTRACT); };
  EXPECT_TRUE(GpuPlatform("cuda", load).stream(nullptr).device->uniform());
  lib.set("unequal", 1);
  EXPECT_FALSE(GpuPlatform("cuda", load).stream(nullptr).device->uniform());
}

TEST(CudaContract, ADefaultStreamWithoutAContextIsNotGuessedToBeOnDevice0) {
  contract::Library lib(CUDA_CONTRACT);
  lib.reset();
  lib.make_current(-1);
  const GpuPlatform platform("cuda", [] { return load_cuda(CUDA_CONTRACT); });
  EXPECT_THROW(static_cast<void>(platform.stream(nullptr)), Error);
  EXPECT_STREQ(lib.misuse(), "");
}

TEST(CudaContract, OnTheOnlyDeviceItsPrimaryContextServesAndIsGivenBack) {
  contract::Library lib(CUDA_CONTRACT);
  lib.reset();
  lib.set("devices", 1);
  lib.make_current(-1);
  const GpuPlatform platform("cuda", [] { return load_cuda(CUDA_CONTRACT); });
  const Stream target = platform.stream(nullptr);
  EXPECT_FALSE(target.device->capturing(nullptr));
  {
    auto timer = target.device->open(nullptr, 1);
    EXPECT_EQ(lib.current(), -1);
    timer->start(0);
    timer->stop(0);
    EXPECT_TRUE(timer->synchronize(soon()));
    EXPECT_STREQ(lib.live(), "events 2\nhost blocks 1\nretained contexts 1\n");
  }
  EXPECT_EQ(lib.left(), "");
  EXPECT_STREQ(lib.misuse(), "");
  EXPECT_EQ(lib.current(), -1);
}

TEST(CudaContract, OnePinnedWordIsKeptForTheNextTimer) {
  contract::Library lib(CUDA_CONTRACT);
  lib.reset();
  lib.make_current(0);
  void* const stream = lib.create_stream(0);
  const GpuPlatform platform("cuda", [] { return load_cuda(CUDA_CONTRACT); });
  const auto hold_once = [&](StreamTimer& timer) {
    ASSERT_TRUE(timer.hold());
    EXPECT_FALSE(timer.synchronize(std::chrono::steady_clock::now()));
    timer.release();
    EXPECT_TRUE(timer.synchronize(soon()));
    EXPECT_EQ(timer.gate(), "stream_wait");
  };
  const auto device = platform.stream(stream).device;
  for (int i = 0; i < 3; ++i) hold_once(*device->open(stream, 1));
  EXPECT_EQ(lib.calls("cuMemHostAlloc"), 1);
  {
    const auto first = device->open(stream, 1), second = device->open(stream, 1);
    hold_once(*first);
    hold_once(*second);
  }
  EXPECT_EQ(lib.calls("cuMemHostAlloc"), 2);
  EXPECT_STREQ(lib.live(), "host blocks 1\n") << "of two, one is freed";
  // A context that goes takes its pinned memory along, and the address may come again.
  lib.lose_host_memory();
  hold_once(*device->open(stream, 1));
  EXPECT_EQ(lib.calls("cuMemHostAlloc"), 3);
  EXPECT_STREQ(lib.misuse(), "");
}

TEST(CudaContract, WithoutAWayToKnowItAgainThePinnedWordIsFreed) {
  contract::Library lib(CUDA_CONTRACT);
  lib.reset();
  lib.make_current(0);
  void* const stream = lib.create_stream(0);
  const GpuPlatform platform("cuda", [] { return load_cuda(CUDA_CONTRACT); });
  lib.fail_next("cuPointerGetAttribute", 1, 0);
  static_cast<void>(platform.stream(stream).device->open(stream, 1));
  EXPECT_STREQ(lib.live(), "");
}

/// A timer of a driver without cuGetProcAddress; its stream belongs to `lib`.
std::string gate_of_old_driver(contract::Library& lib) {
  void* const stream = lib.create_stream(0);
  const GpuPlatform platform("cuda", [] { return load_cuda(CUDA_CONTRACT_OLD); });
  auto timer = platform.stream(stream).device->open(stream, 1);
  EXPECT_TRUE(timer->hold());
  timer->start(0);
  lib.advance(50'000);
  lib.kernel(stream, 3'000);
  timer->stop(0);
  EXPECT_FALSE(timer->synchronize(std::chrono::steady_clock::now()));
  timer->release();
  EXPECT_TRUE(timer->synchronize(soon()));
  EXPECT_EQ(timer->elapsed_ns(0), 3'000);
  EXPECT_FALSE(timer->begin_capture()) << "its graph interface is another one";
  return std::string(timer->gate());
}

TEST(CudaContract, AnOldDriverServesThroughItsExportTable) {
  contract::Library lib(CUDA_CONTRACT_OLD);
  lib.reset();
  lib.make_current(0);
  EXPECT_EQ(gate_of_old_driver(lib), "host_function") << "stream waits are switched off in it";
  lib.set("mem_ops_v1", 1);
  EXPECT_EQ(gate_of_old_driver(lib), "stream_wait");
  EXPECT_STREQ(lib.misuse(), "");
  EXPECT_EQ(lib.left(), "");
}

TEST(CudaContract, ADriverWithoutANeededEntryPointIsNamedWithItsVersion) {
  try {
    static_cast<void>(load_cuda(CUDA_CONTRACT_ANCIENT));
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("cuStreamGetCtx"), std::string::npos) << text;
    EXPECT_NE(text.find("CUDA 9.0"), std::string::npos) << text;
    EXPECT_NE(text.find("newer driver"), std::string::npos) << text;
  }
}

TEST(CudaContract, S75AForkedProcessIsToldWhyCudaDoesNotStart) {
  contract::Library lib(CUDA_CONTRACT);
  lib.reset();
  lib.fail_next("cuInit", 3, 0);
  try {
    static_cast<void>(load_cuda(CUDA_CONTRACT));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("fork"), std::string::npos) << error.what();
  }
}

TEST(CudaContract, AnUnknownErrorCodeHasATextToo) {
  const auto driver = load_cuda(CUDA_CONTRACT);
  EXPECT_EQ(driver->describe(12345), "unknown CUDA error (12345): no description");
}

TEST(Cuda, MakingAStreamNeedsNoDriver) {
  int object = 0;
  const Stream stream = cuda(&object);
  ASSERT_TRUE(stream.device);
  EXPECT_EQ(stream.device->kind(), "cuda");
  EXPECT_EQ(stream.handle, &object);
}

}  // namespace
}  // namespace disttune::devices
