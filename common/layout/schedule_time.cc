#include "common/layout/schedule_time.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <tuple>

#include "common/base/check.h"

namespace lockstep {
namespace {

// Plays the actions of all stages.
class Simulation {
 public:
  Simulation(const PipelineShape& shape, const PipelineSchedule& schedule,
             const PassSeconds& seconds)
      : schedule_(schedule),
        forward_(seconds.forward / static_cast<double>(shape.chunks)),
        backward_(seconds.backward / static_cast<double>(shape.chunks)),
        weights_(gradients_in(shape) == ActionKind::kBackwardWeights ? seconds.weights : 0),
        next_(schedule.size()),
        now_(schedule.size()),
        busy_(schedule.size()) {}

  ScheduleTime run() {
    bool has_moved = true;
    while (has_moved) {
      has_moved = false;
      for (size_t stage = 0; stage < schedule_.size(); ++stage) has_moved |= advance(stage);
    }
    for (size_t stage = 0; stage < schedule_.size(); ++stage) {
      CHECK(next_[stage] == schedule_[stage].size());
    }
    return result();
  }

 private:
  using Channel = std::tuple<int64_t, int64_t, bool>;  // sender, receiver, whether of gradients

  // Runs the stage's actions up to one that waits for a message. Returns whether it ran any.
  bool advance(size_t stage) {
    const size_t begin = next_[stage];
    const std::vector<Action>& actions = schedule_[stage];
    while (next_[stage] < actions.size() && run(static_cast<int64_t>(stage), actions[next_[stage]]))
      ++next_[stage];
    return next_[stage] > begin;
  }

  bool run(int64_t stage, const Action& action) {
    const auto at = static_cast<size_t>(stage);
    switch (action.kind) {
      case ActionKind::kForward:
        compute(at, forward_);
        return true;
      case ActionKind::kBackward:
        compute(at, backward_ - weights_);
        return true;
      case ActionKind::kBackwardWeights:
        compute(at, weights_);
        return true;
      case ActionKind::kSendActivation:
      case ActionKind::kSendGradient:
        sent_[{stage, action.peer, action.kind == ActionKind::kSendGradient}].push_back(now_[at]);
        return true;
      case ActionKind::kReceiveActivation:
      case ActionKind::kReceiveGradient:
        return receive(at,
                       sent_[{action.peer, stage, action.kind == ActionKind::kReceiveGradient}]);
      default:
        return true;
    }
  }

  void compute(size_t stage, double seconds) {
    now_[stage] += seconds;
    busy_[stage] += seconds;
  }

  bool receive(size_t stage, std::deque<double>& messages) {
    if (messages.empty()) return false;
    now_[stage] = std::max(now_[stage], messages.front());
    messages.pop_front();
    return true;
  }

  ScheduleTime result() const {
    ScheduleTime time;
    for (const double end : now_) time.step_seconds = std::max(time.step_seconds, end);
    for (const double busy : busy_) time.idle_seconds.push_back(time.step_seconds - busy);
    const double idle = std::accumulate(time.idle_seconds.begin(), time.idle_seconds.end(), 0.0);
    const double all = time.step_seconds * static_cast<double>(now_.size());
    time.idle_ratio = all > 0 ? idle / all : 0;
    return time;
  }

  const PipelineSchedule& schedule_;
  double forward_;  // of one chunk
  double backward_;
  double weights_;            // of the backward: those that are computed apart
  std::vector<size_t> next_;  // by stage: its next action
  std::vector<double> now_;   // by stage: when its last action ended
  std::vector<double> busy_;  // by stage
  std::map<Channel, std::deque<double>> sent_;
};

}  // namespace

ScheduleTime schedule_time(const PipelineShape& shape, const PipelineSchedule& schedule,
                           const PassSeconds& seconds) {
  return Simulation(shape, schedule, seconds).run();
}

}  // namespace lockstep
