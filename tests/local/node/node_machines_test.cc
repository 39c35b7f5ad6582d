// Tests the local node with several machines: pod placement and power cuts.
#include "tests/local/node/node_fixture.h"

namespace lockstep::local {
namespace {

TEST_F(NodeTest, SpreadsPodsOverSeveralMachines) {
  start_node(3);
  for (const char* name : {"a", "b", "c"}) make(shell_pod(name, "nproc; sleep 1000"));
  std::set<std::string> nodes, addresses, hosts;
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(wait_for_phase(name, "Running"));
    Json pod = get(name);
    nodes.insert(pod["spec"]["nodeName"]);
    addresses.insert(pod["status"]["podIP"]);
    hosts.insert(pod["status"]["hostIP"]);
  }
  EXPECT_EQ(nodes, (std::set<std::string>{"local-0", "local-1", "local-2"}));
  EXPECT_EQ(addresses.size(), 3u);
  EXPECT_EQ(hosts.size(), 3u);
  Json node = ask("GET", "/api/v1/nodes/local-1").body;
  EXPECT_EQ(node["metadata"]["labels"]["kubernetes.io/hostname"], "local-1");
  EXPECT_EQ(node["status"]["capacity"]["pods"], "110");
  ASSERT_TRUE(wait_for_log("a", "\n"));
  EXPECT_EQ(log_of("a"), node["status"]["capacity"]["cpu"].get<std::string>() + "\n");
  EXPECT_EQ(ask("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/local-2")
                .body["spec"]["holderIdentity"],
            "local-2");
}

TEST_F(NodeTest, SaysWhyAPodIsNotPlacedAndPlacesItLater) {
  start_node(2);
  Json pod = shell_pod("p", "true");
  pod["spec"]["nodeSelector"] = {{"disk", "fast"}};
  make(pod);
  ASSERT_TRUE(wait_until([&] {
    return dump_json(get("p")["status"]).find("0/2 nodes are available") != std::string::npos;
  }));
  EXPECT_EQ(api_.handle({"PATCH", "/api/v1/nodes/local-1", "application/merge-patch+json",
                         R"({"metadata": {"labels": {"disk": "fast"}}})"})
                .code,
            200);
  ASSERT_TRUE(wait_for_phase("p", "Succeeded"));
  EXPECT_EQ(get("p")["spec"]["nodeName"], "local-1");
}

TEST_F(NodeTest, APowerCutIsSilentAndTheMachineBootsAgain) {
  start_node(2);
  auto power = [&](const char* how) {
    EXPECT_EQ(api_.handle({"PATCH", "/api/v1/nodes/local-0", "application/merge-patch+json",
                           dump_json({{"metadata", {{"annotations", {{kPowerAnnotation, how}}}}}})})
                  .code,
              200);
  };
  Json never = shell_pod("never", "echo ready; sleep 1000");
  Json always = shell_pod("always", "echo ready; sleep 1000");
  always["spec"]["restartPolicy"] = "Always";
  for (Json* pod : {&never, &always}) {
    (*pod)["spec"]["nodeSelector"] = {{"kubernetes.io/hostname", "local-0"}};
    make(*pod);
    ASSERT_TRUE(wait_for_log((*pod)["metadata"]["name"], "ready"));
    ASSERT_TRUE(wait_for_phase((*pod)["metadata"]["name"], "Running"));
  }
  power("off");
  ASSERT_TRUE(wait_until([&] { return processes_of("never").empty(); }));
  ASSERT_TRUE(wait_until([&] { return node_->is_empty(); }));
  EXPECT_EQ(get("never")["status"]["phase"], "Running") << "nobody is there to say otherwise";
  power("on");
  ASSERT_TRUE(wait_for_phase("never", "Failed"));
  const Json ended = get("never")["status"]["containerStatuses"][0]["state"]["terminated"];
  EXPECT_EQ(ended["exitCode"], 255);
  EXPECT_EQ(ended["reason"], "Unknown");
  ASSERT_TRUE(wait_until([&] {
    Json container = get("always")["status"]["containerStatuses"][0];
    return container["restartCount"] == 1 && container["state"].contains("running");
  })) << get("always");
}

TEST_F(NodeTest, WhatWasDeletedWhileTheMachineWasOffEndsWhenItBoots) {
  start_node(1);
  make(shell_pod("p", "echo ready; sleep 1000"));
  ASSERT_TRUE(wait_for_phase("p", "Running"));
  auto power = [&](const char* how) {
    api_.handle({"PATCH", "/api/v1/nodes/local-0", "application/merge-patch+json",
                 dump_json({{"metadata", {{"annotations", {{kPowerAnnotation, how}}}}}})});
  };
  power("off");
  ASSERT_TRUE(wait_until([&] { return node_->is_empty(); }));
  ask("DELETE", std::string(kPods) + "/p");
  EXPECT_TRUE(get("p")["metadata"].contains("deletionTimestamp"));
  power("on");
  ASSERT_TRUE(wait_gone("p"));
}

}  // namespace
}  // namespace lockstep::local
