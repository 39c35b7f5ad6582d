// Jobs with parameter servers.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "controller/plan/conditions.h"
#include "controller/plan/fixed_fields.h"
#include "controller/plan/names.h"
#include "controller/plan/pod_template.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

// Two workers and two servers.
Scene served_scene() {
  Scene scene;
  TrainingJobSpec& spec = scene.seen.job.spec;
  spec.parameterServers = ParameterServersSpec{.nodes = 2};
  spec.train = TrainSpec{};
  spec.train->model.family = kLogisticRegression;
  spec.train->data.path = "/data";
  spec.train->data.format = "criteo";
  spec.train->optimizer.clipNorm = 0;
  return scene;
}

// Runs the pods of the members, and has their agents answer.
void run_pods(Scene& scene) {
  scene.settle();
  for (int64_t i = 0; i < 4; ++i) {
    PodView& pod = scene.add_pod(i);
    pod.name = member_pod_name(scene.seen.job, i, 1);
    AgentView view;
    view.state = std::make_shared<AgentState>();
    view.last_heard = scene.now;
    scene.seen.agents[pod.uid] = view;
  }
  scene.settle();
}

TEST(Servers, HavePodsAfterThoseOfTheWorkers) {
  Scene scene = served_scene();
  scene.settle();
  EXPECT_EQ(scene.status().members, "1,1,1,1");
  const auto created = only<CreatePod>(scene.plan());
  std::vector<std::string> names;
  for (const CreatePod& pod : created) {
    names.push_back(pod.name);
    const Json body = body_of(pod);
    const std::string role = pod.index < 2 ? "worker" : "server";
    EXPECT_EQ(body["metadata"]["name"], pod.name);
    EXPECT_EQ(body["metadata"]["labels"][kRoleLabel], role);
    EXPECT_EQ(body["metadata"]["labels"][kNodeIndexLabel], std::to_string(pod.index));
    const std::string text = pod.text();
    EXPECT_EQ(text.find("{\"name\":\"LOCKSTEP_ROLE\",\"value\":\"server\"}") != std::string::npos,
              role == "server");
    EXPECT_EQ(pod_labels_by_name("job", pod.name)->at(kRoleLabel), role);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"job-worker-0-1", "job-worker-1-1", "job-server-2-1",
                                             "job-server-3-1"}));
}

TEST(Servers, AreMembersOfTheRoundAndOfTheAssignment) {
  Scene scene = served_scene();
  run_pods(scene);
  ASSERT_EQ(scene.status().round, 1);
  EXPECT_EQ(scene.status().rendezvous->worldSize, 4);
  EXPECT_EQ(scene.status().nodes, (NodesStatus{.desired = 2, .ready = 2}));
  EXPECT_EQ(scene.status().servers, (NodesStatus{.desired = 2, .ready = 2}));
  const auto sent = only<PutAssignment>(scene.plan());
  ASSERT_EQ(sent.size(), 4u);
  const Assignment& assignment = *sent.front().assignment;
  EXPECT_EQ(assignment.parameter_servers, scene.seen.job.spec.parameterServers);
  std::vector<MemberRole> roles;
  for (const WorldMember& member : assignment.world.members) roles.push_back(member.role);
  EXPECT_EQ(roles, (std::vector<MemberRole>{MemberRole::kWorker, MemberRole::kWorker,
                                            MemberRole::kServer, MemberRole::kServer}));
  EXPECT_EQ(assignment.world.data, 2);
}

TEST(Servers, GetNoAssignmentBeforeEveryAgentKnowsServers) {
  Scene scene = served_scene();
  run_pods(scene);
  Scene::edit(scene.seen.agents["job-worker-1-1-uid"]).protocol = kProtocolWithServers - 1;
  EXPECT_TRUE(only<PutAssignment>(scene.plan()).empty());
  const Condition ready = condition(written(scene, scene.plan()), kReady);
  EXPECT_EQ(ready.reason, "AgentTooOld");
  EXPECT_NE(ready.message.find("has servers, and trains a click model"), std::string::npos)
      << ready.message;
}

TEST(Servers, KeepTheNumberOfNodesWhileTheJobHasPods) {
  Scene scene = served_scene();
  const std::string fixed = fixed_fields(scene.seen.job.spec);
  TrainingJobSpec changed = scene.seen.job.spec;
  changed.nodes = 3;
  ASSERT_EQ(changed_fields(fixed, changed).size(), 1u);
  EXPECT_TRUE(changed_fields(fixed, changed).front().starts_with("spec.nodes: can't change"));
  changed = scene.seen.job.spec;
  changed.parameterServers->nodes = 3;
  EXPECT_TRUE(changed_fields(fixed, changed).empty()) << "servers may become more and fewer";
  changed.parameterServers->staleness = 3;
  EXPECT_EQ(changed_fields(fixed, changed).size(), 1u);
  changed.parameterServers.reset();
  EXPECT_EQ(changed_fields(fixed, changed).size(), 1u);
  EXPECT_TRUE(changed_fields(fixed, scene.seen.job.spec).empty());
}

// A later version may have further fields with defaults.
TEST(Servers, AreRecordedWithoutTheirDefaults) {
  Scene scene = served_scene();
  TrainingJobSpec& spec = scene.seen.job.spec;
  spec.parameterServers = ParameterServersSpec{};
  EXPECT_NE(fixed_fields(spec).find("parameterServers=is,"), std::string::npos)
      << fixed_fields(spec);
  const std::string fixed = fixed_fields(spec);
  spec.parameterServers->staleness = 3;
  EXPECT_EQ(changed_fields(fixed, spec).size(), 1u);
}

// The edit is stored, because the API server's rules do not know of it.
TEST(Servers, StayMembersWhenARefusedEditWouldMakeOneAWorker) {
  Scene scene = served_scene();
  run_pods(scene);
  ASSERT_EQ(scene.status().round, 1);
  scene.seen.job.spec.nodes = 3;
  ++scene.seen.job.metadata.generation;
  const Plan plan = scene.plan();
  EXPECT_EQ(plan.watch.size(), 4u);
  EXPECT_TRUE(only<CreatePod>(plan).empty());
  EXPECT_TRUE(only<DeletePod>(plan).empty());
}

TEST(Servers, OfTheJobsNamesAreRecognised) {
  EXPECT_FALSE(pod_labels_by_name("job", "job-other-1-1"));
  EXPECT_FALSE(pod_labels_by_name("job", "job-server-1"));
  EXPECT_FALSE(pod_labels_by_name("job", "job-server-1-1-1"));
  EXPECT_EQ(pod_labels_by_name("job", "job-server-12-3")->at(kNodeIndexLabel), "12");
}

}  // namespace
}  // namespace lockstep::plan
