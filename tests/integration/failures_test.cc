// Every failure of a job that Kubernetes reports, on the server of this run, with real processes.
#include <signal.h>

#include "common/base/clock.h"
#include "controller/plan/plan.h"
#include "tests/integration/cluster.h"
#include "tests/support/processes.h"

namespace lockstep::integration {
namespace {

using Failures = ClusterCase;

// Returns the agent's process of each pod.
std::vector<pid_t> agents_of(const std::map<std::string, std::string>& pods) {
  std::vector<pid_t> agents;
  for (const auto& [name, uid] : pods) {
    for (const pid_t pid : test::processes_with_environment(uid + "-node")) {
      const std::vector<std::string> words = test::arguments(pid);
      if (!words.empty() && words[0].ends_with("lockstep-agent")) agents.push_back(pid);
    }
  }
  return agents;
}

TEST_F(Failures, ARankThatExitsIsStartedAgainInTheSamePods) {
  make_job("a", running_script("[ $RANK-$LOCKSTEP_ROUND != 1-1 ] || { sleep 0.2; exit 7; }; "
                               "[ $LOCKSTEP_ROUND = 1 ] || exit 0;"));
  ASSERT_TRUE(wait_for("pods", [&] { return uids("a").size() == 2; }));
  const auto before = uids("a");
  expect_complete("a");
  const Json last = status("a");
  EXPECT_EQ(last["restarts"], 1);
  EXPECT_EQ(last["round"], 2);
  EXPECT_EQ(last["lastFailure"]["exitCode"], 7);
  EXPECT_EQ(last["lastFailure"]["rank"], 1);
  EXPECT_EQ(last["lastFailure"]["action"], "RestartInPlace");
  EXPECT_EQ(uids("a"), before);
}

TEST_F(Failures, AKilledRankIsStartedAgainInTheSamePods) {
  make_job("a", running_script("[ $LOCKSTEP_ROUND = 1 ] || exit 0;"
                               "[ $RANK = 1 ] && sleep 0.2 && kill -9 $$;"));
  ASSERT_TRUE(wait_for("pods", [&] { return uids("a").size() == 2; }));
  const auto before = uids("a");
  expect_complete("a");
  EXPECT_EQ(status("a")["restarts"], 1);
  EXPECT_EQ(status("a")["lastFailure"]["exitCode"], 137);
  EXPECT_EQ(uids("a"), before);
}

TEST_F(Failures, TooManyOfThemEndTheJob) {
  make_job("a", "sleep 0.1; exit 3", {{"failure", {{"maxRestarts", 1}}}});
  ASSERT_TRUE(wait_for("Failed", [&] { return is("a", "Failed"); }));
  EXPECT_EQ(status("a")["restarts"], 1);
  EXPECT_EQ(status("a")["lastFailure"]["action"], "Fail");
  EXPECT_FALSE(is("a", "Complete"));
}

// Moves all recorded failures three minutes back, as if the job had begun then: the decision
// follows from status alone.
Json with_older_failures(Json status) {
  const auto move = [](Json& failure) {
    const Result<WallTime> time = wall_time_from_rfc3339(failure["time"].get<std::string>());
    ASSERT_TRUE(time.ok());
    failure["time"] = rfc3339_micro(*time - std::chrono::minutes(3));
  };
  move(status["lastFailure"]);
  for (Json& failure : status["failures"]) move(failure);
  return status;
}

TEST_F(Failures, AProgramThatLacksAModuleNeverStartsAndTheJobSaysWhy) {
  make_job("a", "exec python3 -c 'import numpi'", {{"failure", {{"maxRestarts", 1000}}}});
  const auto failures = [&] { return status("a").value("restarts", 0); };
  ASSERT_TRUE(wait_for("two failures", [&] { return failures() >= 2; }));
  kill_controller();
  EXPECT_FALSE(is("a", "Failed")) << "not within seconds: " << status("a");
  const int before = failures();
  const Json older = with_older_failures(status("a"));
  const Json written =
      ask("PATCH", jobs() + "/a/status",
          {{"status", {{"lastFailure", older["lastFailure"]}, {"failures", older["failures"]}}}});
  ASSERT_TRUE(written.contains("status")) << written;
  start_controller("controller-2");
  ASSERT_TRUE(wait_for("Failed", [&] { return is("a", "Failed"); }));
  EXPECT_EQ(status("a")["restarts"], before);
  EXPECT_EQ(status("a")["lastFailure"]["action"], "Fail");
  for (const Json& condition : status("a")["conditions"]) {
    if (condition["type"] != "Failed") continue;
    const std::string message = condition["message"];
    EXPECT_EQ(condition["reason"], "NeverStarted");
    EXPECT_NE(message.find("all failed this way"), std::string::npos) << message;
    EXPECT_NE(message.find("No module named 'numpi'"), std::string::npos) << message;
  }
  const std::string events = "/api/v1/namespaces/" + namespace_ + "/events";
  EXPECT_TRUE(wait_for("the event", [&] {
    for (const Json& event : ask("GET", events).value("items", Json::array())) {
      if (event.value("reason", "") == "NeverStarted") return event["type"] == "Warning";
    }
    return false;
  }));
}

class LostPods : public ClusterCase {
 protected:
  // Starts a job and waits for its first round, in which both ranks run.
  void start_job() {
    make_job("a", running_script("[ $LOCKSTEP_ROUND = 1 ] || exit 0;"));
    ASSERT_TRUE(wait_for("both ranks", [&] { return starts() == 2; }));
    before_ = uids("a");
    ASSERT_EQ(before_.size(), 2u);
  }
  // Expects that only the pod of node index 1 was replaced, and that the job completes.
  void expect_that_only_one_was_replaced() {
    expect_complete("a");
    EXPECT_EQ(status("a")["restarts"], 1) << status("a");
    const auto after = uids("a");
    ASSERT_FALSE(after.empty());
    EXPECT_EQ(after.begin()->second, before_.begin()->second);
    for (const auto& [name, uid] : after) EXPECT_NE(uid, before_.rbegin()->second);
  }
  std::string second() const { return before_.rbegin()->first; }
  Json second_pod() { return ask("GET", pods() + "/" + second()); }

