#include "agent/model/mlp/mlp_layout.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/layout/bump_allocator.h"

namespace lockstep::model {

MlpLayout mlp_layout(const MlpConfig& config, const ActivationShape& shape, int64_t value_bytes) {
  CHECK(shape.sequence == 1);
  const int64_t rows = shape.batch;
  const bool trains = shape.mode == PassMode::kTrain;
  MlpLayout layout;
  BumpAllocator arena(value_bytes);
  if (value_bytes != static_cast<int64_t>(sizeof(float))) {
    layout.features = arena.values(rows * config.inputs);
  }
  const bool keeps_inputs = trains && config.activation == MlpActivation::kGelu;
  for (const int64_t width : config.hidden) {
    layout.hidden.push_back(arena.values(rows * width));
    layout.hidden_in.push_back(keeps_inputs ? arena.values(rows * width) : -1);
  }
  layout.outputs = arena.values(rows * config.outputs);
  layout.losses = arena.floats(rows);
  if (!trains && config.task == MlpTask::kClassification) layout.hits = arena.floats(rows);
  layout.bytes = arena.bytes();
  if (!trains || config.hidden.empty()) return layout;
  BumpAllocator scratch(value_bytes);
  for (int64_t& place : layout.gradients) {
    place = scratch.values(rows * *std::ranges::max_element(config.hidden));
  }
  layout.scratch_bytes = scratch.bytes();
  return layout;
}

}  // namespace lockstep::model
