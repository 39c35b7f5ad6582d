// `lockstep run` with the real programs: a small job from the command line to its results, and what
// happens when it is interrupted or loses its controller.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "cli/run/local_run.h"
#include "tests/support/job_run.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

struct TinyJob {
  int nodes = 2;
  int processes_per_node = 1;
  int steps = 60;
  int every = 20;  // steps between checkpoints, and between validations
  int port = 29500;
  int context = 32;
  fs::path weights = {};  // copied next to the document, which has a relative path to it
};

std::string document(const TinyJob& job) {
  std::ostringstream text;
  text << "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: tiny}\nspec:\n"
       << "  nodes: " << job.nodes << "\n  processesPerNode: " << job.processes_per_node
       << "\n  threadsPerProcess: 1\n  terminationGracePeriodSeconds: 20\n"
       << "  rendezvous: {port: " << job.port << "}\n  checkpoint: {everySteps: " << job.every
       << ", keep: 2}\n"
       << "  train:\n    model: {layers: 2, width: 32, heads: 2, context: " << job.context
       << (job.weights.empty() ? "" : ", weights: {path: model.safetensors}") << "}\n"
       << "    data: {path: text.txt, validationFraction: 0.05}\n    steps: " << job.steps << "\n"
       << "    batch: {global: 8, micro: 2}\n    optimizer: {learningRate: 5.0e-3}\n"
       << "    bucketBytes: 16384\n    validation: {everySteps: " << job.every << "}\n"
       << "    sample: {tokens: 40, prompt: \"the \"}\n";
  return text.str();
}