  std::map<std::string, std::string> before_;
};

TEST_F(LostPods, ADeletedOneIsReplacedAndTheOtherStays) {
  start_job();
  ask("DELETE", pods() + "/" + second());
  expect_that_only_one_was_replaced();
}

TEST_F(LostPods, AnEvictedOneIsReplacedAndTheOtherStays) {
  start_job();
  const Json answer = ask("POST", pods() + "/" + second() + "/eviction",
                          {{"apiVersion", "policy/v1beta1"},
                           {"kind", "Eviction"},
                           {"metadata", {{"name", second()}, {"namespace", namespace_}}}});
  EXPECT_EQ(answer.value("status", ""), "Success") << answer;
  expect_that_only_one_was_replaced();
}

TEST_F(LostPods, OneWhoseMachineLosesItsPowerGoesToAnother) {
  start_job();
  const std::string machine = second_pod()["spec"]["nodeName"];
  ask("PATCH", "/api/v1/nodes/" + machine,
      {{"metadata", {{"annotations", {{local::kPowerAnnotation, "off"}}}}}});
  expect_that_only_one_was_replaced();
  for (const auto& [name, uid] : uids("a"))
    EXPECT_NE(ask("GET", pods() + "/" + name)["spec"].value("nodeName", ""), machine);
}

TEST_F(LostPods, OneWhoseAgentIsKilledIsReplaced) {
  start_job();
  for (const pid_t pid : agents_of({*before_.rbegin()})) kill(pid, SIGKILL);
  expect_complete("a");
  EXPECT_EQ(status("a")["restarts"], 1) << status("a");
  EXPECT_EQ(uids("a").begin()->second, before_.begin()->second);
}

TEST_F(Failures, AgentsThatAreAllSilentAtOnceCostNoProcess) {
  make_job("a", running_script(), {{"nodes", 3}});
  ASSERT_TRUE(wait_for("three ranks", [&] { return starts() == 3; }));
  ASSERT_TRUE(wait_for("Running", [&] { return is("a", "Running"); }));
  const auto before = uids("a");
  const std::vector<pid_t> agents = agents_of(before);
  ASSERT_EQ(agents.size(), 3u);
  const auto doubts_itself = [&] {
    const std::string log = test::read_file(here() / "controller.log");
    return log.find("most agents are silent") != std::string::npos;
  };
  for (const pid_t pid : agents) kill(pid, SIGSTOP);
  ASSERT_TRUE(wait_for("doubt", doubts_itself));
  // A single silent agent would have lost its pod by then.
  const auto until = std::chrono::steady_clock::now() + plan::Limits().agent_silence;
  ASSERT_TRUE(wait_for("patience", [&] { return std::chrono::steady_clock::now() >= until; }));
  EXPECT_EQ(uids("a"), before);
  for (const pid_t pid : agents) kill(pid, SIGCONT);
  let_end();
  expect_complete("a");
  EXPECT_EQ(status("a")["restarts"], 0) << status("a");
  EXPECT_EQ(starts(), 3);
  EXPECT_EQ(uids("a"), before);
}

TEST_F(Failures, APodThatWaitsForADeadMachineIsReplaced) {
  // The scheduler does not know yet that the machine is dead.
  ask("PATCH", "/api/v1/nodes/" + machines_[1],
      {{"metadata", {{"annotations", {{local::kPowerAnnotation, "off"}}}}}});
  // A real server makes every pod tolerate that for 300 s unless it sets its own time.
  const Json unreachable = {{"key", "node.kubernetes.io/unreachable"},
                            {"operator", "Exists"},
                            {"effect", "NoExecute"},
                            {"tolerationSeconds", 1}};
  make_job(
      "a", running_script(),
      {{"nodes", 3}, {"podTemplate", {{"spec", {{"tolerations", Json::array({unreachable})}}}}}});
  ASSERT_TRUE(wait_for("three ranks", [&] { return starts() == 3; }));
  let_end();
  expect_complete("a");
  EXPECT_EQ(starts(), 3);
}

TEST_F(Failures, AServerThatIsAwayForAWhileCostsNoProcess) {
  make_job("a", running_script());
  ASSERT_TRUE(wait_for("both ranks", [&] { return starts() == 2; }));
  ASSERT_TRUE(wait_for("Running", [&] { return is("a", "Running"); }));
  relay_->cut();
  ASSERT_TRUE(wait_for("the controller to try again", [&] {
    return test::read_file(here() / "controller.log").find("a list failed") != std::string::npos ||
           test::read_file(here() / "controller.log").find("a watch failed") != std::string::npos;
  }));
  let_end();  // both ranks exit while the controller can't write
  ASSERT_TRUE(wait_for("the ranks' end", [&] { return ends() == 2; }));
  relay_->mend();
  expect_complete("a");
  EXPECT_EQ(status("a")["restarts"], 0);
  EXPECT_EQ(starts(), 2);
}

TEST_F(Failures, AControllerThatIsKilledCostsNoProcess) {
  make_job("a", running_script());
  ASSERT_TRUE(wait_for("both ranks", [&] { return starts() == 2; }));
  kill_controller();
  controller_ = start_controller("second");
  let_end();
  expect_complete("a");
  EXPECT_EQ(status("a")["restarts"], 0);
  EXPECT_EQ(starts(), 2);
}

TEST_F(Failures, OneThatIsLostWhileTheControllerIsAwayIsReplacedAfterwards) {
  make_job("a", running_script("[ $LOCKSTEP_ROUND = 1 ] || exit 0;"));
  ASSERT_TRUE(wait_for("both ranks", [&] { return starts() == 2; }));
  const auto before = uids("a");
  kill_controller();
  ask("DELETE", pods() + "/" + before.rbegin()->first);
  ASSERT_TRUE(wait_for("the pod's end", [&] { return uids("a").size() == 1; }));
  controller_ = start_controller("second");
  expect_complete("a");
  EXPECT_EQ(status("a")["restarts"], 1) << status("a");
}

TEST_F(Failures, AQuotaIsWaitedFor) {
  if (!conformance::server().serves("v1", "resourcequotas"))
    GTEST_SKIP() << "this server has no quotas";
  const std::string quotas = "/api/v1/namespaces/" + namespace_ + "/resourcequotas";
  ask("POST", quotas, {{"metadata", {{"name", "few"}}}, {"spec", {{"hard", {{"pods", "1"}}}}}});
  // There is no quota controller here, so the test acts as one.
  ask("PATCH", quotas + "/few/status",
      {{"status", {{"hard", {{"pods", "1"}}}, {"used", {{"pods", "0"}}}}}});
  make_job("a", running_script());
  ASSERT_TRUE(wait_for("word of the quota", [&] {
    return status("a").dump().find("exceeded quota") != std::string::npos;
  }));
  EXPECT_LE(uids("a").size(), 1u);
  ask("PATCH", quotas + "/few/status", {{"status", {{"hard", {{"pods", "5"}}}}}});
  ask("PATCH", quotas + "/few", {{"spec", {{"hard", {{"pods", "5"}}}}}});
  let_end();
  expect_complete("a");
  EXPECT_EQ(status("a")["restarts"], 0);
}

}  // namespace
}  // namespace lockstep::integration
