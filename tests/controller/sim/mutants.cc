#include "tests/controller/sim/mutants.h"

#include <algorithm>
#include <map>
#include <memory>

#include "common/api/worker_config.h"
#include "controller/plan/conditions.h"
#include "controller/plan/members.h"
#include "controller/plan/names.h"
#include "controller/plan/pass.h"
#include "tests/controller/sim/changed_polls.h"

namespace lockstep::sim {
namespace {

constexpr char kLostByPartition[] =
    "failures: a healthy pod was lost because the controller was partitioned";

// Plans correctly, but for a wrong observation.
loop::PlanFunction with_observation(std::function<void(plan::Observed&)> wrong) {
  return [wrong = std::move(wrong)](const plan::Observed& observed, TimePoint now,
                                    const plan::Limits& limits) {
    plan::Observed seen = observed;
    wrong(seen);
    return plan::plan(seen, now, limits);
  };
}

// Tampers with a correct plan.
loop::PlanFunction with_plan(std::function<void(plan::Plan&, const plan::Observed&)> wrong) {
  return [wrong = std::move(wrong)](const plan::Observed& observed, TimePoint now,
                                    const plan::Limits& limits) {
    plan::Plan right = plan::plan(observed, now, limits);
    wrong(right, observed);
    return right;
  };
}

loop::PlanFunction with_status(
    std::function<void(TrainingJobStatus&, const TrainingJobStatus&)> wrong) {
  return with_plan([wrong = std::move(wrong)](plan::Plan& plan, const plan::Observed& observed) {
    for (plan::Action& action : plan.actions) {
      if (auto* write = std::get_if<plan::WriteStatus>(&action))
        wrong(write->status, observed.job.status);
    }
  });
}

template <class Kind>
loop::PlanFunction without_action() {
  return with_plan([](plan::Plan& plan, const plan::Observed&) {
    std::erase_if(plan.actions,
                  [](const plan::Action& action) { return std::holds_alternative<Kind>(action); });
  });
}

loop::PlanFunction without_policy(plan::Policy left_out) {
  return [left_out](const plan::Observed& observed, TimePoint now, const plan::Limits& limits) {
    std::vector<plan::Policy> policies;
    for (const plan::Policy policy : plan::all_policies()) {
      if (policy != left_out) policies.push_back(policy);
    }
    return plan::plan_by(policies, observed, now, limits);
  };
}

// Tampers with requests, replies and watch events between the loop and the world.
class TamperingApiClient final : public loop::ApiClient {
 public:
  using Tamper = std::function<void(loop::ApiRequest&)>;
  using TamperReply = std::function<void(const loop::ApiRequest&, loop::ApiReply&)>;
  using TamperEvents = std::function<void(std::vector<loop::WatchEvent>&)>;
  TamperingApiClient(loop::ApiClient& api, Tamper request, TamperReply reply, TamperEvents events)
      : api_(api),
        request_(std::move(request)),
        reply_(std::move(reply)),
        events_(std::move(events)) {}

  void send(loop::ApiRequest request, Done done) override {
    if (request.make_text) request.body = Json::parse(std::exchange(request.make_text, nullptr)());
    if (request_) request_(request);
    loop::ApiRequest asked{.verb = request.verb, .type = request.type, .name = request.name};
    api_.send(std::move(request), [reply_ = reply_, asked = std::move(asked),
                                   done = std::move(done)](loop::ApiReply reply) {
      if (reply_) reply_(asked, reply);
      done(std::move(reply));
    });
  }
  std::unique_ptr<loop::WatchHandle> watch(loop::WatchRequest request,
                                           loop::WatchHandler handler) override {
    if (events_) {
      handler.on_events = [events_ = events_, told = std::move(handler.on_events)](
                              std::vector<loop::WatchEvent> events) {
        events_(events);
        told(std::move(events));
      };
    }
    return api_.watch(std::move(request), std::move(handler));
  }

