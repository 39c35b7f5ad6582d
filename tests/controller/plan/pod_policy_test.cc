#include "controller/plan/pod_policy.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "controller/plan/conditions.h"
#include "controller/plan/names.h"
#include "controller/plan/pod_template.h"
#include "tests/controller/plan/pod_security.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

Problems problems_of(const TrainingJob& job, PodPolicyLevel level,
                     std::vector<std::string> accounts = {}) {
  return pod_policy_problems(job, {.level = level, .service_accounts = std::move(accounts)});
}

TrainingJob job_with(const Json& pod_template) {
  Scene scene;
  scene.seen.job.spec.podTemplate = pod_template;
  return scene.seen.job;
}

bool has_path(const Problems& problems, const std::string& path) {
  return std::any_of(problems.begin(), problems.end(), [&path](const std::string& problem) {
    return problem.starts_with(path + ": ");
  });
}

// One podTemplate and the lowest level that refuses it.
struct Case {
  const char* at;     // a JSON pointer into the template
  const char* value;  // set there
  const char* path;   // of the problem, below spec.podTemplate.; nullptr: every level admits it
  PodPolicyLevel level = PodPolicyLevel::kBaseline;
};
constexpr PodPolicyLevel kRestrictedOnly = PodPolicyLevel::kRestricted;

// A pod whose parts are all the user's: `node` is second, and an init container is first.
Json parts() {
  return Json::parse(R"({"metadata": {"annotations": {}}, "spec": {
    "securityContext": {},
    "initContainers": [{"name": "first", "image": "i", "securityContext": {
      "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
    "containers": [
      {"name": "side", "image": "i", "securityContext": {
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}},
      {"name": "node", "securityContext": {}}],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]}})");
}

const std::vector<Case>& pod_cases() {
  static const std::vector<Case> kCases = {
      {"/spec/hostNetwork", "true", "spec.hostNetwork"},
      {"/spec/hostNetwork", "false", nullptr},
      {"/spec/hostPID", "true", "spec.hostPID"},
      {"/spec/hostIPC", "true", "spec.hostIPC"},
      {"/spec/hostIPC", "null", nullptr},
      {"/spec/volumes/0", R"({"name":"x","hostPath":{"path":"/"}})", "spec.volumes[0].hostPath"},
      {"/spec/volumes/0", R"({"name":"x","emptyDir":{"medium":"Memory"}})", nullptr},
      {"/spec/volumes/0", R"({"name":"x","nfs":{"server":"a","path":"/"}})", "spec.volumes[0].nfs",
       kRestrictedOnly},
      {"/spec/volumes/0", R"({"name":"x","csi":{"driver":"d"}})", nullptr},
      {"/spec/volumes/0", R"({"name":"x","ephemeral":{"volumeClaimTemplate":{}}})", nullptr},
      {"/spec/securityContext/sysctls", R"([{"name":"kernel.msgmax","value":"1"}])",
       "spec.securityContext.sysctls"},
      {"/spec/securityContext/sysctls", R"([{"name":"net.ipv4.tcp_syncookies","value":"1"}])",
       nullptr},
      {"/spec/securityContext/seccompProfile", "null", "spec.securityContext.seccompProfile.type",
       kRestrictedOnly},
      {"/spec/securityContext/runAsNonRoot", "null", "spec.securityContext.runAsNonRoot",
       kRestrictedOnly},
      {"/spec/securityContext", "null", "spec.securityContext.runAsNonRoot", kRestrictedOnly},
      {"/metadata/annotations/container.apparmor.security.beta.kubernetes.io~1node",
       "\"unconfined\"",
       "metadata.annotations.container.apparmor.security.beta.kubernetes.io/node"},
      {"/metadata/annotations/container.apparmor.security.beta.kubernetes.io~1node",
       "\"runtime/default\"", nullptr},
      {"/metadata/annotations/seccomp.security.alpha.kubernetes.io~1pod", "\"unconfined\"",
       "metadata.annotations.seccomp.security.alpha.kubernetes.io/pod"},
      {"/metadata/annotations/container.seccomp.security.alpha.kubernetes.io~1side",
       "\"unconfined\"",
       "metadata.annotations.container.seccomp.security.alpha.kubernetes.io/side"},
      {"/metadata/annotations/seccomp.security.alpha.kubernetes.io~1pod", "\"localhost/a\"",
       nullptr},
      {"/spec/volumes/0", R"({"name":"x","secret":{"secretName":"other-token-0a1b2c3d"}})",
       "spec.volumes[0].secret.secretName"},
      {"/spec/volumes/0", R"({"name":"x","secret":{"secretName":"hf-token"}})", nullptr},
      {"/spec/volumes/0",
       R"({"name":"x","projected":{"sources":[{"secret":{"name":"a-token-0a1b2c3d"}}]}})",
       "spec.volumes[0].projected.sources[0].secret.name"},
      {"/spec/containers/1/envFrom", R"([{"secretRef":{"name":"a-token-0a1b2c3d"}}])",
       "spec.containers[1].envFrom[0].secretRef.name"},
      {"/spec/containers/1/env",
       R"([{"name":"A","valueFrom":{"secretKeyRef":{"name":"a-token-0a1b2c3d","key":"k"}}}])",
       "spec.containers[1].env[0].valueFrom.secretKeyRef.name"},
      {"/spec/serviceAccountName", "\"admin\"", "spec.serviceAccountName"},
      {"/spec/serviceAccount", "\"admin\"", "spec.serviceAccount"},
      {"/spec/serviceAccountName", "\"default\"", nullptr},
  };
  return kCases;
}

