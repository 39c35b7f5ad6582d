#include "common/layout/stage_pass.h"

namespace lockstep {
namespace {

Action action_of(const Pass& pass, ActionKind kind, int64_t peer = -1) {
  return {.kind = kind,
          .micro_batch = pass.micro_batch,
          .chunk = pass.chunk,
          .peer = peer,
          .step = pass.step,
          .version = pass.version};
}

// Returns the stage that has a part; -1 if there is no such part or it is on this stage,
// whose parts need no message.
int64_t neighbour(const PipelineShape& shape, int64_t stage, int64_t part) {
  if (part < 0 || part >= shape.parts()) return -1;
  const int64_t other = part % shape.stages;
  return other == stage ? -1 : other;
}

// The first part reads tokens, the last one targets. A single stage takes them once.
bool takes_data(const PipelineShape& shape, int64_t part) {
  return part == 0 || (part == shape.parts() - 1 && shape.stages > 1);
}

}  // namespace

void add_pass(const PipelineShape& shape, int64_t stage, const Pass& pass,
              std::vector<Action>& actions) {
  const int64_t part = shape.part(stage, pass.chunk);
  const bool is_forward = pass.kind == ActionKind::kForward;
  if (is_forward && takes_data(shape, part)) {
    Action take = action_of(pass, ActionKind::kTake);
    take.chunk = 0;
    actions.push_back(take);
  }
  const bool has_messages = pass.kind != ActionKind::kBackwardWeights;
  const int64_t from = neighbour(shape, stage, is_forward ? part - 1 : part + 1);
  if (has_messages && from >= 0) {
    actions.push_back(action_of(
        pass, is_forward ? ActionKind::kReceiveActivation : ActionKind::kReceiveGradient, from));
  }
  actions.push_back(action_of(pass, pass.kind));
  actions.back().completes_gradients = pass.completes_gradients;
  const int64_t to = neighbour(shape, stage, is_forward ? part + 1 : part - 1);
  if (has_messages && to >= 0) {
    actions.push_back(
        action_of(pass, is_forward ? ActionKind::kSendActivation : ActionKind::kSendGradient, to));
  }
}

}  // namespace lockstep
