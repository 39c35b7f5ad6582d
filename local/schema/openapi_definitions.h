#pragma once

#include <string>
#include <string_view>

#include "local/schema/built_in_types.h"
#include "local/schema/schema.h"

namespace lockstep::local {

// The two kinds of documents differ in where definitions are, and in what a property that refers to
// one may say beside it.
enum class OpenApiVersion { kV2, kV3 };

// "io.k8s.api.core.v1.Pod".
std::string definition_name(const TypeRow& row);
// "dev.lockstep.v1alpha1.TrainingJob", as API servers name the definition of a custom resource.
std::string definition_name(std::string_view group, std::string_view version,
                            std::string_view kind);

// {"$ref": ...}.
Json reference_to(OpenApiVersion version, const std::string& definition);

// Adds the definition of the type, and of all types that it refers to, where they are missing.
void add_definitions(OpenApiVersion version, const TypeRow& row, Json& definitions);

// The definition of a CRD's schema, with apiVersion, kind and metadata. For v2 it leaves out what
// kubectl's reader of it can't take, as an API server does: defaults, the type of what may be null,
// and what is below a field that keeps unknown ones.
Json definition_of(OpenApiVersion version, const SchemaNode& schema);

// apiVersion and kind, which rows of the tables leave out.
void add_type_members(Json& definition);

// {group, version, kind}.
Json group_version_kind(std::string_view group, std::string_view version, std::string_view kind);

}  // namespace lockstep::local
