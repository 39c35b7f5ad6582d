#include "common/layout/schedule_check.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "common/layout/schedule_play.h"

namespace lockstep {
namespace {

using MicroChunk = std::pair<int64_t, int64_t>;  // micro-batch, chunk

// Checks the list of one stage.
class StageCheck {
 public:
  StageCheck(const PipelineShape& shape, int64_t stage, std::vector<std::string>& problems)
      : shape_(shape), stage_(stage), problems_(problems) {}

  void run(const std::vector<Action>& actions) {
    for (index_ = 0; index_ < actions.size(); ++index_) {
      const Action& action = actions[index_];
      if (is_in_range(action)) check(action);
    }
    index_ = actions.size();
    check_end(actions);
  }

 private:
  void add(const std::string& problem) {
    problems_.push_back("stage " + std::to_string(stage_) + ", action " + std::to_string(index_) +
                        ": " + problem);
  }

  bool is_in_range(const Action& action) {
    const bool of_micro = is_of_micro_batch(action.kind);
    const bool has_chunk = action.chunk >= 0 && action.chunk < (of_micro ? shape_.chunks : 1);
    const bool has_micro =
        of_micro ? action.micro_batch >= 0 && action.micro_batch < shape_.micro_batches
                 : action.micro_batch == -1;
    const bool moves = is_send(action.kind) || is_receive(action.kind);
    const bool has_peer =
        moves ? action.peer >= 0 && action.peer < shape_.stages && action.peer != stage_
              : action.peer == -1;
    const bool may_complete = action.kind == gradients_in(shape_) || !action.completes_gradients;
    const bool is_split = gradients_in(shape_) == ActionKind::kBackwardWeights;
    const bool is_known = action.kind != ActionKind::kBackwardWeights || is_split;
    if (has_chunk && has_micro && has_peer && may_complete && is_known) return true;
    add(describe(action) + " does not exist");
    return false;
  }

  int64_t part(const Action& action) const { return shape_.part(stage_, action.chunk); }
  bool is_last(int64_t part) const { return part == shape_.parts() - 1; }
  // The stage of a neighbouring part; -1 if there is none or it is this stage.
  int64_t other_stage(int64_t part) const {
    if (part < 0 || part >= shape_.parts()) return -1;
    const int64_t stage = part % shape_.stages;
    return stage == stage_ ? -1 : stage;
  }

  // Notes that it happened.
  void once(const Action& action) {
    if (!done_[action.kind].insert({action.micro_batch, action.chunk}).second) {
      add(describe(action) + " comes twice");
    }
  }
  void needs(ActionKind kind, const Action& action) {
    needs(kind, MicroChunk{action.micro_batch, action.chunk}, action);
  }
  void needs(ActionKind kind, MicroChunk what, const Action& action) {
    if (done_[kind].contains(what)) return;
    add(describe(action) + " comes before " + std::string(action_name(kind)));
  }
  void expect_peer(int64_t expected, const Action& action) {
    if (action.peer == expected) return;
    if (expected < 0) return add(describe(action) + ": there is nothing to send or receive");
    add(describe(action) + ": its peer is stage " + std::to_string(expected));
  }

  void check(const Action& action) {
    once(action);
    if (updated_) add(describe(action) + " comes after the update");
    switch (action.kind) {
      case ActionKind::kTake:
        return check_take(action);
      case ActionKind::kReceiveActivation:
        return expect_peer(other_stage(part(action) - 1), action);
      case ActionKind::kReceiveGradient:
        return expect_peer(other_stage(part(action) + 1), action);
      case ActionKind::kForward:
        return check_forward(action);
      case ActionKind::kBackward:
        return check_backward(action);
      case ActionKind::kBackwardWeights:
        needs(ActionKind::kBackward, action);
        return check_gradients(action);
      case ActionKind::kSendActivation:
        needs(ActionKind::kForward, action);
        return expect_peer(other_stage(part(action) + 1), action);
      case ActionKind::kSendGradient:
        needs(ActionKind::kBackward, action);
        return expect_peer(other_stage(part(action) - 1), action);
      case ActionKind::kFinishReductions:
        return;  // its place is checked at the end
      case ActionKind::kUpdate:
        updated_ = true;
        return needs(ActionKind::kFinishReductions, {-1, 0}, action);
    }
  }

  void check_take(const Action& action) {
    const bool is_read = stage_ == 0 || stage_ == shape_.stages - 1;
    if (action.chunk != 0 || !is_read) add(describe(action) + ": nothing reads it");
    if (action.micro_batch != taken_++) add(describe(action) + ": takes must ascend");
  }

