// A job on several machines of a local cluster: one loses power, or one is drained.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "local/local_cluster.h"
#include "tests/support/job_run.h"

namespace lockstep::test {
namespace {

constexpr char kJob[] = "/apis/lockstep.dev/v1alpha1/namespaces/default/trainingjobs/job";
constexpr int64_t kSteps = 200;

class MachinesTest : public ::testing::Test {
 protected:
  void start(size_t machines) {
    write_file(folder_.path() / "text.txt", generated_text(200'000, 5));
    auto cluster = local::LocalCluster::start(
        clock_,
        {.program_folder = LOCKSTEP_BIN_DIR,
         .folder = folder_.path() / "node",
         .log_folder = folder_.path() / "logs",
         .seed = static_cast<uint64_t>(getpid()),
         .machines = local::divided_computer(machines, {}),
         .heartbeat = {.lease_interval = std::chrono::milliseconds(500)},
         .node_controller = {.grace = std::chrono::seconds(4), .eviction = std::chrono::seconds(1)},
         .keep_logs = true});
    ASSERT_TRUE(cluster.ok()) << cluster.error().message;
    cluster_ = *std::move(cluster);
  }
  Json ask(const std::string& method, const std::string& target, const Json& body = Json()) {
    std::string type = method == "PATCH" ? "application/merge-patch+json" : "application/json";
    return cluster_->api()
        .handle({method, target, type, body.is_null() ? "" : dump_json(body)})
        .body;
  }
  Json job(int64_t steps, int64_t save_every) {
    Json train = {
        {"model", {{"layers", 1}, {"width", 32}, {"heads", 2}, {"context", 16}}},
        {"data", {{"path", (folder_.path() / "text.txt").string()}, {"tokenizer", "bytes"}}},
        {"steps", steps},
        {"batch", {{"global", 8}, {"micro", 4}}}};
    return {{"apiVersion", "lockstep.dev/v1alpha1"},
            {"kind", "TrainingJob"},
            {"metadata", {{"name", "job"}}},
            {"spec",
             {{"nodes", 2},
              {"threadsPerProcess", 1},
              {"train", std::move(train)},
              {"checkpoint",
               {{"path", (folder_.path() / "checkpoints").string()},
                {"everySteps", save_every},
                {"onPreemption", "60s"}}}}}};
  }
  Json status() { return ask("GET", kJob).value("status", Json::object()); }
  bool is(const char* condition) {
    for (const Json& known : status().value("conditions", Json::array())) {
      if (known["type"] == condition && known["status"] == "True") return true;
    }
    return false;
  }
  // Returns the machine of each pod, by the pod's name.
  std::map<std::string, std::string> machines() {
    std::map<std::string, std::string> found;
    Json pods = ask("GET", "/api/v1/pods");
    for (const Json& pod : pods["items"])
      found[pod["metadata"]["name"]] = pod["spec"].value("nodeName", "");
    return found;
  }
  // Returns its step.
  std::string newest_checkpoint() {
    int64_t newest = -1;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "checkpoints")) {
      const std::string name = entry.path().filename();
      if (name.starts_with("step-")) newest = std::max<int64_t>(newest, std::stoll(name.substr(5)));
    }
    return std::to_string(newest);
  }
  std::string logs() {
    std::string text = dump_json(status());
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "logs")) {
      std::string log = read_file(entry.path());
      text += "\n== " + entry.path().string() + "\n" +
              log.substr(log.size() > 3000 ? log.size() - 3000 : 0);
    }
    return text;
  }

  TemporaryFolder folder_;
  SystemClock clock_;
  std::unique_ptr<local::LocalCluster> cluster_;
};

