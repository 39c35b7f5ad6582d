#include "common/api/training_job.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/api/reread.h"
#include "common/api/yaml.h"

namespace lockstep {
namespace {

Json document_of(const std::string& yaml) {
  const Result<Json> document = json_from_yaml(yaml);
  EXPECT_TRUE(document.ok()) << document.error().message;
  return document.ok() ? *document : Json();
}

// A job with all of what the tests change.
Json good_document() {
  return document_of(R"(
apiVersion: lockstep.dev/v1alpha1
kind: TrainingJob
metadata: {name: gpt, labels: {team: a}, creationTimestamp: null}
spec:
  nodes: 2
  processesPerNode: 2
  train:
    model: {layers: 4, width: 128, heads: 4, context: 128}
    data: {path: /data/text, validationFraction: 0.05}
    steps: 100
    batch: {global: 32, micro: 4}
    optimizer: {learningRate: 2.0e-3, warmupSteps: 10}
)");
}

// The whole error of the good document with one value changed.
std::string error_with(const std::string& pointer, Json value) {
  Json document = good_document();
  document[Json::json_pointer(pointer)] = std::move(value);
  const Result<TrainingJob> job = valid_training_job_from_json(document);
  return job.ok() ? "no error" : job.error().message;
}

std::string error_without(const std::string& pointer) {
  const Json patch = {{{"op", "remove"}, {"path", pointer}}};
  const Result<TrainingJob> job = valid_training_job_from_json(good_document().patch(patch));
  return job.ok() ? "no error" : job.error().message;
}

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
  EXPECT_EQ(accumulation_steps(job->spec), 2);
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
  EXPECT_EQ(accumulation_steps(job->spec), 1);
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
  Result<TrainingJob> job = training_job_from_json(good_document());
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
  job->status.progress = ProgressStatus{.step = 5, .steps = 10, .loss = 3.25};
  job->status.lastFailure = FailureStatus{.rank = 1, .exitCode = 137, .reason = "OOMKilled"};
  job->status.lastCheckpoint = CheckpointStatus{.step = 4, .path = "/ckpt/step-00000004"};
  job->status.conditions = {{.type = "Running", .status = "True", .reason = "AllRanksTrain"}};
  const Json document = *parse_json(dump_json(to_json(*job)));
  const Result<TrainingJob> read = training_job_from_json(document);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, *job);
  EXPECT_EQ(*stored_training_job_from_json(document), *job);
  EXPECT_EQ(*train_from_json(train_to_json(*job->spec.train), "train"), *job->spec.train);
}

TEST(TrainingJob, WritesDefaultsOutAndLeavesTheUnsetOut) {
  const Json spec = spec_to_json(TrainingJobSpec{});
  EXPECT_EQ(spec.at("rendezvous").at("port"), 29500);
  EXPECT_FALSE(spec.contains("image"));
  EXPECT_FALSE(spec.contains("train"));
  EXPECT_FALSE(to_json(TrainingJob{}).contains("status"));
  EXPECT_FALSE(status_to_json(TrainingJobStatus{}).contains("startTime"));
}

struct Case {
  const char* pointer;
  Json value;
  const char* error;
};

void expect_errors(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    EXPECT_EQ(error_with(c.pointer, c.value), c.error) << c.pointer << " = " << c.value;
  }
}

TEST(TrainingJob, UnknownFieldsAreRefusedWithTheNearestName) {
  expect_errors({
      {"/spec/train/batch/mirco", 4, "spec.train.batch.mirco: unknown field, did you mean micro?"},
      {"/spec/node", 4, "spec.node: unknown field, did you mean nodes?"},
      {"/spec/train/optimizer/learning_rate", 1,
       "spec.train.optimizer.learning_rate: unknown field, did you mean learningRate?"},
      {"/spec/train/optimizer/weightdecay", 1,
       "spec.train.optimizer.weightdecay: unknown field, did you mean weightDecay?"},
      {"/spec/train/batch/xyz", 4, "spec.train.batch.xyz: unknown field, known here: global micro"},
      {"/spec/train/batch/a b", 4,
       "spec.train.batch[\"a b\"]: unknown field, known here: global micro"},
      {"/metadata/lables", Json::object(), "metadata.lables: unknown field, did you mean labels?"},
      {"/sepc", 4, "sepc: unknown field, did you mean spec?"},
  });
}

