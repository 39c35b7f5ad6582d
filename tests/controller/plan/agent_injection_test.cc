#include "controller/plan/agent_injection.h"

#include <gtest/gtest.h>

#include "controller/plan/names.h"
#include "controller/plan/pod_template.h"
#include "controller/plan/pod_view.h"
#include "tests/controller/plan/pod_security.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

constexpr char kOurs[] = "registry/lockstep:2";

// A job with a user's command and image.
Scene foreign_scene() {
  Scene scene;
  scene.limits.job_image = kOurs;
  scene.limits.agent_image = kOurs;
  scene.seen.job.spec.train.reset();
  scene.seen.job.spec.command = {"/program"};
  scene.seen.job.spec.image = "mine:1";
  return scene;
}

Json spec_of(const Scene& scene) {
  return make_worker_pod(scene.seen.job, {.image = scene.limits.job_image,
                                          .agent_image = scene.limits.agent_image})["spec"];
}

TEST(AgentInjection, AnInitContainerCopiesTheBundleToWhereTheAgentIsStarted) {
  const Json spec = spec_of(foreign_scene());
  ASSERT_EQ(spec["initContainers"].size(), 1u);
  const Json& copier = spec["initContainers"][0];
  EXPECT_EQ(copier["name"], "lockstep-agent");
  EXPECT_EQ(copier["image"], kOurs);
  EXPECT_EQ(copier["command"],
            Json::array({"/opt/lockstep/bin/lockstep-agent", "--install", "/copy"}));
  EXPECT_EQ(copier["volumeMounts"],
            Json::parse(R"([{"name": "lockstep-agent", "mountPath": "/copy"}])"));
  EXPECT_EQ(copier["terminationMessagePolicy"], "FallbackToLogsOnError");
  const Json& node = spec["containers"][0];
  EXPECT_EQ(node["image"], "mine:1");
  EXPECT_EQ(node["command"], Json::array({"/opt/lockstep/bin/lockstep-agent"}));
  EXPECT_EQ(node["volumeMounts"].back(),
            (Json{{"name", "lockstep-agent"}, {"mountPath", "/opt/lockstep"}, {"readOnly", true}}));
  EXPECT_EQ(spec["volumes"].back(),
            (Json{{"name", "lockstep-agent"}, {"emptyDir", Json::object()}}));
}

TEST(AgentInjection, AddsNothingToTheEnvironment) {
  Scene scene = foreign_scene();
  const Json env = spec_of(scene)["containers"][0]["env"];
  scene.limits.agent_image.clear();
  EXPECT_EQ(spec_of(scene)["containers"][0]["env"], env);
}

TEST(AgentInjection, ImagesThatHaveTheAgentAreLeftAlone) {
  for (const char* image : {"", kOurs}) {
    Scene scene = foreign_scene();
    scene.seen.job.spec.image = image;
    EXPECT_FALSE(spec_of(scene).contains("initContainers")) << image;
  }
  Scene scene = foreign_scene();
  scene.limits.agent_image.clear();
  EXPECT_FALSE(spec_of(scene).contains("initContainers"));
  EXPECT_EQ(spec_of(scene)["volumes"].size(), 2u);
}

TEST(AgentInjection, AnImageOfThePodTemplateCountsAsTheJobs) {
  Scene scene = foreign_scene();
  scene.seen.job.spec.image.clear();
  scene.seen.job.spec.podTemplate = {
      {"spec", {{"containers", Json::array({{{"name", "node"}, {"image", "mine:2"}}})}}}};
  EXPECT_EQ(spec_of(scene)["initContainers"][0]["image"], kOurs);
  EXPECT_EQ(spec_of(scene)["containers"][0]["image"], "mine:2");
}

TEST(AgentInjection, ComesBeforeTheUsersInitContainers) {
  Scene scene = foreign_scene();
  scene.seen.job.spec.podTemplate = {
      {"spec", {{"initContainers", Json::array({{{"name", "fetch"}, {"image", "x"}}})}}}};
  const Json spec = spec_of(scene);
  ASSERT_EQ(spec["initContainers"].size(), 2u);
  EXPECT_EQ(spec["initContainers"][0]["name"], "lockstep-agent");
  EXPECT_EQ(spec["initContainers"][1]["name"], "fetch");
}

