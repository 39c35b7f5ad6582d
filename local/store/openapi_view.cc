#include "local/store/openapi_view.h"

#include <utility>
#include <vector>

namespace lockstep::local {
namespace {

constexpr std::string_view kJson = "application/json";
constexpr std::string_view kV3 = "/openapi/v3";

std::vector<OpenApiResource> resources_of(const TypeRegistry& types) {
  std::vector<OpenApiResource> resources;
  for (const ResourceType* type : types.types()) {
    OpenApiResource& resource =
        resources.emplace_back(OpenApiResource{.group = type->group,
                                               .version = type->version,
                                               .plural = type->plural,
                                               .kind = type->kind,
                                               .namespaced = type->namespaced,
                                               .schema = type->schema});
    if (type->has_status) resource.subresources.push_back("status");
    if (type->scale.has_value()) resource.subresources.push_back("scale");
  }
  return resources;
}

ApiResponse text(std::string_view type, const std::string& bytes) {
  ApiResponse response;
  response.raw_type = type;
  response.raw = bytes;
  return response;
}

// kubectl writes the version in the media type with @ or with a dot; real servers accept both.
bool takes_protobuf(std::string_view accept) {
  return accept.find("application/com.github.proto-openapi.spec.v2") != std::string_view::npos;
}

}  // namespace

std::optional<ApiResponse> OpenApiView::answer(const TypeRegistry& types, std::string_view path,
                                               std::string_view accept) {
  if (!path.starts_with("/openapi/")) return std::nullopt;
  if (revision_ != types.revision()) {
    documents_ = make_openapi_documents(resources_of(types));
    revision_ = types.revision();
  }
  if (path == "/openapi/v2") {
    if (takes_protobuf(accept)) return text(kOpenApiV2ContentType, documents_.v2_protobuf);
    return text(kJson, documents_.v2_json);
  }
  if (path == kV3) return text(kJson, documents_.v3_index);
  if (!path.starts_with(std::string(kV3) + "/")) return std::nullopt;
  auto found = documents_.v3.find(path.substr(kV3.size() + 1));
  if (found == documents_.v3.end()) return std::nullopt;
  return text(kJson, found->second);
}

}  // namespace lockstep::local