 private:
  loop::ApiClient& api_;
  Tamper request_;
  TamperReply reply_;
  TamperEvents events_;
};

Mutation api(TamperingApiClient::Tamper request, TamperingApiClient::TamperReply reply = {},
             TamperingApiClient::TamperEvents events = {}) {
  Mutation mutation;
  mutation.api = [=](loop::ApiClient& real) {
    return std::make_unique<TamperingApiClient>(real, request, reply, events);
  };
  return mutation;
}

class TamperingAgentClient final : public loop::AgentClient {
 public:
  using Tamper = std::function<void(Assignment&)>;
  using TamperState = std::function<void(AgentState&)>;
  TamperingAgentClient(loop::AgentClient& agents, Tamper put, TamperState state)
      : agents_(agents), put_(std::move(put)), state_(std::move(state)) {}

  void put_assignment(const loop::AgentAddress& agent,
                      const std::shared_ptr<const Assignment>& assignment, int64_t node_index,
                      Done done) override {
    Assignment tampered = *assignment;
    tampered.node_index = node_index;
    if (put_) put_(tampered);
    const int64_t index = tampered.node_index;
    agents_.put_assignment(agent, std::make_shared<const Assignment>(std::move(tampered)), index,
                           tampering(std::move(done)));
  }
  void poll_state(const loop::AgentAddress& agent, const loop::StatePoll& poll,
                  Done done) override {
    agents_.poll_state(agent, poll, tampering(std::move(done)));
  }
  void forget(const loop::AgentAddress& agent) override { agents_.forget(agent); }

 private:
  Done tampering(Done done) const {
    return [tamper = state_, done = std::move(done)](Result<AgentState> state) {
      if (tamper && state.ok()) tamper(*state);
      done(std::move(state));
    };
  }

