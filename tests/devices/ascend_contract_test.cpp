// Ascend timing against the contract library of tests/ascend_contract, which must be built first;
// DISTTUNE_ASCEND_CONTRACT names the folder. Skipped, with the reason, without it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <type_traits>

#include "devices/ascend.hpp"
#include "disttune/error.hpp"

namespace disttune::devices {
namespace {

using namespace std::chrono_literals;

Deadline in(std::chrono::steady_clock::duration time) {
  return std::chrono::steady_clock::now() + time;
}

class AscendContract : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("DISTTUNE_ASCEND_CONTRACT");
    if (folder == nullptr) {
      GTEST_SKIP() << "DISTTUNE_ASCEND_CONTRACT does not name a built contract library "
                      "(tests/ascend_contract/build.py)";
    }
    const std::string path = std::string(folder) + "/libascendcl.so";
    m_library = dlopen(path.c_str(), RTLD_NOW);
    ASSERT_NE(m_library, nullptr) << dlerror();
    call<int(const char*)>("aclInit", nullptr);
    set_device(0);
    m_before = report();
    platform = std::make_unique<AscendPlatform>(std::span(&path, 1));
    stream = create_stream();
  }
  void TearDown() override {
    if (m_library == nullptr) return;
    unsetenv("NPU_CONTRACT_NO_VALUE_WAIT");
    set_device(0);
    if (stream != nullptr) call<int(void*)>("aclrtDestroyStreamForce", stream);
    if (check_report) {
      EXPECT_EQ(report()["live"], m_before["live"]);
      EXPECT_EQ(report()["misuse"], m_before["misuse"]);
    }
  }

  template <class Function, class... Arguments>
  std::invoke_result_t<Function*, Arguments...> call(const char* name, Arguments... arguments) {
    auto* const function = reinterpret_cast<Function*>(dlsym(m_library, name));
    if (function == nullptr) throw std::runtime_error(name);
    return function(arguments...);
  }
  nlohmann::json report() {
    return nlohmann::json::parse(call<const char*()>("npu_contract_report"));
  }
  int calls(const char* name) { return report()["calls"].value(name, 0); }
  void set_device(int device) { call<int(std::int32_t)>("aclrtSetDevice", device); }
  int device() {
    std::int32_t current = -1;
    return call<int(std::int32_t*)>("aclrtGetDevice", &current) == 0 ? current : -1;
  }
  void* create_stream() {
    void* made = nullptr;
    call<int(void**)>("aclrtCreateStream", &made);
    return made;
  }
  void busy(std::chrono::microseconds time) {
    call<int(void*, std::int64_t)>("npu_contract_busy", stream, time.count());
  }
  void fail_next(const char* name, int code, int after = 0) {
    call<void(const char*, int, int)>("npu_contract_fail_next", name, code, after);
  }
  std::unique_ptr<StreamTimer> open(std::size_t samples = 2) {
    return platform->stream(stream).device->open(stream, samples);
  }
  /// Held work waits, and the host's time behind the gate is not in its sample.
  void expect_gate(StreamTimer& timer, std::string_view kind) {
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(timer.hold());
      EXPECT_EQ(timer.gate(), kind);
      timer.start(i);
      std::this_thread::sleep_for(100ms);
      busy(1ms);
      timer.stop(i);
      EXPECT_FALSE(timer.synchronize(in(5ms)));
      std::thread([&] {
        timer.release();  // on a thread without a device
        timer.release();
      }).join();
      ASSERT_TRUE(timer.synchronize(in(20s)));
      EXPECT_GE(timer.elapsed_ns(i), 1'000'000);
      EXPECT_LT(timer.elapsed_ns(i), 90'000'000);
    }
  }

  std::unique_ptr<AscendPlatform> platform;
  void* stream = nullptr;
  bool check_report = true;

 private:
  void* m_library = nullptr;
  nlohmann::json m_before;
};