// Below a container, as a member of its path.
const std::vector<Case>& container_cases() {
  static const std::vector<Case> kCases = {
      {"/securityContext/privileged", "true", "securityContext.privileged"},
      {"/securityContext/privileged", "false", nullptr},
      {"/securityContext/capabilities/add", R"(["CHOWN"])", "securityContext.capabilities.add",
       kRestrictedOnly},
      {"/securityContext/capabilities/add", R"(["CHOWN","SYS_ADMIN"])",
       "securityContext.capabilities.add"},
      {"/securityContext/capabilities/add", R"(["ALL"])", "securityContext.capabilities.add"},
      {"/securityContext/capabilities/add", R"(["NET_BIND_SERVICE"])", nullptr},
      {"/securityContext/capabilities/drop", R"(["CHOWN"])", "securityContext.capabilities.drop",
       kRestrictedOnly},
      {"/securityContext/allowPrivilegeEscalation", "true",
       "securityContext.allowPrivilegeEscalation", kRestrictedOnly},
      {"/securityContext/allowPrivilegeEscalation", "null",
       "securityContext.allowPrivilegeEscalation", kRestrictedOnly},
      {"/securityContext", "null", "securityContext.allowPrivilegeEscalation", kRestrictedOnly},
      {"/securityContext/procMount", "\"Unmasked\"", "securityContext.procMount"},
      {"/securityContext/procMount", "\"Default\"", nullptr},
      {"/ports", R"([{"containerPort":8000,"hostPort":80}])", "ports.hostPort"},
      {"/ports", R"([{"containerPort":8000,"hostPort":0}])", nullptr},
  };
  return kCases;
}

// Below the securityContext of the pod or of a container.
const std::vector<Case>& context_cases() {
  static const std::vector<Case> kCases = {
      {"/runAsUser", "0", "runAsUser", kRestrictedOnly},
      {"/runAsUser", "1000", nullptr},
      {"/runAsNonRoot", "false", "runAsNonRoot", kRestrictedOnly},
      {"/runAsNonRoot", "true", nullptr},
      {"/seLinuxOptions", R"({"type":"spc_t"})", "seLinuxOptions.type"},
      {"/seLinuxOptions", R"({"user":"u"})", "seLinuxOptions.user"},
      {"/seLinuxOptions", R"({"role":"r"})", "seLinuxOptions.role"},
      {"/seLinuxOptions", R"({"type":"container_kvm_t","level":"s0:c1"})", nullptr},
      {"/appArmorProfile", R"({"type":"Unconfined"})", "appArmorProfile.type"},
      {"/appArmorProfile", R"({"type":"Localhost","localhostProfile":"p"})", nullptr},
      {"/seccompProfile", R"({"type":"Unconfined"})", "seccompProfile.type"},
      {"/seccompProfile", R"({"type":"RuntimeDefault"})", nullptr},
      {"/windowsOptions", R"({"hostProcess":true})", "windowsOptions.hostProcess"},
      {"/windowsOptions", R"({"hostProcess":false})", nullptr},
  };
  return kCases;
}

// Probes of `node` are the agent's; hooks of init containers do not exist.
const std::vector<Case>& handler_cases() {
  static const std::vector<Case> kCases = {
      {"/livenessProbe", R"({"httpGet":{"host":"a","port":1}})", "livenessProbe.httpGet.host"},
      {"/readinessProbe", R"({"tcpSocket":{"host":"a","port":1}})",
       "readinessProbe.tcpSocket.host"},
      {"/startupProbe", R"({"httpGet":{"host":"a","port":1}})", "startupProbe.httpGet.host"},
      {"/startupProbe", R"({"httpGet":{"host":"","port":1}})", nullptr},
      {"/livenessProbe", R"({"httpGet":{"port":1}})", nullptr},
      {"/lifecycle", R"({"preStop":{"httpGet":{"host":"a","port":1}}})",
       "lifecycle.preStop.httpGet.host"},
      {"/lifecycle", R"({"postStart":{"tcpSocket":{"host":"a","port":1}}})",
       "lifecycle.postStart.tcpSocket.host"},
  };
  return kCases;
}

