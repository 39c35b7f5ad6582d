// Tests the runner of the GPU cases when something goes wrong, on the emulated device.
#include "tests/kernels/gpu_cases.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "kernels/device/cuda/intrinsics.cuh"
#include "kernels/device/cuda/launch.cuh"
#include "tests/kernels/op_checks.h"
#include "tests/support/emulated_cuda/devices.h"

namespace lockstep::test {

namespace {

constexpr kernels::Device kDevice{kernels::DeviceType::kCuda, 0};

__global__ void store_at_an_odd_address(char* to) {
  kernels::cuda::store_8_bytes(to + 1, {});
}

void launch_planted(kernels::Stream& stream, const kernels::Buffer& buffer) {
  kernels::cuda::launch(stream, {.name = "planted", .threads = kernels::kWarpThreads},
                        store_at_an_odd_address, static_cast<char*>(buffer.data()));
}

// Breaks the device like a fault on a GPU: every later call fails.
Status planted_launch() {
  TRY_ASSIGN(kernels::Stream stream, kernels::Stream::create(kDevice));
  TRY_ASSIGN(const kernels::Buffer buffer, kernels::Buffer::allocate(kDevice, 64));
  launch_planted(stream, buffer);
  return stream.synchronize();
}

GpuCase passes(const char* name) {
  return {name, [] { return Status(); }};
}

struct Outcome {
  int code = 0;
  std::string output;
};

class GpuCases : public testing::Test {
 protected:
  void TearDown() override { emulated_cuda::reset_devices(); }

  static Outcome run(const std::vector<GpuCase>& cases) {
    char program[] = "gpu_test";
    char* const arguments[] = {program};
    return captured([&] { return run_gpu_cases(cases, arguments); });
  }
  template <class Body>
  static Outcome captured(Body body) {
    testing::internal::CaptureStdout();
    const int code = body();
    return {code, testing::internal::GetCapturedStdout()};
  }
};

void expect_told(const Outcome& outcome, const char* words) {
  EXPECT_NE(outcome.output.find(words), std::string::npos) << words << " in " << outcome.output;
}

TEST_F(GpuCases, GoOnAfterAFailureThatLeftTheDeviceWhole) {
  const Outcome outcome = run({passes("first"),
                               {"second", [] { return expect(false, "a wrong number"); }},
                               passes("third")});
  EXPECT_EQ(outcome.code, 1);
  expect_told(outcome, "second: FAILED: a wrong number");
  expect_told(outcome, "third: ok");
  expect_told(outcome, "3 cases: 2 passed, 1 failed, 0 skipped, 0 not run");
}

TEST_F(GpuCases, AreNotRunOnADeviceThatAFailureBroke) {
  const Outcome outcome =
      run({passes("first"), {"second", planted_launch}, passes("third"), passes("fourth")});
  EXPECT_EQ(outcome.code, 1);
  expect_told(outcome, "second: FAILED: [emulated cuda] planted, block");
  expect_told(outcome, "the device is lost: ");
  expect_told(outcome, "third: not run after a broken context");
  expect_told(outcome, "fourth: not run after a broken context");
  expect_told(outcome, "4 cases: 1 passed, 1 failed, 0 skipped, 2 not run");
}

TEST_F(GpuCases, AreSkippedVisiblyWithoutADevice) {
  const GpuCase cases[] = {passes("first"), {"second", planted_launch}};
  const Outcome outcome = captured([&] { return run_cases(cases, {.has_device = false}); });
  EXPECT_EQ(outcome.code, 77);
  expect_told(outcome, "second: skipped, no CUDA device");
  expect_told(outcome, "2 cases: 0 passed, 0 failed, 2 skipped, 0 not run");
}

// Simulates a crash in a driver while the output goes through a pipe.
TEST_F(GpuCases, AreToldEvenIfTheProgramDiesInTheNext) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    const GpuCase cases[] = {passes("first"), {"second", []() -> Status { ::_exit(3); }}};
    run_cases(cases, {});
    ::_exit(4);
  }
  ::close(ends[1]);
  std::string output;
  char bytes[256];
  for (ssize_t n; (n = ::read(ends[0], bytes, sizeof bytes)) > 0;) {
    output.append(bytes, static_cast<size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_EQ(output, "first: ok\n");
}

TEST_F(GpuCases, WaitForEachKernelWithSync) {
  char program[] = "gpu_test", sync[] = "--sync", other[] = "--fast";
  const auto waits = [] {
    const char* value = std::getenv("CUDA_LAUNCH_BLOCKING");
    return expect(value != nullptr && std::string(value) == "1", "no blocking launches");
  };
  char* const with[] = {program, sync};
  char* const wrong[] = {program, other};
  char* const without[] = {program};
  ::unsetenv("CUDA_LAUNCH_BLOCKING");
  const GpuCase cases[] = {{"waits", waits}};
  EXPECT_EQ(run_gpu_cases(cases, without), 1);
  EXPECT_EQ(run_gpu_cases(cases, with), 0);
  ::unsetenv("CUDA_LAUNCH_BLOCKING");
  EXPECT_EQ(run_gpu_cases(cases, wrong), 2);
}

TEST_F(GpuCases, GoOnInANewProcessWithSkip) {
  char program[] = "gpu_test", skip[] = "--skip", two[] = "2", four[] = "4", word[] = "2x";
  char* const with[] = {program, skip, two};
  const GpuCase cases[] = {{"first", planted_launch}, passes("second"), passes("third")};
  const Outcome outcome = captured([&] { return run_gpu_cases(cases, with); });
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.output, "third: ok\n1 cases: 1 passed, 0 failed, 0 skipped, 0 not run\n");
  char* const too_many[] = {program, skip, four};
  EXPECT_EQ(run_gpu_cases(cases, too_many), 2);
  char* const not_a_number[] = {program, skip, word};
  EXPECT_EQ(run_gpu_cases(cases, not_a_number), 2);
  char* const without_number[] = {program, skip};
  EXPECT_EQ(run_gpu_cases(cases, without_number), 2);
}

TEST_F(GpuCases, TellALaunchThatFailedByItsNameThoughACopyFailsToo) {
  Result<kernels::Stream> stream = kernels::Stream::create(kDevice);
  ASSERT_TRUE(stream.ok());
  stream->fail(internal("planted: too many resources"));  // as launch() does
  char byte = 0;
  const kernels::CopyArgs to_nowhere{.to = nullptr, .from = &byte, .bytes = 1};
  const Status first = kernels::copy_bytes(*stream, to_nowhere);
  ASSERT_FALSE(first.ok());
  EXPECT_NE(first.error().message.find("planted"), std::string::npos) << first.error().message;
  // The first failure was reported; the next call returns its own failure.
  const Status second = kernels::copy_bytes(*stream, to_nowhere);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().message.find("planted"), std::string::npos) << second.error().message;
  EXPECT_TRUE(stream->synchronize().ok());
}

