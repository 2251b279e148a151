// OpenCL timing on whatever platform is here, PoCL for example. Skipped, with the reason, where
// there is none.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "devices/opencl.hpp"
#include "devices/opencl_timer.hpp"
#include "disttune/error.hpp"
#include "disttune/opencl.hpp"

namespace disttune::devices {
namespace {

using namespace std::chrono_literals;

constexpr const char* k_source = R"(
kernel void work(global volatile int* out, int steps) {
  unsigned x = get_global_id(0) + 1;
  for (int i = 0; i < steps; ++i) x = x * 1664525u + 1013904223u;
  out[1] = (int)x;
  out[0] += 1;
}
)";

Deadline in(std::chrono::steady_clock::duration time) {
  return std::chrono::steady_clock::now() + time;
}

class OpenClTest : public testing::Test {
 protected:
  void SetUp() override {
    cl_platform_id platform = nullptr;
    if (clGetPlatformIDs(1, &platform, nullptr) != CL_SUCCESS) {
      GTEST_SKIP() << "no OpenCL platform here";
    }
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &m_device, nullptr) != CL_SUCCESS) {
      GTEST_SKIP() << "the OpenCL platform has no device";
    }
    m_context = clCreateContext(nullptr, 1, &m_device, nullptr, nullptr, nullptr);
    m_program = clCreateProgramWithSource(m_context, 1, const_cast<const char**>(&k_source),
                                          nullptr, nullptr);
    ASSERT_EQ(clBuildProgram(m_program, 1, &m_device, "", nullptr, nullptr), CL_SUCCESS);
    m_kernel = clCreateKernel(m_program, "work", nullptr);
    m_buffer = clCreateBuffer(m_context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, sizeof m_memory,
                              m_memory, nullptr);
    clSetKernelArg(m_kernel, 0, sizeof m_buffer, &m_buffer);
    queue = make_queue(CL_QUEUE_PROFILING_ENABLE);
    // The first launch of a kernel compiles it.
    launch(queue, 1);
    ASSERT_EQ(clFinish(queue), CL_SUCCESS);
    ASSERT_EQ(runs(), 1);
  }
  void TearDown() override {
    if (m_context == nullptr) return;
    for (cl_command_queue each : m_queues) clReleaseCommandQueue(each);
    clReleaseMemObject(m_buffer);
    clReleaseKernel(m_kernel);
    clReleaseProgram(m_program);
    clReleaseContext(m_context);
  }

  cl_command_queue make_queue(cl_command_queue_properties properties, cl_device_id on = nullptr) {
    m_queues.push_back(
        clCreateCommandQueue(m_context, on != nullptr ? on : m_device, properties, nullptr));
    return m_queues.back();
  }
  void launch(cl_command_queue on, int steps) {
    clSetKernelArg(m_kernel, 1, sizeof steps, &steps);
    const std::size_t one = 1;
    ASSERT_EQ(clEnqueueNDRangeKernel(on, m_kernel, 1, nullptr, &one, &one, 0, nullptr, nullptr),
              CL_SUCCESS);
  }
  /// How often the kernel has run; only a device on the host lets us look without waiting.
  [[nodiscard]] int runs() const { return static_cast<volatile const int*>(m_memory)[0]; }

  cl_command_queue queue = nullptr;
  cl_device_id m_device = nullptr;
  cl_context m_context = nullptr;

 private:
  alignas(4096) int m_memory[1024] = {};
  cl_program m_program = nullptr;
  cl_kernel m_kernel = nullptr;
  cl_mem m_buffer = nullptr;
  std::vector<cl_command_queue> m_queues;
};

TEST_F(OpenClTest, TheDeviceSaysWhoItIs) {
  const Stream target = opencl(queue);
  EXPECT_EQ(target.device->kind(), "opencl");
  EXPECT_EQ(target.device->clock(), "device");
  EXPECT_EQ(target.handle, queue);
  const std::string hardware(target.device->fingerprint().text());
  EXPECT_NE(hardware.find("\"kind\": \"opencl\""), std::string::npos) << hardware;
  EXPECT_EQ(hardware.find("\"compute_units\": 0"), std::string::npos) << hardware;
  std::vector<char> version(256);
  clGetDeviceInfo(m_device, CL_DRIVER_VERSION, version.size(), version.data(), nullptr);
  EXPECT_EQ(hardware.find(version.data()), std::string::npos) << "software is no hardware";
  EXPECT_NE(target.device->software().text().find(version.data()), std::string::npos);
  EXPECT_EQ(target.device.get(), opencl(queue).device.get()) << "one Device each";
}

