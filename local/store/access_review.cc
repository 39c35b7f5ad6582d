#include "local/store/access_review.h"

#include <algorithm>
#include <string>

#include "local/store/write.h"

namespace lockstep::local {
namespace {

constexpr char kAccess[] = "SelfSubjectAccessReview";
constexpr char kRules[] = "SelfSubjectRulesReview";
constexpr char kSubject[] = "SelfSubjectReview";

struct Review {
  std::string_view group;
  std::string_view plural;
  std::string_view kind;
};
constexpr Review kReviews[] = {{kAccessGroup, "selfsubjectaccessreviews", kAccess},
                               {kAccessGroup, "selfsubjectrulesreviews", kRules},
                               {kSubjectGroup, "selfsubjectreviews", kSubject}};

std::string version_of(const Review& review) {
  return std::string(review.group) + "/v1";
}

bool is_given(const Json& spec, const char* key) {
  const Json* value = find_member(spec, key);
  return value != nullptr && value->is_object();
}

// Returns the status of a review with this spec, or the error in the spec.
std::variant<Json, ApiResponse> outcome(std::string_view kind, const Json& spec) {
  if (kind == kSubject) {
    return Json{{"userInfo", {{"username", kUserName}, {"groups", {"system:authenticated"}}}}};
  }
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
  const auto review = std::find_if(std::begin(kReviews), std::end(kReviews), [&](const Review& r) {
    return path.path == "/apis/" + version_of(r) + "/" + std::string(r.plural);
  });
  if (review == std::end(kReviews)) return std::nullopt;
  if (request.method != "POST") return method_not_allowed();
  auto parsed = parse_body(request);
  if (auto* error = std::get_if<ApiResponse>(&parsed)) return *error;
  Json& given = std::get<Json>(parsed);
  if (!given.is_object()) return bad_request("the body is not an object");
  const std::string kind(review->kind);
  const std::string version = version_of(*review);
  if (string_or(given, "kind", kind) != kind || string_or(given, "apiVersion", version) != version)
    return bad_request("the body is not a " + kind + " of " + version);
  const Json* spec = find_member(given, "spec");
  auto found = outcome(kind, spec == nullptr ? Json::object() : *spec);
  if (auto* error = std::get_if<ApiResponse>(&found)) return *error;
  Json answer = {{"kind", kind},
                 {"apiVersion", version},
                 {"metadata", {{"creationTimestamp", nullptr}}},
                 {"status", std::get<Json>(std::move(found))}};
  if (spec != nullptr && kind != kSubject) answer["spec"] = *spec;
  return ApiResponse{201, std::move(answer)};
}

Json review_resources(std::string_view group) {
  Json resources = Json::array();
  for (const Review& review : kReviews) {
    if (review.group != group) continue;
    resources.push_back({{"name", review.plural},
                         {"singularName", ""},
                         {"namespaced", false},
                         {"kind", review.kind},
                         {"verbs", Json::array({"create"})}});
  }
  return resources;
}

}  // namespace lockstep::local
