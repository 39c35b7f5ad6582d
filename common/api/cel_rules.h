#pragma once

#include <span>
#include <string>

#include "common/base/json.h"

namespace lockstep {

// What the schema of a TrainingJob can't say and a server from Kubernetes 1.25 on can check at once
// (https://kubernetes.io/docs/reference/using-api/cel/), so that `kubectl apply` refuses what
// validate() or the plan would refuse later. A rule never refuses what those accept: an object that
// breaks one can't have its status written. What this version merely doesn't carry out yet is left
// to the controller, since other versions of it may.
struct CelRule {
  std::string path;  // of the schema: "", "spec.train", "spec.failure.rules[]"
  std::string rule;
  std::string message;
};

// In the order of the document.
std::span<const CelRule> cel_rules();

// The schema with each rule at its path, as x-kubernetes-validations. Nothing else is changed.
Json with_cel_rules(Json schema);

}  // namespace lockstep
