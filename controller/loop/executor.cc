#include "controller/loop/executor.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/base/log.h"
#include "common/base/utf8.h"
#include "controller/plan/names.h"
#include "controller/plan/pod_template.h"

namespace lockstep::loop {
namespace {

Execution failed(const char* what, const ApiReply& reply) {
  Execution execution;
  execution.ok = false;
  execution.error =
      std::string(what) + ": " + std::string(outcome_name(reply.outcome)) + ": " + reply.message;
  execution.retry_after = reply.retry_after;
  return execution;
}

ApiRequest request_of(const JobContext& job, ApiVerb verb, ResourceType type, std::string name) {
  return {.verb = verb,
          .type = type,
          .namespace_ = job.namespace_,
          .name = std::move(name),
          .priority = job.priority};
}

// events.k8s.io/v1 limits a note to 1 KiB.
constexpr size_t kNoteBytesMax = 1024;
// Events that wait for the rate limit or for their answers.
constexpr size_t kEventsOpenMax = 1000;

bool has(const std::string& text, std::string_view words) {
  return text.find(words) != std::string::npos;
}

bool has_any(const std::string& text, std::span<const std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&text](std::string_view each) { return has(text, each); });
}

// Source: k8s.io/apiserver, pkg/admission/plugin/resourcequota.
bool is_quota(const ApiReply& reply) {
  constexpr std::string_view kOfQuotas[] = {"exceeded quota", "insufficient quota",
                                            "status unknown for quota"};
  return reply.outcome == ApiOutcome::kForbidden && has_any(reply.message, kOfQuotas);
}

// Returns whether the server's answer to a pod check is about the pod itself. An admission webhook
// that has side effects refuses every such check. Our own permissions, a quota or a namespace that
// is being terminated are no fault of the spec.
bool refuses_spec(const ApiReply& reply) {
  if (reply.outcome == ApiOutcome::kInvalid) return !has(reply.message, "does not support dry run");
  if (reply.outcome != ApiOutcome::kForbidden) return false;
  constexpr std::string_view kOfOthers[] = {"cannot create resource",
                                            "cannot set blockOwnerDeletion", "being terminated"};
  return !is_quota(reply) && !has_any(reply.message, kOfOthers);
}

bool is_answer(ApiOutcome outcome) {
  return outcome == ApiOutcome::kOk || outcome == ApiOutcome::kAlreadyExists ||
         outcome == ApiOutcome::kInvalid || outcome == ApiOutcome::kForbidden;
}

// Returns the pod with all its labels; nullopt if none was missing or different.
std::optional<Json> with_labels(const std::string& job, const std::string& name, const Json& pod) {
  const std::optional<Json> wanted = plan::pod_labels_by_name(job, name);
  if (!wanted) return std::nullopt;
  Json labelled = pod;
  Json& labels = labelled["metadata"]["labels"];
  if (!labels.is_object()) labels = Json::object();
  bool is_changed = false;
  for (const auto& [key, value] : wanted->items()) {
    if (labels.contains(key) && labels[key] == value) continue;
    labels[key] = value;
    is_changed = true;
  }
  return is_changed ? std::optional(std::move(labelled)) : std::nullopt;
}

// Returns the part of an object without what the client left out of it: nothing of a spec, the
// other members of metadata.
Json whole_of(const Json& part, bool is_metadata) {
  if (!part.is_object()) return left_out(part).empty() ? part : Json();
  Json kept = Json::object();
  for (const auto& [key, value] : part.items()) {
    if (left_out(value).empty()) {
      kept[key] = value;
    } else if (!is_metadata) {
      return Json();
    }
  }
  return kept;
}

// Returns the document with another status. It has no spec if the client left parts of it out: a
// write of the status changes no spec, but a server compares all that it has with the schema, for
// managedFields. Source: apiextensions-apiserver, pkg/registry/customresource/status_strategy.go.
Json with_status(const Json& document, Json status) {
  Json changed = Json::object();
  for (const auto& [key, value] : document.items()) {
    if (key == "status") continue;
    Json whole = whole_of(value, key == "metadata");
    if (!whole.is_null()) changed[key] = std::move(whole);
  }
  changed["status"] = std::move(status);
  return changed;
}

}  // namespace

