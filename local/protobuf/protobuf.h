#pragma once

#include <string_view>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

// Bodies as typed clients of Go send them: kubectl from 1.32 on, for `create namespace` and the
// like. Answers are JSON, which such clients accept too.
inline constexpr std::string_view kProtobufType = "application/vnd.kubernetes.protobuf";

// The object in a body of that type, as a client would have written it in JSON: with apiVersion and
// kind, without what is empty. Known kinds: Namespace, ConfigMap, Secret, Service and
// DeleteOptions, which is what kubectl sends so; unknown fields are skipped, as every reader of
// protobuf does. kInvalid: another kind, or not such a body. Bounded as parse_json is.
// Source: Kubernetes, "API concepts: protobuf encoding", and the numbers of the fields in the
// generated.proto files of k8s.io/api.
Result<Json> json_from_protobuf(std::string_view body);

}  // namespace lockstep::local
