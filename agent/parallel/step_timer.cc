#include "agent/parallel/step_timer.h"

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

  Status begin() override {
    seconds_ = {};
    begin_ = mark_ = clock_.now();
    return {};
  }
  Status lap(StepPart part) override {
    const TimePoint now = clock_.now();
    seconds_.add(part, to_seconds(now - std::exchange(mark_, now)));
    last_ = part;
    return {};
  }
  Status end(StepNumbers& numbers) override {
    TRY(lap(last_));
    seconds_.write(numbers);
    numbers.step_seconds = to_seconds(mark_ - begin_);
    return {};
  }

 private:
  const Clock& clock_;
  TimePoint begin_{};
  TimePoint mark_{};
  StepPart last_ = StepPart::kData;
  PartSeconds seconds_;
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
  Status end(StepNumbers& numbers) override {
    PartSeconds seconds;
    for (size_t i = 0; i < parts_.size(); ++i) {
      TRY_ASSIGN(const double lap, events_[i].seconds_until(events_[i + 1]));
      seconds.add(parts_[i], lap);
    }
    seconds.write(numbers);
    numbers.step_seconds = to_seconds(clock_.now() - begin_);
    return {};
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

}  // namespace lockstep::parallel