struct Executor::Run {
  JobContext job;
  std::vector<plan::Action> actions;
  std::function<void(Execution)> done;
  size_t next = 0;       // the first action not started yet
  size_t group_end = 0;  // the first action after it of another kind
  size_t open = 0;       // started and not answered
  size_t open_max = 0;   // of this group
  bool is_starting = false;
  bool in_batches = false;     // this group: a full batch is answered before the next one starts
  bool waits_for_all = false;  // the batch is full
  bool is_refused = false;
  bool is_at_server = false;
  Execution result{};
};

Executor::Executor(ApiClient& api, AgentClient& agents, Timers& timers, Random& random,
                   CacheUpdater& cache_updater, Options options)
    : api_(api),
      agents_(agents),
      timers_(timers),
      random_(random),
      cache_updater_(cache_updater),
      options_(std::move(options)) {}

void Executor::run(JobContext job, std::vector<plan::Action> actions,
                   std::function<void(Execution)> done) {
  go_on(std::make_shared<Run>(
      Run{.job = std::move(job), .actions = std::move(actions), .done = std::move(done)}));
}

void Executor::enter_server(Run& run, bool is_in) {
  if (std::exchange(run.is_at_server, is_in) == is_in) return;
  if (is_in) {
    ++plans_at_server_;
    return;
  }
  --plans_at_server_;
  if (options_.on_left_server) options_.on_left_server();
}

// Starts as many actions as may be open now. An action that ends immediately re-enters here; the
// outer call goes on with the next ones, so the depth does not grow.
void Executor::go_on(const RunPtr& run) {
  if (std::exchange(run->is_starting, true)) return;
  while (run->result.ok && run->next < run->actions.size()) {
    if (run->next == run->group_end) {
      if (run->open > 0) break;
      begin_group(*run);
    }
    if (!may_start(*run)) break;
    ++run->open;
    start(run, run->actions[run->next++]);
  }
  run->is_starting = false;
  if (run->open > 0) return;
  enter_server(*run, false);
  run->done(std::move(run->result));
}

bool Executor::may_start(Run& run) {
  const bool is_full = run.open >= run.open_max;
  if (run.open == 0) run.waits_for_all = false;
  if (is_full && run.in_batches) run.waits_for_all = true;
  return !is_full && !run.waits_for_all;
}

void Executor::begin_group(Run& run) {
  const plan::Action& first = run.actions[run.next];
  while (run.group_end < run.actions.size() &&
         run.actions[run.group_end].index() == first.index()) {
    ++run.group_end;
  }
  const bool creates = std::holds_alternative<plan::CreatePod>(first);
  run.open_max = creates ? 1 : options_.side_by_side;
  // Agents' clients keep the text of the last assignment only. In batches, those of one job stay
  // together while other jobs send theirs.
  run.in_batches = std::holds_alternative<plan::PutAssignment>(first);
  enter_server(run, !run.in_batches);
}

void Executor::start(const RunPtr& run, plan::Action& action) {
  struct Visitor {
    Executor& self;
    const RunPtr& run;
    void operator()(plan::CreateSecret& action) { self.create_secret(run, action); }
    void operator()(plan::CreatePod& action) { self.create_pod(run, action); }
    void operator()(plan::CheckPod& action) { self.check_pod(run, action); }
    void operator()(plan::ConfirmPod& action) { self.confirm_pod(run, action); }
    void operator()(plan::DeletePod& action) { self.delete_pod(run, action); }
    void operator()(plan::DeleteJob& action) { self.delete_job(run, action); }
    void operator()(plan::WriteNetworkPolicy& action) { self.write_network_policy(run, action); }
    void operator()(plan::DeleteNetworkPolicy& action) { self.delete_network_policy(run, action); }
    void operator()(plan::PutAssignment& action) { self.put_assignment(run, action); }
    void operator()(plan::WriteStatus& action) { self.write_status(run, action); }
    void operator()(plan::EmitEvent& action) { self.emit_event(run, action); }
  };
  std::visit(Visitor{*this, run}, action);
}

