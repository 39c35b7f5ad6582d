// Pods as far as a controller uses them. Nothing runs them here: the suite acts as scheduler and
// kubelet.
#include "tests/conformance/support/case.h"

namespace lockstep::conformance {
namespace {

constexpr char kNode[] = "lockstep-conformance-node";

class Pods : public Case {
 protected:
  Reply bind(const std::string& name) {
    return ask("POST", pods() + "/" + name + "/binding",
               {{"apiVersion", "v1"},
                {"kind", "Binding"},
                {"metadata", {{"name", name}}},
                {"target", {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", kNode}}}});
  }
  Json bound(const std::string& name) {
    Json made = make(pods(), pod(name));
    EXPECT_TRUE(is_code(bind(name), 201));
    return made;
  }
  // Does what a kubelet does when the containers have ended.
  void confirm_end(const std::string& name) {
    EXPECT_TRUE(is_code(ask("DELETE", pods() + "/" + name, {{"gracePeriodSeconds", 0}}), 200));
  }
};

TEST_F(Pods, ANewPodIsPendingAndHasTheDefaults) {
  Json made = make(pods(), pod("a"));
  EXPECT_EQ(made["status"]["phase"], "Pending");
  EXPECT_EQ(made["status"]["qosClass"], "BestEffort");
  EXPECT_EQ(made["spec"]["restartPolicy"], "Always");
  EXPECT_EQ(made["spec"]["terminationGracePeriodSeconds"], 30);
  EXPECT_FALSE(made["spec"].contains("nodeName"));
  EXPECT_EQ(made["spec"]["containers"][0]["terminationMessagePath"], "/dev/termination-log");
}

TEST_F(Pods, APodWithoutContainersIs422) {
  Json object = pod("a");
  object["spec"]["containers"] = Json::array();
  Reply refused = ask("POST", pods(), object);
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueRequired", "spec.containers"));
}

TEST_F(Pods, APodOfAnUnknownRestartPolicyIs422) {
  Json object = pod("a");
  object["spec"]["restartPolicy"] = "Sometimes";
  Reply refused = ask("POST", pods(), object);
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueNotSupported", "spec.restartPolicy"));
}

TEST_F(Pods, ASpecCanNotBeChangedButForTheImage) {
  make(pods(), pod("a"));
  Json object = get(pods() + "/a").body;
  object["spec"]["containers"][0]["image"] = "another";
  ASSERT_TRUE(is_code(ask("PUT", pods() + "/a", object), 200));
  object = get(pods() + "/a").body;
  object["spec"]["containers"][0]["command"] = {"true"};
  Reply refused = ask("PUT", pods() + "/a", object);
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueForbidden", "spec"));
}

TEST_F(Pods, ABindingSetsTheNodeAndTheCondition) {
  bound("a");
  Json object = get(pods() + "/a").body;
  EXPECT_EQ(object["spec"]["nodeName"], kNode);
  Json conditions = object["status"]["conditions"];
  ASSERT_EQ(conditions.size(), 1u) << conditions;
  EXPECT_EQ(conditions[0]["type"], "PodScheduled");
  EXPECT_EQ(conditions[0]["status"], "True");
}

TEST_F(Pods, ASecondBindingIs409) {
  bound("a");
  EXPECT_TRUE(is_failure(bind("a"), 409, "Conflict"));
}

TEST_F(Pods, TheStatusIsWrittenApart) {
  bound("a");
  Json status = {
      {"phase", "Running"}, {"podIP", "10.1.2.3"}, {"podIPs", Json::array({{{"ip", "10.1.2.3"}}})}};
  Reply written = patch(pods() + "/a/status", {{"status", status}});
  ASSERT_TRUE(is_code(written, 200));
  EXPECT_EQ(written.body["status"]["phase"], "Running");
  EXPECT_EQ(get(pods() + "/a").body["status"]["podIP"], "10.1.2.3");
  EXPECT_TRUE(is_code(patch(pods() + "/a", {{"status", {{"phase", "Failed"}}}}), 200));
  EXPECT_EQ(get(pods() + "/a").body["status"]["phase"], "Running");
}

TEST_F(Pods, OneThatIsOnNoNodeIsDeletedAtOnceAndShownAsItWas) {
  Json made = make(pods(), pod("a"));
  Reply removed = ask("DELETE", pods() + "/a");
  ASSERT_TRUE(is_code(removed, 200));
  EXPECT_EQ(removed.body["kind"], "Pod");
  EXPECT_EQ(meta(removed.body, "uid"), meta(made, "uid"));
  EXPECT_EQ(get(pods() + "/a").code, 404);
}

TEST_F(Pods, OneOnANodeGetsItsGraceAndGoesWhenTheKubeletSaysSo) {
  bound("a");
  Reply removed = ask("DELETE", pods() + "/a");
  ASSERT_TRUE(is_code(removed, 200));
  EXPECT_EQ(removed.body["metadata"]["deletionGracePeriodSeconds"], 30);
  EXPECT_NE(meta(removed.body, "deletionTimestamp"), "");
  EXPECT_EQ(get(pods() + "/a").code, 200);
  confirm_end("a");
  EXPECT_EQ(get(pods() + "/a").code, 404);
}

TEST_F(Pods, TheGraceThatIsAskedForCounts) {
  bound("a");
  Reply removed = ask("DELETE", pods() + "/a", {{"gracePeriodSeconds", 7}});
  ASSERT_TRUE(is_code(removed, 200));
  EXPECT_EQ(removed.body["metadata"]["deletionGracePeriodSeconds"], 7);
  // The grace period can be shortened, but not extended.
  removed = ask("DELETE", pods() + "/a", {{"gracePeriodSeconds", 3}});
  EXPECT_EQ(removed.body["metadata"]["deletionGracePeriodSeconds"], 3);
  removed = ask("DELETE", pods() + "/a", {{"gracePeriodSeconds", 20}});
  EXPECT_EQ(removed.body["metadata"]["deletionGracePeriodSeconds"], 3);
  confirm_end("a");
}

TEST_F(Pods, ThePodsOwnGraceIsTheDefault) {
  Json object = pod("a");
  object["spec"]["terminationGracePeriodSeconds"] = 11;
  make(pods(), object);
  EXPECT_TRUE(is_code(bind("a"), 201));
  Reply removed = ask("DELETE", pods() + "/a");
  EXPECT_EQ(removed.body["metadata"]["deletionGracePeriodSeconds"], 11);
  confirm_end("a");
}

TEST_F(Pods, WithoutGraceOneIsGoneAtOnce) {
  bound("a");
  EXPECT_TRUE(is_code(ask("DELETE", pods() + "/a?gracePeriodSeconds=0"), 200));
  EXPECT_EQ(get(pods() + "/a").code, 404);
}

TEST_F(Pods, OneThatHasEndedIsDeletedAtOnce) {
  bound("a");
  EXPECT_TRUE(is_code(patch(pods() + "/a/status", {{"status", {{"phase", "Succeeded"}}}}), 200));
  EXPECT_TRUE(is_code(ask("DELETE", pods() + "/a"), 200));
  EXPECT_EQ(get(pods() + "/a").code, 404);
}

TEST_F(Pods, ANewPodUnderTheNameOfADyingOneIs409) {
  bound("a");
  EXPECT_TRUE(is_code(ask("DELETE", pods() + "/a"), 200));
  Reply refused = ask("POST", pods(), pod("a"));
  ASSERT_TRUE(is_failure(refused, 409, "AlreadyExists"));
  confirm_end("a");
  EXPECT_TRUE(is_code(ask("POST", pods(), pod("a")), 201));
}

TEST_F(Pods, FieldSelectorsKnowNodePhaseAndPolicy) {
  bound("a");
  make(pods(), pod("b"));
  using Names = std::vector<std::string>;
  auto select = [&](const std::string& text) {
    return names(get(pods() + "?fieldSelector=" + percent_encoded(text)));
  };
  EXPECT_EQ(select(std::string("spec.nodeName=") + kNode), Names{"a"});
  EXPECT_EQ(select("spec.nodeName="), Names{"b"});
  EXPECT_EQ(select("status.phase=Pending"), (Names{"a", "b"}));
  EXPECT_EQ(select("status.phase!=Pending"), Names{});
  EXPECT_EQ(select("spec.restartPolicy=Always"), (Names{"a", "b"}));
}

TEST_F(Pods, AnEvictionDeletesThePod) {
  NEEDS(server().serves("v1", "pods/eviction"), "the server does not serve pods/eviction");
  bound("a");
  std::string version =
      server().serves("policy/v1", "poddisruptionbudgets") || server().target().embedded
          ? "policy/v1"
          : "policy/v1beta1";
  Reply evicted = ask("POST", pods() + "/a/eviction",
                      {{"apiVersion", version},
                       {"kind", "Eviction"},
                       {"metadata", {{"name", "a"}, {"namespace", namespace_}}}});
  ASSERT_TRUE(is_code(evicted, 201));
  EXPECT_NE(meta(get(pods() + "/a").body, "deletionTimestamp"), "");
  confirm_end("a");
}

TEST_F(Pods, TheLogOfAPodThatIsNotThereIs404) {
  EXPECT_TRUE(is_failure(get(pods() + "/a/log"), 404, "NotFound"));
}

TEST_F(Pods, TheLogOfAnUnknownContainerIs400) {
  bound("a");
  EXPECT_TRUE(is_failure(get(pods() + "/a/log?container=none"), 400, "BadRequest"));
  EXPECT_TRUE(is_code(ask("DELETE", pods() + "/a?gracePeriodSeconds=0"), 200));
}

}  // namespace
}  // namespace lockstep::conformance