TEST_F(AscendContract, FingerprintNamesTheHardwareAndNothingElse) {
  const Stream target = platform->stream(stream);
  EXPECT_EQ(target.device->fingerprint(), Value::dict({{"kind", "ascend"},
                                                       {"soc", "Ascend910B2"},
                                                       {"ai_cores", 24},
                                                       {"vector_cores", 48},
                                                       {"l2_bytes", 192 << 20},
                                                       {"memory_gib", 4}}));
  EXPECT_NE(target.device->software().text().find("\"cann_runtime\": \"8.5.0\""),
            std::string::npos);
  EXPECT_TRUE(target.device->uniform());
  EXPECT_FALSE(target.device->capturing(stream));
}

TEST_F(AscendContract, SamplesAreTheStreamsOwnTime) {
  auto timer = open();
  timer->start(0);
  busy(3ms);
  timer->stop(0);
  ASSERT_TRUE(timer->synchronize(in(20s)));
  EXPECT_GE(timer->elapsed_ns(0), 3'000'000);
  EXPECT_THROW(timer->elapsed_ns(1), Error) << "never marked";
}

TEST_F(AscendContract, WithoutTheGateHostTimeIsInTheSample) {
  auto timer = open();
  timer->start(0);
  ASSERT_TRUE(timer->synchronize(in(20s)));  // the mark has been taken
  std::this_thread::sleep_for(100ms);
  busy(1ms);
  timer->stop(0);
  ASSERT_TRUE(timer->synchronize(in(20s)));
  EXPECT_GE(timer->elapsed_ns(0), 95'000'000);
}

TEST_F(AscendContract, AValueWaitHoldsTheStream) {
  auto timer = open();
  expect_gate(*timer, "value_wait");
}

TEST_F(AscendContract, WithoutValueWaitAHostFunctionServes) {
  setenv("NPU_CONTRACT_NO_VALUE_WAIT", "1", 1);
  auto timer = open();
  expect_gate(*timer, "host_function");
}

TEST_F(AscendContract, WithoutBothPlainEventsServe) {
  setenv("NPU_CONTRACT_NO_VALUE_WAIT", "1", 1);
  fail_next("aclrtLaunchHostFunc", 207000);
  auto timer = open();
  EXPECT_FALSE(timer->hold());
  EXPECT_EQ(timer->gate(), "none");
  timer->start(0);
  busy(1ms);
  timer->stop(0);
  ASSERT_TRUE(timer->synchronize(in(20s)));
  EXPECT_GE(timer->elapsed_ns(0), 1'000'000);
}

TEST_F(AscendContract, AWriteThatIsRefusedStillOpensTheGate) {
  auto timer = open();
  ASSERT_TRUE(timer->hold());
  busy(1ms);
  fail_next("aclrtValueWrite", 507000);
  timer->release();
  EXPECT_TRUE(timer->synchronize(in(20s)));
  ASSERT_TRUE(timer->hold());
  EXPECT_FALSE(timer->synchronize(in(1ms))) << "the next one closes again";
  timer->release();
  EXPECT_TRUE(timer->synchronize(in(20s)));
}

TEST_F(AscendContract, S71ATimerThatGoesOpensItsGateAndLeavesNothing) {
  auto timer = open();
  timer->flush();
  ASSERT_TRUE(timer->hold());
  busy(1ms);
  timer.reset();
  EXPECT_EQ(call<int(void*)>("aclrtSynchronizeStream", stream), 0);
}

TEST_F(AscendContract, TheFlushIsTheL2AndAllocatedWhenFirstUsed) {
  auto timer = open();
  const auto bytes = [&] { return report()["live"]["device_bytes"].get<std::int64_t>(); };
  const std::int64_t before = bytes();
  timer->flush();
  timer->flush();
  EXPECT_EQ(bytes() - before, 192 << 20);
  EXPECT_TRUE(timer->synchronize(in(20s)));
}