TEST(TrainingJob, WrongTypesAreRefusedByPath) {
  expect_errors({
      {"/spec/nodes", "two", "spec.nodes: found the string \"two\", expected an integer"},
      {"/spec/nodes", 2.0, "spec.nodes: found 2.0, expected an integer"},
      {"/spec/nodes", true, "spec.nodes: found true, expected an integer"},
      {"/spec/nodes", nullptr, "spec.nodes: found nothing (null), expected an integer"},
      {"/spec/nodes", UINT64_MAX, "spec.nodes: found 18446744073709551615, expected an integer"},
      {"/spec/suspend", "yes", "spec.suspend: found the string \"yes\", expected true or false"},
      {"/spec/image", 7, "spec.image: found 7, expected a string"},
      {"/spec/train/optimizer/learningRate", "fast",
       "spec.train.optimizer.learningRate: found the string \"fast\", expected a number"},
      {"/spec/train/batch", Json::array(), "spec.train.batch: found a list, expected an object"},
      {"/spec/processGroups", Json::object(),
       "spec.processGroups: found an object, expected a list"},
      {"/spec/processGroups",
       {{{"name", "a"}, {"ranks", 3}}},
       "spec.processGroups[0].ranks: found 3, expected a string"},
      {"/spec/podTemplate", 3, "spec.podTemplate: found 3, expected an object"},
      {"/spec", 3, "spec: found 3, expected an object"},
      {"/metadata", 3, "metadata: found 3, expected an object"},
      {"/metadata/labels", {{"a", 1}}, "metadata.labels.a: found 1, expected a string"},
      {"/apiVersion", "v1",
       "apiVersion: found the string \"v1\", expected \"lockstep.dev/v1alpha1\""},
      {"/kind", "Job", "kind: found the string \"Job\", expected \"TrainingJob\""},
  });
  EXPECT_EQ(valid_training_job_from_json(Json(7)).error().message.substr(0, 42),
            "document: found 7, expected a TrainingJob\n");
}

TEST(TrainingJob, WhatIsMissingIsNamed) {
  EXPECT_EQ(error_without("/kind"), "kind: missing, expected \"TrainingJob\"");
  EXPECT_EQ(error_without("/metadata/name"), "metadata.name: missing, expected the job's name");
  EXPECT_EQ(error_without("/metadata"), "metadata.name: missing, expected the job's name");
  EXPECT_EQ(error_without("/spec"), "spec: missing, expected an object");
  EXPECT_EQ(error_without("/spec/train"),
            "spec: found neither train nor command, expected exactly one of them");
  EXPECT_EQ(error_without("/spec/train/data"), "spec.train.data: missing, expected an object");
  EXPECT_EQ(error_without("/spec/train/data/path"),
            "spec.train.data.path: missing, expected a string");
  EXPECT_EQ(error_without("/spec/train/model/heads"),
            "spec.train.model.heads: missing, expected a number, or spec.train.model.preset");
}

