#include "controller/plan/network_policy.h"

#include <gtest/gtest.h>

#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

using std::chrono::seconds;

const Json kPrometheus = {
    {"namespaceSelector", {{"matchLabels", {{"kubernetes.io/metadata.name", "monitoring"}}}}}};

// A job whose members are admitted and have no pods yet, in an installation that makes policies.
struct PolicyScene : Scene {
  explicit PolicyScene(std::string choice = "auto", bool is_command = false) : Scene(2) {
    limits.network_policies.emplace();
    seen.job.spec.security.networkPolicy = std::move(choice);
    if (is_command) {
      seen.job.spec.train.reset();
      seen.job.spec.command = {"sh"};
    }
    settle();
  }

  // Stores the policy as the server would.
  void store(Json policy) {
    policy["metadata"]["uid"] = "uid-of-policy";
    policy["metadata"]["resourceVersion"] = "70";
    policy["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z";
    stored = std::move(policy);
    seen.network_policy.object = &stored;
  }
  Json wanted() const { return make_network_policy(seen.job, *limits.network_policies); }
  std::vector<WriteNetworkPolicy> writes() const { return only<WriteNetworkPolicy>(plan()); }
  size_t deletions() const { return only<DeleteNetworkPolicy>(plan()).size(); }
  size_t creates() const { return only<CreatePod>(plan()).size(); }

  Json stored;
};

TEST(NetworkPolicy, LetsInTheJobsPodsAndOnTheAgentsPortTheControllerAndScrapes) {
  const PolicyScene scene;
  const Json own = {
      {"matchLabels",
       {{"app.kubernetes.io/managed-by", "lockstep"}, {"lockstep.dev/job-name", "job"}}}};
  const Json ports = Json::array({{{"protocol", "TCP"}, {"port", 29400}}});
  Json wanted = {
      {"podSelector", own},
      {"policyTypes", {"Ingress"}},
      {"ingress", {{{"from", Json::array({{{"podSelector", own}}})}}, {{"ports", ports}}}}};
  const Json anybody = make_network_policy(scene.seen.job, {});
  EXPECT_EQ(anybody["apiVersion"], "networking.k8s.io/v1");
  EXPECT_EQ(anybody["kind"], "NetworkPolicy");
  EXPECT_EQ(anybody["spec"], wanted);
  const Json peers = Json::array({controller_peer("lockstep-system"), kPrometheus});
  wanted["ingress"][1]["from"] = peers;
  EXPECT_EQ(make_network_policy(scene.seen.job, {.agent_from = peers})["spec"], wanted);
}

TEST(NetworkPolicy, SelectsThePodsOfItsJobAndIsOwnedByIt) {
  const PolicyScene scene;
  const Json policy = scene.wanted();
  const Json pod = make_worker_pod(scene.seen.job, {.index = 1, .incarnation = 3});
  const Json selected = policy["spec"]["podSelector"]["matchLabels"];
  for (const auto& [key, value] : selected.items()) {
    EXPECT_EQ(pod["metadata"]["labels"][key], value);
  }
  EXPECT_EQ(policy["metadata"]["ownerReferences"], pod["metadata"]["ownerReferences"]);
  const Json secret = make_token_secret(scene.seen.job, "token");
  EXPECT_EQ(policy["metadata"]["labels"], secret["metadata"]["labels"]);
  EXPECT_EQ(policy["metadata"]["name"], network_policy_name(scene.seen.job.metadata));
  ObjectMeta again = scene.seen.job.metadata;
  again.uid = "another";
  EXPECT_NE(network_policy_name(again), policy["metadata"]["name"])
      << "a job that is recreated has a policy of its own";
}

TEST(NetworkPolicy, IsMadeAndDeletedAsTheJobAsks) {
  struct Case {
    const char* choice;
    bool is_command;
    bool is_wanted;
  };
  const Case cases[] = {{"auto", false, true}, {"auto", true, false},  {"job", false, true},
                        {"job", true, true},   {"none", false, false}, {"none", true, false}};
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.choice) + (c.is_command ? " command" : " train"));
    PolicyScene scene(c.choice, c.is_command);
    EXPECT_EQ(wants_network_policy(scene.seen.job.spec), c.is_wanted);
    EXPECT_EQ(scene.writes().size(), c.is_wanted ? 1u : 0u);
    EXPECT_EQ(scene.creates(), c.is_wanted ? 0u : 2u) << "pods come after their policy";
    scene.store(scene.wanted());
    EXPECT_TRUE(scene.writes().empty());
    EXPECT_EQ(scene.deletions(), c.is_wanted ? 0u : 1u);
    EXPECT_EQ(scene.creates(), c.is_wanted ? 2u : 0u);
    scene.limits.network_policies.reset();
    EXPECT_EQ(scene.writes().size() + scene.deletions(), 0u) << "the installation makes none";
  }
}

