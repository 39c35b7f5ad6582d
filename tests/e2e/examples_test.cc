// The examples do what they promise: each runs unchanged except for its size.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <sstream>

#include "common/base/check.h"
#include "tests/support/job_run.h"
#include "tests/support/torch.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

// Fails a CHECK if the example no longer contains the text.
void replace(std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  CHECK(at != std::string::npos);
  text.replace(at, from.size(), to);
}

std::string between(const std::string& text, const std::string& before, const std::string& after) {
  const size_t from = text.find(before);
  CHECK(from != std::string::npos);
  const size_t begin = from + before.size();
  return text.substr(begin, text.find(after, begin) - begin);
}

// Sets a number of the example, which has it once in words like "steps: 60".
void set(std::string& text, const std::string& key, int64_t number) {
  const size_t at = text.find(key + ": ");
  CHECK(at != std::string::npos);
  const size_t begin = at + key.size() + 2;
  text.replace(begin, text.find_first_of(",}\n", begin) - begin, std::to_string(number));
}

// Writes the text that an example trains on to where its YAML says.
void write_text(const fs::path& job, const std::string& yaml) {
  const fs::path data = job.parent_path() / between(yaml, "data: {path: ", ",");
  fs::create_directories(data.lexically_normal().parent_path());
  write_file(data.lexically_normal(), generated_text(20'000, 3));
}

// Writes the tokens that an example trains on, and their pieces, with the commands of its first
// lines on a smaller text.
void write_tokens(const fs::path& job, const std::string& yaml) {
  const fs::path path = job.parent_path() / between(yaml, "data: {path: ", ",");
  const std::string tokens = path.lexically_normal().replace_extension().string();
  fs::create_directories(fs::path(tokens).parent_path());
  write_file(tokens + ".txt", generated_text(20'000, 3));
  const std::string tool = std::string(LOCKSTEP_BIN_DIR) + "/lockstep tokenize ";
  for (const std::string& command :
       {"train " + tokens + ".txt --vocabulary 300 -o " + tokens + ".model",
        "apply " + tokens + ".model " + tokens + ".txt -o " + tokens}) {
    ASSERT_EQ(std::system((tool + command + " >/dev/null").c_str()), 0) << command;
  }
}

// Runs an example that trains a model on text, for a few steps.
void expect_trains(const std::string& name, const decltype(write_text)& write_data = write_text) {
  std::string text = read_file(fs::path(LOCKSTEP_SOURCE_DIR) / "examples" / name);
  set(text, "steps", 6);
  replace(text, "validation: {everySteps: 500}", "validation: {everySteps: 3}");
  replace(text, "checkpoint: {everySteps: 500}", "checkpoint: {everySteps: 3}");
  set(text, "warmupSteps", 2);
  if (text.find("sample: {tokens: ") != std::string::npos) set(text, "tokens", 20);
  const TemporaryFolder folder;
  const fs::path job = folder.path() / "examples" / name;
  fs::create_directories(job.parent_path());
  write_file(job, text);
  ASSERT_NO_FATAL_FAILURE(write_data(job, text));
  const fs::path output = folder.path() / "out";
  JobRun run({.job = job, .output = output, .log = folder.path() / "log"});
  EXPECT_EQ(run.wait(), 0) << read_file(folder.path() / "log");
  const Json result = run.result();
  ASSERT_TRUE(result.is_object()) << run.standard_output();
  EXPECT_EQ(result["state"], "Complete");
  EXPECT_EQ(result["step"], 6);
  EXPECT_TRUE(result["validationLoss"].is_number());
  for (const char* file : {"step-00000003/manifest.json", "step-00000006/manifest.json"})
    EXPECT_TRUE(fs::exists(output / "checkpoints" / file)) << file;
}

TEST(ExamplesTest, KjvGptTrainsToComplete) {
  expect_trains("kjv-gpt.yaml");
}

TEST(ExamplesTest, KjvBpeTrainsToComplete) {
  expect_trains("kjv-bpe.yaml", write_tokens);
}

TEST(ExamplesTest, LlamaTrainsToComplete) {
  expect_trains("llama.yaml");
}

TEST(ExamplesTest, BertTrainsToComplete) {
  expect_trains("bert.yaml");
}

// A copy of the example with the files it needs, on a port that is free on this machine.
class ExampleRun {
 public:
  ExampleRun(const std::string& name, const std::vector<std::string>& more_files,
             const std::function<void(std::string&)>& change) {
    const fs::path examples = fs::path(LOCKSTEP_SOURCE_DIR) / "examples";
    for (const std::string& file : more_files) {
      fs::create_directories((folder_.path() / file).parent_path());
      fs::copy(examples / file, folder_.path() / file);
    }
    std::string text = read_file(examples / name);
    replace(text, "  nodes: 2\n",
            "  nodes: 2\n  rendezvous: {port: " + std::to_string(free_port()) + "}\n");
    change(text);
    write_file(folder_.path() / name, text);
    run_ = std::make_unique<JobRun>(
        JobRun::Options{.job = folder_.path() / name, .output = output(), .log = log_path()});
  }
  JobRun& run() { return *run_; }
  std::string log() const { return read_file(log_path()); }
  fs::path output() const { return folder_.path() / "out"; }

 private:
  fs::path log_path() const { return folder_.path() / "log"; }

  TemporaryFolder folder_;
  std::unique_ptr<JobRun> run_;
};

// bench/results/mlp_accuracy_epyc-zen3-2cpu_2026-11-23.md: PyTorch classifies 97.4 to 98.2 % right,
// over 21 seeds.
TEST(ExamplesTest, TheMlpReachesTheAccuracyOfPytorch) {
  ExampleRun example("mlp.yaml",
                     {"data/breast_cancer_features.npy", "data/breast_cancer_targets.npy"},
                     [](std::string&) {});
  EXPECT_EQ(example.run().wait(), 0) << example.log();
  const Json result = example.run().result();
  EXPECT_EQ(result["state"], "Complete");
  EXPECT_EQ(result["step"], 150);
  std::istringstream metrics(read_file(example.output() / "checkpoints/metrics.jsonl"));
  double accuracy = 0;
  for (std::string line; std::getline(metrics, line);) {
    accuracy = parse_json(line)->value("validationAccuracy", accuracy);
  }
  EXPECT_GE(accuracy, 0.965);
  EXPECT_NE(example.log().find(", accuracy 0.9"), std::string::npos) << example.log();
}

TEST(ExamplesTest, TheConvnetReadsDigits) {
  ExampleRun example("digits.yaml", {"data/digits_images.npy", "data/digits_targets.npy"},
                     [](std::string&) {});
  EXPECT_EQ(example.run().wait(), 0) << example.log();
  EXPECT_EQ(example.run().result()["state"], "Complete");
  std::istringstream metrics(read_file(example.output() / "checkpoints/metrics.jsonl"));
  double accuracy = 0, top5 = 0;
  for (std::string line; std::getline(metrics, line);) {
    accuracy = parse_json(line)->value("validationAccuracy", accuracy);
    top5 = parse_json(line)->value("validationTop5Accuracy", top5);
  }
  EXPECT_GE(accuracy, 0.985);
  EXPECT_GE(top5, accuracy);
  EXPECT_NE(example.log().find(" (top-5 "), std::string::npos) << example.log();
}

// The log loss of the true model is known.
TEST(ExamplesTest, TheClickModelOnServersApproachesTheTrueOne) {
  std::string text = read_file(fs::path(LOCKSTEP_SOURCE_DIR) / "examples/clicks.yaml");
  const TemporaryFolder folder;
  const fs::path job = folder.path() / "examples/clicks.yaml";
  const fs::path data = folder.path() / "build/data/clicks.tsv";
  fs::create_directories(job.parent_path());
  fs::create_directories(data.parent_path());
  const std::string words = between(text, "lockstep clicks build/data/clicks.tsv ", "\n");
  EXPECT_NE(words.find("--rows 3000000 "), std::string::npos);
  const std::string made = (folder.path() / "made").string();
  ASSERT_EQ(std::system((std::string(LOCKSTEP_BIN_DIR) + "/lockstep clicks " + data.string() +
                         " --rows 60000 --keys 2000 >" + made)
                            .c_str()),
            0);
  const double best = std::stod(between(read_file(made), "of the last tenth ", "\n"));
  set(text, "steps", 120);
  set(text, "global", 1024);
  replace(text, "validation: {everySteps: 220}", "validation: {everySteps: 60}");
  replace(text, "  nodes: 2\n",
          "  nodes: 2\n  rendezvous: {port: " + std::to_string(free_port()) + "}\n");
  write_file(job, text);
  JobRun run({.job = job, .output = folder.path() / "out", .log = folder.path() / "log"});
  EXPECT_EQ(run.wait(), 0) << read_file(folder.path() / "log");
  const Json result = run.result();
  EXPECT_EQ(result["state"], "Complete");
  EXPECT_EQ(result["step"], 120);
  EXPECT_LT(result["validationLoss"].get<double>(), 1.2 * best);
  EXPECT_GT(result["validationLoss"].get<double>(), 0.9 * best);
  EXPECT_GT(std::stod(between(read_file(folder.path() / "log"), ", AUC ", "\n")), 0.8);
  for (const char* name :
       {"clicks-worker-0-1", "clicks-worker-1-1", "clicks-server-2-1", "clicks-server-3-1"}) {
    EXPECT_TRUE(fs::exists(folder.path() / "out/logs" / (std::string(name) + ".log"))) << name;
  }
}

// A few steps of a job of examples/sharding or examples/parallelism.
struct SharedRun {
  std::string log;             // of all pods
  std::vector<double> losses;  // by step
  Json result;
  std::string sample;  // empty if there is none

  // Returns a number that a rank has logged, as name=number.
  double logged(const std::string& name) const {
    return std::stod(between(log, " " + name + "=", " "));
  }
};

SharedRun run_shared(const std::string& yaml) {
  const TemporaryFolder folder;
  const fs::path job = folder.path() / "examples/some/job.yaml";
  fs::create_directories(job.parent_path());
  fs::copy(fs::path(LOCKSTEP_SOURCE_DIR) / "examples/data", folder.path() / "examples/data");
  std::string text = yaml;
  set(text, "steps", 8);
  set(text, "warmupSteps", 2);
  replace(text, "spec:\n", "spec:\n  rendezvous: {port: " + std::to_string(free_port()) + "}\n");
  write_file(job, text);
  if (text.find("data: {path: ") != std::string::npos) write_text(job, text);
  JobRun run({.job = job, .output = folder.path() / "out", .log = folder.path() / "log"});
  EXPECT_EQ(run.wait(), 0) << read_file(folder.path() / "log");
  SharedRun result;
  for (const auto& log : fs::directory_iterator(folder.path() / "out/logs")) {
    if (log.path().filename().string().find("-worker-") == std::string::npos) continue;
    result.log += read_file(log.path());
  }
  std::istringstream metrics(read_file(folder.path() / "out/checkpoints/metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);) {
    const Result<Json> numbers = parse_json(line);
    if (numbers->contains("loss")) result.losses.push_back(numbers->at("loss"));
  }
  result.result = run.result();
  const fs::path sample = folder.path() / "out/checkpoints/sample.txt";
  if (fs::exists(sample)) result.sample = read_file(sample);
  return result;
}

// Returns the job of an example, which has such a field, on one process.
std::string on_one_process(std::string yaml, const std::string& parallelism) {
  replace(yaml, "nodes: 2", "nodes: 1");
  replace(yaml, "processesPerNode: 2", "processesPerNode: 1");
  replace(yaml, parallelism, "parallelism: {}");
  return yaml;
}

// Parts of rank 0's line about its memory, and the numbers of which it has a share.
struct SharedCase {
  const char* name;
  const char* words;
  std::vector<const char*> divided = {};
};

TEST(ExamplesTest, EveryWayToShareStateTrainsLikeOneProcessAndDividesWhatItSays) {
  const fs::path examples = fs::path(LOCKSTEP_SOURCE_DIR) / "examples/sharding";
  const SharedRun whole = run_shared(
      on_one_process(read_file(examples / "optimizer.yaml"), "parallelism: {sharding: optimizer}"));
  ASSERT_EQ(whole.losses.size(), 8u) << whole.log;
  const SharedCase cases[] = {
      {"optimizer", "sharding=optimizer shardingRanks=4", {"optimizerBytes"}},
      {"gradients", "sharding=gradients shardingRanks=4", {"optimizerBytes", "gradientsBytes"}},
      {"parameters",
       "sharding=parameters shardingRanks=4",
       {"optimizerBytes", "gradientsBytes", "parametersBytes"}},
      {"hybrid",
       "sharding=parameters shardingRanks=2",
       {"optimizerBytes", "gradientsBytes", "parametersBytes"}},
      {"offload-optimizer", "offload=optimizer exchange=allReduce"},
      {"offload-parameters", "offload=parameters exchange=allReduce"},
      {"exchange-first-rank", "offload=none exchange=firstRank"},
      {"exchange-host", "offload=none exchange=host"}};
  for (const SharedCase& each : cases) {
    SCOPED_TRACE(each.name);
    const SharedRun run = run_shared(read_file(examples / (std::string(each.name) + ".yaml")));
    ASSERT_EQ(run.losses.size(), 8u) << run.log;
    EXPECT_NE(run.log.find(each.words), std::string::npos) << run.log;
    for (size_t step = 0; step < 8; ++step) {
      EXPECT_NEAR(run.losses[step], whole.losses[step], 1e-5 * whole.losses[step]);
    }
    for (const char* name : each.divided) {
      EXPECT_LT(run.logged(name), 0.75 * whole.logged(name)) << name;
    }
  }
}

TEST(ExamplesTest, TheModelOnServersTrainsLikeOneProcess) {
  std::string yaml = read_file(fs::path(LOCKSTEP_SOURCE_DIR) / "examples/mlp-servers.yaml");
  replace(yaml, "features: data/", "features: ../data/");
  replace(yaml, "targets: data/", "targets: ../data/");
  const SharedRun whole = run_shared(on_one_process(yaml, "parameterServers: {nodes: 2}"));
  const SharedRun run = run_shared(yaml);
  EXPECT_NE(run.log.find(" workers=4 servers=4 "), std::string::npos) << run.log;
  ASSERT_EQ(whole.losses.size(), 8u) << whole.log;
  ASSERT_EQ(run.losses.size(), 8u) << run.log;
  for (size_t step = 0; step < 8; ++step) {
    EXPECT_NEAR(run.losses[step], whole.losses[step], 1e-5 * whole.losses[step]);
  }
}

// Two ranks have the same bits in every way to share the state.
TEST(ExamplesTest, TheGptOfWhichEachRankHasAPartTrainsValidatesAndSamplesLikeAWholeOne) {
  const std::string yaml =
      read_file(fs::path(LOCKSTEP_SOURCE_DIR) / "examples/sharding/gpt-parameters.yaml");
  const SharedRun divided = run_shared(yaml);
  std::string plain = yaml;
  replace(plain, "sharding: parameters", "sharding: none");
  const SharedRun whole = run_shared(plain);
  EXPECT_NE(divided.log.find("sharding=parameters shardingRanks=2"), std::string::npos)
      << divided.log;
  EXPECT_LT(divided.logged("parametersBytes"), 0.75 * whole.logged("parametersBytes"));
  ASSERT_EQ(divided.losses.size(), 8u) << divided.log;
  EXPECT_LT(divided.losses.back(), divided.losses.front());
  EXPECT_EQ(divided.losses, whole.losses);
  EXPECT_TRUE(divided.result["validationLoss"].is_number());
  EXPECT_EQ(divided.result["validationLoss"], whole.result["validationLoss"]);
  EXPECT_EQ(divided.sample.find("And God said"), 0u) << divided.sample;
  EXPECT_EQ(divided.sample, whole.sample);
}

TEST(ExamplesTest, EveryMeshTrainsLikeOneProcessAndDividesTheModel) {
  const auto example = [](const std::string& name) {
    return read_file(fs::path(LOCKSTEP_SOURCE_DIR) / "examples/parallelism" / (name + ".yaml"));
  };
  const SharedRun gpt = run_shared(on_one_process(example("tensor"), "parallelism: {tensor: 2}"));
  const SharedRun llama = run_shared(on_one_process(
      example("llama-mesh"), "parallelism: {pipeline: 2, tensor: 2, sequenceParallel: true}"));
  for (const auto& [name, whole] :
       {std::pair("tensor", &gpt), std::pair("pipeline", &gpt), std::pair("three-axes", &gpt),
        std::pair("zerobubble", &gpt), std::pair("llama-mesh", &llama)}) {
    SCOPED_TRACE(name);
    ASSERT_EQ(whole->losses.size(), 8u) << whole->log;
    const SharedRun run = run_shared(example(name));
    ASSERT_EQ(run.losses.size(), 8u) << run.log;
    for (size_t step = 0; step < 8; ++step) {
      EXPECT_NEAR(run.losses[step], whole->losses[step], 1e-5 * whole->losses[step]);
    }
    // The larger stage of zerobubble.yaml has 3 of 4 layers and the embedding.
    const double part = name == std::string("zerobubble") ? 0.8 : 0.75;
    EXPECT_LT(run.logged("parametersBytes"), part * whole->logged("parametersBytes"));
    EXPECT_EQ(run.sample.find("And God said"), 0u) << run.sample;
  }
}

// The first step's loss is that of one process. Later ones are of parameters that are a step older
// on the first stage.
TEST(ExamplesTest, BatchesFollowEachOtherThroughAPipelineThatIsNotEmptied) {
  const std::string yaml =
      read_file(fs::path(LOCKSTEP_SOURCE_DIR) / "examples/parallelism/pipedream.yaml");
  const SharedRun run = run_shared(yaml);
  std::string alone = yaml;
  replace(alone, "nodes: 2", "nodes: 1");
  replace(alone, "parallelism: {pipeline: 2, pipelineSchedule: pipedream}", "parallelism: {}");
  const SharedRun whole = run_shared(alone);
  ASSERT_EQ(run.losses.size(), 8u) << run.log;
  EXPECT_NEAR(run.losses[0], whole.losses[0], 1e-5 * whole.losses[0]);
  EXPECT_NE(run.losses[3], whole.losses[3]);
  EXPECT_LT(run.losses[7], run.losses[0]);
  EXPECT_NEAR(run.losses[7], whole.losses[7], 0.1 * whole.losses[7]);
  EXPECT_TRUE(run.result["validationLoss"].is_number());
  EXPECT_EQ(run.sample.find("And God said"), 0u) << run.sample;
}

TEST(ExamplesTest, TheShellScriptDoesItsShareOnEveryRank) {
  ExampleRun example("shell.yaml", {}, [](std::string&) {});
  EXPECT_EQ(example.run().wait(), 0) << example.log();
  const Json result = example.run().result();
  EXPECT_EQ(result["state"], "Complete");
  EXPECT_EQ(result["step"], 1);
  EXPECT_EQ(result["restarts"], 0);
  // 1 + 5 + ... + 997, 2 + 6 + ... + 998, and so on.
  for (const char* line :
       {"[rank 0] node 0, rank 0 of 4: my share of 1 + 2 + ... + 1000 is 124750",
        "[rank 1] node 0, rank 1 of 4: my share of 1 + 2 + ... + 1000 is 125000",
        "[rank 2] node 1, rank 2 of 4: my share of 1 + 2 + ... + 1000 is 125250",
        "[rank 3] node 1, rank 3 of 4: my share of 1 + 2 + ... + 1000 is 125500"}) {
    EXPECT_NE(example.log().find(line), std::string::npos) << line << "\n" << example.log();
  }
}

TEST(ExamplesTest, ThePytorchScriptTrainsToComplete) {
  if (!has_torch()) GTEST_SKIP() << "no PyTorch for " << kPython;
  ExampleRun example("torch-ddp.yaml", {"ddp.py"}, [](std::string& text) {
    replace(text, "[python3, ", std::string("[") + kPython + ", ");
    replace(text, "\"300\"", "\"12\"");
    replace(text, "\"20\"", "\"6\"");
  });
  EXPECT_EQ(example.run().wait(), 0) << example.log();
  const Json result = example.run().result();
  EXPECT_EQ(result["state"], "Complete");
  EXPECT_EQ(result["step"], 12);
  EXPECT_TRUE(result["loss"].is_number());
  EXPECT_NE(example.log().find("[rank 0] step 12 loss "), std::string::npos) << example.log();
}

}  // namespace
}  // namespace lockstep::test
