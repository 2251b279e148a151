// CUDA and HIP timers against contract libraries: what is the same for both.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "device_contract/contract_library.hpp"
#include "devices/cuda.hpp"
#include "devices/gpu_device.hpp"
#include "devices/hip.hpp"
#include "disttune/error.hpp"

namespace disttune::devices {
namespace {

struct Backend {
  std::string kind;
  std::string path;
  std::function<std::shared_ptr<const GpuDriver>(const std::string&)> load;
  const char* create_event;
  const char* record;
  const char* allocate;
  const char* allocate_host;
  const char* wait;
  const char* host_function;
  const char* query;
};

std::shared_ptr<const GpuDriver> load_hip_from(const std::string& path) {
  return load_hip(std::span(&path, 1));
}

const Backend k_cuda{"cuda",
                     CUDA_CONTRACT,
                     [](const std::string& library) { return load_cuda(library); },
                     "cuEventCreate",
                     "cuEventRecord",
                     "cuMemAlloc_v2",
                     "cuMemHostAlloc",
                     "cuStreamWaitValue32_v2",
                     "cuLaunchHostFunc",
                     "cuStreamQuery"};
const Backend k_hip{"hip",
                    HIP_CONTRACT,
                    load_hip_from,
                    "hipEventCreateWithFlags",
                    "hipEventRecord",
                    "hipMalloc",
                    "hipHostMalloc",
                    "hipStreamWaitValue32",
                    "hipLaunchHostFunc",
                    "hipStreamQuery"};

Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }
Deadline past() { return std::chrono::steady_clock::now(); }

class GpuContract : public testing::TestWithParam<const Backend*> {
 protected:
  void SetUp() override {
    lib.reset();
    lib.make_current(0);
    platform =
        std::make_unique<GpuPlatform>(backend.kind, [this] { return backend.load(backend.path); });
    stream = lib.create_stream(0);
  }
  void TearDown() override {
    EXPECT_STREQ(lib.misuse(), "");
    EXPECT_EQ(lib.left(), "");
    EXPECT_EQ(lib.current(), 0);
  }

  std::unique_ptr<StreamTimer> open(std::size_t samples = 4) {
    return platform->stream(stream).device->open(stream, samples);
  }
  /// One marked kernel.
  void sample(StreamTimer& timer, std::size_t i, std::int64_t ns) {
    timer.start(i);
    lib.kernel(stream, ns);
    timer.stop(i);
  }

