#include "agent/model/mlp/mlp_layout.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/layout/bump_allocator.h"

namespace lockstep::model {

MlpLayout mlp_layout(const MlpConfig& config, const ActivationShape& shape,
                     const MlpLayoutOptions& options) {
  CHECK(shape.sequence == 1);
  const Stage& stage = options.stage;
  const int64_t rows = shape.batch;
  const bool trains = shape.mode == PassMode::kTrain;
  const bool has_loss = stage.end == config.layers();
  MlpLayout layout;
  BumpAllocator arena(options.value_bytes);
  if (stage.begin > 0 || options.value_bytes != static_cast<int64_t>(sizeof(float))) {
    layout.input = arena.values(rows * config.layer_inputs(stage.begin));
  }
  const bool keeps_inputs = trains && config.activation == MlpActivation::kGelu;
  int64_t widest = stage.begin > 0 ? config.layer_inputs(stage.begin) : 0;
  for (int64_t layer = stage.begin; layer < stage.end - (has_loss ? 1 : 0); ++layer) {
    const int64_t width = config.layer_outputs(layer);
    widest = std::max(widest, width);
    layout.hidden.push_back(arena.values(rows * width));
    layout.hidden_in.push_back(keeps_inputs ? arena.values(rows * width) : -1);
    if (trains && options.splits_backward) layout.late.push_back(arena.values(rows * width));
  }
  if (has_loss) {
    layout.outputs = arena.values(rows * config.outputs);
    layout.losses = arena.floats(rows);
    if (!trains && config.task == MlpTask::kClassification) layout.hits = arena.floats(rows);
  }
  layout.bytes = arena.bytes();
  if (!trains || widest == 0) return layout;
  BumpAllocator scratch(options.value_bytes);
  for (int64_t& place : layout.gradients) place = scratch.values(rows * widest);
  layout.scratch_bytes = scratch.bytes();
  return layout;
}

}  // namespace lockstep::model
