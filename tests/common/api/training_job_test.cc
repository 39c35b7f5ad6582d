#include "common/api/training_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/common/api/training_jobs.h"

namespace lockstep {
namespace {

TEST(TrainingJob, FillsDefaultsIn) {
  const Result<TrainingJob> job = valid_training_job_from_json(good_document());
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->metadata.name, "gpt");
  EXPECT_EQ(job->metadata.namespace_, "default");
  EXPECT_EQ(job->metadata.labels.at("team"), "a");
  EXPECT_EQ(job->spec.rendezvous.port, 29500);
  EXPECT_EQ(job->spec.failure.maxRestarts, 10);
  EXPECT_EQ(job->spec.train->optimizer.schedule, "cosine");
  EXPECT_EQ(job->spec.train->optimizer.learningRate, 2e-3);
  EXPECT_EQ(processes_per_node(job->spec), 2);
  EXPECT_EQ(data_parallel_size(job->spec), 4);
  EXPECT_EQ(micro_batch(job->spec), 4);
  EXPECT_EQ(
      model_config(*job->spec.train),
      (ModelConfig{.layers = 4, .width = 128, .heads = 4, .context = 128, .vocabulary = 256}));
}

TEST(TrainingJob, AMicroBatchThatIsNotGivenIsTheWholeShare) {
  Json document = good_document();
  document["spec"]["train"]["batch"].erase("micro");
  const Result<TrainingJob> job = valid_training_job_from_json(document);
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(micro_batch(job->spec), 8);
}

TEST(TrainingJob, ALlamaIsMadeOfItsDimensionsOrOfAPresetAndWhatIsGivenBeside) {
  Json document = good_document();
  document["spec"]["train"]["model"]["family"] = "llama";
  Result<TrainingJob> job = valid_training_job_from_json(document);
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(model_config(*job->spec.train), (ModelConfig{.layers = 4,
                                                         .width = 128,
                                                         .heads = 4,
                                                         .context = 128,
                                                         .vocabulary = 256,
                                                         .family = Family::kLlama,
                                                         .tied = false}));
  document["spec"]["train"]["model"] = {{"preset", "llama-3.1-8b"},
                                        {"context", 64},
                                        {"head", "tied"},
                                        {"hiddenWidth", 1024},
                                        {"kvHeads", 4},
                                        {"ropeBase", 10000},
                                        {"ropeScaling", {{"factor", 4}, {"originalContext", 16}}},
                                        {"normEpsilon", 1e-6}};
  job = valid_training_job_from_json(document);
  ASSERT_TRUE(job.ok()) << job.error().message;
  ModelConfig expected = *model_preset("llama-3.1-8b");
  expected.context = 64;
  expected.tied = true;
  expected.hidden = 1024;
  expected.kv_heads = 4;
  expected.rotary_base = 10000;
  expected.rotary_scaling = {.factor = 4, .low_turns = 1, .high_turns = 4, .original_context = 16};
  expected.norm_epsilon = 1e-6;
  EXPECT_EQ(model_config(*job->spec.train), expected);
}

TEST(TrainingJob, OfAnMlpGivesItsDimensions) {
  const ModelSpec model{.family = "mlp",
                        .inputs = 30,
                        .hidden = {16, 8},
                        .outputs = 2,
                        .activation = "gelu",
                        .task = "regression"};
  const TrainSpec train{.model = model};
  EXPECT_EQ(model_design(train), (ModelDesign{MlpConfig{.inputs = 30,
                                                        .hidden = {16, 8},
                                                        .outputs = 2,
                                                        .activation = MlpActivation::kGelu,
                                                        .task = MlpTask::kRegression}}));
  EXPECT_EQ(tokens_per_step(train), 0);
  const ModelSpec plain{.family = "mlp", .inputs = 4, .outputs = 3};
  EXPECT_EQ(mlp_config(plain).activation, MlpActivation::kRelu);
  EXPECT_EQ(mlp_config(plain).task, MlpTask::kClassification);
}

TEST(TrainingJob, OfATransformerGivesItsDimensions) {
  const TrainSpec train{.model = {.preset = "gpt2-124m"}};
  EXPECT_EQ(model_design(train), ModelDesign{*model_preset("gpt2-124m")});
}

TEST(TrainingJob, APresetGivesTheDimensionsThatAreNotGiven) {
  Json document = good_document();
  document["spec"]["train"]["model"] = {{"preset", "gpt2-124m"}, {"context", 64}};
  const Result<TrainingJob> job = valid_training_job_from_json(document);
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(
      model_config(*job->spec.train),
      (ModelConfig{.layers = 12, .width = 768, .heads = 12, .context = 64, .vocabulary = 50257}));
}

TEST(TrainingJob, ReadsBackWhatItWrote) {
  Result<TrainingJob> job = valid_training_job_from_json(good_document());
  ASSERT_TRUE(job.ok());
  job->spec.train->sample.prompt = "";
  job->spec.processGroups = {{.name = "even", .ranks = "0::2"}};
  job->spec.podTemplate = {{"metadata", {{"labels", {{"a", "b"}}}}}};
  job->metadata.uid = "uid";
  job->metadata.generation = 3;
  job->metadata.finalizers = {"lockstep.dev/agents"};
  job->status.state = "Running";
  job->status.round = 2;
  job->status.members = "1,2";
  job->status.nodes = {.desired = 2, .ready = 1};
  job->status.rendezvous = RendezvousStatus{.host = "10.0.0.1", .port = 29500, .worldSize = 4};
  job->status.progress = ProgressStatus{{.step = 5, .steps = 10, .loss = 3.25}};
  job->status.lastFailure = FailureStatus{.rank = 1, .exitCode = 137, .reason = "OOMKilled"};
  job->status.lastCheckpoint = CheckpointStatus{.step = 4, .path = "/ckpt/step-00000004"};
  job->status.conditions = {{.type = "Running", .status = "True", .reason = "AllRanksTrain"}};
  const Json document = *parse_json(dump_json(to_json(*job)));
  const Result<TrainingJob> read = valid_training_job_from_json(document);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, *job);
  EXPECT_EQ(*stored_training_job_from_json(document), *job);
}

