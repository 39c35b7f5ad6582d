// kubectl on running TrainingJobs: get, wait, scale, stop.
#include <gtest/gtest.h>

#include "tests/e2e/kubectl_fixture.h"

namespace lockstep::test {
namespace {

constexpr int kLong = 1'000'000;  // steps of a job that the test ends itself

class KubectlJobsTest : public KubectlTest {
 protected:
  void run_to_completion(const JobSpec& job = {}) {
    ok("apply -f " + job_file(job));
    ok("wait --for=condition=Complete tj/" + job.name + " --timeout=60s");
  }
  // Starts a job and waits until it runs; it goes on until it is deleted.
  void start_job(const JobSpec& job) {
    ok("apply -f " + job_file(job));
    ok("wait --for=condition=Running tj/" + job.name + " --timeout=60s");
  }
};

TEST_P(KubectlJobsTest, AJobFromApplyToComplete) {
  EXPECT_EQ(ok("create -f " + job_file({.nodes = 2})), "trainingjob.lockstep.dev/tiny created\n");
  EXPECT_TRUE(has(refused("create -f " + job_file({.nodes = 2})), "AlreadyExists"));
  EXPECT_EQ(ok("wait --for=condition=Complete trainingjob/tiny --timeout=60s"),
            "trainingjob.lockstep.dev/tiny condition met\n");
  const PrintedTable jobs = table("get trainingjobs");
  EXPECT_EQ(jobs.headers(), (std::vector<std::string>{"NAME", "STATE", "NODES", "STEP", "LOSS",
                                                      "TOKENS/S", "RESTARTS", "AGE"}));
  EXPECT_EQ(table("get tj -o wide").headers(),
            (std::vector<std::string>{"NAME", "STATE", "NODES", "STEP", "LOSS", "TOKENS/S",
                                      "SAMPLES/S", "RESTARTS", "AGE"}));
  EXPECT_EQ(jobs.cell("tiny", "STATE"), "Complete");
  EXPECT_EQ(jobs.cell("tiny", "STEP"), "20");
  EXPECT_EQ(jobs.cell("tiny", "RESTARTS"), "0");
  EXPECT_GT(std::atof(jobs.cell("tiny", "LOSS").c_str()), 0);
  EXPECT_GT(std::atof(jobs.cell("tiny", "TOKENS/S").c_str()), 0);
  ASSERT_TRUE(eventually_prints("get pods", "Completed"));
  EXPECT_EQ(table("get pods -l lockstep.dev/job-name=tiny").rows(), 2u);
  EXPECT_EQ(ok("get tj tiny -o jsonpath={.status.state}"), "Complete");
  EXPECT_TRUE(has(ok("get all"), "trainingjob.lockstep.dev/tiny"));
  if (minor_version() >= 23)
    ok("wait --for=jsonpath={.status.state}=Complete tj/tiny --timeout=5s");
}

TEST_P(KubectlJobsTest, AWatchFollowsAJobToItsEnd) {
  std::unique_ptr<Program> watch = start("get trainingjobs -w");
  auto prints = [&](const char* words) {
    return eventually([&] { return watch->output().find(words) != std::string::npos; }, 60);
  };
  ok("apply -f " + waiting_job_file("waits", 1));
  EXPECT_TRUE(prints("Running")) << watch->output() << watch->errors();
  file("mark", "now");
  EXPECT_TRUE(prints("Complete")) << watch->output() << watch->errors();
  EXPECT_TRUE(watch->output().starts_with("NAME "));
}

TEST_P(KubectlJobsTest, ADrainedNodesJobGoesOnElsewhere) {
  ok("apply -f " + waiting_job_file("waits", 2));
  ok("wait --for=condition=Running tj/waits --timeout=60s");
  const std::string drained = "local-0";
  const std::string on_drained = "get pods -o name --field-selector spec.nodeName=" + drained;
  EXPECT_NE(ok(on_drained), "") << "pods are spread";
  // The pods have an emptyDir.
  EXPECT_TRUE(has(refused("drain " + drained + " --timeout=20s"), "local storage"));
  EXPECT_TRUE(has(ok("drain " + drained + " --delete-emptydir-data --timeout=60s"), "evicted"));
  EXPECT_TRUE(eventually([&] { return ok("get tj waits -o jsonpath={.status.restarts}") == "1"; }));
  ok("wait --for=condition=Running tj/waits --timeout=60s");
  EXPECT_EQ(ok(on_drained), "");
  EXPECT_EQ(table("get pods").column("STATUS"), std::vector<std::string>(2, "Running"));
  ok("uncordon " + drained);
  file("mark", "now");
  ok("wait --for=condition=Complete tj/waits --timeout=60s");
}

// kubectl runs the program kubectl-lockstep from the PATH.
TEST_P(KubectlJobsTest, ThePluginListsAndWatches) {
  std::unique_ptr<Program> list = start("lockstep list -w");
  ok("apply -f " + waiting_job_file("waits", 1));
  ok("wait --for=condition=Running tj/waits --timeout=60s");
  const PrintedTable jobs = table("lockstep list");
  EXPECT_EQ(jobs.headers(), table("get tj").headers());
  EXPECT_EQ(jobs.cell("waits", "STATE"), "Running");
  EXPECT_EQ(ok("lockstep list -o name"), "trainingjob.lockstep.dev/waits\n");
  std::unique_ptr<Program> status = start("lockstep status -w waits");
  auto prints = [](const Program& program, const char* words) {
    return eventually([&] { return program.output().find(words) != std::string::npos; }, 60);
  };
  EXPECT_TRUE(prints(*status, "Running")) << status->output() << status->errors();
  EXPECT_TRUE(prints(*list, "Running")) << list->output() << list->errors();
  EXPECT_FALSE(has(list->output(), "Complete"));
  file("mark", "now");
  EXPECT_EQ(status->wait(60), 0) << status->errors();
  EXPECT_TRUE(has(status->output(), "---\n")) << "a page for each change";
  EXPECT_TRUE(has(status->output(), "Complete, round 1"));
  EXPECT_TRUE(prints(*list, "Complete")) << list->output() << list->errors();
  EXPECT_TRUE(list->running());
}

TEST_P(KubectlJobsTest, DescribeShowsTheStatusAndTheEvents) {
  run_to_completion();
  const std::string job = ok("describe trainingjob tiny");
  EXPECT_TRUE(has(job, "Name:         tiny"));
  EXPECT_TRUE(has(job, "Kind:         TrainingJob"));
  EXPECT_TRUE(has(job, "Steps:"));
  EXPECT_TRUE(has(job, "Events:"));
  EXPECT_TRUE(has(job, "Complete"));
  EXPECT_FALSE(has(job, "Events:  <none>"));
  const std::string name = ok("get pods -o jsonpath={.items[0].metadata.name}");
  const std::string pod = ok("describe pod " + name);
  EXPECT_TRUE(has(pod, "Controlled By:"));
  EXPECT_TRUE(has(pod, "TrainingJob/tiny"));
  EXPECT_TRUE(has(pod, "Exit Code:"));
  const PrintedTable events = table("get events --field-selector involvedObject.name=tiny");
  EXPECT_EQ(events.headers(),
            (std::vector<std::string>{"LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"}));
  EXPECT_GT(events.rows(), 0u);
  EXPECT_EQ(events.column("OBJECT")[0], "trainingjob/tiny");
  if (minor_version() >= 26) {
    EXPECT_TRUE(has(ok("events --for trainingjob/tiny"), "TrainingJob/tiny"));
  }
}

TEST_P(KubectlJobsTest, LogsOfAJobsPods) {
  start_job({.nodes = 2, .steps = kLong});
  const std::string name =
      ok("get pods -l lockstep.dev/node-index=0 -o jsonpath={.items[0].metadata.name}");
  std::unique_ptr<Program> follow = start("logs -f " + name);
  EXPECT_TRUE(eventually([&] { return follow->output().find("address=") != std::string::npos; }))
      << follow->errors();
  EXPECT_TRUE(follow->running());
  EXPECT_TRUE(has(ok("logs " + name + " -c node"), "address="));
  EXPECT_TRUE(has(ok("logs -l lockstep.dev/job-name=tiny --prefix"), "[pod/" + name));
  ok("delete tj tiny");
  EXPECT_EQ(follow->wait(30), 0) << follow->errors();
}

TEST_P(KubectlJobsTest, ScaleChangesTheNumberOfNodes) {
  start_job({.steps = kLong});
  EXPECT_EQ(ok("scale trainingjob tiny --replicas=2"), "trainingjob.lockstep.dev/tiny scaled\n");
  EXPECT_EQ(object("tj tiny")["spec"]["nodes"], 2);
  EXPECT_TRUE(has(refused("scale trainingjob tiny --current-replicas=5 --replicas=1"),
                  "Expected replicas to be 5"));
  EXPECT_TRUE(has(refused("scale trainingjob nope --replicas=2"), "not found"));
}

// The round goes on, and so do its processes.
TEST_P(KubectlJobsTest, ServersBecomeMoreAndFewerWhileAJobTrains) {
  start_job({.nodes = 2,
             .steps = kLong,
             .more = "    optimizer: {clipNorm: 0}\n"
                     "  parameterServers: {nodes: 2, consistency: asynchronous}\n"});
  const auto patch = [&](int servers) {
    ok("patch tj tiny --type=merge -p {\"spec\":{\"parameterServers\":{\"nodes\":" +
       std::to_string(servers) + "}}}");
  };
  const auto have = [&](const std::string& servers) {
    return eventually_prints("get events -o jsonpath={.items[*].message}",
                             "the round has " + servers + " now");
  };
  patch(4);
  EXPECT_TRUE(have("3 servers"));
  EXPECT_TRUE(have("4 servers"));
  EXPECT_EQ(table("get pods -l lockstep.dev/role=server").rows(), 4u);
  patch(1);
  EXPECT_TRUE(have("2 servers"));
  EXPECT_TRUE(have("1 server"));
  EXPECT_TRUE(
      eventually([&] { return table("get pods -l lockstep.dev/role=server").rows() == 1; }, 60));
  const Json status = object("tj tiny")["status"];
  EXPECT_EQ(status["round"], 1) << dump_json(status);
  EXPECT_EQ(int_or(status, "restarts", 0), 0);
  EXPECT_EQ(status["state"], "Running");
  EXPECT_EQ(status["servers"], (Json{{"desired", 1}, {"ready", 1}}));
  const std::string step = "get tj tiny -o jsonpath={.status.progress.step}";
  const std::string reached = ok(step);
  EXPECT_TRUE(eventually([&] { return ok(step) != reached; })) << "it trains no more";
  ok("delete tj tiny");
}

TEST_P(KubectlJobsTest, SuspendEndsThePodsAndResumeStartsThem) {
  start_job({.steps = kLong});
  ok("patch tj tiny --type=merge -p {\"spec\":{\"suspend\":true}}");
  ok("wait --for=condition=Suspended tj/tiny --timeout=60s");
  EXPECT_EQ(table("get tj").cell("tiny", "STATE"), "Suspended");
  ok("patch tj tiny --type=merge -p {\"spec\":{\"suspend\":false}}");
  ok("wait --for=condition=Running tj/tiny --timeout=60s");
}

TEST_P(KubectlJobsTest, AFieldThatIsFixedWhileTheJobRunsIsNamedAndCanChangeOnceItIsSuspended) {
  start_job({.steps = kLong});
  ok("patch tj tiny --type=merge -p {\"spec\":{\"image\":\"other\"}}");
  ok("wait --for=condition=Valid=false tj/tiny --timeout=60s");
  const std::string message = "get tj tiny -o jsonpath={.status.conditions[?(@.type==\"Valid\")]}";
  EXPECT_TRUE(has(ok(message), "spec.image: can't change while the job has pods"));
  EXPECT_EQ(ok("get tj tiny -o jsonpath={.status.state}"), "Running");
  ok("patch tj tiny --type=merge -p {\"spec\":{\"suspend\":true}}");
  ok("wait --for=condition=Suspended tj/tiny --timeout=60s");
  ok("patch tj tiny --type=merge -p {\"spec\":{\"suspend\":false}}");
  ok("wait --for=condition=Running tj/tiny --timeout=60s");
  ok("wait --for=condition=Valid tj/tiny --timeout=60s");
}

TEST_P(KubectlJobsTest, AJobWithATimeToLiveIsGoneAfterItsEnd) {
  ok("apply -f " + job_file({.more = "  ttlSecondsAfterFinished: 1\n"}));
  EXPECT_TRUE(eventually_gone("trainingjob/tiny"));
  EXPECT_TRUE(eventually([&] { return ok("get pods -o name").empty(); }, 60));
}

TEST_P(KubectlJobsTest, DeleteTakesTheJobAndItsPods) {
  start_job({.steps = kLong});
  EXPECT_TRUE(has(ok("delete trainingjob tiny"), "trainingjob.lockstep.dev \"tiny\" deleted"));
  EXPECT_TRUE(has(refused("get tj tiny"), "NotFound"));
  EXPECT_TRUE(eventually([&] { return ok("get pods -o name").empty(); }, 60));
}

TEST_P(KubectlJobsTest, ForegroundDeletionWaitsForThePods) {
  start_job({.steps = kLong});
  ok("delete tj tiny --cascade=foreground");
  EXPECT_EQ(ok("get pods -o name"), "");
}

TEST_P(KubectlJobsTest, OrphanedPodsStayBehind) {
  run_to_completion();
  ok("delete tj tiny --cascade=orphan");
  EXPECT_TRUE(has(refused("get tj tiny"), "NotFound"));
  const Json pods = object("pods");
  ASSERT_EQ(pods["items"].size(), 1u);
  EXPECT_FALSE(pods["items"][0]["metadata"].contains("ownerReferences"));
}

TEST_P(KubectlJobsTest, DeleteByLabelDoesNotWaitIfToldSo) {
  start_job({.steps = kLong, .labels = "{team: a}"});
  EXPECT_TRUE(has(ok("delete tj -l team=a --wait=false"), "deleted"));
  EXPECT_TRUE(eventually_gone("tj tiny"));
}

TEST_P(KubectlJobsTest, WaitGivesUpInTime) {
  ok("apply -f " + job_file({.more = "  suspend: true\n"}));
  EXPECT_TRUE(has(refused("wait --for=condition=Complete tj/tiny --timeout=1s"), "timed out"));
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Kubectl, KubectlJobsTest, testing::ValuesIn(kubectls()),
                         [](const auto& info) { return version_of(info.param); });

}  // namespace lockstep::test