TEST(NetworkPolicy, FollowsAChangeOfTheFieldWhileTheJobRuns) {
  PolicyScene scene;
  scene.store(scene.wanted());
  scene.train();
  scene.settle();
  EXPECT_TRUE(scene.plan().actions.empty()) << scene.plan().why;
  scene.seen.job.spec.security.networkPolicy = "none";
  ++scene.seen.job.metadata.generation;
  const std::vector<DeleteNetworkPolicy> deleted = only<DeleteNetworkPolicy>(scene.plan());
  ASSERT_EQ(deleted.size(), 1u);
  EXPECT_EQ(deleted[0].name, network_policy_name(scene.seen.job.metadata));
  EXPECT_EQ(deleted[0].uid, "uid-of-policy");
  scene.seen.network_policy.object = nullptr;
  scene.settle();
  EXPECT_TRUE(is_true(scene.status(), kValid));
  EXPECT_TRUE(scene.plan().actions.empty());
  scene.seen.job.spec.security.networkPolicy = "job";
  EXPECT_EQ(scene.writes().size(), 1u);
}

TEST(NetworkPolicy, ThatSomebodyChangedIsRestored) {
  struct Case {
    const char* what;
    std::function<void(Json&)> change;
    bool is_undone;
  };
  const Case cases[] = {
      {"a rule", [](Json& policy) { policy["spec"]["ingress"].push_back(Json::object()); }, true},
      {"the port", [](Json& policy) { policy["spec"]["ingress"][1]["ports"][0]["port"] = 1; },
       true},
      {"the selector", [](Json& policy) { policy["spec"]["podSelector"] = Json::object(); }, true},
      {"the types", [](Json& policy) { policy["spec"]["policyTypes"].push_back("Egress"); }, true},
      {"no spec", [](Json& policy) { policy.erase("spec"); }, true},
      {"a label", [](Json& policy) { policy["metadata"]["labels"].erase(kJobNameLabel); }, true},
      {"all labels", [](Json& policy) { policy["metadata"].erase("labels"); }, true},
      {"the owner", [](Json& policy) { policy["metadata"].erase("ownerReferences"); }, true},
      {"another's label", [](Json& policy) { policy["metadata"]["labels"]["team"] = "a"; }, false},
      {"a note",
       [](Json& policy) {
         policy["metadata"]["annotations"] = {{"a", "b"}};
       },
       false},
      {"a status", [](Json& policy) { policy["status"] = Json::object(); }, false}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    PolicyScene scene;
    Json policy = scene.wanted();
    policy["metadata"]["labels"]["kept"] = "yes";
    c.change(policy);
    scene.store(policy);
    const std::vector<WriteNetworkPolicy> writes = scene.writes();
    ASSERT_EQ(writes.size(), c.is_undone ? 1u : 0u);
    if (!c.is_undone) continue;
    const Json& body = writes[0].body;
    EXPECT_EQ(body["metadata"]["resourceVersion"], "70") << "it is not written over another change";
    EXPECT_EQ(body["metadata"]["labels"].contains("kept"),
              scene.stored["metadata"].contains("labels"));
    scene.store(body);
    EXPECT_TRUE(scene.writes().empty());
  }
}

TEST(NetworkPolicy, ThatTheServerRefusesHoldsNoJobUpAndIsACondition) {
  PolicyScene scene;
  scene.seen.network_policy.reason = "PolicyForbidden";
  scene.seen.network_policy.message = "HTTP 403: networkpolicies is forbidden";
  scene.seen.network_policy.writable_at = scene.now + seconds(4);
  const Plan plan = scene.plan();
  EXPECT_TRUE(only<WriteNetworkPolicy>(plan).empty());
  EXPECT_EQ(only<CreatePod>(plan).size(), 2u);
  EXPECT_EQ(plan.requeue_at, scene.now + seconds(4));
  const Condition failing = condition(written(scene, plan), kNetworkPolicyFailing);
  EXPECT_EQ(failing.status, "True");
  EXPECT_EQ(failing.reason, "PolicyForbidden");
  EXPECT_EQ(failing.message,
            "spec.security.networkPolicy: auto, but the job's pods are open to others: HTTP 403: "
            "networkpolicies is forbidden");
  ASSERT_EQ(only<EmitEvent>(plan).size(), 1u);
  EXPECT_TRUE(only<EmitEvent>(plan)[0].warning);
  EXPECT_EQ(only<EmitEvent>(plan)[0].reason, kNetworkPolicyFailing);
  scene.settle();
  EXPECT_TRUE(only<EmitEvent>(scene.plan()).empty()) << "it is told once";
  scene.advance(seconds(4));
  EXPECT_EQ(scene.writes().size(), 1u) << "and tried again";
  scene.store(scene.wanted());
  scene.seen.network_policy.reason = "";
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kNetworkPolicyFailing).status, "False");
  EXPECT_EQ(condition(scene.status(), kNetworkPolicyFailing).reason, "AsRequested");
}