// One `lockstep run` of a tiny job in a folder of its own.
class TinyRun {
 public:
  explicit TinyRun(const TinyJob& job) {
    write_file(folder_.path() / "text.txt", generated_text(20'000, 5));
    write_file(folder_.path() / "job.yaml", document(job));
    if (!job.weights.empty()) fs::copy_file(job.weights, folder_.path() / "model.safetensors");
    start();
  }

  // The same command again, with the same output folder and a new log.
  void start() {
    run_ = std::make_unique<JobRun>(JobRun::Options{
        .job = folder_.path() / "job.yaml", .output = output(), .log = folder_.path() / "log"});
  }

  JobRun& run() { return *run_; }
  fs::path output() const { return folder_.path() / "out"; }
  std::string log() const { return read_file(folder_.path() / "log"); }

  std::map<int64_t, double> losses() const {
    std::map<int64_t, double> losses;
    std::istringstream lines(read_file(output() / "checkpoints" / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      Result<Json> parsed = parse_json(line);
      if (parsed.ok() && parsed->contains("loss")) losses[(*parsed)["step"]] = (*parsed)["loss"];
    }
    return losses;
  }

  bool wait_for_step(int64_t step) {
    return eventually([&] {
      std::map<int64_t, double> all = losses();
      return !all.empty() && all.rbegin()->first >= step;
    });
  }

  std::vector<pid_t> below(const std::string& program) {
    std::vector<pid_t> found;
    for (pid_t pid : descendants(run_->pid())) {
      std::vector<std::string> words = arguments(pid);
      if (!words.empty() && fs::path(words[0]).filename() == program) found.push_back(pid);
    }
    return found;
  }

  // The pods' addresses, as their agents logged them.
  std::vector<std::string> addresses() const {
    std::vector<std::string> found;
    std::error_code error;
    for (const auto& file : fs::directory_iterator(output() / "logs", error)) {
      std::string text = read_file(file.path());
      size_t at = text.find("address=");
      if (at != std::string::npos)
        found.push_back(text.substr(at + 8, text.find(' ', at) - at - 8));
    }
    return found;
  }

 private:
  TemporaryFolder folder_;
  std::unique_ptr<JobRun> run_;
};

// Returns "127.1.2.3:29500" for each listener on one of the addresses: lines of /proc/net/tcp in
// state 0A.
std::vector<std::string> listeners(const std::vector<std::string>& addresses) {
  std::vector<std::string> found;
  std::ifstream table("/proc/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    unsigned host = 0, port = 0, state = 0;
    if (std::sscanf(line.c_str(), " %*d: %8X:%4X %*8X:%*4X %2X", &host, &port, &state) != 3)
      continue;
    std::string address = std::to_string(host & 255) + "." + std::to_string(host >> 8 & 255) + "." +
                          std::to_string(host >> 16 & 255) + "." + std::to_string(host >> 24);
    bool wanted = std::find(addresses.begin(), addresses.end(), address) != addresses.end();
    if (wanted && state == 0x0A) found.push_back(address + ":" + std::to_string(port));
  }
  return found;
}

// No process has the run's folder in its environment (all its pods do), and no port of its pods is
// open.
void expect_nothing_left(const TinyRun& tiny) {
  EXPECT_FALSE(tiny.addresses().empty());
  EXPECT_TRUE(
      eventually([&] { return processes_with_environment(tiny.output().string()).empty(); }, 20));
  EXPECT_TRUE(listeners(tiny.addresses()).empty());
}

std::vector<std::string> shared_memory_files() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/dev/shm", error))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

size_t count(const std::string& text, const std::string& words) {
  size_t times = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1))
    ++times;
  return times;
}

TEST(LocalRunTest, TrainsToCompleteAndSaysSoInOneLine) {
  TinyRun tiny({});
  EXPECT_EQ(tiny.run().wait(), 0) << tiny.log();
  Json result = tiny.run().result();
  ASSERT_TRUE(result.is_object()) << tiny.run().standard_output();
  EXPECT_EQ(result["state"], "Complete");
  EXPECT_EQ(result["step"], 60);
  EXPECT_EQ(result["restarts"], 0);
  EXPECT_EQ(result["output"], tiny.output().string());
  EXPECT_GT(result["tokensPerSecond"], 0);
  EXPECT_GT(result["seconds"], 0);
  std::map<int64_t, double> losses = tiny.losses();
  ASSERT_EQ(losses.size(), 60u);
  EXPECT_NEAR(losses.at(1), std::log(256.0), 0.02 * std::log(256.0));
  EXPECT_EQ(result["loss"], losses.at(60));
  EXPECT_LT(losses.at(60), losses.at(1) - 1);
  EXPECT_LT(result["validationLoss"].get<double>(), losses.at(1) - 1);
  for (const char* file : {"loss.svg", "checkpoints/metrics.jsonl", "checkpoints/sample.txt",
                           "checkpoints/step-00000060/manifest.json", "logs/controller.log"})
    EXPECT_TRUE(fs::exists(tiny.output() / file)) << file;
  EXPECT_NE(tiny.log().find("step 40: validation loss"), std::string::npos) << tiny.log();
  EXPECT_NE(tiny.log().find("metrics.jsonl"), std::string::npos);
  // The folder of the token, the key and the pods' files.
  EXPECT_FALSE(fs::exists(tiny.output() / "node"));
  expect_nothing_left(tiny);
}

TEST(LocalRunTest, AJobBeginsWithTheWeightsThatWereExportedOfAnother) {
  TinyRun first({});
  ASSERT_EQ(first.run().wait(), 0) << first.log();
  TemporaryFolder folder;
  const fs::path file = folder.path() / "exported.safetensors";
  const Outcome exported = run_program({.arguments = {LOCKSTEP_BIN_DIR "/lockstep", "export",
                                                      first.output() / "checkpoints", file}});
  ASSERT_EQ(exported.code, 0) << exported.errors;
  EXPECT_NE(exported.output.find("of step 60"), std::string::npos) << exported.output;
  TinyRun second({.steps = 3, .weights = file});
  ASSERT_EQ(second.run().wait(), 0) << second.log();
  const std::map<int64_t, double> before = first.losses(), after = second.losses();
  ASSERT_EQ(after.size(), 3u);
  EXPECT_LT(after.at(1), before.at(1) - 1) << "as it was when training began without them";
  TinyRun shorter({.steps = 1, .context = 16, .weights = file});
  ASSERT_EQ(shorter.run().wait(), 0) << shorter.log();
  EXPECT_LT(shorter.losses().at(1), before.at(1) - 1) << "with the first positions of the file";
}

TEST(LocalRunTest, ATakenPortEndsItWithItsNumber) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof name;
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&name), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size), 0);
  TinyRun tiny({.port = ntohs(name.sin_port)});
  EXPECT_EQ(tiny.run().wait(), 1) << tiny.log();
  close(fd);
  Json result = tiny.run().result();
  ASSERT_TRUE(result.is_object()) << tiny.log();
  EXPECT_EQ(result["state"], "Failed");
  EXPECT_LT(result["restarts"], 10) << "another pod fares no better";
  const std::string cause = "[node] port " + std::to_string(ntohs(name.sin_port));
  EXPECT_NE(tiny.log().find("failed: " + cause), std::string::npos) << tiny.log();
  EXPECT_EQ(count(tiny.log(), cause), 1u) << tiny.log();
}

