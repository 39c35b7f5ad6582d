#include "common/base/sha256.h"
#include "controller/plan/conditions.h"
#include "controller/plan/damage.h"
#include "controller/plan/fixed_fields.h"
#include "controller/plan/pass.h"
#include "controller/plan/pod_policy.h"
#include "controller/plan/pod_template.h"
#include "controller/plan/template_size.h"

namespace lockstep::plan {
namespace {

Problems find_problems(const Pass& pass) {
  if (!pass.seen.problems.empty()) return pass.seen.problems;
  Problems problems =
      pass.seen.spec_problems ? *pass.seen.spec_problems : spec_problems(pass.job());
  const bool is_accepted = is_true(pass.status, kValid) &&
                           pass.status.observedGeneration == pass.job().metadata.generation;
  const bool may_change = pass.spec().suspend || is_true(pass.status, kSuspended);
  if (is_accepted) return problems;
  for (std::string& problem : template_size_problems(pass)) problems.push_back(std::move(problem));
  if (may_change) return problems;
  for (std::string& problem : changed_fields(pass.status.fixed, pass.spec())) {
    problems.push_back(std::move(problem));
  }
  return problems;
}

// A job that has pods keeps them when the policy becomes stricter, and may replace them: its
// podTemplate is fixed meanwhile. The policy applies again when the job resumes after a suspension.
Problems find_policy_problems(const Pass& pass) {
  const bool has_pods = !pass.members.empty() && !is_true(pass.status, kSuspended);
  if (has_pods) return {};
  return pod_policy_problems(pass.job(), pass.limits.pod_policy);
}

std::string lines(const Problems& problems) {
  std::string text;
  for (const std::string& problem : problems) {
    if (!text.empty()) text += '\n';
    text += problem;
  }
  return text;
}

// The server is asked once per generation, before the first round and before a round after a
// suspension, during which the spec may have changed. A running job is not checked: only creating a
// pod shows what its pods need then.
bool needs_pod_check(const Pass& pass) {
  if (pass.spec().suspend) return false;
  if (pass.status.round > 0 && !is_true(pass.status, kSuspended)) return false;
  const Condition* valid = find_condition(pass.status, kValid);
  return valid == nullptr || valid->status != "True" ||
         valid->observedGeneration != pass.job().metadata.generation;
}

bool is_check_due(const Pass& pass) {
  const auto& check = pass.seen.pod_check;
  return !check || (!check->refusal.empty() && pass.now >= check->retry_at);
}

// Returns a digest of the pod as it would be if its job had no name and no UID and were new.
std::string template_digest(TrainingJob job, const Limits& limits) {
  job.metadata.name = job.metadata.uid = "";
  const NewPod pod{.incarnation = 1, .image = limits.job_image, .agent_image = limits.agent_image};
  return hex(sha256(dump_json(make_worker_pod(job, pod))));
}

// Returns a check of node 0's next pod.
CheckPod make_check(const Pass& pass) {
  const NewPod pod{.index = 0,
                   .incarnation = pass.members.empty() ? 1 : pass.members.front() + 1,
                   .round = pass.status.round,
                   .image = pass.limits.job_image,
                   .agent_image = pass.limits.agent_image,
                   .scrape_annotations = pass.limits.scrape_annotations};
  return {.body = make_worker_pod(pass.job(), pod),
          .template_digest = template_digest(pass.job(), pass.limits),
          .generation = pass.job().metadata.generation};
}

// Users look here to find out why the job is not restarted.
void note_failure(const Pass& pass, Problems& problems) {
  if (!pass.seen.problems.empty() || pass.spec().suspend || !pass.formed()) return;
  const Damage damage = assess_damage(pass);
  if (!damage.culprit || !damage.ends_round) return;
  problems.push_back("node index " + std::to_string(damage.culprit->nodeIndex) + " failed (" +
                     damage.culprit->reason + "): the job restarts only once its spec is valid");
}

}  // namespace

Problems spec_problems(const TrainingJob& job) {
  Problems problems = validate(job);
  for (std::string& problem : pod_template_problems(job.spec.podTemplate)) {
    problems.push_back(std::move(problem));
  }
  return problems;
}

// Leaves an invalid job exactly as it is, running or not, until its spec is corrected. Its deadline
// still holds, and it can be suspended, which needs nothing else from the spec.
Verdict validation(Pass& pass) {
  Problems problems = find_problems(pass);
  const char* reason = "InvalidSpec";
  if (problems.empty()) {
    problems = find_policy_problems(pass);
    if (!problems.empty()) reason = "PodPolicy";
  }
  if (problems.empty() && needs_pod_check(pass)) {
    if (is_check_due(pass)) {
      pass.act(make_check(pass));
      pass.plan.why = "the API server must check a pod first";
      return Verdict::kLeave;
    }
    if (const PodCheck& check = *pass.seen.pod_check; !check.refusal.empty()) {
      problems.push_back("spec: the API server refuses the job's pods: " + check.refusal);
      pass.requeue(check.retry_at);
    }
  }
  const bool valid = problems.empty();
  if (!valid) note_failure(pass, problems);
  const std::string message = lines(problems);
  const bool flipped = set_condition(pass.status, {.type = kValid,
                                                   .value = valid,
                                                   .reason = valid ? "SpecValid" : reason,
                                                   .message = message,
                                                   .time = rfc3339(pass.seen.wall_now),
                                                   .generation = pass.job().metadata.generation});
  if (valid) return Verdict::kNext;
  pass.plan.why = "the spec is invalid";
  if (flipped) pass.event(true, reason, message);
  if (pass.spec().suspend) return Verdict::kNext;
  deadline(pass);
  return Verdict::kDecided;
}

}  // namespace lockstep::plan
