#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "local/schema/schema.h"

namespace lockstep::local {

// The OpenAPI documents of a server: what kubectl reads for `explain`, for the three-way merges of
// `apply`, for validation on the client's side, and to learn whether the server checks unknown
// fields and dry-runs. Source: Kubernetes, "The Kubernetes API: OpenAPI interface definition".

// One resource that the server has.
struct OpenApiResource {
  std::string group;  // "" for the core group
  std::string version;
  std::string plural;
  std::string kind;
  bool namespaced = true;
  std::vector<std::string> subresources;     // status, scale; those that can be patched
  std::shared_ptr<const SchemaNode> schema;  // of a CRD; null: a kind that built_in_schema knows
};

// What clients ask for, and what the answer's Content-Type says: Go can't parse the @ of the
// former.
inline constexpr char kOpenApiV2Accept[] =
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
inline constexpr char kOpenApiV2ContentType[] =
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

// Whole bodies, ready to be sent; immutable, so that a server may share them among requests.
struct OpenApiDocuments {
  std::string v2_json;      // GET /openapi/v2, application/json
  std::string v2_protobuf;  // GET /openapi/v2, if the Accept header holds kOpenApiV2Accept: the
                            // same as gnostic's openapi.v2.Document
  std::string v3_index;     // GET /openapi/v3
  // GET /openapi/v3/<key>, application/json whatever the query's hash says: "api/v1",
  // "apis/lockstep.dev/v1alpha1".
  std::map<std::string, std::string, std::less<>> v3;
};

// The documents of these resources: definitions of their kinds with all types that they refer to,
// their lists, and the paths and operations, each with its x-kubernetes-group-version-kind and the
// query parameters that are carried out (dryRun, fieldManager, fieldValidation, force). A kind
// without a schema is described as an object of any fields.
OpenApiDocuments make_openapi_documents(std::span<const OpenApiResource> resources);

// What /openapi/v2 says, as gnostic's openapi.v2.Document in protobuf's wire format. Words that
// kubectl does not read (examples, security, tags, xml) are left out.
// Source: github.com/google/gnostic, openapiv2/OpenAPIv2.proto.
std::string openapi_v2_protobuf(const Json& document);

}  // namespace lockstep::local