TEST_F(OpenClTest, SamplesAreTheDevicesTime) {
  auto timer = opencl(queue).device->open(queue, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    timer->start(i);
    if (i != 1) launch(queue, i == 0 ? 10 : 100'000'000);
    timer->stop(i);
  }
  ASSERT_TRUE(timer->synchronize(in(60s)));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_GT(timer->elapsed_ns(i), 0) << i;
  // A multiplication and an addition take no less than a tenth of a nanosecond each.
  EXPECT_GT(timer->elapsed_ns(2), 10'000'000);
  EXPECT_LT(timer->elapsed_ns(0), timer->elapsed_ns(2));
  EXPECT_LT(timer->elapsed_ns(1), timer->elapsed_ns(2));
}

TEST_F(OpenClTest, TheGateHoldsQueuedWorkUntilItIsReleased) {
  auto timer = opencl(queue).device->open(queue, 1);
  for (int round = 0; round < 3; ++round) {
    const int before = runs();
    ASSERT_TRUE(timer->hold());
    EXPECT_EQ(timer->gate(), "user_event");
    timer->start(0);
    launch(queue, 10);
    timer->stop(0);
    EXPECT_FALSE(timer->synchronize(in(20ms)));
    EXPECT_EQ(runs(), before);
    EXPECT_THROW(timer->elapsed_ns(0), Error) << "read too early";
    std::thread([&] {
      timer->release();
      timer->release();
    }).join();
    ASSERT_TRUE(timer->synchronize(in(60s)));
    EXPECT_EQ(runs(), before + 1);
    EXPECT_GT(timer->elapsed_ns(0), 0);
  }
}

TEST_F(OpenClTest, HostTimeIsInTheSampleOnlyWithoutTheGate) {
  auto timer = opencl(queue).device->open(queue, 2);
  const auto sample = [&](std::size_t i) {
    timer->start(i);
    i == 0 ? clFinish(queue) : clFlush(queue);  // without a gate: the mark has been taken
    std::this_thread::sleep_for(200ms);
    launch(queue, 10);
    timer->stop(i);
  };
  sample(0);
  ASSERT_TRUE(timer->synchronize(in(60s)));
  ASSERT_TRUE(timer->hold());
  sample(1);
  timer->release();
  ASSERT_TRUE(timer->synchronize(in(60s)));
  EXPECT_GE(timer->elapsed_ns(0), 190'000'000);
  EXPECT_LT(timer->elapsed_ns(1), timer->elapsed_ns(0));
}

TEST_F(OpenClTest, ATimerHoldsItsQueueAsLongAsItLives) {
  const auto references = [&] {
    cl_uint count = 0;
    clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof count, &count, nullptr);
    return count;
  };
  const cl_uint before = references();
  auto timer = opencl(queue).device->open(queue, 1);
  EXPECT_EQ(references(), before + 1);
  timer.reset();
  EXPECT_EQ(references(), before);
}

TEST_F(OpenClTest, ATimerThatGoesOpensItsGate) {
  auto timer = opencl(queue).device->open(queue, 1);
  ASSERT_TRUE(timer->hold());
  timer->start(0);
  launch(queue, 10);
  timer.reset();
  EXPECT_EQ(clFinish(queue), CL_SUCCESS);
  EXPECT_EQ(runs(), 2);
}

