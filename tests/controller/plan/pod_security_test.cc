#include "tests/controller/plan/pod_security.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/api/yaml.h"
#include "controller/plan/pod_template.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using Problems = std::vector<std::string>;

Json pod_of(const TrainingJob& job) {
  return make_worker_pod(job, {.index = 0, .incarnation = 1, .round = 0, .avoid = {"bad"}})["spec"];
}

TEST(PodSecurity, PodsOfTheBuiltInLoopAreRestricted) {
  for (const int64_t gpus : {0, 8}) {
    Scene scene;
    scene.seen.job.spec.gpusPerNode = gpus;
    EXPECT_EQ(restricted_problems(pod_of(scene.seen.job)), Problems{});
  }
}

// A loop writes nothing but its work, what users name, and temporary files.
TEST(PodSecurity, PodsOfTheBuiltInLoopCannotWriteToTheirImage) {
  Scene scene;
  const Json spec = pod_of(scene.seen.job);
  const Json& node = spec.at("containers").at(0);
  EXPECT_EQ(node.at("securityContext").at("readOnlyRootFilesystem"), true);
  EXPECT_EQ(node.at("volumeMounts").back(),
            (Json{{"name", "lockstep-tmp"}, {"mountPath", "/tmp"}}));
  EXPECT_EQ(spec.at("volumes").back(),
            (Json{{"name", "lockstep-tmp"}, {"emptyDir", Json::object()}}));
}

TEST(PodSecurity, APodTemplateMayMountItsOwnFolderOfTemporaryFilesOrMakeTheRootWritable) {
  Scene scene;
  scene.seen.job.spec.podTemplate = Json::parse(R"({"spec": {
      "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}],
      "containers": [{"name": "node", "securityContext": {"readOnlyRootFilesystem": false},
                      "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}]}})");
  ASSERT_EQ(pod_template_problems(scene.seen.job.spec.podTemplate), Problems{});
  const Json spec = pod_of(scene.seen.job);
  const Json& node = spec.at("containers").at(0);
  EXPECT_EQ(node.at("securityContext").at("readOnlyRootFilesystem"), false);
  EXPECT_EQ(node.at("volumeMounts").back(), (Json{{"name", "tmp"}, {"mountPath", "/tmp"}}));
}

// Programs of users may write where they like in their own image.
TEST(PodSecurity, PodsOfACommandCanWriteToTheirImage) {
  Scene scene;
  scene.seen.job.spec.train.reset();
  scene.seen.job.spec.command = {"python", "train.py"};
  const Json spec = pod_of(scene.seen.job);
  EXPECT_FALSE(
      spec.at("containers").at(0).at("securityContext").contains("readOnlyRootFilesystem"));
  EXPECT_EQ(spec.at("volumes").size(), 2U);
}

TEST(PodSecurity, PodsOfACommandAreRestrictedButForRoot) {
  Scene scene;
  scene.seen.job.spec.train.reset();
  scene.seen.job.spec.command = {"python", "train.py"};
  EXPECT_EQ(restricted_problems(pod_of(scene.seen.job)),
            Problems{"containers[node].securityContext.runAsNonRoot: expected true, here or in the "
                     "pod"});
  scene.seen.job.spec.podTemplate = {
      {"spec", {{"securityContext", {{"runAsNonRoot", true}, {"runAsUser", 1000}}}}}};
  EXPECT_EQ(restricted_problems(pod_of(scene.seen.job)), Problems{});
}

// The controller's own pods, as the chart's golden files and deploy/base render them.
TEST(PodSecurity, PodTemplatesOfTheChartAreRestricted) {
  size_t checked = 0;
  const std::filesystem::path root(LOCKSTEP_SOURCE_DIR);
  for (const auto& folder : {root / "tests/chart/golden", root / "deploy/base"}) {
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() != ".yaml") continue;
      std::ifstream stream(file.path());
      std::ostringstream text;
      text << stream.rdbuf();
      const Result<std::vector<Json>> objects = documents_from_yaml(text.str());
      ASSERT_TRUE(objects.ok()) << file.path() << ": " << objects.error().message;
      for (const Json& object : *objects) {
        if (string_or(object, "kind", "") != "Deployment") continue;
        const Json& spec = object.at("spec").at("template").at("spec");
        EXPECT_EQ(restricted_problems(spec), Problems{}) << file.path();
        for (const Json& container : spec.at("containers")) {
          EXPECT_EQ(container.at("securityContext").at("readOnlyRootFilesystem"), true);
          EXPECT_TRUE(container.contains("resources")) << file.path();
        }
        ++checked;
      }
    }
  }
  EXPECT_GE(checked, 9U);
}

