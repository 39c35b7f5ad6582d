#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "controller/plan/names.h"
#include "controller/plan/plan.h"
#include "controller/plan/pod_template.h"
#include "controller/plan/pod_view.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

constexpr char kOlder[] = "registry/lockstep:1";
constexpr char kNewer[] = "registry/lockstep:2";

void install(Scene& scene, const char* image) {
  scene.limits.job_image = scene.limits.agent_image = image;
}

// A training job of two nodes, started by a controller of the older image. A controller of the
// newer image has taken over.
Scene upgraded() {
  Scene scene(2);
  install(scene, kOlder);
  scene.train();
  install(scene, kNewer);
  return scene;
}

void lose_pod(Scene& scene, size_t index) {
  scene.seen.pods[index].phase = "Failed";
  scene.seen.pods[index].reason = "Evicted";
}

std::vector<std::string> images_of_new_pods(Scene& scene) {
  std::vector<std::string> images;
  for (const CreatePod& pod : only<CreatePod>(scene.plan())) {
    images.push_back(body_of(pod)["spec"]["containers"][0]["image"]);
  }
  return images;
}

using Images = std::vector<std::string>;

TEST(AgentImage, APodThatIsMadeAnewAfterAnUpgradeGetsThatOfTheOthers) {
  Scene scene = upgraded();
  lose_pod(scene, 1);
  scene.settle();
  EXPECT_EQ(scene.status().members, "1,2");
  EXPECT_EQ(images_of_new_pods(scene), Images{kOlder});
}

TEST(AgentImage, PodsThatJoinAfterAnUpgradeGetThatOfTheOthers) {
  Scene scene = upgraded();
  scene.seen.job.spec.nodes = 4;
  scene.settle();
  EXPECT_EQ(images_of_new_pods(scene), Images(2, kOlder));
}

TEST(AgentImage, IsTheControllersOwnOnceAllPodsAreLost) {
  Scene scene = upgraded();
  lose_pod(scene, 0);
  lose_pod(scene, 1);
  scene.settle();
  EXPECT_EQ(scene.status().members, "2,2");
  EXPECT_EQ(scene.status().agentImage, kNewer);
  EXPECT_EQ(images_of_new_pods(scene), Images(2, kNewer));
}

TEST(AgentImage, StaysWherePodsAreLostOneAfterTheOther) {
  Scene scene = upgraded();
  lose_pod(scene, 0);
  scene.settle();
  lose_pod(scene, 1);
  scene.settle();
  EXPECT_EQ(scene.status().members, "2,2");
  EXPECT_EQ(images_of_new_pods(scene), Images(2, kOlder)) << "the first may be there by now";
}

TEST(AgentImage, IsTheControllersOwnAfterASuspension) {
  Scene scene = upgraded();
  scene.seen.job.spec.suspend = true;
  scene.settle();
  scene.seen.pods.clear();
  scene.seen.job.spec.suspend = false;
  scene.settle();
  scene.seen.absent_pods = {"job-worker-0-1", "job-worker-1-1"};
  EXPECT_EQ(images_of_new_pods(scene), Images(2, kNewer));
}

TEST(AgentImage, OfAJobWithAnImageOfItsOwnIsThatWhichTheAgentIsFrom) {
  Scene scene(2);
  scene.seen.job.spec.image = "mine:1";
  install(scene, kOlder);
  scene.train();
  install(scene, kNewer);
  lose_pod(scene, 1);
  scene.settle();
  const auto made = only<CreatePod>(scene.plan());
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(body_of(made[0])["spec"]["containers"][0]["image"], "mine:1");
  EXPECT_EQ(body_of(made[0])["spec"]["initContainers"][0]["image"], kOlder);
}

TEST(AgentImage, WhereTheServerDroppedItIsTheControllersOwnAndNothingIsWrittenForThat) {
  Scene scene = upgraded();
  scene.status().agentImage.clear();
  EXPECT_TRUE(scene.plan().actions.empty());
  lose_pod(scene, 1);
  scene.settle();
  EXPECT_EQ(images_of_new_pods(scene), Images{kNewer});
}

// Returns the requests that the agents of the plan's new pods, of which there is at least one,
// want: all the same, as told to the agent and to later controllers.
std::string requests_of_new_pods(const Scene& scene) {
  const std::vector<CreatePod> made = only<CreatePod>(scene.plan());
  EXPECT_FALSE(made.empty());
  std::set<std::string> found;
  for (const CreatePod& pod : made) {
    const Json body = body_of(pod);
    std::string to_agent;
    for (const Json& entry : body["spec"]["containers"][0]["env"]) {
      if (entry["name"] == "LOCKSTEP_REQUESTS") to_agent = entry["value"];
    }
    const Json& annotations = body["metadata"]["annotations"];
    EXPECT_EQ(to_agent, string_or(annotations, "lockstep.dev/requests", ""));
    found.insert(to_agent);
  }
  EXPECT_EQ(found.size(), 1u);
  return *found.begin();
}

