// A job on several machines of a local cluster, one of which loses power.
#include <gtest/gtest.h>

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
  Json job() {
    Json train = {
        {"model", {{"layers", 1}, {"width", 32}, {"heads", 2}, {"context", 16}}},
        {"data", {{"path", (folder_.path() / "text.txt").string()}, {"tokenizer", "bytes"}}},
        {"steps", kSteps},
        {"batch", {{"global", 8}, {"micro", 4}}}};
    return {{"apiVersion", "lockstep.dev/v1alpha1"},
            {"kind", "TrainingJob"},
            {"metadata", {{"name", "job"}}},
            {"spec",
             {{"nodes", 2},
              {"threadsPerProcess", 1},
              {"train", std::move(train)},
              {"checkpoint",
               {{"path", (folder_.path() / "checkpoints").string()}, {"everySteps", 10}}}}}};
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
  Json made = ask("POST", "/apis/lockstep.dev/v1alpha1/namespaces/default/trainingjobs", job());
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
    for (const auto& [part, seconds] : failure["recovery"].items()) parts += seconds.get<double>();
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

}  // namespace
}  // namespace lockstep::test
