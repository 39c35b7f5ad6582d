#include "local/store/access_review.h"

#include <string>

#include "local/store/write.h"

namespace lockstep::local {
namespace {

constexpr char kVersion[] = "authorization.k8s.io/v1";
constexpr char kFolder[] = "/apis/authorization.k8s.io/v1/";
constexpr char kAccess[] = "SelfSubjectAccessReview";
constexpr char kRules[] = "SelfSubjectRulesReview";

std::string_view kind_at(std::string_view path) {
  if (!path.starts_with(kFolder)) return {};
  path.remove_prefix(sizeof kFolder - 1);
  if (path == "selfsubjectaccessreviews") return kAccess;
  return path == "selfsubjectrulesreviews" ? kRules : std::string_view();
}

bool is_given(const Json& spec, const char* key) {
  const Json* value = find_member(spec, key);
  return value != nullptr && value->is_object();
}

// Returns the status of a review with this spec, or the error in the spec.
std::variant<Json, ApiResponse> outcome(std::string_view kind, const Json& spec) {
  if (kind == kRules) {
    if (string_or(spec, "namespace", "").empty()) return bad_request("no namespace on request");
    const Json all = Json::array({"*"});
    return Json{
        {"resourceRules", Json::array({{{"verbs", all}, {"apiGroups", all}, {"resources", all}}})},
        {"nonResourceRules", Json::array({{{"verbs", all}, {"nonResourceURLs", all}}})},
        {"incomplete", false}};
  }
  if (is_given(spec, "resourceAttributes") == is_given(spec, "nonResourceAttributes")) {
    static const ResourceType kReview{.group = kAccessGroup, .kind = kAccess};
    return invalid_object(
        kReview, "",
        {wrong_field(nullptr,
                     "exactly one of nonResourceAttributes or resourceAttributes must be specified",
                     "spec.resourceAttributes")});
  }
  return Json{{"allowed", true}};
}

}  // namespace

std::optional<ApiResponse> review_access(const ApiPath& path, const ApiRequest& request) {
  const std::string_view kind = kind_at(path.path);
  if (kind.empty()) return std::nullopt;
  if (request.method != "POST") return method_not_allowed();
  auto parsed = parse_body(request);
  if (auto* error = std::get_if<ApiResponse>(&parsed)) return *error;
  Json& review = std::get<Json>(parsed);
  if (!review.is_object()) return bad_request("the body is not an object");
  if (string_or(review, "kind", std::string(kind)) != kind ||
      string_or(review, "apiVersion", kVersion) != kVersion)
    return bad_request("the body is not a " + std::string(kind) + " of " + kVersion);
  const Json* spec = find_member(review, "spec");
  auto found = outcome(kind, spec == nullptr ? Json::object() : *spec);
  if (auto* error = std::get_if<ApiResponse>(&found)) return *error;
  return ApiResponse{201,
                     {{"kind", kind},
                      {"apiVersion", kVersion},
                      {"metadata", {{"creationTimestamp", nullptr}}},
                      {"spec", *spec},
                      {"status", std::get<Json>(std::move(found))}}};
}

Json access_resources() {
  Json resources = Json::array();
  for (const auto& [name, kind] : {std::pair("selfsubjectaccessreviews", kAccess),
                                   std::pair("selfsubjectrulesreviews", kRules)})
    resources.push_back({{"name", name},
                         {"singularName", ""},
                         {"namespaced", false},
                         {"kind", kind},
                         {"verbs", Json::array({"create"})}});
  return resources;
}

}  // namespace lockstep::local
