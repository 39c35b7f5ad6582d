#pragma once

#include <string>

#include "tests/conformance/support/case.h"

namespace lockstep::conformance {

// A case about custom resources. Uses a kind of the suite's own, whose definition is created for
// the first such case and removed at the end of the run.
class WidgetCase : public Case {
 protected:
  void SetUp() override;

  // "<run>.conformance.lockstep.dev", unique to the run.
  static const std::string& group();
  static std::string group_version() { return group() + "/v1"; }
  std::string widgets() const { return path(group_version(), "widgets"); }
  // Returns a valid widget. `spec` is merged into {"color": "red"}.
  static Json widget(const std::string& name, const Json& spec = Json::object());
};

// Returns a definition of `kind` (Widget) in `group`, with `spec_schema` as the schema of its spec.
Json definition_of(const std::string& group, const std::string& kind, const Json& spec_schema);
// Creates the definition and waits until its objects are served. Fails the case if they aren't in
// time.
void install_definition(const Json& definition);

// Returns the TrainingJob's definition in that folder of charts/lockstep/files. Without a folder,
// chooses by the version of this run's server: crds-cel, with rules, from 1.30 on, else crds.
Json our_definition(const std::string& folder);
Json our_definition();

inline constexpr char kDefinitions[] = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

}  // namespace lockstep::conformance
