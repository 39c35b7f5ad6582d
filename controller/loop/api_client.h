#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "controller/loop/shared_json.h"

namespace lockstep {

// A kind of object of the Kubernetes API and where it lives.
struct ResourceType {
  std::string_view api;     // "/api/v1", "/apis/lockstep.dev/v1alpha1"
  std::string_view plural;  // "pods"
};
inline constexpr ResourceType kTrainingJobs{"/apis/lockstep.dev/v1alpha1", "trainingjobs"};
inline constexpr ResourceType kPods{"/api/v1", "pods"};
inline constexpr ResourceType kSecrets{"/api/v1", "secrets"};
inline constexpr ResourceType kEvents{"/apis/events.k8s.io/v1", "events"};
inline constexpr ResourceType kLeases{"/apis/coordination.k8s.io/v1", "leases"};

enum class ApiVerb { kGet, kList, kCreate, kReplace, kReplaceStatus, kDelete };

// Who goes first where the rate is limited.
enum class ApiPriority {
  kUrgent,  // of a job that has failed or lost something
  kRoutine,
  kPatient,  // for display alone
};

struct ApiRequest {
  ApiVerb verb = ApiVerb::kGet;
  ResourceType type{};
  std::string namespace_{};  // empty: all of them (lists) or none
  std::string name{};
  std::map<std::string, std::string> query{};
  Json body{};
  ApiPriority priority = ApiPriority::kRoutine;
  // Asked when a request that had to wait for its turn is to go out; none: it goes. On false it is
  // answered as not_sent().
  std::function<bool()> may_send{};
};

// What the caller does next follows from it; `reason` of the server's Status beside HTTP's code.
enum class ApiOutcome {
  kOk,
  kNotFound,
  kAlreadyExists,
  kConflict,      // another resourceVersion, or a UID precondition
  kExpired,       // 410: the version or the page is gone, list again
  kTooLarge,      // the resourceVersion is from the future, list without one
  kInvalid,       // 400, 413, 422: the same again can't succeed
  kUnauthorized,  // 401: the credentials, whatever was asked
  kForbidden,
  kThrottled,    // 429, or 5xx with Retry-After
  kUnavailable,  // 5xx, no connection
  kUnreadable,   // an answer that is larger than is taken, or none of the API's; asked the same way
                 // it may come the same again
  kTimeout,
};
std::string_view outcome_name(ApiOutcome outcome);

struct ApiReply {
  ApiOutcome outcome = ApiOutcome::kUnavailable;
  SharedJson body{};        // the object or list; null where there is none
  std::string message{};    // of what is not kOk
  Duration retry_after{0};  // the server's wish

  bool ok() const { return outcome == ApiOutcome::kOk; }
};

ApiReply not_sent();  // of a write that would come from a leader no longer: kUnavailable

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
  // Once, after the last event: kOk for a clean end by the server.
  std::function<void(ApiReply)> on_end;
};

// An open watch. Destroying it ends it; no handler is called afterwards.
class WatchHandle {
 public:
  virtual ~WatchHandle() = default;
};

// The Kubernetes API, answering later. Used from one thread, on which all answers come, never from
// within the call that asked. Every request is answered exactly once, and in bounded time.
class ApiClient {
 public:
  using Done = std::function<void(ApiReply)>;

  virtual ~ApiClient() = default;
  virtual void send(ApiRequest request, Done done) = 0;
  virtual std::unique_ptr<WatchHandle> watch(WatchRequest request, WatchHandler handler) = 0;
};

}  // namespace lockstep