TEST(LocalRunTest, AJobThatTheControllerRefusesEndsItWithTheWords) {
  TemporaryFolder folder;
  TrainingJob job;
  job.metadata.name = "refused";
  job.metadata.namespace_ = "default";
  TrainSpec& train = job.spec.train.emplace();
  train.model = {.layers = 2, .width = 32, .heads = 2, .context = 32};
  train.data.path = folder.path() / "text.txt";
  job.spec.podTemplate = {{"spec", {{"restartPolicy", "Always"}}}};
  job.spec.checkpoint.path = folder.path() / "checkpoints";
  SystemClock clock;
  cli::LocalRun run(clock,
                    {.job = job, .output = folder.path(), .program_folder = LOCKSTEP_BIN_DIR});
  testing::internal::CaptureStderr();
  EXPECT_EQ(run.run(), 1);
  std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("failed: the controller rejected the job:\nspec.podTemplate.spec.restart"),
            std::string::npos)
      << said;
  EXPECT_EQ(count(said, "spec.podTemplate.spec.restart"), 1u) << said;
}

struct Said {
  int code = 0;
  std::string errors, output;
};

// Runs a job without the checks of its file.
Said run_unchecked(TrainingJobSpec spec, const fs::path& folder) {
  TrainingJob job;
  job.metadata.name = "failing";
  job.metadata.namespace_ = "default";
  job.spec = std::move(spec);
  job.spec.threadsPerProcess = 1;
  job.spec.failure.maxRestarts = 0;
  job.spec.checkpoint.path = folder / "checkpoints";
  SystemClock clock;
  cli::LocalRun run(clock, {.job = job, .output = folder, .program_folder = LOCKSTEP_BIN_DIR});
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Said said{.code = run.run()};
  said.errors = testing::internal::GetCapturedStderr();
  said.output = testing::internal::GetCapturedStdout();
  return said;
}