TEST(TrainingJob, RangesAndChoicesAreRefusedByPath) {
  expect_errors({
      {"/spec/nodes", 0, "spec.nodes: 0 is out of range, expected 1 to 4096"},
      {"/spec/nodes", INT64_MAX,
       "spec.nodes: 9223372036854775807 is out of range, expected 1 to 4096"},
      {"/spec/rendezvous/port", 70000,
       "spec.rendezvous.port: 70000 is out of range, expected 1 to 65535"},
      {"/spec/train/steps", 0, "spec.train.steps: 0 is out of range, expected 1 to 1000000000"},
      {"/spec/train/optimizer/learningRate", 0,
       "spec.train.optimizer.learningRate: 0 is out of range, expected more than 0 and at most "
       "100"},
      {"/spec/train/data/validationFraction", 0.75,
       "spec.train.data.validationFraction: 0.75 is out of range, expected 0 to 0.5"},
      {"/spec/train/optimizer/schedule", "cosin",
       "spec.train.optimizer.schedule: found \"cosin\", expected constant, linear or cosine"},
      {"/spec/train/precision", "", "spec.train.precision: found \"\", expected fp32 or bf16"},
      {"/spec/train/recompute", "all",
       "spec.train.recompute: found \"all\", expected none, ops or blocks"},
      {"/spec/train/attention", "auto", "no error"},
      {"/spec/train/attention", "cudnn",
       "spec.train.attention: cudnn needs spec.gpusPerNode from 1 and spec.train.precision: bf16; "
       "expected own or auto"},
      {"/spec/train/attention", "flash",
       "spec.train.attention: found \"flash\", expected own, cudnn or auto"},
      {"/spec/train/model/preset", "gpt5",
       "spec.train.model.preset: found \"gpt5\", expected gpt2-124m, gpt2-350m, gpt2-774m, "
       "gpt2-1.5b, llama-2-7b, llama-2-13b, llama-2-70b, llama-3-8b, llama-3-70b, llama-3.1-8b, "
       "llama-3.1-70b, llama-3.1-405b, llama-3.2-1b or llama-3.2-3b"},
      {"/spec/train/data/path", std::string(2000, 'x'),
       "spec.train.data.path: 2000 bytes, expected at most 1024"},
      {"/spec/train/model/weights",
       {{"path", std::string(2000, 'x')}},
       "spec.train.model.weights.path: 2000 bytes, expected at most 1024"},
      {"/spec/train/model/weights", {{"path", "gpt2.safetensors"}}, "no error"},
      {"/spec/train/data/path", std::string("/a\0b", 4),
       "spec.train.data.path: found \"/a\\u0000b\", expected text without zero bytes"},
      {"/spec/processGroups", Json(300, Json::object()),
       "spec.processGroups: 300 items, expected at most 256"},
  });
}

TEST(TrainingJob, NamesAreRefusedThatKubernetesOrThePodsNamesCannotTake) {
  for (const char* name : {"Gpt", "1gpt", "gpt-", "-gpt", "g_pt", "g.pt", "g pt", "g\n"}) {
    EXPECT_NE(error_with("/metadata/name", name).find("(RFC 1035)"), std::string::npos) << name;
  }
  EXPECT_EQ(error_with("/metadata/name", std::string(40, 'a')), "no error");
  EXPECT_NE(error_with("/metadata/name", std::string(41, 'a')).find("expected at most 40"),
            std::string::npos);
  EXPECT_NE(error_with("/metadata/namespace", "a.b").find("metadata.namespace: found \"a.b\""),
            std::string::npos);
}

