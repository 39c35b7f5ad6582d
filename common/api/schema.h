#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"

namespace lockstep {

// What the list of fields says to others than the codec. The CRD in charts/ and docs/trainingjob.md
// are files of their own (people and clusters read them without this program); tests compare them
// with these.

struct FieldInfo {
  std::string path;      // spec.train.batch.micro, spec.processGroups[].name
  std::string type;      // with its values: "integer, 0 to 1048576", "string: fp32, bf16"
  std::string fallback;  // what it is if left out: "required", "-" for nothing, else the value
  std::string meaning;
  bool refused = false;  // known, not in this version
};

// Every field of spec and status, in the order of the list.
std::vector<FieldInfo> training_job_fields();

// The openAPIV3Schema of the CRD: structural, without CEL, so that every server from 1.20 on takes
// it. Refused fields are in it, so that a server doesn't prune what validate() must refuse.
Json training_job_schema();

}  // namespace lockstep
