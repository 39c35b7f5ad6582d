#include "controller/plan/template_size.h"

#include <algorithm>

#include "controller/plan/conditions.h"
#include "controller/plan/fixed_fields.h"

namespace lockstep::plan {
namespace {

bool has_pods_of_template(const Pass& pass) {
  if (pass.members.empty() || is_true(pass.status, kSuspended)) return false;
  const Problems changes = changed_fields(pass.status.fixed, pass.spec());
  return std::none_of(changes.begin(), changes.end(), [](const std::string& problem) {
    return problem.starts_with("spec.podTemplate:");
  });
}

}  // namespace

Problems template_size_problems(const Pass& pass) {
  const size_t bytes = dump_json(pass.spec().podTemplate).size();
  if (bytes <= kPodTemplateBytesMax || has_pods_of_template(pass)) return {};
  return {"spec.podTemplate: found " + std::to_string(bytes) + " bytes as JSON, expected at most " +
          std::to_string(kPodTemplateBytesMax) + "; move large texts to a ConfigMap and mount it"};
}

}  // namespace lockstep::plan