TEST(TrainingJob, FieldsThatDoNotFitEachOtherAreRefused) {
  expect_errors({
      {"/spec/train/batch/micro", 5,
       "spec.train.batch.micro: 5 does not divide spec.train.batch.global: 32"},
      {"/spec/train/batch/micro", 16,
       "spec.train.batch.micro: 16 x 4 data-parallel ranks = 64 does not divide "
       "spec.train.batch.global: 32"},
      {"/spec/train/batch",
       {{"global", 6}},
       "spec.train.batch.global: 6 is not a multiple of the 4 data-parallel ranks"},
      {"/spec/rendezvous/port", 65535,
       "spec.rendezvous.port: 65535 leaves no room for 2 processes, expected at most 65534"},
      {"/spec/train/rounding", "stochastic",
       "spec.train.rounding: \"stochastic\" is of bf16 copies, expected nearest, or "
       "spec.train.precision: bf16"},
      {"/spec/train/optimizer/warmupSteps", 101,
       "spec.train.optimizer.warmupSteps: 101 is more than spec.train.steps: 100"},
      {"/spec/train/optimizer/minimumLearningRate", 0.5,
       "spec.train.optimizer.minimumLearningRate: 0.5 is more than "
       "spec.train.optimizer.learningRate: 0.002"},
      {"/spec/train/model/heads", 3,
       "spec.train.model.heads: 3 does not divide spec.train.model.width: 128"},
      {"/spec/train/model/kvHeads", 2,
       "spec.train.model.kvHeads: is of a llama, expected none with family: gpt2"},
      {"/spec/train/model",
       {{"preset", "gpt2-124m"}, {"family", "llama"}},
       "spec.train.model.family: \"llama\" is not that of spec.train.model.preset: \"gpt2-124m\", "
       "expected gpt2"},
      {"/spec/train/model/vocabulary", 100,
       "spec.train.model.vocabulary: 100 is too few for spec.train.data.tokenizer: bytes, "
       "expected 256"},
      {"/spec/train/data/tokenizer", "u16",
       "spec.train.model.vocabulary: missing, expected the number of token ids "
       "(spec.train.data.tokenizer: \"u16\" does not tell)"},
      {"/spec/train/data", {{"path", "x"}, {"validationFraction", 0}}, "no error"},
      {"/spec/train/validation/everySteps", 5, "no error"},
      {"/spec/managedBy", "someone", "spec.managedBy: found \"someone\", expected domain/path"},
      {"/spec/managedBy", "kueue.x-k8s.io/multikueue", "no error"},
  });
  Json document = good_document();
  document["spec"]["train"]["data"].erase("validationFraction");
  document["spec"]["train"]["validation"]["everySteps"] = 5;
  EXPECT_EQ(valid_training_job_from_json(document).error().message,
            "spec.train.validation.everySteps: 5 with no data held back, expected "
            "spec.train.data.validationFraction above 0");
  document = good_document();
  document["spec"]["nodes"] = 4096;
  document["spec"]["processesPerNode"] = 64;
  document["spec"]["train"]["batch"] = {{"global", 262144}};
  EXPECT_EQ(valid_training_job_from_json(document).error().message,
            "spec.nodes: a world of 262144 ranks (spec.nodes: 4096 x 64 processes each), expected "
            "at most 65536");
  document = good_document();
  document["spec"]["train"]["steps"] = 1000000000;
  document["spec"]["train"]["batch"] = {{"global", 1 << 20}};
  document["spec"]["train"]["model"]["context"] = 1 << 20;
  EXPECT_NE(valid_training_job_from_json(document).error().message.find("too many to count"),
            std::string::npos);
}

TEST(TrainingJob, AMeshThatDoesNotFitIsSaidBeforeThatItIsNotInThisVersion) {
  const std::string error = error_with("/spec/parallelism", {{"tensor", 3}});
  EXPECT_EQ(error,
            "spec.parallelism: pipeline 1 x tensor 3 = 3 does not divide the world of 4 ranks "
            "(spec.nodes: 2 x 2 processes each)\n"
            "spec.train.model.heads: 4 is not a multiple of the tensor-parallel size 3\n"
            "spec.parallelism.tensor: 3 is not in this version, expected 1");
}

TEST(TrainingJob, ProcessGroupsAreChecked) {
  const auto error_of = [](const char* name, const char* ranks) {
    return error_with("/spec/processGroups",
                      {{{"name", "ends"}, {"ranks", "0,3"}}, {{"name", name}, {"ranks", ranks}}});
  };
  EXPECT_EQ(error_of("even", "0::2"), "no error");
  EXPECT_EQ(error_of("ends", "1"),
            "spec.processGroups[1].name: \"ends\" is there twice, expected each name once");
  EXPECT_EQ(error_of("tensor", "1"),
            "spec.processGroups[1].name: \"tensor\" is the mesh's own, expected another name");
  EXPECT_NE(error_of("Even", "1").find("spec.processGroups[1].name: found \"Even\", expected"),
            std::string::npos);
  EXPECT_EQ(error_of("even", "4"),
            "spec.processGroups[1].ranks: rank 4 is not in the world, expected 0 to 3");
  EXPECT_EQ(error_of("even", "x"),
            "spec.processGroups[1].ranks: found \"x\", expected ranks such as 0,7 or 0-3 or 0::2");
}