// Checks one case below `prefix`, whose messages have `path_prefix`, on all three levels.
void expect_case(const Case& one, const std::string& prefix, const std::string& path_prefix) {
  Json given = parts();
  given[Json::json_pointer(prefix + one.at)] = Json::parse(one.value);
  const TrainingJob job = job_with(given);
  ASSERT_EQ(pod_template_problems(given), Problems{}) << prefix << one.at;
  EXPECT_EQ(problems_of(job, PodPolicyLevel::kPrivileged), Problems{});
  for (const PodPolicyLevel level : {PodPolicyLevel::kBaseline, PodPolicyLevel::kRestricted}) {
    const Problems problems = problems_of(job, level);
    const std::string what = prefix + one.at + " = " + one.value + " on " +
                             std::string(pod_policy_name(level)) + ": " +
                             (problems.empty() ? "no problem" : problems.front());
    if (one.path == nullptr || level < one.level) {
      EXPECT_EQ(problems, Problems{}) << what;
    } else {
      ASSERT_FALSE(problems.empty()) << what;
      EXPECT_TRUE(has_path(problems, "spec.podTemplate." + path_prefix + one.path)) << what;
      EXPECT_NE(problems.front().find("podPolicy " + std::string(pod_policy_name(level))),
                std::string::npos);
    }
  }
}

TEST(PodPolicy, EachControlOfPodsRefusesWhatItIsAboutAndNothingElse) {
  for (const Case& one : pod_cases()) expect_case(one, "", "");
}

TEST(PodPolicy, EachControlOfContainersHoldsForEveryKindOfContainer) {
  for (const Case& one : container_cases()) {
    for (const char* list : {"initContainers", "containers"}) {
      expect_case(one, std::string("/spec/") + list + "/0", std::string("spec.") + list + "[0].");
    }
    expect_case(one, "/spec/containers/1", "spec.containers[1].");
  }
  for (const Case& one : handler_cases())
    expect_case(one, "/spec/containers/0", "spec.containers[0].");
}

TEST(PodPolicy, EachControlOfSecurityContextsHoldsForPodAndContainers) {
  for (const Case& one : context_cases()) {
    expect_case(one, "/spec/securityContext", "spec.securityContext.");
    expect_case(one, "/spec/initContainers/0/securityContext",
                "spec.initContainers[0].securityContext.");
    expect_case(one, "/spec/containers/1/securityContext", "spec.containers[1].securityContext.");
  }
}

// The checker of tests/controller/plan/pod_security.h was written independently. Neither knows of
// annotations or accounts.
TEST(PodPolicy, RestrictedAgreesWithAnIndependentChecker) {
  const auto compare = [](const Case& one, const std::string& prefix) {
    Json given = parts();
    given[Json::json_pointer(prefix + one.at)] = Json::parse(one.value);
    const TrainingJob job = job_with(given);
    const Json pod = make_worker_pod(job, {});
    EXPECT_EQ(problems_of(job, PodPolicyLevel::kRestricted).empty(),
              restricted_problems(pod["spec"]).empty())
        << prefix << one.at << " = " << one.value;
  };
  for (const Case& one : container_cases()) compare(one, "/spec/containers/0");
  for (const Case& one : handler_cases()) compare(one, "/spec/containers/0");
  for (const Case& one : context_cases()) {
    compare(one, "/spec/securityContext");
    compare(one, "/spec/containers/1/securityContext");
  }
}

TEST(PodPolicy, OurOwnPodsAreAdmitted) {
  Scene scene;
  scene.seen.job.spec.gpusPerNode = 8;
  EXPECT_EQ(problems_of(scene.seen.job, PodPolicyLevel::kRestricted), Problems{});
  scene.seen.job.spec.train.reset();
  scene.seen.job.spec.command = {"python", "train.py"};
  EXPECT_EQ(problems_of(scene.seen.job, PodPolicyLevel::kBaseline), Problems{});
  EXPECT_EQ(problems_of(scene.seen.job, PodPolicyLevel::kRestricted),
            Problems{"spec.podTemplate.spec.securityContext.runAsNonRoot: missing; podPolicy "
                     "restricted requires true, for the pod or in each container"});
}