void Executor::finish_one(const RunPtr& run, Execution execution) {
  execution.wrote_status |= run->result.wrote_status;
  execution.wrote_progress |= run->result.wrote_progress;
  if (!execution.ok && run->result.ok) {
    run->result = std::move(execution);
  } else {
    run->result.wrote_status = execution.wrote_status;
    run->result.wrote_progress = execution.wrote_progress;
  }
  --run->open;
  // Doubles with every round trip while pods are created, and stays at its limit otherwise.
  run->open_max = std::min(run->open_max + 1, options_.side_by_side);
  go_on(run);
}

void Executor::create_secret(const RunPtr& run, plan::CreateSecret& action) {
  ApiRequest request = request_of(run->job, ApiVerb::kCreate, kSecrets, "");
  request.body = std::move(action.body);
  api_.send(std::move(request), [this, run](ApiReply reply) {
    if (reply.ok() || reply.outcome == ApiOutcome::kAlreadyExists) return finish_one(run, {});
    const bool is_refused =
        reply.outcome == ApiOutcome::kInvalid || reply.outcome == ApiOutcome::kForbidden;
    if (is_refused) {
      refuse_pod(run, "SecretRefused", reply);
    } else {
      note_failure(run, reply);
    }
    finish_one(run, failed("creating the Secret", reply));
  });
}

void Executor::create_pod(const RunPtr& run, const plan::CreatePod& action) {
  ApiRequest request = request_of(run->job, ApiVerb::kCreate, kPods, "");
  request.make_text = [action] { return action.text(); };
  api_.send(std::move(request), [this, run, name = action.name](ApiReply reply) {
    if (reply.ok()) {
      log_info("created a pod", {{"job", run->job.key}, {"pod", name}});
      cache_updater_.pod_accepted(run->job);
      cache_updater_.pod_written(reply.body);
      finish_one(run, {});
    } else if (reply.outcome == ApiOutcome::kAlreadyExists) {
      adopt_pod(run, name);
    } else {
      if (reply.outcome == ApiOutcome::kInvalid) {
        refuse_pod(run, "PodInvalid", reply);
      } else if (reply.outcome == ApiOutcome::kForbidden) {
        refuse_pod(run, is_quota(reply) ? "QuotaExceeded" : "PodForbidden", reply);
      } else {
        note_failure(run, reply);
      }
      finish_one(run, failed("creating a pod", reply));
    }
  });
}

void Executor::check_pod(const RunPtr& run, plan::CheckPod& action) {
  ApiRequest request = request_of(run->job, ApiVerb::kCreate, kPods, "");
  request.query = {{"dryRun", "All"}};
  request.body = std::move(action.body);
  api_.send(std::move(request), [this, run, generation = action.generation](ApiReply reply) {
    if (reply.outcome == ApiOutcome::kThrottled) {
      finish_one(run, failed("checking a pod", reply));
      return;
    }
    const bool is_refused = refuses_spec(reply);
    if (!reply.ok() && reply.outcome != ApiOutcome::kAlreadyExists) {
      log_info(is_refused ? "the API server rejected the pod in a check"
                          : "the API server could not check the pod",
               {{"job", run->job.key}, {"error", reply.message}});
    }
    cache_updater_.pod_checked(run->job, generation, is_refused ? reply.message : "",
                               is_answer(reply.outcome));
    finish_one(run, {});
  });
}

void Executor::refuse_pod(const RunPtr& run, const char* reason, const ApiReply& reply) {
  if (std::exchange(run->is_refused, true)) return;
  log_info("could not create a pod",
           {{"job", run->job.key}, {"reason", reason}, {"error", reply.message}});
  cache_updater_.pod_refused(run->job, reason, reply.message);
}

// A server that only asks for time has not failed.
void Executor::note_failure(const RunPtr& run, const ApiReply& reply) {
  if (reply.outcome == ApiOutcome::kThrottled || std::exchange(run->is_refused, true)) return;
  cache_updater_.create_failed(run->job, reply.message);
}

