#include "common/api/conditions.h"

namespace lockstep {
namespace {

bool has_status(const TrainingJobStatus& status, std::string_view type, std::string_view value) {
  const Condition* condition = find_condition(status, type);
  return condition != nullptr && condition->status == value;
}

}  // namespace

const Condition* find_condition(const TrainingJobStatus& status, std::string_view type) {
  for (const Condition& condition : status.conditions) {
    if (condition.type == type) return &condition;
  }
  return nullptr;
}

bool is_true(const TrainingJobStatus& status, std::string_view type) {
  return has_status(status, type, "True");
}

bool is_false(const TrainingJobStatus& status, std::string_view type) {
  return has_status(status, type, "False");
}

bool is_finished(const TrainingJobStatus& status) {
  return is_true(status, kComplete) || is_true(status, kFailed);
}

}  // namespace lockstep
