#pragma once

#include <span>
#include <string>

#include "common/api/rules.h"
#include "common/base/json.h"

namespace lockstep {

// CEL rules for what the schema of a TrainingJob cannot express. API servers from Kubernetes 1.30
// on evaluate them (https://kubernetes.io/docs/reference/using-api/cel/), so that `kubectl apply`
// refuses what validate() or the plan would refuse later.
//
// A rule must never refuse what validate() and the plan accept. Features that only this version
// lacks are left to the controller, because other versions of it may have them.
//
// A server evaluates all rules at every write, of status and of finalizers too. A stored job that
// breaks a rule which is newer than the job must stay manageable, so a rule accepts an update that
// changes nothing that it reads. Servers do this themselves ("ratcheting"), but only if they can
// compare the whole object that has the rule. They cannot compare the root, which every write
// changes, and a spec with a podTemplate, because podTemplate has no schema. The rules there
// compare in CEL, with optionalOldSelf. Source: Kubernetes 1.30 and 1.36, apiextensions-apiserver,
// pkg/registry/customresource/status_strategy.go and pkg/apiserver/schema/cel/validation.go
// (addErr), and apiserver, pkg/cel/common/equality.go (CachedDeepEqual, Key).
struct CelRule {
  std::string path;  // in the schema: "", "spec.train", "spec.failure.rules[]"
  std::string rule;
  std::string message;
  const Rule* from = nullptr;    // its row in the table; nullptr for a fixed field
  bool is_old_optional = false;  // optionalOldSelf: evaluated for new objects too
};

// Returns the rules in document order.
std::span<const CelRule> cel_rules();

// Returns the schema with each rule added at its path, as x-kubernetes-validations.
Json with_cel_rules(Json schema);

}  // namespace lockstep