// The name is taken, by our own pod that the cache has not seen yet or by a pod of another owner.
void Executor::adopt_pod(const RunPtr& run, const std::string& name) {
  api_.send(request_of(run->job, ApiVerb::kGet, kPods, name), [this, run, name](ApiReply reply) {
    if (!reply.ok()) {
      finish_one(run, failed("reading a pod", reply));
    } else if (plan::controller_uid(reply.body) == run->job.uid) {
      learn_pod(run, name, reply.body);
    } else {
      reply.message = "pod " + name + " already exists and belongs to another owner";
      reply.outcome = ApiOutcome::kAlreadyExists;
      refuse_pod(run, "NameTaken", reply);
      finish_one(run, failed("creating a pod", reply));
    }
  });
}

void Executor::confirm_pod(const RunPtr& run, const plan::ConfirmPod& action) {
  api_.send(request_of(run->job, ApiVerb::kGet, kPods, action.name),
            [this, run, name = action.name](ApiReply reply) {
              if (reply.ok() && plan::controller_uid(reply.body) == run->job.uid) {
                learn_pod(run, name, reply.body);
              } else if (reply.ok() || reply.outcome == ApiOutcome::kNotFound) {
                cache_updater_.pod_absent(run->job, name);
                finish_one(run, {});
              } else {
                finish_one(run, failed("reading a pod", reply));
              }
            });
}

// Puts the pod's labels back if somebody removed them, because without them the watch does not show
// the job's own pod.
void Executor::learn_pod(const RunPtr& run, const std::string& name, const SharedJson& pod) {
  std::optional<Json> labelled = with_labels(run->job.name, name, pod);
  if (!labelled) {
    cache_updater_.pod_read(pod);
    finish_one(run, {});
    return;
  }
  ApiRequest request = request_of(run->job, ApiVerb::kReplace, kPods, name);
  request.body = *std::move(labelled);
  api_.send(std::move(request), [this, run, name](ApiReply reply) {
    if (!reply.ok()) return finish_one(run, failed("restoring a pod's labels", reply));
    log_warning("restored a pod's labels", {{"job", run->job.key}, {"pod", name}});
    cache_updater_.pod_read(reply.body);
    finish_one(run, {});
  });
}

void Executor::delete_pod(const RunPtr& run, const plan::DeletePod& action) {
  ApiRequest request = request_of(run->job, ApiVerb::kDelete, kPods, action.name);
  request.body = {{"apiVersion", "v1"},
                  {"kind", "DeleteOptions"},
                  {"gracePeriodSeconds", action.grace_seconds},
                  {"preconditions", {{"uid", action.uid}}}};
  api_.send(std::move(request), [this, run, name = action.name, uid = action.uid](ApiReply reply) {
    if (reply.ok()) {
      log_info("deleted a pod", {{"job", run->job.key}, {"pod", name}});
      if (!plan::controller_uid(reply.body).empty()) cache_updater_.pod_written(reply.body);
      finish_one(run, {});
    } else if (reply.outcome == ApiOutcome::kNotFound || reply.outcome == ApiOutcome::kConflict) {
      cache_updater_.pod_gone(run->job, name, uid);
      finish_one(run, {});
    } else {
      finish_one(run, failed("deleting a pod", reply));
    }
  });
}

void Executor::delete_job(const RunPtr& run, const plan::DeleteJob& action) {
  ApiRequest request = request_of(run->job, ApiVerb::kDelete, kTrainingJobs, run->job.name);
  request.body = {
      {"apiVersion", "v1"},
      {"kind", "DeleteOptions"},
      {"propagationPolicy", "Background"},
      {"preconditions", {{"uid", action.uid}, {"resourceVersion", action.resource_version}}}};
  api_.send(std::move(request), [this, run](ApiReply reply) {
    if (reply.ok() || reply.outcome == ApiOutcome::kNotFound) {
      log_info("deleted a finished job after its ttlSecondsAfterFinished", {{"job", run->job.key}});
      // If a finalizer keeps the job, its watch reports the end.
      if (!reply.ok()) cache_updater_.job_gone(run->job);
      finish_one(run, {});
    } else if (reply.outcome == ApiOutcome::kConflict) {
      reread_job(run);
    } else {
      finish_one(run, failed("deleting the job", reply));
    }
  });
}

