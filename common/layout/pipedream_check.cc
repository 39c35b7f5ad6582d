#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "common/layout/pipedream_schedule.h"
#include "common/layout/schedule_check.h"
#include "common/layout/schedule_play.h"

namespace lockstep {
namespace {

// Checks the list of one stage.
class OverlapCheck {
 public:
  OverlapCheck(const PipelineShape& shape, int64_t stage, const StepWindow& steps,
               std::vector<std::string>& problems)
      : shape_(shape),
        stage_(stage),
        first_(steps.first),
        last_(steps.last),
        live_(steps.first - 1),
        problems_(problems) {}

  void run(const std::vector<Action>& actions) {
    for (index_ = 0; index_ < actions.size(); ++index_) {
      const Action& action = actions[index_];
      if (is_in_range(action)) check(action);
    }
    if (live_ != last_) add("the last update is that of step " + std::to_string(live_));
    expect_each(ActionKind::kForward);
    expect_each(ActionKind::kBackward);
    if (stage_ + 1 < shape_.stages) expect_each(ActionKind::kSendActivation);
    if (stage_ > 0) expect_each(ActionKind::kSendGradient);
    const int64_t bound = in_flight_bound(shape_, stage_);
    if (peak_in_flight(actions) > bound) add("more micro-batches are in flight than fit");
  }

 private:
  using Micro = std::pair<int64_t, int64_t>;  // step, micro-batch

  void add(const std::string& problem) {
    problems_.push_back("stage " + std::to_string(stage_) + ", action " + std::to_string(index_) +
                        ": " + problem);
  }

  bool is_in_range(const Action& action) {
    const bool of_micro = is_of_micro_batch(action.kind);
    const bool has_micro =
        of_micro ? action.micro_batch >= 0 && action.micro_batch < shape_.micro_batches
                 : action.micro_batch == -1;
    const bool has_step = action.step >= first_ && action.step <= last_;
    if (has_micro && has_step && action.chunk == 0 && action.peer == peer_of(action.kind) &&
        action.kind != ActionKind::kBackwardWeights) {
      return true;
    }
    add(describe(action) + " does not exist");
    return false;
  }

  int64_t peer_of(ActionKind kind) const {
    const bool is_after =
        kind == ActionKind::kSendActivation || kind == ActionKind::kReceiveGradient;
    if (!is_send(kind) && !is_receive(kind)) return -1;
    const int64_t peer = stage_ + (is_after ? 1 : -1);
    return peer >= 0 && peer < shape_.stages ? peer : -2;  // -2: no action has it
  }

  void needs(ActionKind kind, const Action& action) {
    if (done_[kind].contains({action.step, action.micro_batch})) return;
    add(describe(action) + " comes before " + std::string(action_name(kind)));
  }

  // Actions of a kind happen once each, in ascending order.
  void ascends(const Action& action) {
    std::set<Micro>& done = done_[action.kind];
    const Micro micro{action.step, action.micro_batch};
    if (!done.empty() && *done.rbegin() >= micro) {
      add(describe(action) + " comes twice or too late");
    }
    done.insert(micro);
  }

  void check(const Action& action) {
    ascends(action);
    switch (action.kind) {
      case ActionKind::kForward:
        return check_forward(action);
      case ActionKind::kBackward:
        return check_backward(action);
      case ActionKind::kSendActivation:
        return needs(ActionKind::kForward, action);
      case ActionKind::kSendGradient:
        return needs(ActionKind::kBackward, action);
      case ActionKind::kFinishReductions:
        return needs(
            ActionKind::kBackward,
            {.kind = action.kind, .micro_batch = shape_.micro_batches - 1, .step = action.step});
      case ActionKind::kUpdate:
        return check_update(action);
      default:
        return;  // data and messages are needed by the passes that read them
    }
  }

  void check_forward(const Action& action) {
    if (stage_ == 0 || stage_ == shape_.stages - 1) needs(ActionKind::kTake, action);
    if (stage_ > 0) needs(ActionKind::kReceiveActivation, action);
    read_.emplace(Micro{action.step, action.micro_batch}, action.version);
    check_version(action, shape_.versions.is_vertical ? entered(action) : live_);
  }

  // Returns the first stage's latest version when the micro-batch enters it: that stage has
  // completed the batches of all micro-batches that are `stages` or more before it.
  int64_t entered(const Action& action) const {
    int64_t completed = first_ - 1;
    const int64_t number = action.step * shape_.micro_batches + action.micro_batch;
    while ((completed + 2) * shape_.micro_batches - 1 <= number - shape_.stages) ++completed;
    return completed;
  }

  void check_backward(const Action& action) {
    needs(ActionKind::kForward, action);
    if (stage_ + 1 < shape_.stages) needs(ActionKind::kReceiveGradient, action);
    if (action.step != live_ + 1) add(describe(action) + ": the update before it is missing");
    const bool completes = action.micro_batch + 1 == shape_.micro_batches;
    if (action.completes_gradients != completes) {
      add(describe(action) + " is wrong about completing the gradients");
    }
    check_version(action,
                  shape_.versions.stashes ? read_[Micro{action.step, action.micro_batch}] : live_);
  }

  void check_update(const Action& action) {
    needs(ActionKind::kFinishReductions, action);
    if (action.step != ++live_) add(describe(action) + ": updates must ascend by 1");
  }

  void check_version(const Action& action, int64_t expected) {
    const int64_t oldest = live_ - stashed_versions(shape_, stage_);
    if (action.version != expected) {
      add(describe(action) + " reads version " + std::to_string(action.version) + ", expected " +
          std::to_string(expected));
    } else if (action.version > live_ || action.version < oldest) {
      add(describe(action) + " reads version " + std::to_string(action.version) +
          ", which the stage does not have");
    }
  }

  void expect_each(ActionKind kind) {
    const auto expected = static_cast<size_t>((last_ - first_ + 1) * shape_.micro_batches);
    if (done_[kind].size() == expected) return;
    add(std::string(action_name(kind)) + ": expected " + std::to_string(expected) + ", found " +
        std::to_string(done_[kind].size()));
  }

  const PipelineShape& shape_;
  int64_t stage_;
  int64_t first_;
  int64_t last_;
  int64_t live_;  // version
  std::vector<std::string>& problems_;
  size_t index_ = 0;
  std::map<ActionKind, std::set<Micro>> done_;
  std::map<Micro, int64_t> read_;  // version
};

}  // namespace

std::vector<std::string> pipedream_problems(const PipelineShape& shape,
                                            const PipelineSchedule& schedule, int64_t first,
                                            int64_t last) {
  if (std::ssize(schedule) != shape.stages) {
    return {"the schedule has " + std::to_string(schedule.size()) + " lists for " +
            std::to_string(shape.stages) + " stages"};
  }
  std::vector<std::string> problems;
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    OverlapCheck(shape, stage, {.first = first, .step = first, .last = last}, problems)
        .run(schedule[static_cast<size_t>(stage)]);
  }
  if (problems.empty()) play(shape, schedule, problems);
  return problems;
}

}  // namespace lockstep