bool has(const Problems& problems, const std::string& words) {
  return std::any_of(problems.begin(), problems.end(), [&words](const std::string& problem) {
    return problem.find(words) != std::string::npos;
  });
}

struct Refused {
  const char* pointer;  // JSON pointer into the pod
  const char* value;
  const char* problem;
};

TEST(PodSecurity, TheChecklistFindsEachThingThatRestrictedRefuses) {
  const std::vector<Refused> cases = {
      {"/hostNetwork", "true", "hostNetwork"},
      {"/hostPID", "true", "hostPID"},
      {"/hostIPC", "true", "hostIPC"},
      {"/securityContext/runAsNonRoot", "false", "runAsNonRoot"},
      {"/securityContext/runAsUser", "0", "runAsUser"},
      {"/securityContext/seccompProfile/type", "\"Unconfined\"", "seccompProfile"},
      {"/securityContext/sysctls", R"([{"name":"kernel.msgmax","value":"1"}])", "sysctls"},
      {"/securityContext/seLinuxOptions", R"({"type":"spc_t"})", "seLinuxOptions"},
      {"/securityContext/appArmorProfile", R"({"type":"Unconfined"})", "appArmorProfile"},
      {"/securityContext/windowsOptions", R"({"hostProcess":true})", "windowsOptions"},
      {"/volumes/0", R"({"name":"x","hostPath":{"path":"/"}})", "hostPath"},
      {"/volumes/0", R"({"name":"x","nfs":{"server":"a","path":"/"}})", "nfs"},
      {"/containers/0/securityContext/privileged", "true", "privileged"},
      {"/containers/0/securityContext/allowPrivilegeEscalation", "true",
       "allowPrivilegeEscalation"},
      {"/containers/0/securityContext/allowPrivilegeEscalation", "null",
       "allowPrivilegeEscalation"},
      {"/containers/0/securityContext/capabilities/drop", "[]", "drop: expected ALL"},
      {"/containers/0/securityContext/capabilities/add", R"(["SYS_ADMIN"])", "add"},
      {"/containers/0/securityContext/runAsUser", "0", "runAsUser"},
      {"/containers/0/securityContext/runAsNonRoot", "false", "runAsNonRoot"},
      {"/containers/0/securityContext/procMount", "\"Unmasked\"", "procMount"},
      {"/containers/0/securityContext/seccompProfile", R"({"type":"Unconfined"})",
       "seccompProfile"},
      {"/containers/0/ports/0/hostPort", "80", "hostPort"},
      {"/containers/0/livenessProbe", R"({"httpGet":{"host":"a","port":1}})", "host: may not"},
      {"/containers/0/lifecycle", R"({"preStop":{"tcpSocket":{"host":"a","port":1}}})",
       "host: may not"},
      {"/initContainers", R"([{"name":"extra"}])", "initContainers[extra]"},
      {"/containers", "[]", "containers: expected one"},
  };
  const Scene scene;
  for (const Refused& refused : cases) {
    Json pod = pod_of(scene.seen.job);
    ASSERT_EQ(restricted_problems(pod), Problems{});
    pod[Json::json_pointer(refused.pointer)] = Json::parse(refused.value);
    EXPECT_TRUE(has(restricted_problems(pod), refused.problem))
        << refused.pointer << " = " << refused.value;
  }
}

}  // namespace
}  // namespace lockstep::plan