// A policy with the job's name is the job's, even if somebody removed the label by which the cache
// finds it. A replacement without resourceVersion puts that back.
void Executor::write_network_policy(const RunPtr& run, plan::WriteNetworkPolicy& action) {
  const bool replaces = action.body["metadata"].contains("resourceVersion");
  ApiRequest request = request_of(run->job, replaces ? ApiVerb::kReplace : ApiVerb::kCreate,
                                  kNetworkPolicies, replaces ? action.name : "");
  request.body = action.body;
  api_.send(std::move(request), [this, run, replaces, name = action.name,
                                 body = std::move(action.body)](ApiReply reply) mutable {
    if (reply.ok()) {
      log_info("wrote a NetworkPolicy", {{"job", run->job.key}, {"policy", name}});
      cache_updater_.network_policy_written(run->job, reply.body);
      finish_one(run, {});
    } else if (reply.outcome == ApiOutcome::kAlreadyExists && !replaces) {
      ApiRequest again = request_of(run->job, ApiVerb::kReplace, kNetworkPolicies, name);
      again.body = std::move(body);
      api_.send(std::move(again), [this, run](ApiReply second) {
        if (!second.ok()) return note_policy_trouble(run, second);
        cache_updater_.network_policy_written(run->job, second.body);
        finish_one(run, {});
      });
    } else if (reply.outcome == ApiOutcome::kNotFound && replaces) {
      cache_updater_.network_policy_gone(run->job, name, string_or(body["metadata"], "uid", ""));
      finish_one(run, {});
    } else if (reply.outcome == ApiOutcome::kConflict) {
      cache_updater_.network_policy_outdated(run->job);
      finish_one(run, {});
    } else {
      note_policy_trouble(run, reply);
    }
  });
}

