#include "agent/train/step_timer.h"

#include <utility>
#include <vector>

#include "common/base/check.h"

namespace lockstep::train {
namespace {

double& part_of(StepSeconds& seconds, StepPart part) {
  switch (part) {
    case StepPart::kData:
      return seconds.data;
    case StepPart::kForward:
      return seconds.forward;
    case StepPart::kBackward:
      return seconds.backward;
    case StepPart::kCommunication:
      return seconds.communication;
    case StepPart::kUpdate:
      break;
  }
  return seconds.update;
}

class HostStepTimer final : public StepTimer {
 public:
  explicit HostStepTimer(const Clock& clock) : clock_(clock) {}

  Status begin() override {
    seconds_ = {};
    begin_ = mark_ = clock_.now();
    return {};
  }
  Status lap(StepPart part) override {
    const TimePoint now = clock_.now();
    part_of(seconds_, part) += to_seconds(now - std::exchange(mark_, now));
    last_ = part;
    return {};
  }
  Result<StepSeconds> end() override {
    TRY(lap(last_));
    seconds_.total = to_seconds(mark_ - begin_);
    return seconds_;
  }

 private:
  const Clock& clock_;
  TimePoint begin_{};
  TimePoint mark_{};
  StepPart last_ = StepPart::kData;
  StepSeconds seconds_;
};

// Events are made in the first step that needs them, and recorded anew in each.
class DeviceStepTimer final : public StepTimer {
 public:
  DeviceStepTimer(kernels::Stream& stream, const Clock& clock) : stream_(stream), clock_(clock) {}

  Status begin() override {
    begin_ = clock_.now();
    parts_.clear();
    return record(0);
  }
  Status lap(StepPart part) override {
    parts_.push_back(part);
    return record(parts_.size());
  }
  Result<StepSeconds> end() override {
    StepSeconds seconds;
    for (size_t i = 0; i < parts_.size(); ++i) {
      TRY_ASSIGN(const double lap, events_[i].seconds_until(events_[i + 1]));
      part_of(seconds, parts_[i]) += lap;
    }
    seconds.total = to_seconds(clock_.now() - begin_);
    return seconds;
  }

 private:
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
  TimePoint begin_{};
  std::vector<kernels::Event> events_;  // begin()'s, then one a lap
  std::vector<StepPart> parts_;         // by lap
};

}  // namespace

std::unique_ptr<StepTimer> make_step_timer(kernels::Stream& stream, const Clock& clock) {
  if (stream.device().type == kernels::DeviceType::kCpu)
    return std::make_unique<HostStepTimer>(clock);
  return std::make_unique<DeviceStepTimer>(stream, clock);
}

}  // namespace lockstep::train