TEST(TrainingJob, WritesDefaultsOutAndLeavesTheUnsetOut) {
  const Json spec = spec_to_json(TrainingJobSpec{});
  EXPECT_EQ(spec.at("rendezvous").at("port"), 29500);
  EXPECT_FALSE(spec.contains("image"));
  EXPECT_FALSE(spec.contains("train"));
  EXPECT_FALSE(to_json(TrainingJob{}).contains("status"));
  EXPECT_FALSE(status_to_json(TrainingJobStatus{}).contains("startTime"));
}

TEST(TrainingJob, ACommandHangsOnlyByARuleAboutIt) {
  TrainingJobSpec spec;
  spec.command = {"a"};
  EXPECT_EQ(command_hang_seconds(spec), 0);
  spec.failure.rules = {{.event = "Error", .action = "Fail"}, {.event = "Hang", .action = "Fail"}};
  EXPECT_EQ(command_hang_seconds(spec), kCommandHangSeconds);
  spec.failure.rules[1].after = "2m";
  EXPECT_EQ(command_hang_seconds(spec), 120);
  spec.train.emplace();
  EXPECT_EQ(command_hang_seconds(spec), 0);
}

TEST(TrainingJob, TheFirstRuleAboutEachLossEventDecides) {
  TrainingJobSpec spec;
  EXPECT_EQ(loss_rules(spec), LossRules());
  spec.failure.rules = {{.event = "Hang", .action = "Fail"},
                        {.event = "LossSpike", .action = "SkipBatch", .deviations = 6},
                        {.event = "LossSpike", .action = "Fail"},
                        {.event = "LossNotFinite", .action = "RollBack"}};
  EXPECT_EQ(loss_rules(spec),
            (LossRules{.not_finite = "RollBack", .spike = "SkipBatch", .deviations = 6}));
}

TEST(TrainingJob, AHangLastsAsLongAsTheFirstRuleAboutItSays) {
  TrainingJobSpec spec;
  EXPECT_EQ(hang_seconds(spec), 18);
  spec.failure.rules = {{.event = "Error", .action = "Fail"},
                        {.event = "Hang", .action = "Fail", .after = "2m"},
                        {.event = "Hang", .action = "Fail", .after = "1h"}};
  EXPECT_EQ(hang_seconds(spec), 120);
  spec.failure.rules[1].after.clear();
  EXPECT_EQ(hang_seconds(spec), 18);
}

TEST(TrainingJob, RanksHaveTheLongerOfBothTimesBetweenTheSignals) {
  TrainingJobSpec spec;
  EXPECT_EQ(grace_seconds(spec), 30);
  for (const auto& [text, seconds] : std::vector<std::pair<std::string, int64_t>>{
           {"60s", 60}, {"2m", 120}, {"24h", 86400}, {"29s", 30}, {"", 30}, {"later", 30}}) {
    spec.checkpoint.onPreemption = text;
    EXPECT_EQ(grace_seconds(spec), seconds) << text;
  }
}

TEST(TrainingJob, TheExampleOfTheFirstRunIsValid) {
  const Result<Json> document =
      read_document(std::string(LOCKSTEP_SOURCE_DIR) + "/examples/kjv-gpt.yaml");
  ASSERT_TRUE(document.ok()) << document.error().message;
  const Result<TrainingJob> job = valid_training_job_from_json(*document);
  EXPECT_TRUE(job.ok()) << job.error().message;
}

TEST(TrainingJob, TheExamplesOfParallelismAreValidAndDiffer) {
  std::vector<std::pair<std::string, ParallelismSpec>> found;  // by family
  for (const std::string folder : {"sharding", "parallelism"}) {
    for (const auto& file :
         std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/examples/" + folder)) {
      const Result<Json> document = read_document(file.path());
      ASSERT_TRUE(document.ok()) << document.error().message;
      const Result<TrainingJob> job = valid_training_job_from_json(*document);
      ASSERT_TRUE(job.ok()) << file.path() << ": " << job.error().message;
      EXPECT_EQ(job->metadata.name, file.path().stem());
      const ParallelismSpec& parallelism = job->spec.parallelism;
      EXPECT_NE(parallelism, ParallelismSpec{}) << file.path();
      const std::pair way(job->spec.train->model.family, parallelism);
      EXPECT_EQ(std::count(found.begin(), found.end(), way), 0) << file.path();
      found.push_back(way);
    }
  }
  EXPECT_EQ(found.size(), 9u + 6u);
}

TEST(TrainingJob, ArithmeticOnUncheckedSpecsDoesNotOverflow) {
  TrainingJobSpec spec;
  spec.train = TrainSpec{};
  for (const int64_t extreme : {INT64_MIN, int64_t{-1}, int64_t{0}, INT64_MAX}) {
    spec.nodes = spec.processesPerNode = spec.gpusPerNode = extreme;
    spec.parallelism = {.tensor = extreme, .pipeline = extreme};
    spec.train->batch = {.global = extreme, .micro = extreme};
    EXPECT_GE(processes_per_node(spec), 1);
    EXPECT_GE(data_parallel_size(spec), 1);
    EXPECT_GE(micro_batch(spec), 1);
  }
}

}  // namespace
}  // namespace lockstep