  loop::AgentClient& agents_;
  Tamper put_;
  TamperState state_;
};

// Takes every later report of an agent for one about the pod that its first one was about.
Mutation with_trust() {
  Mutation mutation;
  mutation.agents = [](loop::AgentClient& real) {
    const auto first_reports = std::make_shared<std::map<std::string, AgentState>>();
    return std::make_unique<ChangedPolls>(
        real, [first_reports](const loop::AgentAddress& agent, AgentState& state) {
          const AgentState& first = first_reports->try_emplace(agent.agent, state).first->second;
          state.job_uid = first.job_uid;
          state.node_index = first.node_index;
          state.incarnation = first.incarnation;
        });
  };
  return mutation;
}

bool is(const loop::ApiRequest& request, loop::ApiVerb verb, loop::ResourceType type) {
  return request.verb == verb && request.type.plural == type.plural;
}

void add_missing(std::vector<Mutant>& mutants) {
  const auto add = [&mutants](const char* name, const char* found_by, loop::PlanFunction plan) {
    mutants.push_back({name, found_by, Mutation{.plan = std::move(plan)}});
  };
  add("no ending policy", "terminal", without_policy(plan::ending));
  add("no validation", "validation", without_policy(plan::validation));
  add("no suspension", "suspension", without_policy(plan::suspension));
  add("no membership", "convergence", without_policy(plan::membership));
  add("no failure policy", "convergence", without_policy(plan::failure));
  add("no completion", "convergence", without_policy(plan::completion));
  add("no placement", "convergence", without_policy(plan::placement));
  add("no assignment", "convergence", without_policy(plan::assignment));
  add("pods are never confirmed", "convergence", without_action<plan::ConfirmPod>());
  add("pods are never deleted", "convergence", without_action<plan::DeletePod>());
  add("agents never get assignments", "convergence", without_action<plan::PutAssignment>());
  add("no pod is created", "convergence", without_action<plan::CreatePod>());
  add("no Secret is created", "convergence", without_action<plan::CreateSecret>());
}

void add_views(std::vector<Mutant>& mutants) {
  const auto add = [&mutants](const char* name, const char* found_by, loop::PlanFunction plan) {
    mutants.push_back({name, found_by, Mutation{.plan = std::move(plan)}});
  };
  add("reports of any round are used", "restarts", with_observation([](plan::Observed& seen) {
        for (auto& [uid, agent] : seen.agents) {
          if (!agent.state) continue;
          AgentState state = *agent.state;
          state.round = seen.job.status.round;
          state.hash = seen.job.status.worldHash;
          agent.state = std::make_shared<const AgentState>(std::move(state));
        }
      }));
  add("agents count as silent from the start", "members",
      with_observation([](plan::Observed& seen) {
        for (auto& [uid, agent] : seen.agents) agent.last_heard = TimePoint{};
      }));
  add("silence is never noticed", "convergence",
      [](const plan::Observed& observed, TimePoint now, const plan::Limits& limits) {
        plan::Observed seen = observed;
        for (auto& [uid, agent] : seen.agents) agent.last_heard = now;
        return plan::plan(seen, now, limits);
      });
  add("terminating pods count as live", "I10", with_observation([](plan::Observed& seen) {
        for (plan::PodView& pod : seen.pods) pod.terminating = false;
      }));
  add("ended pods count as running", "failures", with_observation([](plan::Observed& seen) {
        for (plan::PodView& pod : seen.pods) {
          if (pod.phase == "Failed") pod.phase = "Running";
          pod.exit_code.reset();
        }
      }));
  add("a pod lives as long as any of its containers",
      "failures: AgentSilent was recorded for an agent that was not lost",
      with_observation([](plan::Observed& seen) {
        for (plan::PodView& pod : seen.pods) {
          if (pod.phase == "Running") pod.exit_code.reset();
        }
      }));
  add("a pod gets the image of the controller that creates it", "images",
      with_observation([](plan::Observed& seen) { seen.job.status.agentImage.clear(); }));
  add("a pod missing in the cache counts as lost", "members",
      with_observation([](plan::Observed& seen) {
        const std::vector<int64_t> members = plan::members_from_text(seen.job.status.members);
        for (size_t i = 0; i < members.size(); ++i) {
          seen.absent_pods.insert(
              plan::worker_pod_name(seen.job.metadata.name, static_cast<int64_t>(i), members[i]));
        }
      }));
  add("Complete is ignored", "terminal", with_observation([](plan::Observed& seen) {
        std::erase_if(seen.job.status.conditions,
                      [](const Condition& condition) { return condition.type == kComplete; });
      }));
}

using Status = TrainingJobStatus;

void add_statuses(std::vector<Mutant>& mutants) {
  const auto add = [&mutants](const char* name, const char* found_by,
                              std::function<void(Status&, const Status&)> wrong) {
    mutants.push_back({name, found_by, Mutation{.plan = with_status(std::move(wrong))}});
  };
  add("a restart counts twice", "restarts", [](Status& status, const Status& before) {
    status.restarts += status.restarts - before.restarts;
  });
  add("every round counts as a restart", "restarts", [](Status& status, const Status& before) {
    if (status.round > before.round && status.restarts == before.restarts) ++status.restarts;
  });
  add("the restart count is reset to 1", "restarts", [](Status& status, const Status& before) {
    if (status.restarts > before.restarts) status.restarts = 1;
  });
  add("the round number decreases", "rounds", [](Status& status, const Status&) {
    if (status.round > 2) status.round = 1;
  });
  add("a round keeps its number", "rounds", [](Status& status, const Status& before) {
    if (before.round > 0) status.round = before.round;
  });
  add("a round begins again without a reason", "rounds: a round was followed by the same one",
      [](Status& status, const Status& before) {
        if (before.worldHash.empty() || status.worldHash != before.worldHash) return;
        ++status.round;
        std::ranges::reverse(status.worldHash);
      });
}

void add_wrong_members(std::vector<Mutant>& mutants) {
  const auto add = [&mutants](const char* name, const char* found_by,
                              std::function<void(Status&, const Status&)> wrong) {
    mutants.push_back({name, found_by, Mutation{.plan = with_status(std::move(wrong))}});
  };
  add("a process failure replaces the pods", "members", [](Status& status, const Status& before) {
    if (status.restarts == before.restarts || status.members != before.members) return;
    std::vector<int64_t> members = plan::members_from_text(status.members);
    for (int64_t& incarnation : members) ++incarnation;
    status.members = plan::members_to_text(members);
    status.worldHash.clear();
  });
  add("one lost pod replaces all", "members", [](Status& status, const Status& before) {
    std::vector<int64_t> members = plan::members_from_text(status.members);
    const std::vector<int64_t> old = plan::members_from_text(before.members);
    if (members == old || members.size() != old.size()) return;
    for (size_t i = 0; i < old.size(); ++i) members[i] = old[i] + 1;
    status.members = plan::members_to_text(members);
  });
  add("a joining member ends the round", "rounds: a round ended because members joined",
      [](Status& status, const Status& before) {
        if (status.members.size() > before.members.size()) status.worldHash.clear();
      });
  add("observedGeneration runs ahead", "I7",
      [](Status& status, const Status&) { ++status.observedGeneration; });
  add("the first node to finish completes the job", "I5", [](Status& status, const Status&) {
    if (status.progress && status.progress->step > 7) {
      plan::set_condition(
          status,
          {.type = kComplete, .value = true, .reason = "Soon", .message = "", .time = "now"});
    }
  });
}

loop::PlanFunction with_spec(std::function<void(TrainingJobSpec&)> wrong) {
  return with_observation(
      [wrong = std::move(wrong)](plan::Observed& seen) { wrong(seen.job.spec); });
}

void add_wrong_specs(std::vector<Mutant>& mutants) {
  const auto add = [&mutants](const char* name, const char* found_by, loop::PlanFunction plan) {
    mutants.push_back({name, found_by, Mutation{.plan = std::move(plan)}});
  };
  using Spec = TrainingJobSpec;
  add("no deadline", "deadline", without_policy(plan::deadline));
  add("a deadline that comes too early", "deadline", with_spec([](Spec& spec) {
        spec.activeDeadlineSeconds = std::max<int64_t>(spec.activeDeadlineSeconds - 10, 0);
      }));
  add("every job has a deadline", "deadline",
      with_spec([](Spec& spec) { spec.activeDeadlineSeconds = 15; }));
  add("failure rules are not read", "rules",
      with_spec([](Spec& spec) { spec.failure.rules.clear(); }));
  add("the last rule decides", "rules", with_spec([](Spec& spec) {
        std::reverse(spec.failure.rules.begin(), spec.failure.rules.end());
      }));
  add("bad machines are not avoided", "machines",
      with_spec([](Spec& spec) { spec.failure.avoidNodes = 0; }));
  add("machines are avoided too soon", "members", with_spec([](Spec& spec) {
        spec.failure.avoidNodes = std::min<int64_t>(spec.failure.avoidNodes, 1);
      }));
  add("pods may be pending forever", "convergence",
      with_spec([](Spec& spec) { spec.failure.pendingTimeoutSeconds = 0; }));
  add("pending pods are given up too soon", "members",
      with_spec([](Spec& spec) { spec.failure.pendingTimeoutSeconds = 1; }));
  add("all ranks must end despite successPolicy", "convergence",
      with_spec([](Spec& spec) { spec.successPolicy = "AllRanks"; }));
  add("rank 0 always completes the job", "I5",
      with_spec([](Spec& spec) { spec.successPolicy = kRankZero; }));
  add("jobs never expire", "silence", without_action<plan::DeleteJob>());
  add("jobs expire immediately", "ttl", with_spec([](Spec& spec) {
        if (spec.ttlSecondsAfterFinished > 0) spec.ttlSecondsAfterFinished = 0;
      }));
  add("every job expires", "ttl", with_spec([](Spec& spec) { spec.ttlSecondsAfterFinished = 5; }));
  add("jobs that are being deleted continue", "deletion", without_policy(plan::deletion));
}

void add_wrong_ends(std::vector<Mutant>& mutants) {
  const auto add = [&mutants](const char* name, const char* found_by,
                              std::function<void(Status&, const Status&)> wrong) {
    mutants.push_back({name, found_by, Mutation{.plan = with_status(std::move(wrong))}});
  };
  add("a job is revived after its deadline", "terminal", [](Status& status, const Status& before) {
    const Condition* failed = find_condition(before, kFailed);
    if (failed == nullptr || failed->reason != "DeadlineExceeded") return;
    std::erase_if(status.conditions, [](const Condition& c) { return c.type == kFailed; });
  });
  add("ignored failures count", "restarts", [](Status& status, const Status& before) {
    const bool is_new =
        status.lastFailure &&
        (!before.lastFailure || before.lastFailure->number != status.lastFailure->number);
    if (!is_new || status.lastFailure->action == "Fail") return;
    if (status.restarts == before.restarts) ++status.restarts;
  });
  const auto expire = [](plan::Plan& plan, const plan::Observed& seen) {
    if (seen.job.spec.ttlSecondsAfterFinished < 0 || !is_true(seen.job.status, kRunning)) return;
    plan.actions.assign(1, plan::DeleteJob{.uid = seen.job.metadata.uid,
                                           .resource_version = seen.job.metadata.resourceVersion});
  };
  const auto events_first = [](plan::Plan& plan, const plan::Observed&) {
    std::stable_partition(plan.actions.begin(), plan.actions.end(), [](const plan::Action& action) {
      return std::holds_alternative<plan::EmitEvent>(action);
    });
  };
  mutants.push_back({"events are sent before the status write", "events",
                     Mutation{.plan = with_plan(events_first)}});
  const auto event_always = [](plan::Plan& plan, const plan::Observed&) {
    plan.actions.push_back(plan::EmitEvent{.reason = "Planned", .message = plan.why});
  };
  mutants.push_back(
      {"every plan sends an event", "events", Mutation{.plan = with_plan(event_always)}});
  mutants.push_back({"running jobs expire", "ttl", Mutation{.plan = with_plan(expire)}});
  mutants.push_back(
      {"jobs are deleted without preconditions", "I4", api([](loop::ApiRequest& request) {
         if (is(request, loop::ApiVerb::kDelete, loop::kTrainingJobs)) {
           request.body.erase("preconditions");
         }
       })});
  mutants.push_back({"pods have no node affinity", "machines", api([](loop::ApiRequest& request) {
                       if (is(request, loop::ApiVerb::kCreate, loop::kPods)) {
                         request.body["spec"].erase("affinity");
                       }
                     })});
}

void add_repetitions(std::vector<Mutant>& mutants) {
  mutants.push_back(
      {"status is written by every plan", "silence",
       Mutation{.plan = with_plan([](plan::Plan& plan, const plan::Observed& seen) {
                  TrainingJobStatus status = seen.job.status;
                  status.completionTime += "x";
                  if (plan.actions.empty()) {
                    plan.actions.push_back(plan::WriteStatus{
                        .status = status, .resource_version = seen.job.metadata.resourceVersion});
                  }
                })}});
  // A cache that never forgets, and an executor that treats NotFound as an error.
  mutants.push_back({"deleted objects stay in the cache and NotFound is an error", "silence",
                     api(
                         {},
                         [](const loop::ApiRequest& asked, loop::ApiReply& reply) {
                           const bool is_gone = reply.outcome == loop::ApiOutcome::kNotFound;
                           if (is(asked, loop::ApiVerb::kDelete, loop::kPods) && is_gone)
                             reply.outcome = loop::ApiOutcome::kUnavailable;
                         },
                         [](std::vector<loop::WatchEvent>& events) {
                           std::erase_if(events, [](const loop::WatchEvent& event) {
                             return event.type == loop::WatchEventType::kDeleted;
                           });
                         })});
}

void add_requests(std::vector<Mutant>& mutants) {
  const auto add = [&mutants](const char* name, const char* found_by, Mutation mutation) {
    mutants.push_back({name, found_by, std::move(mutation)});
  };
  add("pods are deleted without a UID", "I4", api([](loop::ApiRequest& request) {
        if (is(request, loop::ApiVerb::kDelete, loop::kPods)) request.body.erase("preconditions");
      }));
  add("the Secret has another token", "convergence", api([](loop::ApiRequest& request) {
        if (is(request, loop::ApiVerb::kCreate, loop::kSecrets))
          request.body["stringData"][plan::kTokenKey] = "x";
      }));
  add("a delayed write is sent after the lease is lost", "I3",
      api([](loop::ApiRequest& request) { request.may_send = nullptr; }));
  add("pods have no owner", "I4", api([](loop::ApiRequest& request) {
        if (is(request, loop::ApiVerb::kCreate, loop::kPods)) {
          request.body["metadata"].erase("ownerReferences");
        }
      }));
  add("reading a pod always finds none", "restarts",
      api({}, [](const loop::ApiRequest& asked, loop::ApiReply& reply) {
        if (is(asked, loop::ApiVerb::kGet, loop::kPods))
          reply.outcome = loop::ApiOutcome::kNotFound;
      }));
  add("the lease always looks free", "I3",
      api({}, [](const loop::ApiRequest& asked, loop::ApiReply& reply) {
        if (is(asked, loop::ApiVerb::kGet, loop::kLeases) && reply.ok()) {
          Json free = reply.body;
          free["spec"]["holderIdentity"] = "";
          reply.body = std::move(free);
        }
      }));
  add("a lease is never lost", "I3",
      api({}, [](const loop::ApiRequest& asked, loop::ApiReply& reply) {
        if (!is(asked, loop::ApiVerb::kReplace, loop::kLeases)) return;
        reply = {.outcome = loop::ApiOutcome::kOk, .body = {{"spec", Json::object()}}};
      }));
}

// Every list returns the first result of its kind.
Mutation old_lists() {
  Mutation mutation;
  mutation.api = [](loop::ApiClient& real) {
    auto first = std::make_shared<std::map<std::string, loop::ApiReply>>();
    return std::make_unique<TamperingApiClient>(
        real, nullptr,
        [first](const loop::ApiRequest& asked, loop::ApiReply& reply) {
          if (asked.verb != loop::ApiVerb::kList || !reply.ok()) return;
          reply = first->emplace(asked.type.plural, reply).first->second;
        },
        nullptr);
  };
  return mutation;
}

void add_checks(std::vector<Mutant>& mutants) {
  const auto add = [&mutants](const char* name, const char* found_by, Mutation mutation) {
    mutants.push_back({name, found_by, std::move(mutation)});
  };
  add("no pod is checked", "validation", {.plan = with_observation([](plan::Observed& seen) {
                                            if (!seen.pod_check) seen.pod_check.emplace();
                                          })});
  add("the result of a pod check is forgotten", "I10",
      {.plan = with_observation([](plan::Observed& seen) { seen.pod_check.reset(); })});
  add("a pod that was refused once is not checked again", "convergence",
      {.plan = with_observation([](plan::Observed& seen) {
         if (seen.pod_check) seen.pod_check->retry_at = TimePoint(std::chrono::hours(100'000));
       })});
  add("a pod check creates the pod", "members",
      api([](loop::ApiRequest& request) { request.query.erase("dryRun"); }));
  add("a webhook without dry run support counts as a refusal", "validation",
      api({}, [](const loop::ApiRequest&, loop::ApiReply& reply) {
        if (reply.message.find("dry run") != std::string::npos) reply.message = "denied";
      }));
}

void add_caches(std::vector<Mutant>& mutants) {
  const auto drop_events = [&mutants](const char* name, const char* found_by,
                                      loop::WatchEventType type) {
    mutants.push_back({name, found_by, api({}, {}, [type](std::vector<loop::WatchEvent>& events) {
                         std::erase_if(events, [type](const loop::WatchEvent& event) {
                           return event.type == type;
                         });
                       })});
  };
  mutants.push_back({"every list returns the first result", "convergence", old_lists()});
  drop_events("the watch has no DELETED events",
              "failures: AgentSilent was recorded for an agent that was not lost",
              loop::WatchEventType::kDeleted);
  drop_events("the watch has no MODIFIED events", "convergence", loop::WatchEventType::kModified);
  drop_events("the watch has no ADDED events", "convergence", loop::WatchEventType::kAdded);
}

void add_reports(std::vector<Mutant>& mutants) {
  const auto add = [&mutants](const char* name, const char* found_by, Mutation mutation) {
    mutants.push_back({name, found_by, std::move(mutation)});
  };
  add("assignments of another round", "rounds",
      with_agents([](Assignment& assignment) { ++assignment.world.round; }));
  add("assignments with another hash", "rounds",
      with_agents([](Assignment& assignment) { assignment.hash = "0000000000000000"; }));
  add("every assignment has the newest protocol version", "convergence",
      with_agents([](Assignment& assignment) { assignment.protocol = kProtocolNewest; }));
  add("every report has exit code 0", "convergence", with_agents({}, [](AgentState& state) {
        for (WorkerState& worker : state.workers) worker.exit_code = 0;
      }));
  add("every report says Completed", "I5", with_agents({}, [](AgentState& state) {
        if (state.round > 0) state.phase = "Completed";
      }));
  add("reports of another job's agent are used", "failures", with_trust());
  add("an agent that is asked to stop reports that its ranks have saved", "drains",
      with_agents({}, [](AgentState& state) {
        if (state.phase != "Stopping") return;
        for (WorkerState& worker : state.workers) {
          worker.running = false;
          worker.exit_code = kExitStopped;
        }
      }));
  Mutation impatient;
  impatient.limits.equal_starts = 1;
  impatient.limits.equal_starts_span = std::chrono::seconds(0);
  add("a program that failed once never started", "never started", std::move(impatient));
  Mutation short_silence;
  short_silence.limits.agent_silence = std::chrono::seconds(1);
  add("agents are given up too soon", "restarts", std::move(short_silence));
  Mutation long_health;
  long_health.limits.agent_silence =
      std::chrono::seconds(60);  // a hang is reported earlier than that
  long_health.limits.agent_healthy_within = std::chrono::hours(1);
  add("a lost machine counts as a hung rank", "failures", std::move(long_health));
  // Longer than agents may be silent, but not for ever.
  Mutation late_suspicion;
  late_suspicion.watch.silence = std::chrono::seconds(40);
  add("the controller suspects its own network too late", kLostByPartition,
      std::move(late_suspicion));
}

void add_misjudgements(std::vector<Mutant>& mutants) {
  const auto add = [&mutants](const char* name, const char* found_by, loop::PlanFunction plan) {
    mutants.push_back({name, found_by, Mutation{.plan = std::move(plan)}});
  };
  add("reports with another hash are used", "I5", with_observation([](plan::Observed& seen) {
        for (auto& [uid, agent] : seen.agents) {
          if (agent.state && agent.state->round == seen.job.status.round) {
            AgentState state = *agent.state;
            state.hash = seen.job.status.worldHash;
            agent.state = std::make_shared<const AgentState>(std::move(state));
          }
        }
      }));
  add("the controller never suspects its own network", kLostByPartition,
      with_observation([](plan::Observed& seen) { seen.suspect_own_network = false; }));
  add("the controller always suspects its own network", "failures",
      with_observation([](plan::Observed& seen) { seen.suspect_own_network = true; }));
  add("a pod's age depends on the server's clock alone", "members",
      with_observation([](plan::Observed& seen) {
        for (plan::PodView& pod : seen.pods) pod.seen_at.reset();
      }));
  add("a recovered failure is counted again", "restarts: a failure of another round",
      with_status([](Status& status, const Status& before) {
        const bool is_waiting = before.lastFailure && is_true(before, kRestarting) &&
                                status.lastFailure == before.lastFailure &&
                                status.round > before.lastFailure->round;
        if (!is_waiting || status.restarts != before.restarts) return;
        ++status.lastFailure->number;
        ++status.restarts;
      }));
  add("failures are blamed on the next node",
      "restarts: a worker's failure was recorded that did not happen",
      with_status([](Status& status, const Status& before) {
        const bool is_new =
            status.lastFailure &&
            (!before.lastFailure || before.lastFailure->number != status.lastFailure->number);
        const auto nodes = static_cast<int64_t>(plan::members_from_text(before.members).size());
        if (!is_new || status.lastFailure->rank < 0) return;
        status.lastFailure->nodeIndex = (status.lastFailure->nodeIndex + 1) % nodes;
      }));
  add("progress has a negative step", "numbers", with_status([](Status& status, const Status&) {
        if (status.progress) status.progress->step = -1;
      }));
}

}  // namespace

Mutation with_agents(std::function<void(Assignment&)> put, std::function<void(AgentState&)> state) {
  Mutation mutation;
  mutation.agents = [=](loop::AgentClient& real) {
    return std::make_unique<TamperingAgentClient>(real, put, state);
  };
  return mutation;
}

std::vector<Mutant> all_mutants() {
  std::vector<Mutant> mutants;
  for (const auto& add : {add_missing, add_views, add_statuses, add_wrong_members, add_wrong_specs,
                          add_wrong_ends, add_repetitions, add_requests, add_checks, add_caches,
                          add_reports, add_misjudgements, add_places, add_training, add_servers}) {
    add(mutants);
  }
  return mutants;
}

}  // namespace lockstep::sim