void Executor::delete_network_policy(const RunPtr& run, const plan::DeleteNetworkPolicy& action) {
  ApiRequest request = request_of(run->job, ApiVerb::kDelete, kNetworkPolicies, action.name);
  request.body = {
      {"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"preconditions", {{"uid", action.uid}}}};
  api_.send(std::move(request), [this, run, name = action.name, uid = action.uid](ApiReply reply) {
    const bool is_gone = reply.ok() || reply.outcome == ApiOutcome::kNotFound ||
                         reply.outcome == ApiOutcome::kConflict;
    if (!is_gone) return note_policy_trouble(run, reply);
    log_info("deleted a NetworkPolicy", {{"job", run->job.key}, {"policy", name}});
    cache_updater_.network_policy_gone(run->job, name, uid);
    finish_one(run, {});
  });
}

// A refusal is an answer: the job goes on without. Trouble of the server fails the plan, so that
// the next one tries again before it makes pods.
void Executor::note_policy_trouble(const RunPtr& run, const ApiReply& reply) {
  const char* reason = reply.outcome == ApiOutcome::kForbidden  ? "PolicyForbidden"
                       : reply.outcome == ApiOutcome::kNotFound ? "PolicyKindMissing"
                       : reply.outcome == ApiOutcome::kInvalid  ? "PolicyInvalid"
                                                                : nullptr;
  if (reason != nullptr) {
    log_info("could not write a NetworkPolicy",
             {{"job", run->job.key}, {"reason", reason}, {"error", reply.message}});
    cache_updater_.network_policy_refused(run->job, reason, reply.message);
    return finish_one(run, {});
  }
  // A server that only asks for time has not failed.
  if (reply.outcome != ApiOutcome::kThrottled)
    cache_updater_.network_policy_failed(run->job, reply.message);
  finish_one(run, failed("writing a NetworkPolicy", reply));
}

void Executor::put_assignment(const RunPtr& run, const plan::PutAssignment& action) {
  const AgentAddress address = address_of(action.target, run->job.tokens);
  agents_.put_assignment(address, action.assignment, action.node_index,
                         [this, run, target = action.target](Result<AgentState> answer) {
                           if (answer.ok()) {
                             cache_updater_.agent_reported(run->job, target.pod_uid, *answer);
                             finish_one(run, {});
                             return;
                           }
                           Execution execution;
                           execution.ok = false;
                           execution.error = "sending the assignment to " + target.pod_name + ": " +
                                             answer.error().message;
                           finish_one(run, std::move(execution));
                         });
}

ApiRequest Executor::status_request(const JobContext& job, const plan::WriteStatus& action) const {
  ApiRequest request = request_of(job, ApiVerb::kReplaceStatus, kTrainingJobs, job.name);
  request.make_text = [document = job.document, status = action.status,
                       version = action.resource_version] {
    Json body = with_status(document.json(), status_to_json(status));
    body["metadata"]["resourceVersion"] = version;
    return dump_json(body);
  };
  return request;
}

void Executor::write_status(const RunPtr& run, const plan::WriteStatus& action) {
  if (action.progress_only) return write_progress(run, action);
  api_.send(status_request(run->job, action), [this, run](ApiReply reply) {
    if (reply.ok()) {
      cache_updater_.job_written(reply.body);
      Execution execution;
      execution.wrote_status = true;
      finish_one(run, std::move(execution));
    } else if (reply.outcome == ApiOutcome::kConflict) {
      reread_job(run);
    } else {
      if (reply.outcome == ApiOutcome::kNotFound) cache_updater_.job_gone(run->job);
      if (reply.outcome == ApiOutcome::kInvalid && cache_updater_.status_refused(run->job)) {
        ++run->open;
        emit_event(run, {.warning = true, .reason = "StatusRefused", .message = reply.message});
      }
      finish_one(run, failed("writing status", reply));
    }
  });
}

// If it fails, a later write brings the next numbers.
void Executor::write_progress(const RunPtr& run, const plan::WriteStatus& action) {
  ApiRequest request = status_request(run->job, action);
  request.priority = ApiPriority::kPatient;
  request.may_send = [latest = run->job.latest] { return !latest.expired(); };
  api_.send(std::move(request), [this, key = run->job.key](ApiReply reply) {
    if (reply.ok()) return cache_updater_.job_written(reply.body);
    log_debug("could not write progress to status", {{"job", key}, {"error", reply.message}});
  });
  Execution execution;
  execution.wrote_status = true;
  execution.wrote_progress = true;
  finish_one(run, std::move(execution));
}

void Executor::reread_job(const RunPtr& run) {
  api_.send(request_of(run->job, ApiVerb::kGet, kTrainingJobs, run->job.name),
            [this, run](ApiReply reply) {
              if (reply.ok()) {
                cache_updater_.job_read(reply.body);
              } else if (reply.outcome == ApiOutcome::kNotFound) {
                cache_updater_.job_gone(run->job);
              }
              Execution execution;
              execution.ok = false;
              execution.is_conflict = true;
              execution.error = "the job changed since it was read";
              finish_one(run, std::move(execution));
            });
}

void Executor::emit_event(const RunPtr& run, const plan::EmitEvent& action) {
  const std::string note(utf8_head(action.message, kNoteBytesMax));
  log_info("event", {{"job", run->job.key}, {"reason", action.reason}, {"note", note}});
  if (events_open_ >= kEventsOpenMax) {
    log_warning("dropped an event because too many are pending", {{"job", run->job.key}});
    return finish_one(run, {});
  }
  char suffix[20];
  std::snprintf(suffix, sizeof suffix, ".%016llx",
                static_cast<unsigned long long>(random_.next_u64()));
  ApiRequest request = request_of(run->job, ApiVerb::kCreate, kEvents, "");
  request.priority = ApiPriority::kPatient;
  request.body = {
      {"apiVersion", "events.k8s.io/v1"},
      {"kind", "Event"},
      {"metadata", {{"name", run->job.name + suffix}, {"namespace", run->job.namespace_}}},
      {"eventTime", rfc3339_micro(timers_.wall_now())},
      {"reportingController", plan::kControllerName},
      {"reportingInstance", options_.instance},
      {"action", action.reason},
      {"reason", action.reason},
      {"note", note},
      {"type", action.warning ? "Warning" : "Normal"},
      {"regarding",
       {{"apiVersion", kApiVersion},
        {"kind", kKind},
        {"namespace", run->job.namespace_},
        {"name", run->job.name},
        {"uid", run->job.uid}}}};
  ++events_open_;
  api_.send(std::move(request), [this](ApiReply reply) {
    --events_open_;
    // An event is for people; the job does not depend on it.
    if (!reply.ok())
      log_warning("the API server did not accept an event", {{"error", reply.message}});
  });
  finish_one(run, {});
}

}  // namespace lockstep::loop