TEST(LocalRunTest, TheCauseOfAFailureIsSaidOnceAndNoEmptyFileIsNamed) {
  TemporaryFolder folder;
  write_file(folder.path() / "text.txt", generated_text(2'000, 5));
  write_file(folder.path() / "weights", "no safetensors");
  TrainingJobSpec spec;
  TrainSpec& train = spec.train.emplace();
  train.model = {.layers = 2, .width = 32, .heads = 2, .context = 32};
  train.model.weights.path = folder.path() / "weights";
  train.data.path = folder.path() / "text.txt";
  fs::create_directories(folder.path() / "checkpoints");
  write_file(folder.path() / "checkpoints/metrics.jsonl", "");  // of a run that ended as early
  const Said said = run_unchecked(spec, folder.path());
  EXPECT_EQ(said.code, 1);
  EXPECT_EQ(count(said.errors, "spec.train.model.weights.path"), 1u) << said.errors;
  EXPECT_EQ(count(said.errors, "exit code 3"), 1u) << said.errors;
  EXPECT_EQ(said.errors.find("metrics:"), std::string::npos) << said.errors;
  EXPECT_EQ(said.errors.find("picture:"), std::string::npos) << said.errors;
}

TEST(LocalRunTest, WhatAFailedCommandPrintedIsNotPrintedAgain) {
  TemporaryFolder folder;
  TrainingJobSpec spec;
  spec.command = {"sh", "-c", "echo the cause >&2; exit 3"};
  const Said said = run_unchecked(spec, folder.path());
  EXPECT_EQ(said.code, 1);
  EXPECT_EQ(count(said.output, "[rank 0] the cause\n"), 1u) << said.output;
  EXPECT_EQ(count(said.errors, "the cause"), 0u) << said.errors;
  EXPECT_EQ(count(said.errors, "exit code 3; no restarts are left (spec.failure.maxRestarts: 0)\n"),
            1u)
      << said.errors;
}

TEST(LocalRunTest, WhyACommandCouldNotBeStartedIsSaidOnce) {
  TemporaryFolder folder;
  TrainingJobSpec spec;
  spec.command = {"no-such-program"};
  const Said said = run_unchecked(spec, folder.path());
  EXPECT_EQ(said.code, 1);
  EXPECT_EQ(count(said.errors, "no-such-program: No such file"), 1u) << said.errors;
}

TEST(LocalRunTest, TwoProcessesOfOneNodeLearnWhatTwoNodesDo) {
  TinyRun nodes({.nodes = 2, .processes_per_node = 1});
  ASSERT_EQ(nodes.run().wait(), 0) << nodes.log();
  TinyRun processes({.nodes = 1, .processes_per_node = 2});
  ASSERT_EQ(processes.run().wait(), 0) << processes.log();
  std::map<int64_t, double> a = nodes.losses(), b = processes.losses();
  ASSERT_EQ(a.size(), 60u);
  ASSERT_EQ(b.size(), 60u);
  for (const auto& [step, loss] : a) EXPECT_NEAR(b.at(step), loss, 1e-5 * loss) << "step " << step;
}

TEST(LocalRunTest, TrainingGoesOnWithoutItsController) {
  TinyRun tiny({.steps = 1200, .every = 300});
  for (int64_t step : {5, 50, 100}) {
    ASSERT_TRUE(tiny.wait_for_step(step)) << tiny.log();
    ASSERT_TRUE(eventually([&] { return tiny.below("lockstep-controller").size() == 1; }));
    kill(tiny.below("lockstep-controller")[0], SIGKILL);
  }
  EXPECT_LT(tiny.losses().rbegin()->first, 1200) << "too quick to show anything";
  EXPECT_EQ(tiny.run().wait(), 0) << tiny.log();
  EXPECT_EQ(tiny.run().result()["state"], "Complete");
  EXPECT_EQ(tiny.run().result()["restarts"], 0);
  EXPECT_EQ(tiny.losses().size(), 1200u);
  EXPECT_EQ(tiny.addresses().size(), 2u);  // no pod was created twice
  expect_nothing_left(tiny);
}

TEST(LocalRunTest, CtrlCEndsEverythingWithACheckpoint) {
  std::vector<std::string> shared_memory = shared_memory_files();
  TinyRun tiny({.steps = 100'000, .every = 50'000});
  ASSERT_TRUE(tiny.wait_for_step(3)) << tiny.log();
  tiny.run().signal(SIGINT);
  EXPECT_EQ(tiny.run().wait(), 130) << tiny.log();
  EXPECT_EQ(tiny.run().result()["state"], "Stopped");
  expect_nothing_left(tiny);
  EXPECT_EQ(shared_memory_files(), shared_memory);
  EXPECT_FALSE(fs::exists(tiny.output() / "node"));
  bool saved = false;
  for (const auto& entry : fs::directory_iterator(tiny.output() / "checkpoints"))
    saved = saved || fs::exists(entry.path() / "manifest.json");
  EXPECT_TRUE(saved);
}

TEST(LocalRunTest, ASecondRunInTheSameFolderResumesAndSaysSo) {
  TinyRun tiny({.steps = 100'000, .every = 20});
  ASSERT_TRUE(tiny.wait_for_step(30)) << tiny.log();
  tiny.run().signal(SIGINT);
  ASSERT_EQ(tiny.run().wait(), 130) << tiny.log();
  EXPECT_NE(tiny.log().find("to resume:  run it again with --output " + tiny.output().string()),
            std::string::npos)
      << tiny.log();
  EXPECT_EQ(tiny.log().find("resuming"), std::string::npos) << tiny.log();
  const int64_t saved = tiny.run().result()["step"];

  tiny.start();
  ASSERT_TRUE(tiny.wait_for_step(saved + 30)) << tiny.log();
  ASSERT_TRUE(eventually([&] { return tiny.log().find("resuming") != std::string::npos; }));
  tiny.run().signal(SIGINT);
  EXPECT_EQ(tiny.run().wait(), 130) << tiny.log();
  const std::string step = std::to_string(saved);
  EXPECT_EQ(count(tiny.log(), "resuming from the checkpoint of step " + step + "\n"), 1u)
      << tiny.log();
  EXPECT_EQ(tiny.log().find("\ncheckpoint of step " + step + "\n"), std::string::npos)
      << tiny.log();
  EXPECT_EQ(tiny.log().find("step 20: validation loss"), std::string::npos) << tiny.log();
  expect_nothing_left(tiny);
}

TEST(LocalRunTest, ASecondCtrlCDoesNotWaitForTheGracePeriod) {
  TinyRun tiny({.steps = 100'000, .every = 50'000});
  ASSERT_TRUE(tiny.wait_for_step(1)) << tiny.log();
  for (pid_t pid : tiny.below("lockstep-worker")) kill(pid, SIGSTOP);
  for (pid_t pid : tiny.below("lockstep-agent")) kill(pid, SIGSTOP);
  tiny.run().signal(SIGINT);
  ASSERT_TRUE(eventually([&] { return tiny.log().find("stopping") != std::string::npos; }));
  EXPECT_TRUE(tiny.run().running());
  tiny.run().signal(SIGINT);
  EXPECT_EQ(tiny.run().wait(), 130) << tiny.log();
  expect_nothing_left(tiny);
}

TEST(LocalRunTest, NothingOutlivesAKilledRun) {
  TinyRun tiny({.steps = 100'000, .every = 50'000});
  ASSERT_TRUE(tiny.wait_for_step(1)) << tiny.log();
  tiny.run().signal(SIGKILL);
  EXPECT_EQ(tiny.run().wait(), 137);
  expect_nothing_left(tiny);
}

}  // namespace
}  // namespace lockstep::test
