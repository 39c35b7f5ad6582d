#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "controller/loop/shared_json.h"

namespace lockstep::loop {

// A resource type of the Kubernetes API and its path.
struct ResourceType {
  std::string_view api;     // "/api/v1", "/apis/lockstep.dev/v1alpha1"
  std::string_view plural;  // "pods"
  // The only member of such objects' spec that anybody here reads; empty: any. Objects come without
  // the rest, except in answers to kGet, since these may be written back.
  std::string_view spec_kept{};
};
inline constexpr ResourceType kTrainingJobs{"/apis/lockstep.dev/v1alpha1", "trainingjobs"};
inline constexpr ResourceType kPods{"/api/v1", "pods", "nodeName"};
inline constexpr ResourceType kSecrets{"/api/v1", "secrets"};
inline constexpr ResourceType kNetworkPolicies{"/apis/networking.k8s.io/v1", "networkpolicies"};
inline constexpr ResourceType kEvents{"/apis/events.k8s.io/v1", "events"};
inline constexpr ResourceType kLeases{"/apis/coordination.k8s.io/v1", "leases"};

enum class ApiVerb { kGet, kList, kCreate, kReplace, kReplaceStatus, kDelete };

// Order in which requests pass the rate limit.
enum class ApiPriority {
  kUrgent,  // for a job that has failed or lost something
  kRoutine,
  kPatient,  // for display only
};

struct ApiRequest {
  ApiVerb verb = ApiVerb::kGet;
  ResourceType type{};
  std::string namespace_{};  // empty: all of them (lists), or none
  std::string name{};
  std::map<std::string, std::string> query{};
  Json body{};
  ApiPriority priority = ApiPriority::kRoutine;
  // Called when the request's turn to be sent has come; unset: it is sent. If it returns false, the
  // answer is not_sent().
  std::function<bool()> may_send{};
  // Makes the text of the body when the request is sent, so that a request that waits does not hold
  // a large one. Unset: the body is `body`.
  std::function<std::string()> make_text{};
};

// Decides what the caller does next. Derived from HTTP's code and the `reason` in the server's
// Status.
enum class ApiOutcome {
  kOk,
  kNotFound,
  kAlreadyExists,
  kConflict,      // another resourceVersion, or a failed UID precondition
  kExpired,       // 410: the version or the page is gone; list again
  kTooLarge,      // the resourceVersion is from the future; list without one
  kInvalid,       // 400, 413, 415, 422: the same request can't succeed
  kUnauthorized,  // 401: the credentials are bad, whatever was asked
  kForbidden,
  kThrottled,    // 429, or 5xx with Retry-After
  kUnavailable,  // 5xx, no connection
  // The answer is larger than allowed, or not the API's. The same request may get the same answer.
  kUnreadable,
  kTimeout,
};
std::string_view outcome_name(ApiOutcome outcome);

struct ApiReply {
  ApiOutcome outcome = ApiOutcome::kUnavailable;
  SharedJson body{};        // the object or list; null if there is none
  std::string message{};    // if not kOk
  Duration retry_after{0};  // as asked by the server

  bool ok() const { return outcome == ApiOutcome::kOk; }
};

// The reply to a write that is not sent because this process may lead no longer: kUnavailable.
ApiReply not_sent();

enum class WatchEventType { kAdded, kModified, kDeleted, kBookmark };

struct WatchEvent {
  WatchEventType type = WatchEventType::kModified;
  SharedJson object{};
};

struct WatchRequest {
  ResourceType type{};
  std::string namespace_{};
  std::map<std::string, std::string> query{};  // labelSelector, resourceVersion, timeoutSeconds
};

struct WatchHandler {
  std::function<void(std::vector<WatchEvent>)> on_events;
  // Called once, after the last event; kOk if the server ended the watch cleanly.
  std::function<void(ApiReply)> on_end;
};

// An open watch. Destroying it ends it; no handler is called afterwards.
class WatchHandle {
 public:
  virtual ~WatchHandle() = default;
};

// Asynchronous client of the Kubernetes API. Used from one thread, on which all answers come, never
// from within the call that asked. Every request is answered exactly once, and in bounded time.
class ApiClient {
 public:
  using Done = std::function<void(ApiReply)>;

  virtual ~ApiClient() = default;
  virtual void send(ApiRequest request, Done done) = 0;
  virtual std::unique_ptr<WatchHandle> watch(WatchRequest request, WatchHandler handler) = 0;
};

}  // namespace lockstep::loop
