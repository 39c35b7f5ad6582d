#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"

namespace lockstep {

// Descriptions generated from the list of fields, for others than the codec. The CRD in charts/ and
// docs/trainingjob.md are separate files (people and clusters read them without this program);
// tests compare them with these.

struct FieldInfo {
  std::string path;      // spec.train.batch.micro, spec.processGroups[].name
  std::string type;      // with its values: "integer, 0 to 1048576", "string: fp32, bf16"
  std::string fallback;  // value if left out: "required", "-" for nothing, else the default
  std::string meaning;
  bool refused = false;  // known, but not supported in this version
};

// Returns every field of spec and status, in list order.
std::vector<FieldInfo> training_job_fields();

// Returns the CRD's openAPIV3Schema: structural and without CEL, so that every server from 1.20 on
// accepts it. It contains refused fields, so that the server does not prune what validate() must
// refuse.
Json training_job_schema();

// Returns where the schema of a field is in that of the job: "spec.failure.rules[]" is
// "/properties/spec/properties/failure/properties/rules/items".
Json::json_pointer schema_pointer(std::string_view path);

}  // namespace lockstep