TEST_F(OpenClTest, AnOutOfOrderQueueKeepsItsWorkBetweenTheMarks) {
  cl_command_queue loose =
      make_queue(CL_QUEUE_PROFILING_ENABLE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  auto timer = opencl(loose).device->open(loose, 2);
  ASSERT_TRUE(timer->hold());
  timer->flush();
  timer->start(0);
  launch(loose, 100'000'000);
  timer->stop(0);
  timer->start(1);
  timer->stop(1);
  EXPECT_FALSE(timer->synchronize(in(20ms)));
  EXPECT_EQ(runs(), 1);
  timer->release();
  ASSERT_TRUE(timer->synchronize(in(60s)));
  EXPECT_GT(timer->elapsed_ns(0), 10'000'000);
  EXPECT_LT(timer->elapsed_ns(1), timer->elapsed_ns(0));
}

TEST_F(OpenClTest, AQueueWithoutProfilingIsTimedByTheHost) {
  cl_command_queue plain = make_queue(0);
  const Stream target = opencl(plain);
  EXPECT_EQ(target.device->clock(), "host");
  EXPECT_NE(target.device->information().text().find("CL_QUEUE_PROFILING_ENABLE"),
            std::string::npos);
  EXPECT_EQ(target.device->fingerprint(), opencl(queue).device->fingerprint());
  auto timer = target.device->open(plain, 1);
  EXPECT_FALSE(timer->hold());
  EXPECT_EQ(timer->gate(), "none");
  timer->start(0);
  launch(plain, 100'000'000);
  timer->stop(0);
  EXPECT_EQ(runs(), 2) << "the second mark waits for the work";
  EXPECT_GT(timer->elapsed_ns(0), 10'000'000);
  EXPECT_TRUE(timer->synchronize(in(60s)));
}

TEST_F(OpenClTest, AHeldQueueDoesNotHoldAnother) {
  cl_command_queue other = make_queue(CL_QUEUE_PROFILING_ENABLE);
  auto held = opencl(queue).device->open(queue, 1);
  auto free = opencl(other).device->open(other, 1);
  ASSERT_TRUE(held->hold());
  held->start(0);
  held->stop(0);
  free->start(0);
  launch(other, 10);
  free->stop(0);
  EXPECT_TRUE(free->synchronize(in(60s)));
  EXPECT_EQ(runs(), 2);
  EXPECT_FALSE(held->synchronize(in(1ms)));
  held->release();
  EXPECT_TRUE(held->synchronize(in(60s)));
}

TEST_F(OpenClTest, WorkThatDoesNotEndIsLate) {
  cl_event never = clCreateUserEvent(m_context, nullptr);
  clEnqueueMarkerWithWaitList(queue, 1, &never, nullptr);
  auto timer = opencl(queue).device->open(queue, 1);
  EXPECT_FALSE(timer->synchronize(in(20ms)));
  EXPECT_FALSE(timer->synchronize(in(0ms)));
  timer.reset();  // returns
  clSetUserEventStatus(never, CL_COMPLETE);
  clReleaseEvent(never);
  EXPECT_EQ(clFinish(queue), CL_SUCCESS);
}

TEST_F(OpenClTest, ASampleThatWasNotMarkedIsAnError) {
  auto timer = opencl(queue).device->open(queue, 1);
  EXPECT_THROW(timer->elapsed_ns(0), Error);
  EXPECT_THROW(timer->elapsed_ns(1), Error);
  EXPECT_THROW(timer->start(1), Error);
  timer->start(0);
  EXPECT_THROW(timer->elapsed_ns(0), Error);
  EXPECT_TRUE(timer->synchronize(in(60s)));
}

TEST_F(OpenClTest, PartOfADeviceIsADeviceToo) {
  const cl_device_partition_property half[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
  cl_device_id parts[256] = {};
  cl_uint count = 0;
  if (clCreateSubDevices(m_device, half, 256, parts, &count) != CL_SUCCESS || count < 2) {
    GTEST_SKIP() << "this device cannot be divided";
  }
  cl_context context = clCreateContext(nullptr, 1, parts, nullptr, nullptr, nullptr);
  cl_command_queue part =
      clCreateCommandQueue(context, parts[0], CL_QUEUE_PROFILING_ENABLE, nullptr);
  {
    const Stream target = opencl(part);
    EXPECT_NE(target.device->index(), opencl(queue).device->index());
    EXPECT_NE(target.device->fingerprint(), opencl(queue).device->fingerprint());
    auto timer = target.device->open(part, 1);
    timer->start(0);
    timer->stop(0);
    EXPECT_TRUE(timer->synchronize(in(60s)));
  }
  clReleaseCommandQueue(part);
  clReleaseContext(context);
  for (cl_uint i = 0; i < count; ++i) clReleaseDevice(parts[i]);
}

// An implementation that says what the test wants: PoCL itself dies of failed commands.
struct Script {
  int status = CL_COMPLETE;
  int enqueue = CL_SUCCESS;
  int create = CL_SUCCESS;
  std::uint64_t ends[2] = {100, 350};
  int reads = 0;
  int references = 1;
  int events = 0;
};
Script script;

OpenClFunctions scripted() {
  OpenClFunctions f{};
  f.queue_info = [](void*, std::uint32_t what, std::size_t size, void* value, std::size_t*) {
    const std::uint64_t profiling = CL_QUEUE_PROFILING_ENABLE;
    std::memcpy(value, &profiling, size);
    static_cast<void>(what);
    return CL_SUCCESS;
  };
  f.device_info = [](void*, std::uint32_t what, std::size_t size, void* value, std::size_t*) {
    const std::uint64_t answer = what == CL_DEVICE_GLOBAL_MEM_CACHE_SIZE ? 1000 : 0;
    std::memcpy(value, &answer, size);
    return CL_SUCCESS;
  };
  f.retain_queue = [](void*) { return ++script.references, CL_SUCCESS; };
  f.release_queue = [](void*) { return --script.references, CL_SUCCESS; };
  f.create_user_event = [](void*, int* code) -> void* {
    *code = script.create;
    if (script.create != CL_SUCCESS) return nullptr;
    ++script.events;
    return &script;
  };
  f.set_user_event = [](void*, int) { return CL_SUCCESS; };
  f.release_event = [](void*) { return --script.events, CL_SUCCESS; };
  f.marker = [](void*, std::uint32_t, void* const*, void** event) -> int {
    if (script.enqueue == CL_SUCCESS && event != nullptr) {
      ++script.events;
      *event = &script;
    }
    return script.enqueue;
  };
  f.barrier = f.marker;
  f.event_info = [](void*, std::uint32_t, std::size_t size, void* value, std::size_t*) {
    std::memcpy(value, &script.status, size);
    return CL_SUCCESS;
  };
  f.profiling_info = [](void*, std::uint32_t, std::size_t size, void* value, std::size_t*) {
    std::memcpy(value, &script.ends[script.reads++ % 2], size);
    return CL_SUCCESS;
  };
  f.flush = [](void*) { return CL_SUCCESS; };
  f.create_buffer = [](void*, std::uint64_t, std::size_t, void*, int* code) -> void* {
    *code = script.create;
    return script.create == CL_SUCCESS ? &script : nullptr;
  };
  f.release_memory = [](void*) { return CL_SUCCESS; };
  f.fill = [](void*, void*, const void*, std::size_t, std::size_t, std::size_t, std::uint32_t,
              void* const*, void**) { return script.enqueue; };
  return f;
}

class OpenClScripted : public testing::Test {
 protected:
  void SetUp() override {
    script = {};
    timer = std::make_unique<OpenClTimer>(std::make_shared<OpenCl>(scripted()), &script, 1);
  }
  void TearDown() override {
    timer.reset();
    EXPECT_EQ(script.references, 1);
    EXPECT_EQ(script.events, 0);
  }
  std::unique_ptr<OpenClTimer> timer;
};

TEST_F(OpenClScripted, ACommandThatEndsAbnormallyLosesTheDevice) {
  EXPECT_EQ(timer->fault(), std::nullopt);
  script.status = CL_OUT_OF_RESOURCES;
  try {
    timer->synchronize(in(60s));
    FAIL();
  } catch (const DeviceLost& error) {
    EXPECT_NE(std::string(error.what()).find("CL_OUT_OF_RESOURCES"), std::string::npos);
  }
  EXPECT_TRUE(timer->fault().has_value());
}

TEST_F(OpenClScripted, AQueueThatIsGoneLosesTheDevice) {
  script.enqueue = CL_INVALID_COMMAND_QUEUE;
  EXPECT_THROW(timer->start(0), DeviceLost);
  EXPECT_TRUE(timer->fault().has_value());
}

TEST_F(OpenClScripted, AnErrorThatPassesLosesNothing) {
  script.enqueue = CL_OUT_OF_HOST_MEMORY;
  EXPECT_THROW(timer->hold(), Error);
  EXPECT_THROW(timer->flush(), Error);
  script.enqueue = CL_SUCCESS;
  script.create = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  EXPECT_THROW(timer->hold(), Error);
  EXPECT_EQ(timer->fault(), std::nullopt);
  script.create = CL_SUCCESS;
  EXPECT_TRUE(timer->hold());
  EXPECT_TRUE(timer->hold()) << "closed again while closed";
}

TEST_F(OpenClScripted, S65ATimeThatRunsBackwardsIsNoTime) {
  timer->start(0);
  timer->stop(0);
  EXPECT_EQ(timer->elapsed_ns(0), 250);
  script.ends[0] = 350;
  script.ends[1] = 100;
  EXPECT_EQ(timer->elapsed_ns(0), -250);
  script.ends[0] = 100;
  EXPECT_EQ(timer->elapsed_ns(0), 0);
}

TEST(OpenCl, NullIsNoQueue) { EXPECT_THROW(static_cast<void>(opencl(nullptr)), Error); }

TEST(OpenCl, WithoutALoaderOnlyTheUseOfTheStreamFails) {
  int object = 0;
  OpenClPlatforms none("/nowhere/libOpenCL.so.1");
  const Stream target = none.stream(&object);
  EXPECT_EQ(target.device->kind(), "opencl");
  try {
    static_cast<void>(target.device->open(&object, 1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/libOpenCL.so.1"), std::string::npos);
  }
}

TEST(OpenCl, ALoaderThatIsTooOldIsNamed) {
  // Any library without the functions will do.
  try {
    OpenCl old("libm.so.6");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("clGetPlatformIDs"), std::string::npos);
  }
}

}  // namespace
}  // namespace disttune::devices
