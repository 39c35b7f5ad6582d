#include "local/store/api.h"

#include <algorithm>
#include <array>

#include "common/base/log.h"
#include "local/store/access_review.h"
#include "local/store/discovery.h"
#include "local/store/event_view.h"
#include "local/store/object_rules.h"
#include "local/store/table_view.h"
#include "local/store/training_job_crd.h"
#include "local/store/write.h"

namespace lockstep::local {
namespace {

constexpr std::array kNamespaces = {"default", "kube-node-lease", "kube-public", "kube-system"};

constexpr size_t kLoggedMax = 512;  // characters of a target

ObjectKey key_of(const ApiPath& path) {
  return {path.namespace_, path.name};
}

bool goes_into_pods(std::string_view subresource) {
  return subresource == "exec" || subresource == "attach" || subresource == "portforward" ||
         subresource == "proxy";
}

bool is_text_or_absent(const Json& object, const char* key) {
  if (!object.is_object()) return false;
  const Json* value = find_member(object, key);
  return value == nullptr || value->is_null() || value->is_string();
}

// Reads the body of a deletion, which overrides the query. Returns the error if there is one.
std::optional<ApiResponse> read_delete_body(const Json& body, DeleteOptions& options) {
  if (!body.is_object()) return bad_request("the body is not a DeleteOptions object");
  if (body.contains("gracePeriodSeconds") && !body["gracePeriodSeconds"].is_null()) {
    options.grace_period_seconds = int_or(body, "gracePeriodSeconds", -1);
    if (*options.grace_period_seconds < 0)
      return bad_request("gracePeriodSeconds: expected a number of at least 0");
  }
  options.propagation = string_or(body, "propagationPolicy", options.propagation);
  if (const Json* dry_run = find_member(body, "dryRun");
      dry_run != nullptr && !dry_run->is_null()) {
    if (!dry_run->is_array()) return bad_request("dryRun: expected a list of strings");
    for (const Json& value : *dry_run) {
      if (value != "All")
        return wrong_dry_run("DELETE",
                             value.is_string() ? value.get<std::string>() : dump_json(value));
      options.dry_run = true;
    }
  }
  if (const Json* conditions = find_member(body, "preconditions");
      conditions != nullptr && !conditions->is_null()) {
    if (!is_text_or_absent(*conditions, "uid") ||
        !is_text_or_absent(*conditions, "resourceVersion"))
      return bad_request(
          "preconditions: expected an object whose uid and resourceVersion are strings");
    options.uid = string_or(*conditions, "uid", "");
    options.resource_version = string_or(*conditions, "resourceVersion", "");
  }
  return std::nullopt;
}

std::variant<DeleteOptions, ApiResponse> delete_options(const ApiPath& path,
                                                        const ApiRequest& request) {
  DeleteOptions options;
  options.propagation = path.parameter("propagationPolicy");
  if (const std::string dry_run = path.parameter("dryRun"); !dry_run.empty()) {
    if (dry_run != "All") return wrong_dry_run("DELETE", dry_run);
    options.dry_run = true;
  }
  Result<std::optional<int64_t>> grace = path.number("gracePeriodSeconds");
  if (!grace.ok()) return bad_request(grace.error().message);
  options.grace_period_seconds = *grace;
  if (!request.body.empty()) {
    auto parsed = parse_body(request);
    if (auto* error = std::get_if<ApiResponse>(&parsed)) return *error;
    if (auto refused = read_delete_body(std::get<Json>(parsed), options)) return *refused;
  }
  const std::string& policy = options.propagation;
  if (!policy.empty() && policy != "Background" && policy != "Foreground" && policy != "Orphan")
    return failure(
        422, "Invalid",
        "propagationPolicy: expected Background, Foreground or Orphan, found \"" + policy + "\"");
  return options;
}

}  // namespace

Api::Api(const Clock& clock, uint64_t seed, const StorageLimits& limits)
    : clock_(clock), random_(seed), storage_(limits), history_age_(limits.history_age) {
  install();
}

void Api::install() {
  auto make = [&](const char* collection, const Json& object) {
    ApiResponse made = handle({"POST", collection, "", dump_json(object)});
    CHECK(made.code == 201);
  };
  for (const char* name : kNamespaces) make("/api/v1/namespaces", {{"metadata", {{"name", name}}}});
  make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", training_job_crd());
}

ApiResponse Api::handle(const ApiRequest& request) {
  ApiResponse response;
  std::vector<std::function<void()>> listeners;
  {
    std::lock_guard lock(mutex_);
    Result<ApiPath> path = parse_target(types_, request.target);
    if (!path.ok()) return bad_request(path.error().message);
    int64_t before = storage_.version();
    response = answer(*path, request);
    if (storage_.version() != before) listeners = listeners_;
  }
  for (const auto& listener : listeners) listener();
  return response;
}

// Turns an exception, such as nlohmann/json throws for a bug of ours, into a 500 and logs it.
// Stored objects stay intact because they are replaced as a whole. Logs no query, which may hold
// secrets.
ApiResponse Api::answer(const ApiPath& path, const ApiRequest& request) {
  try {
    return shown(path, request, route(path, request));
  } catch (const std::exception& error) {
    log_error("an internal error ended a request",
              {{"method", request.method},
               {"target", request.target.substr(0, std::min(request.target.find('?'), kLoggedMax))},
               {"error", error.what()}});
    return failure(500, "InternalError", std::string("Internal error occurred: ") + error.what());
  }
}

bool Api::compact() {
  std::lock_guard lock(mutex_);
  const TimePoint now = clock_.now();
  if (marks_.empty() || marks_.back().version != storage_.version())
    marks_.push_back({now, storage_.version()});
  int64_t version = 0;
  for (; !marks_.empty() && now - marks_.front().at >= history_age_; marks_.pop_front())
    version = marks_.front().version;
  return version > 0 && storage_.compact(version);
}

void Api::on_change(std::function<void()> listener) {
  std::lock_guard lock(mutex_);
  listeners_.push_back(std::move(listener));
}

Api::Snapshot Api::snapshot() {
  std::lock_guard lock(mutex_);
  return {storage_, random_, marks_, types_.revision()};
}

bool Api::restore(const Snapshot& snapshot) {
  std::lock_guard lock(mutex_);
  if (types_.revision() != snapshot.types) return false;
  storage_ = snapshot.storage;
  random_ = snapshot.random;
  marks_ = snapshot.marks;
  return true;
}

ApiResponse Api::route(const ApiPath& path, const ApiRequest& request) {
  const std::string& method = request.method;
  if (path.type == nullptr) {
    if (auto review = review_access(path, request)) return *review;
    if (method != "GET") return unknown_path();
    if (auto openapi = openapi_.answer(types_, path.path, request.accept)) return *openapi;
    std::optional<Json> document = discovery_document(types_, path.path);
    if (!document) return unknown_path();
    return is_acceptable(request.accept) ? ApiResponse{200, *std::move(document)}
                                         : not_acceptable();
  }
  if (!is_acceptable(request.accept)) return not_acceptable();
  if (is_pod(*path.type) && goes_into_pods(path.subresource))
    return failure(501, "NotImplemented",
                   path.subresource + " is not supported by `lockstep up`: pods are processes of " +
                       "this machine, where you can inspect them directly");
  if (path.subresource == "binding" && is_pod(*path.type))
    return method == "POST" ? write(path, request, &Api::bind) : method_not_allowed();
  if (path.subresource == "eviction" && is_pod(*path.type))
    return method == "POST" ? write(path, request, &Api::evict) : method_not_allowed();
  if (path.subresource == "scale" && path.type->scale) {
    if (method == "GET") return get_scale(path);
    bool writes = method == "PUT" || method == "PATCH";
    return writes ? write(path, request, &Api::write_scale) : method_not_allowed();
  }
  if (!path.subresource.empty() && !(path.subresource == "status" && path.type->has_status))
    return unknown_path();
  if (path.name.empty()) {
    if (method == "GET") return list(path);
    if (method == "POST") return write(path, request, &Api::create);
    if (method == "DELETE") return remove_collection(path, request);
    return method_not_allowed();
  }
  if (method == "GET") return get(path);
  if (method == "PUT") return write(path, request, &Api::update);
  if (method == "PATCH") return write(path, request, &Api::patch);
  if (method == "DELETE" && path.subresource.empty()) return remove(path, request);
  return method_not_allowed();
}

ApiResponse Api::shown(const ApiPath& path, const ApiRequest& request, ApiResponse response) const {
  if (path.type == nullptr || !response.ok() || request.method != "GET") return response;
  Result<View> view = wanted_view(request.accept, path);
  if (!view.ok()) return bad_request(view.error().message);
  response.body = in_view(*path.type, std::move(response.body), *view, true, clock_.wall_now());
  return response;
}

ApiResponse Api::get(const ApiPath& path) {
  ObjectPtr object = storage_.get(path.type->storage(), key_of(path));
  if (object == nullptr) return object_not_found(*path.type, path.name);
  return {200, to_view(*path.type, *object)};
}

ApiResponse Api::remove(const ApiPath& path, const ApiRequest& request) {
  auto options = delete_options(path, request);
  if (auto* error = std::get_if<ApiResponse>(&options)) return *error;
  Deletion deletion(storage_, types_, clock_.wall_now());
  ApiResponse response =
      deletion.remove(path.type->storage(), key_of(path), std::get<DeleteOptions>(options));
  if (response.ok() && response.body["kind"] != "Status")
    response.body = to_view(*path.type, std::move(response.body));
  return response;
}

ApiResponse Api::remove_collection(const ApiPath& path, const ApiRequest& request) {
  auto options = delete_options(path, request);
  if (auto* error = std::get_if<ApiResponse>(&options)) return *error;
  const ResourceType& type = path.type->storage();
  Result<Selector> selector =
      Selector::parse(type, path.parameter("labelSelector"), path.parameter("fieldSelector"));
  if (!selector.ok()) return bad_request(selector.error().message);
  if (type.namespaced && path.namespace_.empty()) return method_not_allowed();
  Deletion deletion(storage_, types_, clock_.wall_now());
  for (const ObjectPtr& object : storage_.list(type, path.namespace_)) {
    if (!selector->matches(*object)) continue;
    ObjectKey key{path.namespace_, string_or(metadata_of(*object), "name", "")};
    // The object may already be gone, together with its owner.
    (void)deletion.remove(type, key, std::get<DeleteOptions>(options));
  }
  return {200, {{"kind", "Status"}, {"apiVersion", "v1"}, {"status", "Success"}, {"code", 200}}};
}

std::string Api::new_uid() {
  // Source: RFC 9562, version 4.
  uint64_t high = (random_.next_u64() & ~0xF000ull) | 0x4000ull;
  uint64_t low = (random_.next_u64() >> 2) | 0x8000000000000000ull;
  char text[37];
  std::snprintf(text, sizeof text, "%08x-%04x-%04x-%04x-%012llx", static_cast<unsigned>(high >> 32),
                static_cast<unsigned>(high >> 16 & 0xFFFF), static_cast<unsigned>(high & 0xFFFF),
                static_cast<unsigned>(low >> 48),
                static_cast<unsigned long long>(low & 0xFFFFFFFFFFFFull));
  return text;
}

std::string Api::new_suffix() {
  // Source: k8s.io/apimachinery, pkg/util/rand: no vowels, no bad words.
  constexpr std::string_view kLetters = "bcdfghjklmnpqrstvwxz2456789";
  std::string suffix;
  for (int i = 0; i < 5; ++i) suffix += kLetters[random_.below(kLetters.size())];
  return suffix;
}

}  // namespace lockstep::local
