// Both implementations of the timer: the host's, and the GPU's on an emulated device.
#include "agent/parallel/step_timer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <utility>

namespace lockstep::parallel {
namespace {

using std::chrono::milliseconds;

double sum_of(const StepNumbers& seconds) {
  double sum = 0;
  for (const auto& part : {seconds.data_seconds, seconds.forward_seconds, seconds.backward_seconds,
                           seconds.communication_seconds, seconds.update_seconds}) {
    sum += part.value();
  }
  return sum;
}

TEST(HostStepTimer, AddsUpPartsByTheClockAndCountsTheRestAsCommunication) {
  kernels::Stream stream;
  ManualClock clock;
  const auto timer = make_step_timer(stream, clock);
  for (int step = 1; step <= 2; ++step) {
    clock.advance(milliseconds(77));  // between steps
    ASSERT_TRUE(timer->begin(nullptr).ok());
    for (int micro = 0; micro < 2; ++micro) {
      clock.advance(milliseconds(1));
      ASSERT_TRUE(timer->lap(StepPart::kData).ok());
      clock.advance(milliseconds(10 * step));
      ASSERT_TRUE(timer->lap(StepPart::kForward).ok());
      clock.advance(milliseconds(20));
      ASSERT_TRUE(timer->lap(StepPart::kBackward).ok());
    }
    clock.advance(milliseconds(3));
    ASSERT_TRUE(timer->lap(StepPart::kCommunication).ok());
    clock.advance(milliseconds(5));
    ASSERT_TRUE(timer->lap(StepPart::kUpdate).ok());
    clock.advance(milliseconds(4));
    StepNumbers seconds;
    ASSERT_TRUE(timer->end(seconds).ok());
    EXPECT_DOUBLE_EQ(*seconds.data_seconds, 0.002);
    EXPECT_DOUBLE_EQ(*seconds.forward_seconds, 0.02 * step);
    EXPECT_DOUBLE_EQ(*seconds.backward_seconds, 0.04);
    EXPECT_DOUBLE_EQ(*seconds.communication_seconds, 0.007);
    EXPECT_DOUBLE_EQ(*seconds.update_seconds, 0.005);
    EXPECT_DOUBLE_EQ(*seconds.step_seconds, sum_of(seconds));
  }
}

const Action kForward{.kind = ActionKind::kForward, .micro_batch = 2};
const Action kBackward{.kind = ActionKind::kBackward, .micro_batch = 2};

// Begins a step, laps a forward and a backward, and ends it.
void take_step(StepTimer& timer, TimelineRecorder* recorder, const std::function<void()>& work) {
  ASSERT_TRUE(timer.begin(recorder).ok());
  work();
  ASSERT_TRUE(timer.lap(StepPart::kUpdate).ok());
  timer.enter(kForward);
  work();
  ASSERT_TRUE(timer.lap(StepPart::kForward).ok());
  timer.enter(kBackward);
  work();
  ASSERT_TRUE(timer.lap(StepPart::kCommunication).ok());
  work();
  ASSERT_TRUE(timer.lap(StepPart::kBackward).ok());
}

// The actions and parts of take_step()'s records, which lie back to back.
void expect_records(const RankTimeline& timeline) {
  ASSERT_EQ(timeline.records.size(), 5u);
  const std::optional<ActionKind> kinds[] = {
      {}, ActionKind::kForward, ActionKind::kBackward, ActionKind::kBackward, {}};
  const StepPart parts[] = {StepPart::kUpdate, StepPart::kForward, StepPart::kCommunication,
                            StepPart::kBackward, StepPart::kCommunication};
  int64_t end_ns = 0;
  for (size_t i = 0; i < timeline.records.size(); ++i) {
    const TimelineRecord& record = timeline.records[i];
    EXPECT_EQ(record.action, kinds[i]) << i;
    EXPECT_EQ(record.part, parts[i]) << i;
    EXPECT_EQ(record.micro_batch, kinds[i] ? 2 : -1) << i;
    EXPECT_EQ(record.begin_ns, end_ns) << i;
    end_ns = record.end_ns;
  }
  ASSERT_EQ(timeline.steps.size(), 1u);
  EXPECT_EQ(timeline.steps[0].end_ns, end_ns) << "the end of the step is recorded, too";
}

TEST(HostStepTimer, RecordsEachLapWithItsAction) {
  kernels::Stream stream;
  ManualClock clock;
  const auto timer = make_step_timer(stream, clock);
  TimelineRecorder recorder(16);
  recorder.expect_step(1);
  take_step(*timer, &recorder, [&] { clock.advance(milliseconds(3)); });
  clock.advance(milliseconds(1));
  StepNumbers seconds;
  ASSERT_TRUE(timer->end(seconds).ok());
  EXPECT_DOUBLE_EQ(*seconds.backward_seconds, 0.003) << "the recording changes no number";
  RankTimeline timeline;
  recorder.move_to(timeline);
  expect_records(timeline);
  EXPECT_EQ(timeline.records[1].end_ns, 6'000'000);
  EXPECT_EQ(timeline.steps[0].end_ns, 13'000'000);
}

// Counts how often it is read.
class CountingClock final : public Clock {
 public:
  TimePoint now() const override {
    ++reads;
    return clock_.now();
  }
  WallTime wall_now() const override { return clock_.wall_now(); }

