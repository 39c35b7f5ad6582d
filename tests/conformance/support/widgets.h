#pragma once

#include <string>

#include "tests/conformance/support/case.h"

namespace lockstep::conformance {

// Cases about custom resources: a kind of the suite's own, whose definition is made at the first
// such case and removed at the end of the run.
class WidgetCase : public Case {
 protected:
  void SetUp() override;

  // "<run>.conformance.lockstep.dev": another one for each run.
  static const std::string& group();
  static std::string group_version() { return group() + "/v1"; }
  std::string widgets() const { return path(group_version(), "widgets"); }
  // A valid widget; `spec` is laid over {"color": "red"}.
  static Json widget(const std::string& name, const Json& spec = Json::object());
};

// A definition of `kind` (Widget) in `group`, with `spec_schema` as the schema of its spec.
Json definition_of(const std::string& group, const std::string& kind, const Json& spec_schema);
// Makes it and waits until its objects are served; fails the case where that does not come.
void install_definition(const Json& definition);

// The TrainingJob's definition of that folder of charts/lockstep/files; and the one for this run's
// server, by its version: crds-cel, with rules, from 1.25 on, else crds.
Json our_definition(const std::string& folder);
Json our_definition();

inline constexpr char kDefinitions[] = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

}  // namespace lockstep::conformance
