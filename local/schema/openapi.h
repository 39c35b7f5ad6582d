#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "local/schema/schema.h"

namespace lockstep::local {

// The OpenAPI documents of a server. kubectl reads them for `explain`, for the three-way merges of
// `apply`, for client-side validation, and to learn whether the server validates fields and
// supports dry runs.
// Source: Kubernetes, "The Kubernetes API: OpenAPI interface definition".

// One resource that the server serves.
struct OpenApiResource {
  std::string group;  // "" for the core group
  std::string version;
  std::string plural;
  std::string kind;
  bool namespaced = true;
  std::vector<std::string> subresources;     // status, scale: those that accept PATCH
  std::shared_ptr<const SchemaNode> schema;  // from a CRD; null: built_in_schema knows the kind
};

// The media type in the response's Content-Type. kubectl asks for it with an @ before the version,
// which Go can't parse.
inline constexpr char kOpenApiV2ContentType[] =
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

// Complete response bodies. Immutable, so that requests can share them.
struct OpenApiDocuments {
  std::string v2_json;      // GET /openapi/v2, application/json
  std::string v2_protobuf;  // GET /openapi/v2, if the Accept header asks for it: the same as
                            // gnostic's openapi.v2.Document
  std::string v3_index;     // GET /openapi/v3
  // GET /openapi/v3/<key>, always application/json; the query's hash is ignored. Keys are "api/v1",
  // "apis/lockstep.dev/v1alpha1".
  std::map<std::string, std::string, std::less<>> v3;
};

// Makes the documents of these resources: definitions of their kinds, their lists and all types
// that they refer to, plus paths and operations. Each operation has its
// x-kubernetes-group-version-kind and the query parameters that the server supports (dryRun,
// fieldManager, fieldValidation, force). A kind without a schema becomes an object with any fields.
OpenApiDocuments make_openapi_documents(std::span<const OpenApiResource> resources);

// Encodes the /openapi/v2 document as gnostic's openapi.v2.Document in protobuf's wire format.
// Leaves out keywords that kubectl does not read (examples, security, tags, xml).
// Source: github.com/google/gnostic, openapiv2/OpenAPIv2.proto.
std::string openapi_v2_protobuf(const Json& document);

}  // namespace lockstep::local
