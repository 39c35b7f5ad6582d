#pragma once

#include <span>
#include <string>

#include "common/api/rules.h"
#include "common/base/json.h"

namespace lockstep {

// CEL rules for what the schema of a TrainingJob cannot express. API servers from Kubernetes 1.25
// on evaluate them (https://kubernetes.io/docs/reference/using-api/cel/), so that `kubectl apply`
// refuses what validate() or the plan would refuse later.
//
// A rule must never refuse what validate() and the plan accept: the status of an object that breaks
// a rule cannot be written. Features that only this version lacks are left to the controller,
// because other versions of it may have them.
struct CelRule {
  std::string path;  // in the schema: "", "spec.train", "spec.failure.rules[]"
  std::string rule;
  std::string message;
  const Rule* from = nullptr;  // its row in the table; nullptr for a fixed field
};

// Returns the rules in document order.
std::span<const CelRule> cel_rules();

// Returns the schema with each rule added at its path, as x-kubernetes-validations.
Json with_cel_rules(Json schema);

}  // namespace lockstep