bool makes_signed_pods(const Scene& scene) {
  return requests_of_new_pods(scene) == "signed";
}

TEST(SignedPods, AreThoseWhoseAgentTheControllersImageBrings) {
  Scene scene;
  install(scene, kNewer);
  scene.settle();
  EXPECT_TRUE(makes_signed_pods(scene));
  scene.seen.job.spec.image = "registry/mine:1";
  EXPECT_TRUE(makes_signed_pods(scene)) << "the agent is injected";
  scene.limits.agent_image.clear();
  EXPECT_FALSE(makes_signed_pods(scene)) << "the image brings an agent that nobody knows";
  scene.limits.agents_are_current = true;
  EXPECT_TRUE(makes_signed_pods(scene));
}

TEST(SignedPods, AreNotThoseThatAnUpgradeGivesTheOlderAgent) {
  Scene scene = upgraded();
  lose_pod(scene, 1);
  scene.settle();
  EXPECT_FALSE(makes_signed_pods(scene)) << "of the older image";
}

// Such as an image that is pinned, or `latest`.
TEST(SignedPods, AreNotThoseOfAJobWithPodsFromAControllerWithoutSessions) {
  Scene scene(2);
  install(scene, kNewer);
  scene.train();
  lose_pod(scene, 1);
  scene.settle();
  EXPECT_FALSE(makes_signed_pods(scene));
  for (PodView& pod : scene.seen.pods) pod.is_signed = true;
  EXPECT_TRUE(makes_signed_pods(scene));
}

TEST(EncryptedPods, AreThoseOfAJobThatRequiresIt) {
  Scene scene;
  install(scene, kNewer);
  scene.seen.job.spec.security.encryption = "required";
  scene.settle();
  EXPECT_EQ(requests_of_new_pods(scene), "encrypted");
  scene.limits.agent_image.clear();
  EXPECT_EQ(requests_of_new_pods(scene), "encrypted") << "of whatever agent the image brings";
}

// Its agents could be older ones, which end if they find a word that they do not know.
TEST(EncryptedPods, AreNotThoseOfAJobWithPodsFromAnEarlierController) {
  Scene scene(2);
  install(scene, kNewer);
  scene.seen.job.spec.security.encryption = "required";
  scene.train();
  for (PodView& pod : scene.seen.pods) pod.is_signed = true;
  lose_pod(scene, 1);
  scene.settle();
  EXPECT_EQ(requests_of_new_pods(scene), "signed");
  for (PodView& pod : scene.seen.pods) pod.is_encrypted = true;
  EXPECT_EQ(requests_of_new_pods(scene), "encrypted");
}

TEST(EncryptedPods, AreKnownByTheirAnnotation) {
  Scene scene;
  NewPod made;
  made.requests = "encrypted";
  const auto view = pod_view_from_json(trimmed_pod(make_worker_pod(scene.seen.job, made)));
  EXPECT_TRUE(view->is_signed && view->is_encrypted);
  scene.train();
  scene.seen.pods[1].is_signed = scene.seen.pods[1].is_encrypted = true;
  const Plan plan = scene.plan();
  ASSERT_EQ(plan.watch.size(), 2u);
  EXPECT_FALSE(plan.watch[0].is_encrypted);
  EXPECT_TRUE(plan.watch[1].is_encrypted);
}

TEST(SignedPods, AreKnownByTheirAnnotationWhichUsersCanNotSet) {
  Scene scene;
  NewPod made;
  made.requests = "signed";
  Json pod = trimmed_pod(make_worker_pod(scene.seen.job, made));
  EXPECT_TRUE(pod_view_from_json(pod)->is_signed);
  made.requests.clear();
  EXPECT_FALSE(pod_view_from_json(make_worker_pod(scene.seen.job, made))->is_signed);
  Json mine = Json::object();
  mine["metadata"]["annotations"]["lockstep.dev/requests"] = "signed";
  EXPECT_EQ(pod_template_problems(mine).size(), 1u);
  scene.train();
  scene.seen.pods[1].is_signed = true;
  const Plan plan = scene.plan();
  ASSERT_EQ(plan.watch.size(), 2u);
  EXPECT_FALSE(plan.watch[0].is_signed);
  EXPECT_TRUE(plan.watch[1].is_signed);
}

}  // namespace
}  // namespace lockstep::plan