TEST(PodPolicy, MessagesNameThePathTheValueAndThePolicy) {
  const TrainingJob job = job_with(Json::parse(
      R"({"spec": {"containers": [{"name": "node", "securityContext": {"privileged": true}}]}})"));
  EXPECT_EQ(problems_of(job, PodPolicyLevel::kBaseline),
            Problems{"spec.podTemplate.spec.containers[0].securityContext.privileged: true is not "
                     "allowed by podPolicy baseline; leave it out"});
}

TEST(PodPolicy, ValuesOfAWrongTypeAreRefused) {
  for (const char* value :
       {R"({"hostNetwork": "true"})", R"({"hostNetwork": 1})", R"({"hostPID": {}})",
        R"({"serviceAccountName": ["admin"]})", R"({"volumes": [{"name": "x", "hostPath": "/"}]})",
        R"({"securityContext": {"sysctls": {"a": {"name": "kernel.a"}}}})"}) {
    EXPECT_FALSE(
        problems_of(job_with({{"spec", Json::parse(value)}}), PodPolicyLevel::kBaseline).empty())
        << value;
  }
}

TEST(PodPolicy, ServiceAccountsAreAllowedByNameAndNamespace) {
  TrainingJob job = job_with({{"spec", {{"serviceAccountName", "trainer"}}}});
  job.metadata.namespace_ = "team-a";
  for (const char* entry : {"trainer", "team-a/trainer", "*", "*/trainer", "team-a/*", "*/*"}) {
    EXPECT_EQ(problems_of(job, PodPolicyLevel::kBaseline, {"other", entry}), Problems{}) << entry;
  }
  for (const char* entry : {"trainers", "train", "team-b/trainer", "team-a/", "/trainer", ""}) {
    EXPECT_EQ(problems_of(job, PodPolicyLevel::kBaseline, {entry}).size(), 1U) << entry;
  }
}

TEST(PodPolicy, ATokenSecretOfAnyJobIsRecognisedByItsName) {
  EXPECT_TRUE(is_token_secret_name(token_secret_name({.name = "a", .uid = "u"})));
  for (const char* name : {"-token-0a1b2c3d", "a-token-0a1b2c3", "a-token-0A1B2C3D", "a-token-", "",
                           "a-token-0a1b2c3d4"}) {
    EXPECT_FALSE(is_token_secret_name(name)) << name;
  }
}

Scene privileged_scene() {
  Scene scene(1);
  scene.seen.job.spec.podTemplate = {{"spec", {{"hostNetwork", true}}}};
  return scene;
}

TEST(PodPolicy, ANewJobThatItRefusesGetsNoPods) {
  Scene scene = privileged_scene();
  const Plan plan = scene.plan();
  ASSERT_EQ(only<EmitEvent>(plan).size(), 1U);
  EXPECT_EQ(only<EmitEvent>(plan)[0].reason, "PodPolicy");
  scene.settle();
  const Condition& valid = condition(scene.status(), kValid);
  EXPECT_EQ(valid.status, "False");
  EXPECT_EQ(valid.reason, "PodPolicy");
  EXPECT_TRUE(valid.message.starts_with("spec.podTemplate.spec.hostNetwork: "));
  EXPECT_TRUE(scene.status().members.empty());
  EXPECT_TRUE(only<CreatePod>(scene.plan()).empty());
  scene.seen.job.spec.podTemplate = Json::object();
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kValid)) << "the corrected job starts";
}

TEST(PodPolicy, AStricterPolicySparesAJobThatHasPods) {
  Scene scene = privileged_scene();
  scene.limits.pod_policy.level = PodPolicyLevel::kPrivileged;
  scene.train();
  scene.limits.pod_policy.level = PodPolicyLevel::kRestricted;
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kValid));
  scene.seen.pods[0].phase = "Failed";
  scene.settle();  // records the failure
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kValid));
  EXPECT_EQ(only<CreatePod>(scene.plan()).size(), 1U) << "its pods may be replaced";
}

TEST(PodPolicy, AStricterPolicyHoldsWhenASuspendedJobResumes) {
  Scene scene = privileged_scene();
  scene.limits.pod_policy.level = PodPolicyLevel::kPrivileged;
  scene.train();
  scene.limits.pod_policy.level = PodPolicyLevel::kBaseline;
  scene.seen.job.spec.suspend = true;
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kSuspended)) << "it can be suspended";
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kValid).reason, "PodPolicy");
  scene.seen.pods.clear();
  scene.seen.job.spec.suspend = false;
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kSuspended)) << "it does not resume";
  EXPECT_TRUE(only<CreatePod>(scene.plan()).empty());
}

}  // namespace
}  // namespace lockstep::plan