TEST(TrainingJob, FailureRulesSayWhatTheyAreAboutAndWhatFollows) {
  const auto error_of = [](Json rule) {
    return error_with("/spec/failure", {{"rules", Json::array({std::move(rule)})}});
  };
  constexpr char kRule[] = "spec.failure.rules[0]";
  const std::string at = kRule;
  EXPECT_EQ(error_of({{"exitCodes", {3, 137}}, {"action", "Fail"}}), "no error");
  EXPECT_EQ(error_of({{"event", "Preempted"}, {"action", "Ignore"}}), "no error");
  EXPECT_EQ(error_of({{"exitCodes", {3}}, {"event", "Error"}, {"action", "RecreatePod"}}),
            "no error");
  EXPECT_EQ(error_of({{"action", "Fail"}}),
            at + ": found neither exitCodes nor event, expected at least one of them");
  EXPECT_EQ(error_of({{"event", "Error"}}), at + ".action: missing, expected a string");
  EXPECT_EQ(error_of({{"event", "Error"}, {"action", ""}}),
            at + ".action: found \"\", expected Fail, RestartInPlace, RecreatePod or Ignore");
  EXPECT_EQ(error_of({{"event", "Error"}, {"action", "Retry"}}),
            at + ".action: found \"Retry\", expected Fail, RestartInPlace, RecreatePod or Ignore");
  EXPECT_EQ(error_of({{"exitCodes", {0}}, {"action", "Fail"}}),
            at + ".exitCodes[0]: 0 is out of range, expected 1 to 255");
  EXPECT_NE(error_of({{"event", "Evict"}, {"action", "Fail"}}).find(at + ".event: found \"Evict\""),
            std::string::npos);
  EXPECT_EQ(error_of({{"event", "Evicted"}, {"action", "RestartInPlace"}}),
            at + ".action: found RestartInPlace, but Evicted takes the pod away; expected "
                 "RecreatePod, Ignore or Fail");
  EXPECT_EQ(error_of({{"event", "Error"}, {"after", "10m"}, {"action", "Fail"}}),
            at + ".after: is for event: Hang alone");
  EXPECT_EQ(error_of({{"event", "Hang"}, {"after", "10m"}, {"action", "RestartInPlace"}}),
            "no error");
  for (const char* text : {"10", "m", "-5s", "0s", "4s", "1.5h", "25h", "1 m", "10d", "999999m"}) {
    EXPECT_EQ(
        error_of({{"event", "Hang"}, {"after", text}, {"action", "Fail"}}),
        at + ".after: found \"" + text + "\", expected a whole number with s, m or h, 5s to 24h");
  }
}

TEST(TrainingJob, AHangLastsAsLongAsTheFirstRuleAboutItSays) {
  TrainingJobSpec spec;
  EXPECT_EQ(hang_seconds(spec), 20);
  spec.failure.rules = {{.event = "Error", .action = "Fail"},
                        {.event = "Hang", .action = "Fail", .after = "2m"},
                        {.event = "Hang", .action = "Fail", .after = "1h"}};
  EXPECT_EQ(hang_seconds(spec), 120);
  spec.failure.rules[1].after.clear();
  EXPECT_EQ(hang_seconds(spec), 20);
}

