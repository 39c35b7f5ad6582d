#include <gtest/gtest.h>

#include "controller/plan/names.h"
#include "controller/plan/plan.h"
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
    images.push_back(pod.body()["spec"]["containers"][0]["image"]);
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
  EXPECT_EQ(made[0].body()["spec"]["containers"][0]["image"], "mine:1");
  EXPECT_EQ(made[0].body()["spec"]["initContainers"][0]["image"], kOlder);
}

TEST(AgentImage, WhereTheServerDroppedItIsTheControllersOwnAndNothingIsWrittenForThat) {
  Scene scene = upgraded();
  scene.status().agentImage.clear();
  EXPECT_TRUE(scene.plan().actions.empty());
  lose_pod(scene, 1);
  scene.settle();
  EXPECT_EQ(images_of_new_pods(scene), Images{kNewer});
}

}  // namespace
}  // namespace lockstep::plan