TEST_F(MachinesTest, AJobOutlivesAPowerCutOnAThirdMachine) {
  start(3);
  Json made =
      ask("POST", "/apis/lockstep.dev/v1alpha1/namespaces/default/trainingjobs", job(kSteps, 10));
  ASSERT_TRUE(made.contains("spec")) << made;
  // Wait until after the first checkpoint.
  ASSERT_TRUE(eventually([&] {
    return std::filesystem::exists(folder_.path() / "checkpoints" / "step-00000010");
  })) << logs();
  std::map<std::string, std::string> before = machines();
  ASSERT_EQ(before.size(), 2u);
  const std::string victim = before.rbegin()->second;
  EXPECT_NE(victim, before.begin()->second);
  ask("PATCH", "/api/v1/nodes/" + victim,
      {{"metadata", {{"annotations", {{local::kPowerAnnotation, "off"}}}}}});
  std::set<std::string> used;
  ASSERT_TRUE(eventually([&] {
    for (const auto& [pod, machine] : machines()) {
      if (!before.contains(pod)) used.insert(machine);
    }
    return is("Complete") || is("Failed");
  })) << logs();
  EXPECT_TRUE(is("Complete")) << logs();
  EXPECT_GE(status().value("restarts", 0), 1);
  EXPECT_GE(status().value("round", 0), 2);
  const Json ledger = status();
  EXPECT_EQ(ledger["failures"].size(), ledger["restarts"]) << ledger;
  EXPECT_GT(ledger["lost"]["seconds"], 0) << ledger;
  bool names_the_victim = false;
  for (const Json& failure : ledger["failures"]) {
    names_the_victim = names_the_victim || failure.value("node", "") == victim;
    double parts = 0;
    for (const auto& [part, seconds] : failure["recovery"].items()) {
      if (part != "recomputeSeconds") parts += seconds.get<double>();  // it comes afterwards
    }
    const double whole = failure["recoverySeconds"];
    if (whole > 0) {
      EXPECT_NEAR(parts, whole, 1e-6) << failure;
    }
  }
  EXPECT_TRUE(names_the_victim) << ledger;
  std::set<std::string> third = {"local-0", "local-1", "local-2"};
  for (const auto& [pod, machine] : before) third.erase(machine);
  EXPECT_TRUE(used.contains(*third.begin())) << logs();
}

// The job saves nothing on its own, so a round that did not save would have to begin at step 0. The
// pod of rank 0, which writes, is stopped in the second round.
TEST_F(MachinesTest, APodThatIsDeletedSavesAndTheJobGoesOnAtThatStepWithAnother) {
  start(2);
  Json made =
      ask("POST", "/apis/lockstep.dev/v1alpha1/namespaces/default/trainingjobs", job(1'000'000, 0));
  ASSERT_TRUE(made.contains("spec")) << made;
  const auto step = [&] { return status().value("/progress/step"_json_pointer, int64_t{0}); };
  int64_t reached = 0;
  const auto trains = [&](int64_t round) {
    return status().value("round", 0) == round && is("Running") && step() > reached;
  };
  const struct {
    const char* victim;
    const char* members;
    const char* of_rank_0;  // in the next round
  } drains[] = {{"job-worker-1-1", "1,2", "job-worker-0-1"},
                {"job-worker-0-1", "2,2", "job-worker-0-2"}};
  int64_t round = 1;
  for (const auto& drain : drains) {
    SCOPED_TRACE(drain.victim);
    ASSERT_TRUE(eventually([&] { return trains(round); })) << logs();
    reached = step();
    const std::string pod = std::string("/api/v1/namespaces/default/pods/") + drain.victim;
    EXPECT_EQ(ask("GET", pod)["spec"]["terminationGracePeriodSeconds"], 65);
    ask("DELETE", pod);
    ++round;
    ASSERT_TRUE(eventually([&] { return trains(round); })) << logs();
    const std::string last = newest_checkpoint();
    const std::string log =
        read_file(folder_.path() / "logs" / (std::string(drain.of_rank_0) + ".log"));
    EXPECT_NE(log.find("step=" + last + " path="), std::string::npos) << log;
    EXPECT_GE(std::stoll(last), reached);
    const Json now = status();
    EXPECT_EQ(now["members"], drain.members);
    EXPECT_EQ(now.value("restarts", 0), 0) << now;
    EXPECT_FALSE(now.contains("lastFailure")) << now;
  }
}

}  // namespace
}  // namespace lockstep::test
