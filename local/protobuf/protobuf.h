#pragma once

#include <string_view>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

// Bodies as Go's typed clients send them: kubectl from 1.32 on, for `create namespace` and the
// like. Responses are JSON, which such clients accept too.
inline constexpr std::string_view kProtobufType = "application/vnd.kubernetes.protobuf";

// Returns the object in a body of that type, as a client would write it in JSON: with apiVersion
// and kind, without empty fields. Known kinds are those that kubectl sends this way: Namespace,
// ConfigMap, Secret, Service, SelfSubjectAccessReview, SelfSubjectRulesReview, SelfSubjectReview
// and DeleteOptions.
// Skips unknown fields, as every protobuf reader does. kInvalid: another kind, or a malformed body.
// Has the limits of parse_json.
// Source: Kubernetes, "API concepts: protobuf encoding", and the field numbers in the
// generated.proto files of k8s.io/api.
Result<Json> json_from_protobuf(std::string_view body);

}  // namespace lockstep::local
