#include "controller/plan/network_policy.h"

#include <algorithm>

#include "controller/plan/conditions.h"
#include "controller/plan/names.h"
#include "controller/plan/pod_template.h"

namespace lockstep::plan {
namespace {

const Json& member(const Json& object, std::string_view key) {
  static const Json kNothing;
  const Json* found = find_member(object, key);
  return found == nullptr ? kNothing : *found;
}

bool owns(const TrainingJob& job, const Json& metadata) {
  const Json& owners = member(metadata, "ownerReferences");
  return std::any_of(owners.begin(), owners.end(), [&job](const Json& owner) {
    return string_or(owner, "uid", "") == job.metadata.uid;
  });
}

// Returns whether all that `wanted` says is in the stored policy. Others may add labels,
// annotations and owners.
bool is_as_wanted(const TrainingJob& job, const Json& stored, const Json& wanted) {
  const Json& metadata = member(stored, "metadata");
  const Json& labels = member(metadata, "labels");
  for (const auto& [key, value] : member(member(wanted, "metadata"), "labels").items()) {
    if (member(labels, key) != value) return false;
  }
  return owns(job, metadata) && member(stored, "spec") == member(wanted, "spec");
}

// Returns the stored policy with what `wanted` says, and with what others have added to its
// metadata. Its resourceVersion makes the write fail if it has changed since.
Json restored(const TrainingJob& job, const Json& stored, const Json& wanted) {
  Json body = wanted;
  Json metadata = member(stored, "metadata");
  if (!member(metadata, "labels").is_object()) metadata["labels"] = Json::object();
  metadata["labels"].update(wanted["metadata"]["labels"]);
  if (!owns(job, metadata)) metadata["ownerReferences"] = wanted["metadata"]["ownerReferences"];
  body["metadata"] = std::move(metadata);
  return body;
}

// Returns the write that is missing; nullopt if the policy is as the job asks.
std::optional<Action> missing_write(const Pass& pass) {
  const TrainingJob& job = pass.job();
  const Json* stored = pass.seen.network_policy.object;
  const std::string name = network_policy_name(job.metadata);
  if (!wants_network_policy(job.spec)) {
    if (stored == nullptr) return std::nullopt;
    return DeleteNetworkPolicy{.name = name,
                               .uid = string_or(member(*stored, "metadata"), "uid", "")};
  }
  Json wanted = make_network_policy(job, *pass.limits.network_policies);
  if (stored == nullptr) return WriteNetworkPolicy{.name = name, .body = std::move(wanted)};
  if (is_as_wanted(job, *stored, wanted)) return std::nullopt;
  return WriteNetworkPolicy{.name = name, .body = restored(job, *stored, wanted)};
}

struct Trouble {
  const char* reason;
  std::string message;
};

// Returns why the policy is not as the job asks; nullopt if it is, or if that is not known yet.
std::optional<Trouble> trouble_of(const Pass& pass, bool is_right) {
  const std::string path = "spec.security.networkPolicy: " + pass.spec().security.networkPolicy;
  if (!pass.limits.network_policies) {
    // A job that leaves the choice to the controller gets no warning.
    if (pass.spec().security.networkPolicy != kJobNetworkPolicy) return std::nullopt;
    return Trouble{"PoliciesOff",
                   path +
                       ", but the controller runs without --network-policies: the job's pods are "
                       "open to others"};
  }
  const NetworkPolicyView& seen = pass.seen.network_policy;
  if (is_right || seen.reason.empty()) return std::nullopt;
  const char* state = !wants_network_policy(pass.spec()) ? "the job's NetworkPolicy remains"
                      : seen.object == nullptr           ? "the job's pods are open to others"
                                               : "the job's NetworkPolicy has been changed";
  return Trouble{seen.reason.c_str(), path + ", but " + state + ": " + seen.message};
}

}  // namespace

bool wants_network_policy(const TrainingJobSpec& spec) {
  const std::string& choice = spec.security.networkPolicy;
  return choice == kJobNetworkPolicy || (choice == "auto" && spec.train);
}

Json make_network_policy(const TrainingJob& job, const NetworkPolicyPeers& peers) {
  const Json own_pods = {{"matchLabels", job_labels(job.metadata.name)}};
  Json agent = {{"ports", Json::array({{{"protocol", "TCP"}, {"port", kAgentPort}}})}};
  if (!peers.agent_from.empty()) agent["from"] = peers.agent_from;
  return {{"apiVersion", "networking.k8s.io/v1"},
          {"kind", "NetworkPolicy"},
          {"metadata", owned_metadata(job, network_policy_name(job.metadata))},
          {"spec",
           {{"podSelector", own_pods},
            {"policyTypes", Json::array({"Ingress"})},
            {"ingress", Json::array({{{"from", Json::array({{{"podSelector", own_pods}}})}},
                                     std::move(agent)})}}}};
}

// Comes before the pods, so that they are never open. A server that takes no policies holds no job
// up: until the next try, the job goes on without.
Verdict network(Pass& pass) {
  if (!pass.limits.network_policies) return Verdict::kNext;
  std::optional<Action> write = missing_write(pass);
  if (!write) return Verdict::kNext;
  const TimePoint at = pass.seen.network_policy.writable_at;
  if (pass.now < at) {
    if (at != TimePoint::max()) pass.requeue(at);
    return Verdict::kNext;
  }
  pass.act(*std::move(write));
  pass.plan.why = "the NetworkPolicy must be written";
  return Verdict::kActed;
}

void derive_network_policy(Pass& pass) {
  const bool was_failing = is_true(pass.status, kNetworkPolicyFailing);
  const bool makes_policies = pass.limits.network_policies.has_value();
  // Spares most plans a comparison of policies.
  if (makes_policies && !was_failing && pass.seen.network_policy.reason.empty()) return;
  const bool is_right = makes_policies && !missing_write(pass);
  if (std::optional<Trouble> trouble = trouble_of(pass, is_right)) {
    if (!was_failing) pass.event(true, kNetworkPolicyFailing, trouble->message);
    pass.set(kNetworkPolicyFailing, true, trouble->reason, std::move(trouble->message));
    return;
  }
  const bool is_asked = pass.spec().security.networkPolicy == kJobNetworkPolicy;
  if (was_failing && (is_right || (!makes_policies && !is_asked)))
    pass.set(kNetworkPolicyFailing, false, "AsRequested");
}

}  // namespace lockstep::plan
