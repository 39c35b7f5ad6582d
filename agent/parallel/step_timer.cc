#include "agent/parallel/step_timer.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

#include "common/base/check.h"

namespace lockstep::parallel {
namespace {

constexpr std::optional<double> StepNumbers::*kParts[] = {
    // By StepPart.
    &StepNumbers::data_seconds,     &StepNumbers::forward_seconds,
    &StepNumbers::backward_seconds, &StepNumbers::communication_seconds,
    &StepNumbers::update_seconds,
};

// The seconds of the parts of one step.
class PartSeconds {
 public:
  void add(StepPart part, double seconds) { seconds_[static_cast<size_t>(part)] += seconds; }
  void write(StepNumbers& numbers) const {
    for (size_t part = 0; part < seconds_.size(); ++part) numbers.*kParts[part] = seconds_[part];
  }

 private:
  std::array<double, std::size(kParts)> seconds_{};
};

class HostStepTimer final : public StepTimer {
 public:
  explicit HostStepTimer(const Clock& clock) : clock_(clock) {}

  Status begin(TimelineRecorder* recorder) override {
    seconds_ = {};
    action_ = nullptr;
    begin_ = mark_ = clock_.now();
    recorder_ = recorder;
    if (recorder_ != nullptr) recorder_->begin_step(begin_);
    return {};
  }
  Status lap(StepPart part) override {
    const TimePoint now = clock_.now();
    const TimePoint begin = std::exchange(mark_, now);
    seconds_.add(part, to_seconds(now - begin));
    if (recorder_ != nullptr) recorder_->add(action_, part, {begin, now});
    return {};
  }
  Status end(StepNumbers& numbers) override {
    action_ = nullptr;
    TRY(lap(StepPart::kCommunication));
    seconds_.write(numbers);
    numbers.step_seconds = to_seconds(mark_ - begin_);
    if (recorder_ != nullptr) std::exchange(recorder_, nullptr)->end_step(mark_);
    return {};
  }

 private:
  const Clock& clock_;
  TimelineRecorder* recorder_ = nullptr;
  TimePoint begin_{};
  TimePoint mark_{};
  PartSeconds seconds_;
};

// Events are made in the first step that needs them, and recorded anew in each. The stream is idle
// when a step begins, so its first event takes place at the host's time, but for a launch.
class DeviceStepTimer final : public StepTimer {
 public:
  DeviceStepTimer(kernels::Stream& stream, const Clock& clock) : stream_(stream), clock_(clock) {}

  Status begin(TimelineRecorder* recorder) override {
    begin_ = clock_.now();
    action_ = nullptr;
    laps_.clear();
    recorder_ = recorder;
    if (recorder_ != nullptr) recorder_->begin_step(begin_);
    return record(0);
  }
  Status lap(StepPart part) override {
    laps_.push_back({part, action_});
    return record(laps_.size());
  }
  Status end(StepNumbers& numbers) override {
    PartSeconds seconds;
    TimePoint mark = begin_;
    for (size_t i = 0; i < laps_.size(); ++i) {
      TRY_ASSIGN(const double lap, events_[i].seconds_until(events_[i + 1]));
      seconds.add(laps_[i].part, lap);
      const TimePoint begin = std::exchange(mark, mark + from_seconds(lap));
      if (recorder_ != nullptr) recorder_->add(laps_[i].action, laps_[i].part, {begin, mark});
    }
    seconds.write(numbers);
    const TimePoint now = clock_.now();
    numbers.step_seconds = to_seconds(now - begin_);
    if (recorder_ == nullptr) return {};
    recorder_->add(nullptr, StepPart::kCommunication, {mark, std::max(mark, now)});
    std::exchange(recorder_, nullptr)->end_step(std::max(mark, now));
    return {};
  }

 private:
  struct Lap {
    StepPart part;
    const Action* action;
  };

  Status record(size_t index) {
    CHECK(index <= events_.size());
    if (index == events_.size()) {
      TRY_ASSIGN(kernels::Event event, kernels::Event::create_timed(stream_.device()));
      events_.push_back(std::move(event));
    }
    return events_[index].record(stream_.handle());
  }

  kernels::Stream& stream_;
  const Clock& clock_;
  TimelineRecorder* recorder_ = nullptr;
  TimePoint begin_{};
  std::vector<kernels::Event> events_;  // begin()'s, then one a lap
  std::vector<Lap> laps_;
};

}  // namespace

std::unique_ptr<StepTimer> make_step_timer(kernels::Stream& stream, const Clock& clock) {
  if (stream.device().type == kernels::DeviceType::kCpu)
    return std::make_unique<HostStepTimer>(clock);
  return std::make_unique<DeviceStepTimer>(stream, clock);
}

}  // namespace lockstep::parallel
