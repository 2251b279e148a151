// Ascend timing over functions that the test scripts: what the contract library has no case of.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "devices/ascend.hpp"
#include "devices/ascend_timer.hpp"
#include "disttune/ascend.hpp"
#include "disttune/error.hpp"

namespace disttune::devices {
namespace {

using namespace std::chrono_literals;

Deadline in(std::chrono::steady_clock::duration time) {
  return std::chrono::steady_clock::now() + time;
}

struct Script {
  int synchronize = 0;
  int elapsed_code = 0;
  float elapsed = 1.5F;
  int capture = 0;
  int subscribe = 0;
  int created = 0;
  int subscribed = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<void (*)(void*), void*>> callbacks;
  bool running = false;
};
std::unique_ptr<Script> script;
int object = 0;

AscendFunctions scripted() {
  AscendFunctions f{};
  f.get_device = [](std::int32_t* device) { return *device = 0; };
  f.get_context = [](void** context) { return *context = &object, 0; };
  f.set_context = [](void*) { return 0; };
  f.device_count = [](std::uint32_t* count) { return *count = 1, 0; };
  f.soc_name = [] { return static_cast<const char*>(nullptr); };
  f.create_event = [](void** event, std::uint32_t) {
    return *event = &object, ++script->created, 0;
  };
  f.destroy_event = [](void*) { return --script->created, 0; };
  f.record = [](void*, void*) { return 0; };
  f.elapsed = [](float* milliseconds, void*, void*) {
    *milliseconds = script->elapsed;
    return script->elapsed_code;
  };
  f.stream_query = [](void*, int* status) {
    const std::lock_guard lock(script->mutex);
    *status = script->callbacks.empty() && !script->running ? 0 : 1;
    return 0;
  };
  f.stream_synchronize = [](void*) { return script->synchronize; };
  return f;
}

/// A runtime of the older kind: callbacks that a subscribed thread of ours must run.
AscendFunctions with_callbacks() {
  AscendFunctions f = scripted();
  f.callback = [](void (*function)(void*), void* argument, int blocks, void*) {
    EXPECT_EQ(blocks, 1);
    const std::lock_guard lock(script->mutex);
    script->callbacks.emplace_back(function, argument);
    script->changed.notify_all();
    return 0;
  };
  f.subscribe = [](std::uint64_t, void*) {
    if (script->subscribe == 0) ++script->subscribed;
    return script->subscribe;
  };
  f.unsubscribe = [](std::uint64_t, void*) { return --script->subscribed, 0; };
  f.process_report = [](std::int32_t milliseconds) {
    std::unique_lock lock(script->mutex);
    if (!script->changed.wait_for(lock, std::chrono::milliseconds(milliseconds),
                                  [] { return !script->callbacks.empty(); })) {
      return 107020;
    }
    const auto [function, argument] = script->callbacks.front();
    script->callbacks.pop_front();
    script->running = true;
    lock.unlock();
    function(argument);
    lock.lock();
    script->running = false;
    return 0;
  };
  return f;
}

class AscendScripted : public testing::Test {
 protected:
  void SetUp() override { script = std::make_unique<Script>(); }
  void TearDown() override {
    timer.reset();
    EXPECT_EQ(script->created, 0);
    EXPECT_EQ(script->subscribed, 0);
  }
  void open(const AscendFunctions& functions) {
    timer = std::make_unique<AscendTimer>(std::make_shared<Ascend>(functions), 0, &object, 1);
  }
  std::unique_ptr<AscendTimer> timer;
};

TEST_F(AscendScripted, AKernelErrorThatStaysLosesTheDevice) {
  open(scripted());
  script->synchronize = 507035;
  try {
    timer->synchronize(in(20s));
    FAIL();
  } catch (const DeviceLost& error) {
    EXPECT_NE(std::string(error.what()).find("507035"), std::string::npos) << error.what();
  }
  script->synchronize = 0;
  EXPECT_TRUE(timer->fault().has_value()) << "nothing heals it";
}

TEST_F(AscendScripted, S65ImpossibleTimesNeverReadAsTimes) {
  open(scripted());
  timer->start(0);
  timer->stop(0);
  EXPECT_THROW(timer->elapsed_ns(0), Error) << "some products would answer with nonsense";
  ASSERT_TRUE(timer->synchronize(in(20s)));
  EXPECT_EQ(timer->elapsed_ns(0), 1'500'000);
  for (const float bad : {0.0F, -2.0F, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    script->elapsed = bad;
    EXPECT_LE(timer->elapsed_ns(0), 0) << bad;
  }
  script->elapsed = 1.0F;
  script->elapsed_code = 107006;
  EXPECT_EQ(timer->elapsed_ns(0), 0);
  timer->start(0);
  EXPECT_THROW(timer->elapsed_ns(0), Error) << "marked again since";
}

TEST_F(AscendScripted, ACaptureInProgressIsSeenBeforeAnythingIsMade) {
  AscendFunctions f = scripted();
  f.capture_info = [](void*, int* status, void**) { return *status = script->capture, 0; };
  script->capture = 1;
  EXPECT_THROW(open(f), CaptureError);
  EXPECT_EQ(script->created, 0);
  const AscendPlatform platform(std::make_shared<Ascend>(f));
  EXPECT_TRUE(platform.stream(&object).device->capturing(&object));
  script->capture = 0;
  EXPECT_FALSE(platform.stream(&object).device->capturing(&object));
  open(f);
}

TEST_F(AscendScripted, WhereHostFunctionsAreMissingCallbacksServe) {
  open(with_callbacks());
  EXPECT_EQ(script->subscribed, 1);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(timer->hold());
    EXPECT_EQ(timer->gate(), "host_function");
    EXPECT_FALSE(timer->synchronize(in(30ms)));
    timer->release();
    EXPECT_TRUE(timer->synchronize(in(20s)));
  }
  ASSERT_TRUE(timer->hold());  // and the destructor opens it
}

TEST_F(AscendScripted, AStreamWhoseCallbacksAreTheCallersIsNotHeld) {
  script->subscribe = 107000;
  open(with_callbacks());
  EXPECT_EQ(timer->gate(), "none");
  EXPECT_FALSE(timer->hold());
}

TEST_F(AscendScripted, WhatIsUnknownIsSaidToBe) {
  const AscendPlatform platform(std::make_shared<Ascend>(scripted()));
  const Stream target = platform.stream(&object);
  EXPECT_EQ(target.device->fingerprint(), Value::dict({{"kind", "ascend"},
                                                       {"soc", "unknown"},
                                                       {"ai_cores", -1},
                                                       {"vector_cores", -1},
                                                       {"l2_bytes", -1},
                                                       {"memory_gib", -1}}));
  EXPECT_EQ(target.device->software(), Value::dict({}));
  open(scripted());
  timer->flush();  // of an unknown size: nothing
}

TEST(Ascend, WithoutTheRuntimeOnlyTheUseOfTheStreamFails) {
  const std::string names[] = {"/nowhere/libacl_rt.so", "/nowhere/libascendcl.so"};
  const AscendPlatform none(names);
  const Stream target = none.stream(&object);
  EXPECT_EQ(target.device->kind(), "ascend");
  try {
    static_cast<void>(target.device->open(&object, 1));
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(names[0]), std::string::npos) << text;
    EXPECT_NE(text.find(names[1]), std::string::npos) << text;
  }
}

TEST(Ascend, ALibraryWithoutANeededFunctionIsNamed) {
  const std::string other = "libm.so.6";
  try {
    Ascend acl(std::span(&other, 1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("aclrtGetDevice"), std::string::npos);
  }
}

}  // namespace
}  // namespace disttune::devices