TEST(NetworkPolicy, TroubleNamesWhatIsLeftOfThePolicy) {
  struct Case {
    const char* choice;
    bool is_changed;
    const char* words;
  };
  const Case cases[] = {{"none", false, "none, but the job's NetworkPolicy remains: "},
                        {"job", true, "job, but the job's NetworkPolicy has been changed: "},
                        {"job", false, nullptr}};
  for (const Case& c : cases) {
    PolicyScene scene(c.choice);
    Json policy = scene.wanted();
    if (c.is_changed) policy["spec"]["ingress"] = Json::array();
    scene.store(policy);
    scene.seen.network_policy.reason = "PolicyFailed";
    scene.seen.network_policy.writable_at = scene.now + seconds(1);
    scene.settle();
    const Condition* failing = find_condition(scene.status(), kNetworkPolicyFailing);
    ASSERT_EQ(failing != nullptr, c.words != nullptr);
    if (failing == nullptr) continue;
    EXPECT_EQ(failing->status, "True");
    EXPECT_NE(failing->message.find(c.words), std::string::npos) << failing->message;
  }
}

TEST(NetworkPolicy, ThatCannotBeReadIsNotWritten) {
  PolicyScene scene;
  scene.seen.network_policy = {
      .reason = "PolicyKindMissing", .message = "HTTP 404", .writable_at = TimePoint::max()};
  EXPECT_TRUE(scene.writes().empty());
  EXPECT_EQ(scene.creates(), 2u);
  EXPECT_NE(scene.plan().requeue_at, TimePoint::max());
  scene.settle();
  EXPECT_EQ(condition(scene.status(), kNetworkPolicyFailing).reason, "PolicyKindMissing");
}

TEST(NetworkPolicy, AJobThatAsksForOneIsToldThatTheControllerMakesNone) {
  for (const char* choice : {"auto", "job", "none"}) {
    SCOPED_TRACE(choice);
    const bool is_told = choice == std::string_view("job");
    Scene scene;
    scene.seen.job.spec.security.networkPolicy = choice;
    scene.settle();
    scene.settle();
    ASSERT_EQ(find_condition(scene.status(), kNetworkPolicyFailing) != nullptr, is_told);
    if (!is_told) continue;
    EXPECT_TRUE(is_true(scene.status(), kNetworkPolicyFailing));
    EXPECT_EQ(condition(scene.status(), kNetworkPolicyFailing).reason, "PoliciesOff");
    scene.seen.job.spec.security.networkPolicy = "auto";
    scene.settle();
    EXPECT_TRUE(is_false(scene.status(), kNetworkPolicyFailing));
  }
}

TEST(NetworkPolicy, PeersAreReadAsAServerStoresThem) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "[]"},
      {R"([{"podSelector": {}}])", R"([{"podSelector":{}}])"},
      {R"([{"namespaceSelector": {"matchLabels": {"a": "b"}, "matchExpressions": []}}])",
       R"([{"namespaceSelector":{"matchLabels":{"a":"b"}}}])"},
      {R"([{"ipBlock": {"cidr": "10.0.0.0/8", "except": []}}])",
       R"([{"ipBlock":{"cidr":"10.0.0.0/8"}}])"},
      {R"([{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": []}]}}])",
       R"([{"podSelector":{"matchExpressions":[{"key":"a","operator":"Exists"}]}}])"},
      {R"([{"podSelector": {"matchExpressions": [{"key": "a", "op": "Exists"}]}}])",
       R"(peer 0: podSelector.matchExpressions: found [{"key":"a","op":"Exists"}], which is not a member of a NetworkPolicyPeer)"},
      {R"([{"ipBlock": {"cidr": "10.0.0.0/8", "except": [1]}}])",
       "peer 0: ipBlock.except: found [1], which is not a member of a NetworkPolicyPeer"},
      {"{}", "found {}, expected a JSON list"},
      {"[{}]", "peer 0: found {}, expected an object with a selector or ipBlock"},
      {R"([{"podSelector": {}}, 1])",
       "peer 1: found 1, expected an object with a selector or ipBlock"},
      {R"([{"pods": {}}])",
       R"(peer 0: found "pods", expected podSelector, namespaceSelector or ipBlock)"},
      {R"([{"ipBlock": null}])", "peer 0: ipBlock: found null, expected an object"},
      {R"([{"podSelector": {"matchLabels": {"a": 1}}}])",
       R"(peer 0: podSelector.matchLabels: found {"a":1}, which is not a member of a NetworkPolicyPeer)"},
      {R"([{"podSelector": {"labels": {}}}])",
       "peer 0: podSelector.labels: found {}, which is not a member of a NetworkPolicyPeer"}};
  for (const auto& [text, expected] : cases) {
    const Result<Json> peers = read_network_policy_peers(text);
    EXPECT_EQ(peers.ok() ? dump_json(*peers) : peers.error().message, expected) << text;
  }
  EXPECT_FALSE(read_network_policy_peers("no JSON").ok());
}

}  // namespace
}  // namespace lockstep::plan
