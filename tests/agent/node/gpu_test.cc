// The path of GPU data from NVIDIA's library to /metrics and to failure messages: a real agent, a
// process that monitors a GPU like the worker, and a fake library that simulates the GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "common/api/worker_config.h"
#include "tests/agent/node/agent_process.h"
#include "tests/agent/node/assignments.h"
#include "tests/agent/node/metrics_text.h"

namespace lockstep::node {
namespace {

class AgentGpu : public testing::Test {
 protected:
  AgentGpu() { set("40 1000 4000 250000 0"); }
  ~AgentGpu() override { std::remove(numbers_.c_str()); }

  void set(const std::string& numbers) const {
    std::ofstream(numbers_ + ".new") << numbers;
    ASSERT_EQ(std::rename((numbers_ + ".new").c_str(), numbers_.c_str()), 0);
  }
  AgentProcessOptions options(const std::string& libraries = LOCKSTEP_FAKE_NVML_DIR) const {
    return {.job_uid = uid_,
            .worker_binary = std::string(LOCKSTEP_BIN_DIR) + "/tests/node_gpu_worker",
            .more_env = {"LD_LIBRARY_PATH=" + libraries, "FAKE_NVML=" + numbers_}};
  }
  Assignment order(const std::string& job_name, int64_t round = 1) const {
    return make_assignment({.job_uid = uid_, .round = round, .job_name = job_name});
  }
  static MetricsText metrics_of(const AgentProcess& agent) {
    return MetricsText(test::http_call(agent.port(), {.target = "/metrics"}).body);
  }
  static std::string series(const std::string& name, const std::string& labels) {
    return name +
           "{job=\"job\",namespace=\"space\",node_index=\"0\",rank=\"0\",bus=\"0000:41:00.0\"," +
           labels + "}";
  }
  // Waits until the series has the value.
  static void expect_value(const AgentProcess& agent, const std::string& series, double value) {
    wait_until([&] { return metrics_of(agent).value(series) == value; }, series);
    EXPECT_EQ(metrics_of(agent).value(series), value);
  }

  const std::string uid_ = "gpu-test-" + std::to_string(getpid());
  const std::string numbers_ = testing::TempDir() + "fake-nvml-" + std::to_string(getpid());
};

constexpr char kUuid[] = "uuid=\"GPU-12340000-0000-0000-0000-000000000000\"";

TEST_F(AgentGpu, IsInTheMetricsAsTheLibrarySaysIt) {
  AgentProcess agent(options());
  agent.put(order("wait"));
  expect_value(agent, series("lockstep_gpu_busy_ratio", kUuid), 0.4);
  const MetricsText text = metrics_of(agent);
  EXPECT_EQ(text.value(series("lockstep_gpu_memory_used_bytes", kUuid)), 1000);
  EXPECT_EQ(text.value(series("lockstep_gpu_memory_size_bytes", kUuid)), 4000);
  EXPECT_EQ(text.value(series("lockstep_gpu_power_watts", kUuid)), 250);
  EXPECT_FALSE(text.has("lockstep_gpu_xid_errors_total"));
  set("90 -1 4000 -1 0");
  expect_value(agent, series("lockstep_gpu_busy_ratio", kUuid), 0.9);
  EXPECT_FALSE(metrics_of(agent).has("lockstep_gpu_memory_used_bytes"));
  EXPECT_FALSE(metrics_of(agent).has("lockstep_gpu_power_watts"));
}

TEST_F(AgentGpu, ItsXidsAreCountedOverRoundsLoggedAndNamedInTheFailure) {
  AgentProcess agent(options());
  set("0 0 4000 0 79");
  for (int64_t round = 1; round <= 2; ++round) {
    agent.put(order("fail", round));
    const AgentState state = agent.wait_for(
        [&](const AgentState& s) { return s.round == round && s.phase == "Failed"; });
    const std::string& tail = state.workers.at(0).log_tail;
    EXPECT_NE(tail.find("xid=79"), std::string::npos) << tail;
    EXPECT_TRUE(
        tail.ends_with("GPU 0000:41:00.0 (NVIDIA H200) reported Xid 79 (the GPU has fallen "
                       "off the bus)"))
        << tail;
    const MetricsText text = metrics_of(agent);
    EXPECT_EQ(text.value(series("lockstep_gpu_xid_errors_total", "xid=\"79\"")),
              static_cast<double>(round));
    EXPECT_FALSE(text.has("lockstep_gpu_busy_ratio")) << "the rank has ended";
  }
}

TEST_F(AgentGpu, ThatIsNotThereEndsTheWorkerWithWords) {
  AgentProcess agent({.job_uid = uid_,
                      .worker_binary = std::string(LOCKSTEP_BIN_DIR) + "/lockstep-worker",
                      .more_env = {"CUDA_VISIBLE_DEVICES="}});
  Assignment assignment = order("any");
  assignment.gpus_per_node = 1;
  agent.put(assignment);
  const WorkerState worker = agent.wait_for_phase("Failed").workers.at(0);
  EXPECT_EQ(worker.exit_code, kExitNoDevice);
  EXPECT_NE(worker.log_tail.find("GPU 0 (numbered from 0), but its process sees none"),
            std::string::npos)
      << worker.log_tail;
}

TEST_F(AgentGpu, ThatNoLibraryKnowsHarmsNothing) {
  std::remove(numbers_.c_str());
  for (const char* libraries : {LOCKSTEP_FAKE_NVML_DIR, "/nonexistent"}) {
    const bool is_real = std::string(libraries) == "/nonexistent" &&
                         dlopen("libnvidia-ml.so.1", RTLD_NOW) != nullptr;
    if (is_real) continue;  // this machine has the real library
    AgentProcess agent(options(libraries));
    agent.put(order("wait"));
    wait_until(
        [&] { return agent.log_text(0).find("GPU usage is not available") != std::string::npos; },
        "the worker's word about it");
    EXPECT_FALSE(metrics_of(agent).has("lockstep_gpu_"));
    EXPECT_TRUE(metrics_of(agent).has("lockstep_train_step"));
  }
}

}  // namespace
}  // namespace lockstep::node
