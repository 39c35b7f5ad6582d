// Tests the node controller in isolation, on a manual clock: silent nodes, taints, evictions.
#include <gtest/gtest.h>

#include "local/node/embedded_node_api.h"
#include "local/node/node_controller.h"
#include "tests/local/store/api_fixture.h"

namespace lockstep::local {
namespace {

constexpr char kNode[] = "/api/v1/nodes/m0";
constexpr char kLeases[] = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

class NodeControllerTest : public ApiTest {
 protected:
  NodeControllerTest() {
    make("/api/v1/nodes", {{"metadata", {{"name", "m0"}}}});
    set_ready("True");
    renew(0);
  }
  void set_ready(const char* status) {
    Json conditions = Json::array({{{"type", "Ready"}, {"status", status}}});
    EXPECT_TRUE(ask("PATCH", std::string(kNode) + "/status",
                    {{"status", {{"conditions", std::move(conditions)}}}})
                    .ok());
    see_node();
  }
  void see_node() { controller_.node_changed(get(kNode).body); }
  void renew(int beat) {
    controller_.lease_changed({{"metadata", {{"name", "m0"}}},
                               {"spec", {{"renewTime", "beat-" + std::to_string(beat)}}}});
  }
  void add_pod(const std::string& name, Json tolerations = Json::array()) {
    Json object = pod(name);
    object["spec"]["tolerations"] = std::move(tolerations);
    make(kPods, object);
    ASSERT_EQ(
        ask("POST", std::string(kPods) + "/" + name + "/binding", {{"target", {{"name", "m0"}}}})
            .code,
        201);
    ask("PATCH", std::string(kPods) + "/" + name + "/status",
        {{"status",
          {{"phase", "Running"},
           {"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}}}});
    see_pod(name);
  }
  void see_pod(const std::string& name) {
    controller_.pod_changed(get(std::string(kPods) + "/" + name).body);
  }
  Json pod_now(const std::string& name) { return get(std::string(kPods) + "/" + name).body; }
  bool is_deleting(const std::string& name) {
    return pod_now(name)["metadata"].contains("deletionTimestamp");
  }
  void fall_silent() {
    clock_.advance(controller_.next_deadline() - clock_.now());
    controller_.step(clock_.now());
    see_node();
    see_node();
  }
  std::string taints() {
    std::string text;
    for (const Json& taint : get(kNode).body["spec"].value("taints", Json::array()))
      text += taint["key"].get<std::string>() + ":" + taint["effect"].get<std::string>() + " ";
    return text;
  }

  EmbeddedNodeApi node_api_{api_};
  ApiCaller caller_{node_api_};
  EventRecorder events_{caller_, clock_, 7};
  NodeController controller_{caller_, clock_, events_, {}};
};

TEST_F(NodeControllerTest, ASilentMachineBecomesUnknownAndTainted) {
  add_pod("p");
  clock_.advance(std::chrono::seconds(9));
  renew(1);
  clock_.advance(std::chrono::seconds(9));
  controller_.step(clock_.now());
  EXPECT_EQ(get(kNode).body["status"]["conditions"][0]["status"], "True") << "it was heard";
  fall_silent();
  Json ready = get(kNode).body["status"]["conditions"][0];
  EXPECT_EQ(ready["status"], "Unknown");
  EXPECT_EQ(ready["reason"], "NodeStatusUnknown");
  EXPECT_EQ(taints(),
            "node.kubernetes.io/unreachable:NoSchedule node.kubernetes.io/unreachable:NoExecute ");
  EXPECT_EQ(pod_now("p")["status"]["conditions"][0]["status"], "False");
}

TEST_F(NodeControllerTest, EvictsAfterTheTimeThatPodsTolerate) {
  add_pod("plain");
  add_pod("patient", Json::array({{{"key", "node.kubernetes.io/unreachable"},
                                   {"operator", "Exists"},
                                   {"effect", "NoExecute"},
                                   {"tolerationSeconds", 60}}}));
  add_pod("stays", Json::array({{{"operator", "Exists"}}}));
  fall_silent();
  EXPECT_FALSE(is_deleting("plain"));
  clock_.advance(std::chrono::seconds(5));
  controller_.step(clock_.now());
  EXPECT_TRUE(is_deleting("plain")) << pod_now("plain");
  EXPECT_FALSE(is_deleting("patient"));
  clock_.advance(std::chrono::seconds(55));
  controller_.step(clock_.now());
  EXPECT_TRUE(is_deleting("patient"));
  clock_.advance(std::chrono::hours(1));
  controller_.step(clock_.now());
  EXPECT_FALSE(is_deleting("stays"));
  EXPECT_EQ(pod_now("plain")["status"]["conditions"][1]["reason"], "DeletionByTaintManager");
}

TEST_F(NodeControllerTest, AMachineThatComesBackKeepsItsPods) {
  add_pod("p");
  fall_silent();
  renew(1);
  set_ready("True");
  see_node();
  EXPECT_EQ(taints(), "");
  clock_.advance(std::chrono::seconds(9));
  controller_.step(clock_.now());
  EXPECT_FALSE(is_deleting("p"));
}

TEST_F(NodeControllerTest, ATaintThatNobodyToleratesEvictsAtOnce) {
  add_pod("p");
  ask("PATCH", kNode,
      {{"spec",
        {{"taints", Json::array({{{"key", "k"}, {"value", "v"}, {"effect", "NoExecute"}}})}}}});
  see_node();
  controller_.step(clock_.now());
  EXPECT_TRUE(is_deleting("p"));
}

TEST_F(NodeControllerTest, ACordonedMachineIsTaintedAndOtherTaintsStay) {
  ask("PATCH", kNode,
      {{"spec",
        {{"unschedulable", true},
         {"taints", Json::array({{{"key", "k"}, {"value", "v"}, {"effect", "NoSchedule"}}})}}}});
  see_node();
  EXPECT_EQ(taints(), "k:NoSchedule node.kubernetes.io/unschedulable:NoSchedule ");
  ask("PATCH", kNode, {{"spec", {{"unschedulable", nullptr}}}});
  see_node();
  EXPECT_EQ(taints(), "k:NoSchedule ");
}

TEST_F(NodeControllerTest, EventsThatRepeatAreCounted) {
  for (int i = 0; i < 40; ++i)
    events_.warning({"kubelet", "m0"}, {"Pod", "default", "p", "u", ""}, "BackOff", "again");
  Json events = get("/api/v1/namespaces/default/events").body["items"];
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["count"], 25) << "then nothing is said for a while";
  clock_.advance(std::chrono::minutes(6));
  events_.warning({"kubelet", "m0"}, {"Pod", "default", "p", "u", ""}, "BackOff", "again");
  EXPECT_EQ(get("/api/v1/namespaces/default/events").body["items"][0]["count"], 26);
}

}  // namespace
}  // namespace lockstep::local