TEST_F(AscendContract, S79TheStreamsDeviceIsUsedAndTheCurrentOneComesBack) {
  set_device(1);
  void* const other = create_stream();
  const Stream target = platform->stream(other);
  EXPECT_EQ(target.device->index(), 1);
  auto timer = target.device->open(other, 1);
  set_device(0);
  ASSERT_TRUE(timer->hold());
  timer->start(0);
  timer->stop(0);
  timer->release();
  EXPECT_TRUE(timer->synchronize(in(20s)));
  EXPECT_EQ(device(), 0);
  fail_next("aclrtRecordEvent", 107000);
  EXPECT_THROW(timer->start(0), Error);
  timer.reset();
  EXPECT_EQ(device(), 0) << "also after an error";
  set_device(1);
  call<int(void*)>("aclrtDestroyStream", other);
}

TEST_F(AscendContract, S79AStreamNamedOnItsDeviceIsOpenedFromAnother) {
  set_device(1);
  void* const other = create_stream();
  const Stream target = platform->stream(other);
  set_device(0);
  EXPECT_FALSE(target.device->capturing(other));
  auto timer = target.device->open(other, 1);
  EXPECT_EQ(device(), 0);
  ASSERT_TRUE(timer->hold());
  timer->start(0);
  timer->stop(0);
  timer->release();
  EXPECT_TRUE(timer->synchronize(in(20s)));
  EXPECT_EQ(device(), 0);
  timer.reset();
  set_device(1);
  call<int(void*)>("aclrtDestroyStream", other);
}

TEST_F(AscendContract, AThreadWithoutADeviceIsToldWhatToDo) {
  std::thread([&] {
    try {
      static_cast<void>(platform->stream(stream));
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("aclrtSetDevice"), std::string::npos);
    }
  }).join();
}

TEST_F(AscendContract, WorkThatNeverEndsIsLateAndDoesNotHoldTheDestructor) {
  auto timer = open();
  timer->start(0);
  call<int(void*)>("npu_contract_hang", stream);
  timer->stop(0);
  EXPECT_FALSE(timer->synchronize(in(5ms)));
  EXPECT_THROW(timer->elapsed_ns(0), Error);
  timer.reset();  // returns; what the stream may still touch is left to it
  call<int(void*)>("npu_contract_release", stream);
  check_report = false;
}

TEST_F(AscendContract, WorkOfTheCallerThatNeverEndsDoesNotHoldTheDestructorEither) {
  auto timer = open();
  call<int(void*)>("npu_contract_hang", stream);
  EXPECT_FALSE(timer->synchronize(in(5ms)));
  timer.reset();  // nothing of the timer's own is queued, but freeing waits for all streams
  call<int(void*)>("npu_contract_release", stream);
  check_report = false;
}

TEST_F(AscendContract, AFailedOpenLeavesNothing) {
  for (int after = 0; after < 4; ++after) {
    fail_next("aclrtCreateEventExWithFlag", 207007, after);
    EXPECT_THROW(static_cast<void>(open(2)), Error);
  }
  for (const char* name : {"aclrtMalloc", "aclrtMemset", "aclrtCreateStream"}) {
    fail_next(name, 207001);
    EXPECT_THROW(static_cast<void>(open(2)), Error) << name;
  }
}

TEST_F(AscendContract, AFailedKernelIsAnErrorButNotAFaultUnlessItStays) {
  auto timer = open();
  fail_next("aclrtSynchronizeStream", 507015);
  try {
    timer->synchronize(in(20s));
    FAIL();
  } catch (const DeviceLost&) {
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("507015 (AI Core exception)"), std::string::npos) << text;
  }
  EXPECT_EQ(timer->fault(), std::nullopt);
  EXPECT_TRUE(timer->synchronize(in(20s)));
}

TEST_F(AscendContract, ALostDeviceStaysLost) {
  auto timer = open();
  fail_next("aclrtStreamQuery", 507010);
  EXPECT_THROW(timer->synchronize(in(20s)), DeviceLost);
  EXPECT_TRUE(timer->fault().has_value());
}

TEST_F(AscendContract, ADestroyedStreamIsAClearError) {
  call<int(void*)>("aclrtDestroyStream", stream);
  try {
    static_cast<void>(open());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("destroyed"), std::string::npos) << error.what();
  }
  stream = nullptr;
  check_report = false;  // the misuse is the test's own
}

}  // namespace
}  // namespace disttune::devices