  mutable int reads = 0;

 private:
  SystemClock clock_;
};

TEST(HostStepTimer, ReadsTheClockNoMoreOftenWhenItRecords) {
  kernels::Stream stream;
  const CountingClock clock;
  const auto timer = make_step_timer(stream, clock);
  TimelineRecorder recorder(16);
  StepNumbers seconds;
  take_step(*timer, nullptr, [] {});
  ASSERT_TRUE(timer->end(seconds).ok());
  const int reads = std::exchange(clock.reads, 0);
  EXPECT_FALSE(recorder.has_steps());
  take_step(*timer, &recorder, [] {});
  ASSERT_TRUE(timer->end(seconds).ok());
  EXPECT_EQ(clock.reads, reads);
  EXPECT_TRUE(recorder.has_steps());
  ASSERT_TRUE(timer->lap(StepPart::kForward).ok()) << "as an evaluation does between steps";
  RankTimeline timeline;
  recorder.move_to(timeline);
  EXPECT_EQ(timeline.records.size(), 5u);
  take_step(*timer, nullptr, [] {});
  ASSERT_TRUE(timer->end(seconds).ok());
  EXPECT_FALSE(recorder.has_steps()) << "a recorder is for one step";
}

constexpr kernels::Device kCuda{kernels::DeviceType::kCuda, 0};
constexpr size_t kBytes = size_t{1} << 22;

// An emulated device with work to do.
struct Busy {
  kernels::Stream stream = kernels::Stream::create(kCuda).value();
  kernels::Buffer from = kernels::Buffer::allocate(kCuda, kBytes).value();
  kernels::Buffer to = kernels::Buffer::allocate(kCuda, kBytes).value();

  void work() {
    ASSERT_TRUE(
        kernels::copy_bytes(stream, {.to = to.data(), .from = from.data(), .bytes = kBytes}).ok());
  }
};

TEST(DeviceStepTimer, TakesThePartsFromTheDeviceAndTheTotalFromTheHost) {
  Busy busy;
  const ManualClock host;  // never advances: no part is measured by the host
  const auto timer = make_step_timer(busy.stream, host);
  ASSERT_TRUE(timer->begin(nullptr).ok());
  busy.work();
  ASSERT_TRUE(timer->lap(StepPart::kForward).ok());
  busy.work();
  ASSERT_TRUE(timer->lap(StepPart::kUpdate).ok());
  ASSERT_TRUE(busy.stream.synchronize().ok());
  StepNumbers seconds;
  ASSERT_TRUE(timer->end(seconds).ok());
  EXPECT_GT(seconds.forward_seconds, 0);
  EXPECT_GT(seconds.update_seconds, 0);
  EXPECT_EQ(seconds.data_seconds, 0);
  EXPECT_EQ(seconds.backward_seconds, 0);
  EXPECT_EQ(seconds.communication_seconds, 0);
  EXPECT_EQ(seconds.step_seconds, 0);
}

TEST(DeviceStepTimer, RecordsWhatTheDeviceSpends) {
  Busy busy;
  const SystemClock clock;
  const auto timer = make_step_timer(busy.stream, clock);
  TimelineRecorder recorder(16);
  recorder.expect_step(1);
  take_step(*timer, &recorder, [&] { busy.work(); });
  ASSERT_TRUE(busy.stream.synchronize().ok());
  StepNumbers seconds;
  ASSERT_TRUE(timer->end(seconds).ok());
  RankTimeline timeline;
  recorder.move_to(timeline);
  expect_records(timeline);
  const TimelineRecord& forward = timeline.records[1];
  EXPECT_NEAR(static_cast<double>(forward.end_ns - forward.begin_ns) * 1e-9,
              *seconds.forward_seconds, 1e-8);
}

TEST(DeviceStepTimer, HasPartsThatAddUpToNoMoreThanTheTotal) {
  Busy busy;
  const SystemClock clock;
  const auto timer = make_step_timer(busy.stream, clock);
  for (const int micros : {1, 3, 2}) {
    ASSERT_TRUE(timer->begin(nullptr).ok());
    for (int micro = 0; micro < micros; ++micro) {
      for (const StepPart part : {StepPart::kData, StepPart::kForward, StepPart::kBackward}) {
        busy.work();
        ASSERT_TRUE(timer->lap(part).ok());
      }
    }
    for (const StepPart part : {StepPart::kCommunication, StepPart::kUpdate}) {
      busy.work();
      ASSERT_TRUE(timer->lap(part).ok());
    }
    ASSERT_TRUE(busy.stream.synchronize().ok());
    StepNumbers seconds;
    ASSERT_TRUE(timer->end(seconds).ok());
    for (const auto& part :
         {seconds.data_seconds, seconds.forward_seconds, seconds.backward_seconds,
          seconds.communication_seconds, seconds.update_seconds}) {
      EXPECT_GT(part, 0);
    }
    EXPECT_LE(sum_of(seconds), seconds.step_seconds);
  }
}

}  // namespace
}  // namespace lockstep::parallel