// Simulates a fault after which no allocation succeeds: expects an error instead of an abort, and
// unchanged host values.
TEST(OpCaseTensors, KeepTheFirstFailureOfTheirDevice) {
  kernels::op_cases::Tensors tensors({.device = {kernels::DeviceType::kCuda, 7}});
  tensors.put("x", std::vector<float>{1.0f, 2.0f});
  tensors.put("tokens", std::vector<int32_t>{3});
  tensors.copy("x", "x");
  tensors.get_all();
  ASSERT_FALSE(tensors.status().ok());
  EXPECT_NE(tensors.status().error().message.find("CUDA device 7"), std::string::npos);
  EXPECT_EQ(tensors.get("x"), (std::vector<float>{1.0f, 2.0f}));
}

TEST_F(GpuCases, OfAnOperationAreToldByTheKernelThatFailed) {
  Result<const kernels::OpTable*> ops = kernels::device_ops(kernels::DeviceType::kCuda);
  Result<kernels::Buffer> buffer = kernels::Buffer::allocate(kDevice, 64);
  ASSERT_TRUE(ops.ok() && buffer.ok());
  kernels::op_cases::OpCase c = kernels::op_cases::gelu(5);
  c.forward = [&](const kernels::OpTable&, kernels::Stream& stream, kernels::op_cases::Tensors&) {
    launch_planted(stream, *buffer);
  };
  const auto ran = kernels::op_cases::run_case(c, **ops, {.device = kDevice});
  ASSERT_FALSE(ran.ok());
  EXPECT_NE(ran.error().message.find("planted"), std::string::npos) << ran.error().message;
}

}  // namespace

}  // namespace lockstep::test