  void check_forward(const Action& action) {
    const int64_t mine = part(action);
    if (mine == 0 || is_last(mine)) {
      needs(ActionKind::kTake, {action.micro_batch, 0}, action);
    }
    if (other_stage(mine - 1) >= 0) needs(ActionKind::kReceiveActivation, action);
    if (mine > 0 && other_stage(mine - 1) < 0) {
      needs(ActionKind::kForward, {action.micro_batch, action.chunk - 1}, action);
    }
  }

  void check_backward(const Action& action) {
    needs(ActionKind::kForward, action);
    const int64_t mine = part(action);
    if (other_stage(mine + 1) >= 0) needs(ActionKind::kReceiveGradient, action);
    if (!is_last(mine) && other_stage(mine + 1) < 0) {
      needs(ActionKind::kBackward, {action.micro_batch, action.chunk + 1}, action);
    }
    if (action.kind == gradients_in(shape_)) return check_gradients(action);
    if (action.micro_batch != passed_[action.chunk]++) {
      add(describe(action) + ": backwards must ascend");
    }
  }

  // The gradients of parameters are added in the same order whatever the schedule.
  void check_gradients(const Action& action) {
    int64_t& count = backwards_[action.chunk];
    if (action.micro_batch != count) add(describe(action) + ": backwards must ascend");
    const bool completes = ++count == shape_.micro_batches;
    if (action.completes_gradients != completes) {
      add(describe(action) + (completes ? " completes the gradients and does not say so"
                                        : " does not complete the gradients"));
    }
    if (done_[ActionKind::kFinishReductions].contains({-1, 0})) {
      add(describe(action) + " comes after the reductions");
    }
  }

  void check_end(const std::vector<Action>& actions) {
    for (int64_t chunk = 0; chunk < shape_.chunks; ++chunk) {
      const int64_t mine = shape_.part(stage_, chunk);
      for (int64_t micro = 0; micro < shape_.micro_batches; ++micro) {
        expect(ActionKind::kForward, micro, chunk);
        expect(ActionKind::kBackward, micro, chunk);
        expect(gradients_in(shape_), micro, chunk);
        if (other_stage(mine + 1) >= 0) expect(ActionKind::kSendActivation, micro, chunk);
        if (other_stage(mine - 1) >= 0) expect(ActionKind::kSendGradient, micro, chunk);
      }
    }
    expect(ActionKind::kFinishReductions, -1, 0);
    expect(ActionKind::kUpdate, -1, 0);
    const int64_t peak = peak_in_flight(actions);
    const int64_t bound = in_flight_bound(shape_, stage_);
    if (peak > bound) {
      add(std::to_string(peak) + " micro-batches are in flight, at most " + std::to_string(bound) +
          " fit");
    }
  }
  void expect(ActionKind kind, int64_t micro_batch, int64_t chunk) {
    if (done_[kind].contains({micro_batch, chunk})) return;
    add(describe({.kind = kind, .micro_batch = micro_batch, .chunk = chunk}) + " is missing");
  }

  const PipelineShape& shape_;
  int64_t stage_;
  std::vector<std::string>& problems_;
  size_t index_ = 0;
  std::map<ActionKind, std::set<MicroChunk>> done_;
  std::map<int64_t, int64_t> backwards_;  // of each chunk: those that add to gradients
  std::map<int64_t, int64_t> passed_;     // of each chunk: those that do not, where they are apart
  int64_t taken_ = 0;
  bool updated_ = false;
};

}  // namespace

std::vector<std::string> schedule_problems(const PipelineShape& shape,
                                           const PipelineSchedule& schedule) {
  if (static_cast<int64_t>(schedule.size()) != shape.stages) {
    return {"the schedule has " + std::to_string(schedule.size()) + " lists for " +
            std::to_string(shape.stages) + " stages"};
  }
  std::vector<std::string> problems;
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    StageCheck(shape, stage, problems).run(schedule[static_cast<size_t>(stage)]);
  }
  if (problems.empty()) play(shape, schedule, problems);
  return problems;
}

int64_t in_flight_bound(const PipelineShape& shape, int64_t stage) {
  const int64_t following = shape.stages - stage - 1;
  switch (shape.kind) {
    case PipelineKind::kNaive:
      return 1;
    case PipelineKind::kGpipe:
      return shape.micro_batches;
    case PipelineKind::kOneForwardOneBackward:
      return std::min(shape.micro_batches, following + 1);
    case PipelineKind::kZeroBubble:
      return std::min(shape.micro_batches, shape.stages);
    case PipelineKind::kPipeDream:
      return following + 1;
    case PipelineKind::kInterleaved:
      break;
  }
  return std::min(shape.micro_batches * shape.chunks,
                  following * 2 + (shape.chunks - 1) * shape.stages + 1);
}

}  // namespace lockstep
