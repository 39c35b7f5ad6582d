#include "local/schema/openapi.h"

#include "common/base/sha256.h"
#include "local/schema/openapi_definitions.h"
#include "local/schema/openapi_paths.h"

namespace lockstep::local {
namespace {

// Returns the row of a built-in kind; null if the kind isn't known.
const TypeRow* built_in_row(const OpenApiResource& resource) {
  const std::string api_version =
      resource.group.empty() ? resource.version : resource.group + "/" + resource.version;
  const std::string_view package = package_of(api_version);
  const TypeRow* row = package.empty() ? nullptr : find_type(package, resource.kind);
  return row != nullptr && row->package == package ? row : nullptr;
}

Json list_of(OpenApiVersion version, const std::string& definition, const TypeRow& list_meta) {
  Json schema = {
      {"type", "object"}, {"description", "A list of these objects."}, {"required", {"items"}}};
  schema["properties"]["items"] = {{"type", "array"}, {"items", reference_to(version, definition)}};
  schema["properties"]["metadata"] = reference_to(version, definition_name(list_meta));
  add_type_members(schema);
  return schema;
}

// Adds the definitions of the resource and of its list. Returns the name of the resource's
// definition.
std::string add_resource(OpenApiVersion version, const OpenApiResource& resource,
                         Json& definitions) {
  const TypeRow* row = resource.schema == nullptr ? built_in_row(resource) : nullptr;
  std::string name = definition_name(resource.group, resource.version, resource.kind);
  if (row != nullptr) {
    name = definition_name(*row);
    add_definitions(version, *row, definitions);
    add_type_members(definitions[name]);
  } else if (resource.schema != nullptr) {
    definitions[name] = definition_of(version, *resource.schema);
  } else {
    definitions[name] = {{"type", "object"}};
  }
  const TypeRow& list_meta = *find_type("meta", "ListMeta");
  add_definitions(version, list_meta, definitions);
  add_definitions(version, *find_type("meta", "ObjectMeta"), definitions);
  const std::string suffixes[] = {"", "List"};
  definitions[name + "List"] = list_of(version, name, list_meta);
  for (const std::string& suffix : suffixes) {
    definitions[name + suffix]["x-kubernetes-group-version-kind"] =
        Json::array({group_version_kind(resource.group, resource.version, resource.kind + suffix)});
  }
  return name;
}

Json information() {
  return {{"title", "Lockstep"}, {"version", "v1"}};
}

Json make_v2(std::span<const OpenApiResource> resources) {
  Json definitions = Json::object(), paths = Json::object();
  for (const OpenApiResource& resource : resources) {
    const std::string name = add_resource(OpenApiVersion::kV2, resource, definitions);
    add_paths(OpenApiVersion::kV2, resource, name, paths);
  }
  return {{"swagger", "2.0"},
          {"info", information()},
          {"paths", std::move(paths)},
          {"definitions", std::move(definitions)}};
}

// Makes one document per group and version, keyed by its path without the leading slash.
std::map<std::string, Json> make_v3(std::span<const OpenApiResource> resources) {
  std::map<std::string, Json> documents;
  for (const OpenApiResource& resource : resources) {
    Json& document = documents[group_path(resource).substr(1)];
    if (document.is_null()) document = {{"openapi", "3.0.0"}, {"info", information()}};
    Json& definitions = document["components"]["schemas"];
    const std::string name = add_resource(OpenApiVersion::kV3, resource, definitions);
    add_paths(OpenApiVersion::kV3, resource, name, document["paths"]);
  }
  return documents;
}

}  // namespace

OpenApiDocuments make_openapi_documents(std::span<const OpenApiResource> resources) {
  OpenApiDocuments documents;
  const Json v2 = make_v2(resources);
  documents.v2_json = dump_json(v2);
  documents.v2_protobuf = openapi_v2_protobuf(v2);
  Json index = {{"paths", Json::object()}};
  for (const auto& [path, document] : make_v3(resources)) {
    std::string text = dump_json(document);
    index["paths"][path]["serverRelativeURL"] =
        "/openapi/v3/" + path + "?hash=" + hex(sha256(text));
    documents.v3[path] = std::move(text);
  }
  documents.v3_index = dump_json(index);
  return documents;
}

}  // namespace lockstep::local
