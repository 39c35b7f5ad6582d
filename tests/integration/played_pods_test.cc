// Events of pods in other clusters, simulated by the test: no scheduler and no kubelet handles
// these pods. The test binds them and writes a kubelet's status.
#include "tests/integration/cluster.h"

namespace lockstep::integration {
namespace {

constexpr char kNobody[] = "nobody";  // neither a scheduler's nor a machine's name

Json failed(const char* reason, const char* message) {
  return {{"phase", "Failed"}, {"reason", reason}, {"message", message}};
}
Json with_container(const char* phase, Json state) {
  return {{"phase", phase},
          {"containerStatuses", Json::array({{{"name", "node"},
                                              {"image", "i"},
                                              {"imageID", ""},
                                              {"ready", false},
                                              {"restartCount", 0},
                                              {"state", std::move(state)}}})}};
}
Json ended(int exit_code, const char* reason) {
  return with_container("Failed", {{"terminated", {{"exitCode", exit_code}, {"reason", reason}}}});
}
Json disrupted(const char* reason) {
  return {{"phase", "Failed"},
          {"conditions", Json::array({{{"type", "DisruptionTarget"},
                                       {"status", "True"},
                                       {"reason", reason},
                                       {"message", "played"}}})}};
}
Json waiting(const char* reason, const char* message) {
  return with_container("Pending", {{"waiting", {{"reason", reason}, {"message", message}}}});
}

class PlayedPods : public ClusterCase {
 protected:
  void make_played_job(const std::string& name, const Json& failure = Json::object()) {
    make_job(name, "true",
             {{"podTemplate", {{"spec", {{"schedulerName", kNobody}}}}}, {"failure", failure}});
    names_.push_back(name);
  }
  void wait_for_pods() {
    for (const std::string& name : names_)
      ASSERT_TRUE(wait_for("pods", [&] { return uids(name).size() == 2; })) << name;
  }
  // The pod of node index 1, which is the last by name.
  std::string second(const std::string& job_name) { return uids(job_name).rbegin()->first; }
  void bind(const std::string& pod) {
    const Json bound =
        ask("POST", pods() + "/" + pod + "/binding",
            {{"apiVersion", "v1"},
             {"kind", "Binding"},
             {"metadata", {{"name", pod}}},
             {"target", {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", kNobody}}}});
    EXPECT_EQ(bound.value("status", ""), "Success") << bound;
  }
  void say(const std::string& pod, const Json& pod_status) {
    const Json said = ask("PATCH", pods() + "/" + pod + "/status", {{"status", pod_status}});
    EXPECT_TRUE(said.contains("metadata")) << said;
  }
  Json condition(const std::string& job_name, const char* type) {
    for (const Json& known : status(job_name).value("conditions", Json::array())) {
      if (known["type"] == type) return known;
    }
    return Json::object();
  }

  std::vector<std::string> names_;
};

TEST_F(PlayedPods, EachEndIsNamedAndOnlyThatPodIsReplaced) {
  const struct {
    const char* job;
    Json said;
    const char* reason;
    int exit_code;
  } ends[] = {
      {"oom", ended(137, "OOMKilled"), "OOMKilled", 137},
      {"start", ended(128, "StartError"), "StartError", 128},
      {"exit", ended(9, "Error"), "PodFailed", 9},
      {"evicted", failed("Evicted", "The node was low on resource: memory."), "Evicted", -1},
      {"preempted", disrupted("PreemptionByScheduler"), "Preempted", -1},
      {"drained", disrupted("EvictionByEvictionAPI"), "Evicted", -1},
      {"tainted", disrupted("DeletionByTaintManager"), "NodeTainted", -1},
      {"gone", disrupted("DeletionByPodGC"), "NodeDeleted", -1},
      {"shutdown",
       failed("Terminated",
              "Pod was terminated in response to imminent node "
              "shutdown."),
       "NodeShutdown", -1},
      {"rejected", failed("OutOfcpu", "Node didn't have enough resource: cpu"), "PodRejected", -1}};
  for (const auto& end : ends) make_played_job(end.job);
  wait_for_pods();
  std::map<std::string, std::map<std::string, std::string>> before;
  for (const auto& end : ends) {
    before[end.job] = uids(end.job);
    bind(second(end.job));
    say(second(end.job), end.said);
  }
  for (const auto& end : ends) {
    SCOPED_TRACE(end.job);
    const std::string lost = before[end.job].rbegin()->second;
    // An ended pod is kept for its logs.
    ASSERT_TRUE(wait_for("another pod", [&] { return uids(end.job).rbegin()->second != lost; }));
    ASSERT_TRUE(wait_for("the failure", [&] { return status(end.job).contains("lastFailure"); }));
    const Json last = status(end.job);
    EXPECT_EQ(last["restarts"], 1) << last;
    EXPECT_EQ(last["lastFailure"]["reason"], end.reason) << last;
    EXPECT_EQ(last["lastFailure"]["action"], "RecreatePod") << last;
    EXPECT_EQ(last["lastFailure"]["node"], kNobody) << last;
    EXPECT_EQ(last["lastFailure"].value("exitCode", -1), end.exit_code) << last;
    EXPECT_EQ(uids(end.job).begin()->second, before[end.job].begin()->second) << "the other pod";
    EXPECT_LE(uids(end.job).size(), 3u);
  }
}

TEST_F(PlayedPods, WhatKeepsAPodFromStartingIsSaidAndCostsNothing) {
  const struct {
    const char* job;
    const char* waits;
    const char* message;
    const char* reason;
  } troubles[] = {
      {"image", "ImagePullBackOff", "Back-off pulling image \"no-such\"", "ImagePullFailed"},
      {"name", "InvalidImageName", "couldn't parse image reference", "ImagePullFailed"},
      {"config", "CreateContainerConfigError", "secret \"x\" not found", "ContainerCreateFailed"}};
  for (const auto& trouble : troubles) make_played_job(trouble.job);
  wait_for_pods();
  for (const auto& trouble : troubles) {
    bind(second(trouble.job));
    say(second(trouble.job), waiting(trouble.waits, trouble.message));
  }
  for (const auto& trouble : troubles) {
    SCOPED_TRACE(trouble.job);
    ASSERT_TRUE(wait_for("words", [&] {
      return condition(trouble.job, "Ready").value("reason", "") == trouble.reason;
    })) << status(trouble.job);
    const std::string message = condition(trouble.job, "Ready")["message"];
    EXPECT_NE(message.find(trouble.message), std::string::npos) << message;
    EXPECT_NE(message.find(second(trouble.job)), std::string::npos) << message;
    EXPECT_EQ(status(trouble.job).value("restarts", 0), 0);
    say(second(trouble.job), {{"phase", "Pending"}, {"containerStatuses", nullptr}});
    EXPECT_TRUE(wait_for("the end of it", [&] {
      return condition(trouble.job, "Ready").value("reason", "") == "PodsMissing";
    })) << status(trouble.job);
  }
}

TEST_F(PlayedPods, OneThatIsPendingForTooLongIsAFailure) {
  const Json impatient = {{"pendingTimeoutSeconds", 2}, {"maxRestarts", 0}};
  for (const char* name : {"unscheduled", "unstarted", "imageless"})
    make_played_job(name, impatient);
  for (const std::string& name : names_)
    ASSERT_TRUE(wait_for("pods", [&] { return uids(name).size() == 2 || is(name, "Failed"); }));
  for (const char* name : {"unstarted", "imageless"}) {
    for (const auto& [pod, uid] : uids(name)) bind(pod);
  }
  for (const auto& [pod, uid] : uids("imageless")) say(pod, waiting("ErrImagePull", "not found"));
  const std::map<std::string, std::string> reasons = {{"unscheduled", "Unschedulable"},
                                                      {"unstarted", "PodPending"},
                                                      {"imageless", "ImagePullFailed"}};
  for (const auto& [name, reason] : reasons) {
    ASSERT_TRUE(wait_for("Failed", [&] { return is(name, "Failed"); })) << name;
    EXPECT_EQ(status(name)["lastFailure"]["reason"], reason) << status(name);
    EXPECT_EQ(status(name)["lastFailure"]["action"], "Fail") << status(name);
  }
}

// Somebody writes false values into our status.
TEST_F(PlayedPods, CountersThatOthersWroteCostNoPodAndNoProcess) {
  make_job("a", running_script());
  ASSERT_TRUE(wait_for("both ranks", [&] { return starts() == 2; }));
  ASSERT_TRUE(wait_for("Running", [&] { return is("a", "Running"); }));
  const auto before = uids("a");
  for (const Json& wrong :
       {Json{{"restarts", 9}}, Json{{"nodes", {{"ready", 77}}}}, Json{{"observedGeneration", 0}}}) {
    const Json said = ask("PATCH", jobs() + "/a/status", {{"status", wrong}});
    ASSERT_TRUE(said.contains("spec")) << said;
  }
  ASSERT_TRUE(wait_for("what is so", [&] {
    return status("a")["nodes"]["ready"] == 2 && status("a")["observedGeneration"] == 1;
  })) << status("a");
  EXPECT_EQ(uids("a"), before);
  let_end();
  expect_complete("a");
  EXPECT_EQ(starts(), 2) << "no rank was started again";
}

}  // namespace
}  // namespace lockstep::integration