  const Backend& backend = *GetParam();
  contract::Library lib{backend.path};
  std::unique_ptr<GpuPlatform> platform;
  void* stream = nullptr;
};

TEST_P(GpuContract, SamplesAreTheKernelsOwnTime) {
  auto timer = open(2);
  sample(*timer, 0, 12'345);
  lib.kernel(stream, 999'999);  // between the samples
  sample(*timer, 1, 4'000'000);
  ASSERT_TRUE(timer->synchronize(soon()));
  EXPECT_EQ(timer->elapsed_ns(0), 12'345);
  EXPECT_EQ(timer->elapsed_ns(1), 4'000'000);
}

TEST_P(GpuContract, WithoutTheGateHostTimeIsInTheSample) {
  auto timer = open(1);
  timer->start(0);
  lib.advance(50'000);  // the host prepares its launch
  lib.kernel(stream, 3'000);
  timer->stop(0);
  ASSERT_TRUE(timer->synchronize(soon()));
  EXPECT_EQ(timer->elapsed_ns(0), 53'000);
}

TEST_P(GpuContract, TheGateHoldsQueuedWorkAndKeepsHostTimeOut) {
  auto timer = open(2);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(timer->hold());
    timer->start(i);
    lib.advance(50'000);
    lib.kernel(stream, 3'000);
    timer->stop(i);
    EXPECT_FALSE(timer->synchronize(past())) << "the gate is closed";
    timer->release();
    ASSERT_TRUE(timer->synchronize(soon()));
    EXPECT_EQ(timer->elapsed_ns(i), 3'000);
  }
  EXPECT_EQ(timer->gate(), "stream_wait");
  EXPECT_EQ(lib.calls(backend.wait), 2);
}

TEST_P(GpuContract, AnyThreadMayReleaseAndAsOftenAsItLikes) {
  auto timer = open(1);
  timer->release();
  ASSERT_TRUE(timer->hold());
  sample(*timer, 0, 3'000);
  std::thread([&] {
    timer->release();
    timer->release();
  }).join();
  EXPECT_TRUE(timer->synchronize(soon()));
  ASSERT_TRUE(timer->hold());
  lib.kernel(stream, 1);
  EXPECT_FALSE(timer->synchronize(past())) << "an old release must not open a new gate";
  timer->release();
  EXPECT_TRUE(timer->synchronize(soon()));
}

TEST_P(GpuContract, AnAdvanceLetsGoWhatIsQueuedAndHoldsTheRest) {
  auto timer = open(3);
  ASSERT_TRUE(timer->hold());
  sample(*timer, 0, 3'000);
  timer->advance();
  lib.advance(50'000);  // the host prepares its next launch while the device works
  sample(*timer, 1, 4'000);
  EXPECT_EQ(timer->elapsed_ns(0), 3'000);
  EXPECT_THROW(timer->elapsed_ns(1), Error) << "the gate is closed behind the first";
  timer->advance();
  EXPECT_EQ(timer->elapsed_ns(1), 4'000);
  timer->start(2);
  lib.advance(50'000);
  lib.kernel(stream, 5'000);
  timer->stop(2);
  EXPECT_FALSE(timer->synchronize(past()));
  timer->release();
  ASSERT_TRUE(timer->synchronize(soon()));
  EXPECT_EQ(timer->elapsed_ns(2), 5'000);
  EXPECT_EQ(lib.calls(backend.wait), 3);
}

TEST_P(GpuContract, AnAdvanceNeverClosesAGateThatWasOpened) {
  auto timer = open(1);
  timer->advance();  // before any hold
  ASSERT_TRUE(timer->hold());
  std::thread([&] { timer->release(); }).join();
  timer->advance();
  lib.kernel(stream, 1);
  EXPECT_TRUE(timer->synchronize(soon()));
  EXPECT_EQ(lib.calls(backend.wait), 1);
  ASSERT_TRUE(timer->hold());
  lib.kernel(stream, 1);
  EXPECT_FALSE(timer->synchronize(past())) << "nor does it keep later ones open";
  timer->release();
}

TEST_P(GpuContract, AReleaseDuringAnAdvanceIsNotLost) {
  auto timer = open(1);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(timer->hold());
    std::thread watchdog([&] { timer->release(); });
    timer->advance();
    timer->advance();
    watchdog.join();
    ASSERT_TRUE(timer->synchronize(soon())) << i;
  }
}

TEST_P(GpuContract, AHostFunctionKeepsAllOfItWaiting) {
  lib.fail_next(backend.wait, 801, 0);
  auto timer = open(1);
  ASSERT_TRUE(timer->hold());
  lib.kernel(stream, 1);
  timer->advance();
  EXPECT_FALSE(timer->synchronize(past()));
  timer->release();
  EXPECT_TRUE(timer->synchronize(soon()));
}

TEST_P(GpuContract, S71ATimerThatGoesOpensItsGateAndLeavesNothing) {
  auto timer = open(4);
  timer->flush();
  ASSERT_TRUE(timer->hold());
  lib.kernel(stream, 3'000);
  timer.reset();
  EXPECT_EQ(lib.left(), "");
  auto next = open(1);
  EXPECT_TRUE(next->synchronize(soon()));
}

TEST_P(GpuContract, AStreamThatCannotWaitIsHeldByAHostFunction) {
  lib.fail_next(backend.wait, 801, 0);
  auto timer = open(2);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(timer->hold());
    EXPECT_EQ(timer->gate(), "host_function");
    timer->start(i);
    lib.advance(50'000);
    lib.kernel(stream, 3'000);
    timer->stop(i);
    EXPECT_FALSE(timer->synchronize(past()));
    timer->release();
    ASSERT_TRUE(timer->synchronize(soon()));
    EXPECT_EQ(timer->elapsed_ns(i), 3'000);
  }
}

TEST_P(GpuContract, AHostFunctionLeftClosedIsOpenedByTheDestructor) {
  lib.fail_next(backend.wait, 801, 0);
  auto timer = open(1);
  ASSERT_TRUE(timer->hold());
  timer.reset();
  EXPECT_EQ(lib.left(), "");
}

TEST_P(GpuContract, WithoutPinnedMemoryTheHostFunctionServes) {
  lib.fail_next(backend.allocate_host, 2, 0);
  auto timer = open(1);
  EXPECT_EQ(timer->gate(), "host_function");
  ASSERT_TRUE(timer->hold());
  timer->release();
  EXPECT_TRUE(timer->synchronize(soon()));
}

TEST_P(GpuContract, WithoutAnyGateEventsServeAsTheyAre) {
  lib.fail_next(backend.wait, 801, 0);
  lib.fail_next(backend.host_function, 801, 0);
  auto timer = open(1);
  EXPECT_FALSE(timer->hold());
  EXPECT_FALSE(timer->hold());
  EXPECT_EQ(timer->gate(), "none");
  sample(*timer, 0, 3'000);
  ASSERT_TRUE(timer->synchronize(soon()));
  EXPECT_EQ(timer->elapsed_ns(0), 3'000);
}

TEST_P(GpuContract, TheFlushIsExactlyTheCacheAndAllocatedWhenFirstUsed) {
  lib.set("l2", 50 << 20);
  auto timer = open(1);
  EXPECT_EQ(lib.calls(backend.allocate), 0);
  timer->flush();
  timer->flush();
  EXPECT_EQ(lib.calls(backend.allocate), 1);
  EXPECT_EQ(lib.get("filled"), 2 * (50 << 20));
}

TEST_P(GpuContract, ADeviceWithoutACacheHasNothingToFlush) {
  lib.set("l2", 0);
  auto timer = open(1);
  timer->flush();
  EXPECT_EQ(lib.calls(backend.allocate), 0);
}

TEST_P(GpuContract, NoMemoryForTheFlushSaysWhatToDo) {
  lib.fail_next(backend.allocate, 2, 0);
  auto timer = open(1);
  try {
    timer->flush();
    FAIL();
  } catch (const DeviceLost&) {
    FAIL() << "out of memory loses no device";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("cache \"hot\""), std::string::npos) << error.what();
  }
}

TEST_P(GpuContract, ACaptureInProgressIsSeenAndNotDisturbed) {
  const Stream target = platform->stream(stream);
  EXPECT_FALSE(target.device->capturing(stream));
  ASSERT_EQ(lib.begin_capture(stream), 0);
  EXPECT_TRUE(target.device->capturing(stream));
  EXPECT_THROW(static_cast<void>(open(4)), CaptureError);
  EXPECT_EQ(lib.capture_state(stream), 1);
  // The default stream waits for the captured one, so it is part of the capture.
  EXPECT_TRUE(target.device->capturing(nullptr));
  EXPECT_EQ(lib.capture_state(stream), 1);
}

TEST_P(GpuContract, S79TheStreamsDeviceIsUsedAndTheCurrentOneComesBack) {
  void* const other = lib.create_stream(1);
  const Stream target = platform->stream(other);
  EXPECT_EQ(target.device->index(), 1);
  EXPECT_EQ(lib.current(), 0);
  auto timer = target.device->open(other, 1);
  EXPECT_EQ(lib.current(), 0);
  ASSERT_TRUE(timer->hold());
  timer->flush();
  timer->start(0);
  lib.kernel(other, 7'000);
  timer->stop(0);
  timer->release();
  ASSERT_TRUE(timer->synchronize(soon()));
  EXPECT_EQ(timer->elapsed_ns(0), 7'000);
  lib.fail_next(backend.record, 1, 0);
  EXPECT_THROW(timer->start(0), Error);
  EXPECT_EQ(lib.current(), 0) << "also after an error";
  EXPECT_EQ(timer->fault(), std::nullopt);
  timer.reset();
  EXPECT_EQ(lib.current(), 0);
}

TEST_P(GpuContract, AThreadWithAnotherDeviceMayUseTheTimer) {
  auto timer = open(1);
  std::thread([&] {
    lib.make_current(1);
    sample(*timer, 0, 7'000);
    EXPECT_TRUE(timer->synchronize(soon()));
    EXPECT_EQ(timer->elapsed_ns(0), 7'000);
    EXPECT_EQ(lib.current(), 1);
  }).join();
}

TEST_P(GpuContract, TheDefaultStreamIsThatOfTheCurrentDevice) {
  lib.make_current(1);
  const Stream target = platform->stream(nullptr);
  EXPECT_EQ(target.device->index(), 1);
  auto timer = target.device->open(nullptr, 1);
  timer->start(0);
  lib.kernel(nullptr, 7'000);
  timer->stop(0);
  ASSERT_TRUE(timer->synchronize(soon()));
  EXPECT_EQ(timer->elapsed_ns(0), 7'000);
  timer.reset();
  lib.make_current(0);
}

TEST_P(GpuContract, S79ADefaultStreamStaysOnItsDeviceWhenAnotherIsCurrent) {
  lib.make_current(1);
  const Stream target = platform->stream(nullptr);
  lib.make_current(0);
  EXPECT_FALSE(target.device->capturing(nullptr));
  auto timer = target.device->open(nullptr, 1);
  ASSERT_TRUE(timer->hold());
  timer->start(0);
  EXPECT_EQ(lib.current(), 0);
  lib.make_current(1);  // as a library does that goes to the device of its tensors
  lib.kernel(nullptr, 7'000);
  lib.make_current(0);
  lib.kernel(nullptr, 900'000);  // on the other device: none of this sample's business
  timer->stop(0);
  timer->release();
  ASSERT_TRUE(timer->synchronize(soon()));
  EXPECT_EQ(timer->elapsed_ns(0), 7'000);
  timer.reset();
  EXPECT_EQ(lib.current(), 0);
}

TEST_P(GpuContract, S47AStickyErrorLosesTheDeviceForGood) {
  auto timer = open(1);
  EXPECT_EQ(timer->fault(), std::nullopt);
  ASSERT_TRUE(timer->hold());
  timer->start(0);
  lib.fault(stream, 700);
  timer->stop(0);
  timer->release();
  try {
    timer->synchronize(soon());
    FAIL();
  } catch (const DeviceLost& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("700"), std::string::npos) << text;
    EXPECT_NE(text.find("new process"), std::string::npos) << text;
  }
  EXPECT_TRUE(timer->fault().has_value());
  EXPECT_THROW(timer->start(0), DeviceLost);
  EXPECT_THROW(timer->elapsed_ns(0), DeviceLost);
  EXPECT_THROW(static_cast<void>(open(1)), DeviceLost);
  timer.reset();
  lib.reset();  // a lost context frees nothing; that is the driver's nature
  lib.make_current(0);
}

TEST_P(GpuContract, EachStickyCodeIsKnown) {
  for (const int code : {700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999}) {
    auto timer = open(1);
    lib.fail_next(backend.query, code, 0);
    EXPECT_THROW(timer->synchronize(soon()), DeviceLost) << code;
    EXPECT_TRUE(timer->fault().has_value()) << code;
  }
  for (const int code : {1, 2, 701, 720}) {
    auto timer = open(1);
    lib.fail_next(backend.query, code, 0);
    try {
      timer->synchronize(soon());
      ADD_FAILURE() << code;
    } catch (const DeviceLost&) {
      ADD_FAILURE() << code << " loses no device";
    } catch (const Error&) {
    }
    EXPECT_FALSE(timer->fault().has_value()) << code;
  }
}

TEST_P(GpuContract, AFaultShowsWithoutWaiting) {
  auto timer = open(1);
  ASSERT_TRUE(timer->hold());
  lib.kernel(stream, 1);
  EXPECT_EQ(timer->fault(), std::nullopt) << "asked behind a closed gate";
  timer->release();
  lib.fault(stream, 716);
  EXPECT_TRUE(timer->fault().has_value());
  timer.reset();
  lib.reset();
  lib.make_current(0);
}

TEST_P(GpuContract, WorkThatNeverEndsIsLateAndDoesNotHoldTheDestructor) {
  auto timer = open(1);
  timer->flush();
  ASSERT_TRUE(timer->hold());
  timer->start(0);
  lib.hang(stream);
  timer->stop(0);
  timer->release();
  EXPECT_FALSE(timer->synchronize(std::chrono::steady_clock::now() + std::chrono::milliseconds(5)));
  EXPECT_THROW(timer->elapsed_ns(0), Error);
  timer.reset();  // returns, though freeing would wait for ever
  EXPECT_NE(lib.left(), "") << "what the device may still touch is left to it";
  lib.end_hangs();
  lib.reset();
  lib.make_current(0);
}

TEST_P(GpuContract, WorkThatEndsLateIsWaitedForAgain) {
  auto timer = open(1);
  timer->start(0);
  lib.hang(stream);
  timer->stop(0);
  EXPECT_FALSE(timer->synchronize(past()));
  lib.end_hangs();
  EXPECT_TRUE(timer->synchronize(soon()));
  EXPECT_GE(timer->elapsed_ns(0), 0);
}

TEST_P(GpuContract, ASampleReadTooEarlyIsAnError) {
  auto timer = open(2);
  EXPECT_THROW(timer->elapsed_ns(0), Error) << "never recorded";
  ASSERT_TRUE(timer->hold());
  sample(*timer, 0, 1'000);
  EXPECT_THROW(timer->elapsed_ns(0), Error) << "not done";
  EXPECT_THROW(timer->start(2), Error) << "opened for two";
  EXPECT_THROW(timer->elapsed_ns(2), Error);
  timer->release();
  ASSERT_TRUE(timer->synchronize(soon()));
  EXPECT_EQ(timer->elapsed_ns(0), 1'000);
}

TEST_P(GpuContract, S65ImpossibleTimesNeverReadAsTimes) {
  auto timer = open(1);
  sample(*timer, 0, 1'000);
  ASSERT_TRUE(timer->synchronize(soon()));
  for (const float bad : {0.0F, -0.25F, std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    lib.force_elapsed(bad);
    EXPECT_LE(timer->elapsed_ns(0), 0) << bad;
  }
  lib.force_elapsed(0.5F);
  EXPECT_EQ(timer->elapsed_ns(0), 500'000);
}

TEST_P(GpuContract, AFailedOpenLeavesNothing) {
  for (int after = 0; after < 6; ++after) {
    lib.fail_next(backend.create_event, 2, after);
    EXPECT_THROW(static_cast<void>(open(3)), Error) << after;
    EXPECT_EQ(lib.left(), "") << after;
    EXPECT_EQ(lib.current(), 0);
  }
}

TEST_P(GpuContract, ALauncherIsReplayedAsAGraph) {
  auto timer = open(2);
  ASSERT_TRUE(timer->begin_capture());
  lib.kernel(stream, 2'000);
  lib.kernel(stream, 3'000);
  timer->end_capture();
  for (std::size_t i = 0; i < 2; ++i) {
    timer->start(i);
    timer->replay();
    timer->stop(i);
  }
  ASSERT_TRUE(timer->synchronize(soon()));
  EXPECT_EQ(timer->elapsed_ns(0), 5'000);
  EXPECT_EQ(timer->elapsed_ns(1), 5'000);
  ASSERT_TRUE(timer->begin_capture());  // the next candidate takes its place
  lib.kernel(stream, 4'000);
  timer->end_capture();
  timer->start(0);
  timer->replay();
  timer->stop(0);
  ASSERT_TRUE(timer->synchronize(soon()));
  EXPECT_EQ(timer->elapsed_ns(0), 4'000);
}

TEST_P(GpuContract, ALauncherThatCannotBeCapturedIsRefusedAndTheStreamGoesOn) {
  auto timer = open(1);
  EXPECT_THROW(timer->replay(), Error);
  EXPECT_THROW(timer->end_capture(), Error);
  ASSERT_TRUE(timer->begin_capture());
  // What a launcher that synchronises does to its capture. The library calls it misuse, rightly.
  EXPECT_THROW(timer->synchronize(past()), Error);
  EXPECT_STREQ(lib.misuse(), "a stream under capture was queried\n");
  try {
    timer->end_capture();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("cannot be captured"), std::string::npos);
  }
  sample(*timer, 0, 3'000);
  ASSERT_TRUE(timer->synchronize(soon()));
  EXPECT_EQ(timer->elapsed_ns(0), 3'000);
  timer.reset();
  lib.reset();
  lib.make_current(0);
}

TEST_P(GpuContract, ACaptureLeftOpenIsEndedByTheDestructor) {
  auto timer = open(1);
  ASSERT_TRUE(timer->begin_capture());
  lib.kernel(stream, 3'000);
  timer.reset();
  EXPECT_EQ(lib.capture_state(stream), 0);
}

TEST_P(GpuContract, TheDefaultStreamHasNoGraphs) {
  auto timer = platform->stream(nullptr).device->open(nullptr, 1);
  EXPECT_FALSE(timer->begin_capture());
}

TEST_P(GpuContract, TwoStreamsHaveGatesOfTheirOwn) {
  void* const other = lib.create_stream(0);
  auto first = open(1);
  auto second = platform->stream(other).device->open(other, 1);
  ASSERT_TRUE(first->hold());
  ASSERT_TRUE(second->hold());
  sample(*first, 0, 1'000);
  second->start(0);
  lib.kernel(other, 2'000);
  second->stop(0);
  second->release();
  EXPECT_TRUE(second->synchronize(soon()));
  EXPECT_FALSE(first->synchronize(past()));
  first->release();
  EXPECT_TRUE(first->synchronize(soon()));
  EXPECT_EQ(second->elapsed_ns(0), 2'000);
}

TEST_P(GpuContract, ADestroyedStreamIsAClearError) {
  const Stream target = platform->stream(stream);
  lib.destroy_stream(stream);
  for (const bool through_platform : {true, false}) {
    try {
      if (through_platform) {
        static_cast<void>(platform->stream(stream));
      } else {
        static_cast<void>(target.device->open(stream, 1));
      }
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("destroyed"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(lib.left(), "");
  EXPECT_STRNE(lib.misuse(), "") << "the caller's misuse, not ours";
  lib.reset();
  lib.make_current(0);
}

TEST_P(GpuContract, AStreamDestroyedDuringATuningIsAClearError) {
  auto timer = open(1);
  lib.destroy_stream(stream);
  EXPECT_THROW(timer->start(0), Error);
  EXPECT_THROW(timer->synchronize(soon()), Error);
  EXPECT_THROW(timer->hold(), Error);
  timer->release();
  timer.reset();
  EXPECT_EQ(lib.left(), "");
  lib.reset();
  lib.make_current(0);
}

TEST_P(GpuContract, WithoutADriverOnlyTheUseOfTheDeviceFails) {
  const GpuPlatform none(backend.kind, [&] { return backend.load("/nowhere/libdriver.so"); });
  const Stream target = none.stream(stream);
  EXPECT_EQ(target.device->kind(), backend.kind);
  EXPECT_EQ(target.handle, stream);
  try {
    static_cast<void>(target.device->fingerprint());
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("/nowhere/libdriver.so"), std::string::npos) << text;
    EXPECT_NE(text.find("LD_LIBRARY_PATH"), std::string::npos) << text;
  }
  EXPECT_THROW(static_cast<void>(target.device->open(stream, 1)), Error);
}

TEST_P(GpuContract, WithoutDevicesTheErrorSaysSo) {
  lib.set("devices", 0);
  const GpuPlatform none(backend.kind, [&] { return backend.load(backend.path); });
  try {
    static_cast<void>(none.stream(stream).device->open(stream, 1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no device"), std::string::npos) << error.what();
  }
}

TEST_P(GpuContract, WithOneDeviceAStreamCostsNoDriverCall) {
  lib.set("devices", 1);
  const GpuPlatform one(backend.kind, [&] { return backend.load(backend.path); });
  const auto asked = [&] {
    return lib.calls("cuStreamGetCtx") + lib.calls("cuCtxGetCurrent") +
           lib.calls("hipStreamGetDevice") + lib.calls("hipGetDevice");
  };
  const int before = asked();
  EXPECT_EQ(one.stream(stream).device->index(), 0);
  EXPECT_EQ(asked(), before);
}

INSTANTIATE_TEST_SUITE_P(Drivers, GpuContract, testing::Values(&k_cuda, &k_hip),
                         [](const auto& each) { return each.param->kind; });

}  // namespace
}  // namespace disttune::devices
