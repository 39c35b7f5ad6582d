#pragma once

#include <string>
#include <string_view>

#include "local/schema/built_in_types.h"
#include "local/schema/schema.h"

namespace lockstep::local {

// The versions differ in where definitions are, and in what a property with a `$ref` may contain in
// addition.
enum class OpenApiVersion { kV2, kV3 };

// Returns a name such as "io.k8s.api.core.v1.Pod".
std::string definition_name(const TypeRow& row);
// Returns the name that API servers give the definition of a custom resource:
// "dev.lockstep.v1alpha1.TrainingJob".
std::string definition_name(std::string_view group, std::string_view version,
                            std::string_view kind);

// Returns {"$ref": ...}.
Json reference_to(OpenApiVersion version, const std::string& definition);

// Adds the definitions of the type and of all types that it refers to, unless they exist.
void add_definitions(OpenApiVersion version, const TypeRow& row, Json& definitions);

// Returns the definition for a CRD's schema, with apiVersion, kind and metadata. For v2 it leaves
// out what kubectl can't read, as an API server does: defaults, the type of nullable values, and
// everything below a field that keeps unknown fields.
Json definition_of(OpenApiVersion version, const SchemaNode& schema);

// Adds apiVersion and kind, which the tables' rows leave out.
void add_type_members(Json& definition);

// Returns {group, version, kind}.
Json group_version_kind(std::string_view group, std::string_view version, std::string_view kind);

}  // namespace lockstep::local