TEST(TrainingJob, TimesAndPoliciesOfItsEndAreChecked) {
  expect_errors({
      {"/spec/activeDeadlineSeconds", 5, "no error"},
      {"/spec/activeDeadlineSeconds", -1,
       "spec.activeDeadlineSeconds: -1 is out of range, expected 0 to 31536000"},
      {"/spec/ttlSecondsAfterFinished", 0, "no error"},
      {"/spec/ttlSecondsAfterFinished", -2,
       "spec.ttlSecondsAfterFinished: -2 is out of range, expected -1 to 31536000"},
      {"/spec/failure", {{"pendingTimeoutSeconds", 600}, {"avoidNodes", 3}}, "no error"},
      {"/spec/failure",
       {{"avoidNodes", 11}},
       "spec.failure.avoidNodes: 11 is out of range, expected 0 to 10"},
      {"/spec/successPolicy", "AllRanks", "no error"},
      {"/spec/gpusPerNode", 2, "no error"},
      {"/spec/gpusPerNode", 1, "no error"},
      {"/spec/gpusPerNode", 4,
       "spec.processesPerNode: 2 is no multiple of spec.gpusPerNode: 4, expected 0 (one rank a "
       "GPU) or so many ranks that each GPU has as many"},
      {"/spec/successPolicy", "RankOne",
       "spec.successPolicy: found \"RankOne\", expected AllRanks or RankZero"},
      {"/spec/successPolicy", "RankZero",
       "spec.successPolicy: RankZero is for a command, expected AllRanks: all ranks of the "
       "built-in loop end together"},
  });
}

TEST(TrainingJob, WhatThisVersionDoesNotCarryOutIsRefused) {
  expect_errors({
      {"/spec/elastic", {{"min", 1}}, "spec.elastic: not in this version"},
      {"/spec/scheduling", Json::object(), "spec.scheduling: not in this version"},
      {"/spec/parameterServers", Json::object(), "spec.parameterServers: not in this version"},
      {"/spec/checkpoint",
       {{"onPreemption", "60s"}},
       "spec.checkpoint.onPreemption: not in this version"},
      {"/spec/parallelism",
       {{"tensor", 2}},
       "spec.parallelism.tensor: 2 is not in this version, expected 1"},
      {"/spec/parallelism",
       {{"pipeline", 2}},
       "spec.parallelism.pipeline: 2 is not in this version, expected 1"},
      {"/spec/parallelism",
       {{"sharding", "optimizer"}},
       "spec.parallelism.sharding: \"optimizer\" is not in this version, expected none"},
      {"/spec/command",
       {"python", "train.py"},
       "spec: found both train and command, expected exactly one of them"},
  });
}

// A job that runs a command, with one value changed.
std::string command_error_with(const std::string& pointer, Json value) {
  Json document = good_document();
  document["spec"].erase("train");
  document["spec"]["command"] = {"python3", "train.py", ""};
  document[Json::json_pointer(pointer)] = std::move(value);
  const Result<TrainingJob> job = valid_training_job_from_json(document);
  return job.ok() ? "no error" : job.error().message;
}

