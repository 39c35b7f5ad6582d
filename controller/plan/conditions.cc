#include "controller/plan/conditions.h"

#include "common/base/utf8.h"

namespace lockstep::plan {

bool set_condition(TrainingJobStatus& status, ConditionUpdate update) {
  Condition* place = nullptr;
  for (Condition& condition : status.conditions) {
    if (condition.type == update.type) place = &condition;
  }
  if (place == nullptr) {
    place = &status.conditions.emplace_back();
    place->type = update.type;
  }
  const std::string value = update.value ? "True" : "False";
  const bool flipped = place->status != value || place->lastTransitionTime.empty();
  if (flipped) place->lastTransitionTime = std::move(update.time);
  place->status = value;
  place->reason = std::move(update.reason);
  place->message = std::string(utf8_head(update.message, kMessageBytesMax));
  place->observedGeneration = update.generation;
  return flipped;
}

}  // namespace lockstep::plan