TEST(AgentInjection, AsksForTheNodesCpuAndMemoryButForNoDevices) {
  Scene scene = foreign_scene();
  EXPECT_FALSE(spec_of(scene)["initContainers"][0].contains("resources"));
  scene.seen.job.spec.gpusPerNode = 4;
  EXPECT_FALSE(spec_of(scene)["initContainers"][0].contains("resources"));
  const Json amounts = {{"cpu", "4"}, {"memory", "8Gi"}};
  scene.seen.job.spec.podTemplate = {
      {"spec",
       {{"containers",
         Json::array(
             {{{"name", "node"}, {"resources", {{"requests", amounts}, {"limits", amounts}}}}})}}}};
  const Json spec = spec_of(scene);
  EXPECT_EQ(spec["initContainers"][0]["resources"],
            (Json{{"requests", amounts}, {"limits", amounts}}));
  EXPECT_EQ(spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "4");
}

TEST(AgentInjection, ThePodIsAsRestrictedAsWithout) {
  Scene scene = foreign_scene();
  EXPECT_EQ(restricted_problems(spec_of(scene)).size(), 2u);  // runAsNonRoot of both containers
  const Json restricted = {{"runAsNonRoot", true}, {"runAsUser", 1000}};
  scene.seen.job.spec.podTemplate = {{"spec", {{"securityContext", restricted}}}};
  EXPECT_TRUE(restricted_problems(spec_of(scene)).empty());
  scene.seen.job.spec.podTemplate = {
      {"spec",
       {{"containers", Json::array({{{"name", "node"}, {"securityContext", restricted}}})}}}};
  EXPECT_TRUE(restricted_problems(spec_of(scene)).empty());
  scene = foreign_scene();
  scene.seen.job.spec.command.clear();
  scene.seen.job.spec.train.emplace();
  EXPECT_TRUE(restricted_problems(spec_of(scene)).empty());
}

TEST(AgentInjection, ItsNamesAreRefusedInThePodTemplate) {
  for (const char* list : {"initContainers", "volumes"}) {
    const Json patch = {{"spec", {{list, Json::array({{{"name", "lockstep-agent"}}})}}}};
    const Problems problems = pod_template_problems(patch);
    ASSERT_EQ(problems.size(), 1u) << list;
    EXPECT_TRUE(problems[0].starts_with(std::string("spec.podTemplate.spec.") + list + ":"))
        << problems[0];
  }
}

TEST(AgentInjection, PodsAndTheirCheckComeWithIt) {
  Scene scene = foreign_scene();
  scene.settle();
  const std::vector<CreatePod> made = only<CreatePod>(scene.plan());
  ASSERT_FALSE(made.empty());
  EXPECT_EQ(body_of(made[0])["spec"]["initContainers"][0]["image"], kOurs);
  Scene fresh = foreign_scene();
  fresh.seen.pod_check.reset();
  const std::vector<CheckPod> checked = only<CheckPod>(fresh.plan());
  ASSERT_EQ(checked.size(), 1u);
  EXPECT_EQ(checked[0].body["spec"]["initContainers"][0]["image"], kOurs);
}

TEST(AgentInjection, WhyAnInitContainerFailedIsInThePodsMessage) {
  const Scene scene;
  Json pod = make_worker_pod(scene.seen.job, {});
  const auto ended = [](int code, const char* message) {
    return Json{{"name", "lockstep-agent"},
                {"state", {{"terminated", {{"exitCode", code}, {"message", message}}}}}};
  };
  pod["status"] = {{"phase", "Failed"},
                   {"initContainerStatuses", Json::array({ended(1, "no space")})}};
  EXPECT_EQ(pod_view_from_json(pod)->message,
            "init container lockstep-agent ended with exit code 1: no space");
  EXPECT_EQ(pod_view_from_json(pod)->exit_code, std::nullopt);
  pod["status"]["initContainerStatuses"] = Json::array({ended(0, "done")});
  EXPECT_EQ(pod_view_from_json(pod)->message, "");
}

}  // namespace
}  // namespace lockstep::plan