TEST(TrainingJob, ACommandIsCheckedAndLeavesToItsProgramWhatTheLoopWouldDo) {
  constexpr char kLoop[] =
      ", which spec.train alone carries out; a command does this by itself, so leave the field out";
  const std::vector<Case> cases = {
      {"/spec/nodes", 3, "no error"},
      {"/spec/checkpoint", {{"path", "/ckpt"}}, "no error"},
      {"/spec/rendezvous", {{"variables", {"jax", "tensorflow", "mpi"}}}, "no error"},
      {"/spec/gpusPerNode", 8, "no error"},  // with processesPerNode: 2
      {"/spec/command", Json::array(),
       "spec: found neither train nor command, expected exactly one of them"},
      {"/spec/command", {""}, "spec.command[0]: found \"\", expected a program"},
      {"/spec/command", {"sh", 3}, "spec.command[1]: found 3, expected a string"},
      {"/spec/command",
       {"sh", std::string("a\0b", 3)},
       "spec.command[1]: found \"a\\u0000b\", expected text without zero bytes"},
      {"/spec/command",
       {"sh", std::string(70'000, 'x')},
       "spec.command[1]: 70000 bytes, expected at most 65536"},
      {"/spec/command",
       {"sh", std::string(60'000, 'x'), std::string(60'000, 'y'), std::string(60'000, 'z')},
       "spec.command: 180006 bytes, expected at most 131072 (put a script into the image)"},
      {"/spec/rendezvous",
       {{"variables", {"jax", "pytorch"}}},
       "spec.rendezvous.variables[1]: found \"pytorch\", expected jax, tensorflow or mpi"},
      {"/spec/rendezvous",
       {{"variables", {""}}},
       "spec.rendezvous.variables[0]: found \"\", expected jax, tensorflow or mpi"},
      {"/spec/rendezvous",
       {{"variables", {"mpi", "mpi"}}},
       "spec.rendezvous.variables[1]: \"mpi\" is there twice, expected it once"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(command_error_with(c.pointer, c.value), c.error) << c.pointer;
  }
  const std::pair<const char*, Json> loops_own[] = {{"/spec/parallelism/tensor", 2},
                                                    {"/spec/parallelism/pipeline", 2},
                                                    {"/spec/parallelism/sharding", "optimizer"},
                                                    {"/spec/checkpoint/everySteps", 5},
                                                    {"/spec/checkpoint/keep", 5},
                                                    {"/spec/rendezvous/timeoutSeconds", 5}};
  for (const auto& [pointer, value] : loops_own) {
    std::string path = std::string(pointer).substr(1);
    std::replace(path.begin(), path.end(), '/', '.');
    EXPECT_EQ(command_error_with(pointer, value), path + ": found " + value.dump() + kLoop);
  }
  EXPECT_EQ(error_with("/spec/rendezvous/variables", {"jax"}),
            "spec.rendezvous.variables: they are for spec.command, and this job has none");
}

TEST(TrainingJob, TheRanksPortsAreTheirOwn) {
  EXPECT_EQ(error_with("/spec/rendezvous/port", 29399),
            "spec.rendezvous.port: 29399 to 29400, the ports of 2 processes, contain the agent's "
            "29400, expected a range without it");
  EXPECT_EQ(error_with("/spec/rendezvous/port", 29398), "no error");
  EXPECT_EQ(command_error_with("/spec/rendezvous/port", 29385),
            "spec.rendezvous.port: 29385 to 29400, the ports of 2 processes in 8 rounds in turn, "
            "contain the agent's 29400, expected a range without it");
  EXPECT_EQ(command_error_with("/spec/rendezvous/port", 29384), "no error");
  EXPECT_EQ(command_error_with("/spec/rendezvous/port", 65530),
            "spec.rendezvous.port: 65530 leaves no room for 2 processes in 8 rounds in turn, "
            "expected at most 65520");
}

TEST(TrainingJob, RoundsOfACommandTakeTheirPortsInTurn) {
  TrainingJobSpec spec;
  spec.processesPerNode = 3;
  spec.command = {"sh"};
  EXPECT_EQ(port_count(spec), 24);
  EXPECT_EQ(round_port(spec, 1), 29500);
  EXPECT_EQ(round_port(spec, 2), 29503);
  EXPECT_EQ(round_port(spec, 8), 29521);
  EXPECT_EQ(round_port(spec, 9), 29500);
  spec.train.emplace();
  EXPECT_EQ(port_count(spec), 3);
  EXPECT_EQ(round_port(spec, 9), 29500);
}

TEST(TrainingJob, AllProblemsComeAtOnceButNoneAboutWhatCouldNotBeRead) {
  Json document = good_document();
  document["metadata"]["name"] = "Bad";
  document["spec"]["nods"] = 3;
  document["spec"]["train"]["batch"]["global"] = "many";  // so micro can't be judged
  document["spec"]["train"]["batch"]["micro"] = 48;
  document["spec"]["train"]["optimizer"]["warmupSteps"] = 1000;
  EXPECT_EQ(valid_training_job_from_json(document).error().message,
            "spec.train.batch.global: found the string \"many\", expected an integer\n"
            "spec.nods: unknown field, did you mean nodes?\n"
            "metadata.name: found \"Bad\", expected lower-case letters, digits and hyphens, from "
            "a letter to a letter or digit (RFC 1035)\n"
            "spec.train.optimizer.warmupSteps: 1000 is more than spec.train.steps: 100");
}

TEST(StoredTrainingJob, PassesOverUnknownFieldsButNotOverRefusedOnes) {
  Json document = good_document();
  document["spec"]["later"] = 3;
  document["spec"]["train"]["later"] = 3;
  document["metadata"]["managedFields"] = Json::array();
  EXPECT_TRUE(stored_training_job_from_json(document).ok());
  document["spec"]["elastic"] = Json::object();
  EXPECT_EQ(stored_training_job_from_json(document).error().message,
            "spec.elastic: not in this version");
}

TEST(StoredTrainingJob, AStatusThatCannotBeReadIsAsIfAbsent) {
  Json document = good_document();
  document["status"] = {{"round", "three"},
                        {"restarts", 2},
                        {"progress", 7},
                        {"lastFailure", {{"rank", "x"}, {"reason", "Error"}}},
                        {"conditions", {7, {{"type", "Valid"}}}}};
  const Result<TrainingJob> job = stored_training_job_from_json(document);
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->status.round, 0);
  EXPECT_EQ(job->status.restarts, 2);
  EXPECT_FALSE(job->status.progress.has_value());
  EXPECT_EQ(job->status.lastFailure->rank, -1);
  EXPECT_EQ(job->status.lastFailure->reason, "Error");
  ASSERT_EQ(job->status.conditions.size(), 1u);
  EXPECT_EQ(job->status.conditions[0].type, "Valid");
  document["status"] = 7;
  EXPECT_EQ(stored_training_job_from_json(document)->status, TrainingJobStatus{});
}

TEST(StoredTrainingJob, IsReadAgainWithoutItsSpecAsLongAsItsGenerationIsTheSame) {
  Json document = good_document();
  document["metadata"].update({{"uid", "u"}, {"generation", 3}, {"resourceVersion", "10"}});
  document["status"] = {{"round", 1}, {"message", "from a later version"}};
  TrainingJob job = *stored_training_job_from_json(document);

  document["metadata"]["resourceVersion"] = "11";
  document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  document["metadata"]["managedFields"] = Json::array();
  document["status"]["round"] = 2;
  ASSERT_TRUE(reread_stored_job(document, job));
  EXPECT_EQ(job, *stored_training_job_from_json(document));
  EXPECT_EQ(job.status.round, 2);
  document.erase("status");
  ASSERT_TRUE(reread_stored_job(document, job));
  EXPECT_EQ(job.status, TrainingJobStatus{});

  const TrainingJob known = job;
  const auto expect_refused = [&](const char* pointer, Json value) {
    SCOPED_TRACE(pointer);
    Json changed = document;
    changed[Json::json_pointer(pointer)] = std::move(value);
    EXPECT_FALSE(reread_stored_job(changed, job));
    EXPECT_EQ(job, known);
  };
  expect_refused("/metadata/generation", 4);
  expect_refused("/metadata/generation", nullptr);
  expect_refused("/metadata/uid", "another");
  expect_refused("/metadata/name", 7);
  document.erase("spec");
  EXPECT_FALSE(reread_stored_job(document, job));
}

TEST(TrainingJob, TheExampleOfTheFirstRunIsValid) {
  const Result<Json> document =
      read_document(std::string(LOCKSTEP_SOURCE_DIR) + "/examples/kjv-gpt.yaml");
  ASSERT_TRUE(document.ok()) << document.error().message;
  const Result<TrainingJob> job = valid_training_job_from_json(*document);
  EXPECT_TRUE(job.ok()) << job.error().message;
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
    EXPECT_GE(accumulation_steps(spec), 1);
  }
}

}  // namespace
}  // namespace lockstep
