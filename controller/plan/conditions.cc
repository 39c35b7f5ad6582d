#include "controller/plan/conditions.h"

#include <utility>

#include "common/base/clock.h"
#include "common/base/utf8.h"
#include "controller/plan/pass.h"

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

bool Pass::set(const char* type, bool value, std::string reason, std::string message) {
  return set_condition(status, {.type = type,
                                .value = value,
                                .reason = std::move(reason),
                                .message = std::move(message),
                                .time = rfc3339(seen.wall_now),
                                .generation = job().metadata.generation});
}

}  // namespace lockstep::plan
