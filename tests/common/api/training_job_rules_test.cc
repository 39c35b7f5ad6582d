// Validation of a TrainingJob: each error names the path and the expected value.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "common/api/rule_checks.h"
#include "common/layout/model_config.h"
#include "tests/common/api/training_jobs.h"

namespace lockstep {
namespace {

void expect_errors(const std::vector<Refusal>& cases) {
  for (const Refusal& c : cases) {
    EXPECT_EQ(error_with(c.pointer, c.value), c.error) << c.pointer << " = " << c.value;
  }
}

// The rules know the family of a preset by its name, as CEL cannot look it up.
TEST(TrainingJob, PresetsOfALlamaAreKnownByTheirNames) {
  for (const std::string& name : model_preset_names()) {
    EXPECT_EQ(kLlamaPreset.matches(name), model_preset(name)->family == Family::kLlama) << name;
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
      {"/spec/train/batch/xyz", 4,
       "spec.train.batch.xyz: unknown field, known fields: global micro"},
      {"/spec/train/batch/a b", 4,
       "spec.train.batch[\"a b\"]: unknown field, known fields: global micro"},
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
            "spec.train.data.path: missing, expected a file or a folder");
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
       "spec.train.optimizer.schedule: found \"cosin\", expected constant, linear, cosine, "
       "warmupStableDecay or step"},
      {"/spec/train/precision", "", "spec.train.precision: found \"\", expected fp32 or bf16"},
      {"/spec/train/recompute", "all",
       "spec.train.recompute: found \"all\", expected auto, none, ops or blocks"},
      {"/spec/train/attention", "auto", "no error"},
      {"/spec/train/attention", "cudnn",
       "spec.train.attention: cudnn needs spec.gpusPerNode: 1 or more and spec.train.precision: "
       "bf16; expected own or auto"},
      {"/spec/train/attention", "flash",
       "spec.train.attention: found \"flash\", expected own, cudnn or auto"},
      {"/spec/train/model/preset", "gpt5",
       "spec.train.model.preset: found \"gpt5\", expected gpt2-124m, gpt2-350m, gpt2-774m, "
       "gpt2-1.5b, llama-2-7b, llama-2-13b, llama-2-70b, llama-3-8b, llama-3-70b, llama-3.1-8b, "
       "llama-3.1-70b, llama-3.1-405b, llama-3.2-1b, llama-3.2-3b, bert-tiny, bert-mini, "
       "bert-small, "
       "bert-base, bert-large, lenet5, vgg11, vgg16, resnet20, resnet18 or resnet50"},
      {"/spec/train/data/path", std::string(2000, 'x'),
       "spec.train.data.path: 2000 bytes, expected at most 1024"},
      {"/spec/train/model/weights",
       {{"path", std::string(2000, 'x')}},
       "spec.train.model.weights.path: 2000 bytes, expected at most 1024"},
      {"/spec/train/model/weights", {{"path", "gpt2.safetensors"}}, "no error"},
      {"/spec/train/data/pieces", "text.pieces",
       "spec.train.data.pieces: only valid with tokenizer: u16 or u32; omit the field"},
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
       "spec.train.rounding: \"stochastic\" needs spec.train.precision: bf16, expected nearest"},
      {"/spec/train/optimizer/warmupSteps", 101,
       "spec.train.optimizer.warmupSteps: 101 is more than spec.train.steps: 100"},
      {"/spec/train/optimizer",
       {{"schedule", "warmupStableDecay"}, {"decaySteps", 95}, {"warmupSteps", 10}},
       "spec.train.optimizer.decaySteps: 95 and spec.train.optimizer.warmupSteps: 10 are more than "
       "spec.train.steps: 100"},
      {"/spec/train/optimizer",
       {{"schedule", "warmupStableDecay"}},
       "spec.train.optimizer.decaySteps: missing, expected how many steps the learning rate falls "
       "for"},
      {"/spec/train/optimizer/decaySteps", 5,
       "spec.train.optimizer.decaySteps: found 5, which is only valid with schedule: "
       "warmupStableDecay; omit the field"},
      {"/spec/train/optimizer/factor", 0.5,
       "spec.train.optimizer.factor: found 0.5, which is only valid with schedule: step; omit the "
       "field"},
      {"/spec/train/optimizer/milestones",
       {5},
       "spec.train.optimizer.milestones: only valid with schedule: step; omit the field"},
      {"/spec/train/optimizer",
       {{"schedule", "step"}},
       "spec.train.optimizer.milestones: missing, expected the steps after which the learning rate "
       "falls"},
      {"/spec/train/optimizer",
       {{"schedule", "step"}, {"milestones", {20, 10}}},
       "spec.train.optimizer.milestones[1]: 10 comes after 20, expected ascending steps"},
      {"/spec/train/optimizer",
       {{"schedule", "step"}, {"milestones", {20, 100}}},
       "spec.train.optimizer.milestones[1]: 100 changes nothing, expected a step below "
       "spec.train.steps: 100"},
      {"/spec/train/optimizer/minimumLearningRate", 0.5,
       "spec.train.optimizer.minimumLearningRate: 0.5 is more than "
       "spec.train.optimizer.learningRate: 0.002"},
      {"/spec/train/optimizer/momentum", 0.9,
       "spec.train.optimizer.momentum: found 0.9, which is only valid with name: sgd; omit the "
       "field"},
      {"/spec/train/optimizer/nesterov", true,
       "spec.train.optimizer.nesterov: found true, which is only valid with name: sgd; omit the "
       "field"},
      {"/spec/train/optimizer",
       {{"name", "sgd"}, {"nesterov", true}},
       "spec.train.optimizer.nesterov: needs momentum, expected spec.train.optimizer.momentum "
       "above 0"},
      {"/spec/train/optimizer",
       {{"name", "sgd"}, {"epsilon", 1e-6}},
       "spec.train.optimizer.epsilon: found 1e-06, which is only valid with name: adamw, adagrad "
       "or muon; omit the field"},
      {"/spec/train/optimizer",
       {{"name", "adagrad"}, {"beta2", 0.9}},
       "spec.train.optimizer.beta2: found 0.9, which is only valid with name: adamw or muon; omit "
       "the field"},
      {"/spec/train/optimizer",
       {{"name", "sgd"}, {"beta1", 0.8}},
       "spec.train.optimizer.beta1: found 0.8, which is only valid with name: adamw or muon; omit "
       "the field"},
      {"/spec/train/optimizer",
       {{"name", "sgd"}, {"momentum", 0.9}, {"nesterov", true}, {"beta1", 0.9}, {"epsilon", 1e-8}},
       "no error"},
      {"/spec/train/optimizer", {{"name", "adagrad"}, {"epsilon", 1e-10}}, "no error"},
      {"/spec/train/optimizer/name", "adam",
       "spec.train.optimizer.name: found \"adam\", expected adamw, sgd, adagrad or muon"},
      {"/spec/train/optimizer",
       {{"name", "muon"}, {"matrixLearningRate", 0.01}, {"matrixMomentum", 0.9}, {"beta2", 0.9}},
       "no error"},
      {"/spec/train/optimizer",
       {{"name", "muon"}, {"momentum", 0.9}},
       "spec.train.optimizer.momentum: found 0.9, which is only valid with name: sgd; omit the "
       "field"},
      {"/spec/train/optimizer/matrixMomentum", 0.9,
       "spec.train.optimizer.matrixMomentum: found 0.9, which is only valid with name: muon; omit "
       "the field"},
      {"/spec/train/optimizer/matrixLearningRate", 0.01,
       "spec.train.optimizer.matrixLearningRate: found 0.01, which is only valid with name: muon; "
       "omit the field"},
      {"/spec/train/model/heads", 3,
       "spec.train.model.heads: 3 does not divide spec.train.model.width: 128"},
      {"/spec/train/model/kvHeads", 2, "spec.train.model.kvHeads: only valid with family: llama"},
      {"/spec/train/model",
       {{"preset", "gpt2-124m"}, {"family", "llama"}},
       "spec.train.model.family: \"llama\" is not the family of spec.train.model.preset: "
       "\"gpt2-124m\", expected gpt2"},
      {"/spec/train/model",
       {{"preset", "bert-tiny"}, {"family", "gpt2"}},
       "spec.train.model.family: \"gpt2\" is not the family of spec.train.model.preset: "
       "\"bert-tiny\", expected bert"},
      {"/spec/train/model", {{"preset", "bert-tiny"}, {"family", "bert"}}, "no error"},
      {"/spec/train/data/maskToken", 5,
       "spec.train.data.maskToken: only valid with family: bert; omit the field"},
      {"/spec/train/model/vocabulary", 100,
       "spec.train.model.vocabulary: 100 is too small for spec.train.data.tokenizer: bytes, "
       "expected at least 256"},
      {"/spec/train/data/tokenizer", "u16",
       "spec.train.model.vocabulary: missing, expected the number of token ids "
       "(spec.train.data.tokenizer: \"u16\" does not determine it)"},
      {"/spec/train/data", {{"path", "x"}, {"validationFraction", 0}}, "no error"},
      {"/spec/train/validation/everySteps", 5, "no error"},
      {"/spec/managedBy", "someone", "spec.managedBy: found \"someone\", expected domain/path"},
      {"/spec/managedBy", "kueue.x-k8s.io/multikueue", "no error"},
  });
  Json document = good_document();
  document["spec"]["train"]["data"].erase("validationFraction");
  document["spec"]["train"]["validation"]["everySteps"] = 5;
  EXPECT_EQ(valid_training_job_from_json(document).error().message,
            "spec.train.validation.everySteps: 5 needs validation data, expected "
            "spec.train.data.validationFraction above 0");
  document = good_document();
  document["spec"].erase("checkpoint");
  document["spec"]["train"]["timeline"]["everySteps"] = 5;
  EXPECT_EQ(valid_training_job_from_json(document).error().message,
            "spec.train.timeline.everySteps: 5 needs a folder for the recordings, expected "
            "spec.checkpoint.path too");
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
  EXPECT_NE(valid_training_job_from_json(document).error().message.find(
                "tokens per step is out of range"),
            std::string::npos);
}

TEST(TrainingJob, ABertHasAMaskTokenInItsVocabularyAndContinuesNoText) {
  Json bert = good_document();
  bert["spec"]["train"]["model"] = {{"preset", "bert-tiny"}};
  ASSERT_TRUE(valid_training_job_from_json(bert).ok())
      << valid_training_job_from_json(bert).error().message;
  const Refusal cases[] = {
      {"/spec/train/data/maskToken", 103, "no error"},
      {"/spec/train/data/maskToken", 30521, "no error"},
      {"/spec/train/data/maskToken", 30522,
       "spec.train.data.maskToken: 30522 is not below spec.train.model.vocabulary: 30522"},
      {"/spec/train/sample",
       {{"tokens", 10}},
       "spec.train.sample.tokens: found 10, which is not valid with family: bert, which predicts "
       "masked tokens and cannot continue a text; omit the field"},
      {"/spec/train/model/weights",
       {{"path", "/w"}},
       "spec.train.data.maskToken: missing, expected the id of [MASK] in the vocabulary of "
       "spec.train.model.weights (103 for bert-base-uncased)"},
      {"/spec/train/attention", "cudnn",
       "spec.train.attention: cudnn needs spec.gpusPerNode: 1 or more and spec.train.precision: "
       "bf16; "
       "expected own or auto\nspec.train.attention: \"cudnn\" is not valid with family: bert, "
       "expected "
       "own or auto"},
      {"/spec/train/model/normEpsilon", 1e-5, "no error"},
      {"/spec/train/model/kvHeads", 1, "spec.train.model.kvHeads: only valid with family: llama"},
      {"/spec/train/model/ropeBase", 500,
       "spec.train.model.ropeBase: only valid with family: llama"}};
  for (const Refusal& c : cases) {
    Json document = bert;
    document[Json::json_pointer(c.pointer)] = c.value;
    const Result<TrainingJob> job = valid_training_job_from_json(document);
    EXPECT_EQ(job.ok() ? "no error" : job.error().message, c.error) << c.pointer;
  }
}

// The mask token is one that no byte is.
TEST(TrainingJob, ABertOfBytesHasOneTokenMore) {
  TrainSpec train;
  train.model = {.family = "bert", .layers = 2, .width = 8, .heads = 2, .context = 8};
  const ModelConfig config = model_config(train);
  EXPECT_EQ(config.vocabulary, 257);
  EXPECT_EQ(config.norm_epsilon, 1e-12);
  EXPECT_TRUE(config.tied);
  EXPECT_EQ(mask_token(train.data, config), 256);
  train.data.maskToken = 9;
  EXPECT_EQ(mask_token(train.data, config), 9);
  train.model.family = "gpt2";
  EXPECT_EQ(model_config(train).vocabulary, 256);
}

Json mlp_document() {
  Json document = good_document();
  document["spec"]["train"]["model"] = {
      {"family", "mlp"}, {"inputs", 4}, {"hidden", {16, 8}}, {"outputs", 3}};
  document["spec"]["train"]["data"] = {{"features", "x.npy"}, {"targets", "y.npy"}};
  return document;
}

TEST(TrainingJob, EachFamilyNeedsItsOwnFieldsAndRefusesOthers) {
  ASSERT_TRUE(valid_training_job_from_json(mlp_document()).ok())
      << valid_training_job_from_json(mlp_document()).error().message;
  const Refusal cases[] = {
      {"/spec/train/model/inputs", 0,
       "spec.train.model.inputs: missing, expected the number of values of a sample"},
      {"/spec/train/model/outputs", 0,
       "spec.train.model.outputs: missing, expected the number of classes or values"},
      {"/spec/train/model/outputs", 1,
       "spec.train.model.outputs: 1 class, expected at least 2, or for an mlp "
       "spec.train.model.task: regression"},
      {"/spec/train/model/hidden", Json::array(), "no error"},
      {"/spec/train/model/hidden",
       {16, 0},
       "spec.train.model.hidden[1]: 0 is out of range, expected 1 to 262144"},
      {"/spec/train/model/hidden", Json(65, 8),
       "spec.train.model.hidden: 65 items, expected at most 64"},
      {"/spec/train/model/activation", "swish",
       "spec.train.model.activation: found \"swish\", expected relu, gelu or tanh"},
      {"/spec/train/model/task", "regression", "no error"},
      {"/spec/train/model/layers", 2,
       "spec.train.model.layers: found 2, which is only valid with family: gpt2, llama or bert; "
       "omit the "
       "field"},
      {"/spec/train/model/ropeScaling",
       {{"factor", 2}},
       "spec.train.model.ropeScaling.factor: found 2.0, which is only valid with family: gpt2, "
       "llama or bert; omit the field"},
      {"/spec/train/sample",
       {{"tokens", 10}},
       "spec.train.sample.tokens: found 10, which is only valid with family: gpt2, llama or bert; "
       "omit "
       "the field"},
      {"/spec/train/data/path", "text.txt",
       "spec.train.data.path: found \"text.txt\", which is not valid with family: mlp; omit the "
       "field"},
      {"/spec/train/data/targets", "", "spec.train.data.targets: missing, expected a .npy file"},
      {"/spec/parallelism",
       {{"tensor", 2}},
       "spec.parallelism.tensor: 2 is not valid with family: mlp, expected 1"},
      {"/spec/parallelism",
       {{"pipeline", 4}},
       "spec.parallelism.pipeline: 4 stages, expected at most the layers between which the model "
       "is cut: 3"},
      {"/spec/parallelism",
       {{"pipeline", 2}, {"stages", {2, 2}}},
       "spec.parallelism.stages: expected numbers of at least 1 whose sum is the layers, 3"},
      {"/spec/parallelism",
       {{"pipeline", 2}, {"pipelineSchedule", "zerobubble"}, {"stages", {2, 1}}},
       "no error"},
  };
  for (const Refusal& c : cases) {
    Json document = mlp_document();
    document[Json::json_pointer(c.pointer)] = c.value;
    const Result<TrainingJob> job = valid_training_job_from_json(document);
    EXPECT_EQ(job.ok() ? "no error" : job.error().message, c.error) << c.pointer;
  }
  expect_errors({
      {"/spec/train/model/inputs", 4, "spec.train.model.inputs: only valid with family: mlp"},
      {"/spec/train/model/hidden",
       {8},
       "spec.train.model.hidden: only valid with family: mlp, wideAndDeep or "
       "deepFactorizationMachine"},
      {"/spec/train/model/task", "regression",
       "spec.train.model.task: only valid with family: mlp"},
      {"/spec/train/data/features", "x.npy",
       "spec.train.data.features: only valid with family: mlp or convnet"},
      {"/spec/train/model/batchNorm", "local",
       "spec.train.model.batchNorm: only valid with family: convnet"},
      {"/spec/train/data/flip", true, "spec.train.data.flip: only valid with family: convnet"},
  });
}

TEST(TrainingJob, AMeshThatDoesNotFitIsRefusedByWhatItDivides) {
  const std::string error = error_with("/spec/parallelism", {{"tensor", 3}});
  EXPECT_EQ(error,
            "spec.parallelism: pipeline 1 x tensor 3 = 3 does not divide the world of 4 ranks "
            "(spec.nodes: 2 x 2 processes each)\n"
            "spec.train.model.heads: 4 is not a multiple of the tensor-parallel size 3");
}

// Neighbouring ranks have the same head.
TEST(TrainingJob, MayHaveFewerHeadsOfKeysThanTensorParallelRanks) {
  const auto error_of = [](int kv_heads) {
    Json document = good_document();
    document["spec"]["parallelism"]["tensor"] = 4;
    document["spec"]["train"]["model"] = {{"family", "llama"}, {"layers", 4},
                                          {"width", 144},      {"heads", 12},
                                          {"context", 128},    {"kvHeads", kv_heads}};
    const Result<TrainingJob> job = valid_training_job_from_json(document);
    return job.ok() ? "no error" : job.error().message;
  };
  for (const int kv_heads : {1, 2, 4, 12}) EXPECT_EQ(error_of(kv_heads), "no error");
  for (const int kv_heads : {3, 6}) {
    EXPECT_EQ(error_of(kv_heads),
              "spec.train.model.kvHeads: " + std::to_string(kv_heads) +
                  " is not a multiple of the tensor-parallel size 4, nor divides it");
  }
}

TEST(TrainingJob, ProcessGroupsAreChecked) {
  const auto error_of = [](const char* name, const char* ranks) {
    return error_with("/spec/processGroups",
                      {{{"name", "ends"}, {"ranks", "0,3"}}, {{"name", name}, {"ranks", ranks}}});
  };
  EXPECT_EQ(error_of("even", "0::2"), "no error");
  EXPECT_EQ(error_of("ends", "1"), "spec.processGroups[1].name: \"ends\" is listed twice");
  EXPECT_EQ(
      error_of("tensor", "1"),
      "spec.processGroups[1].name: \"tensor\" is reserved for the mesh, expected another name");
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
            at +
                ".action: found \"\", expected Fail, RestartInPlace, RecreatePod, Ignore, RollBack "
                "or SkipBatch");
  EXPECT_EQ(
      error_of({{"event", "Error"}, {"action", "Retry"}}),
      at + ".action: found \"Retry\", expected Fail, RestartInPlace, RecreatePod, Ignore, RollBack "
           "or SkipBatch");
  EXPECT_EQ(error_of({{"exitCodes", {0}}, {"action", "Fail"}}),
            at + ".exitCodes[0]: 0 is out of range, expected 1 to 255");
  EXPECT_NE(error_of({{"event", "Evict"}, {"action", "Fail"}}).find(at + ".event: found \"Evict\""),
            std::string::npos);
  EXPECT_EQ(error_of({{"event", "Evicted"}, {"action", "RestartInPlace"}}),
            at + ".action: found RestartInPlace, but event Evicted removes the pod; expected "
                 "RecreatePod, Ignore or Fail");
  EXPECT_EQ(error_of({{"event", "Error"}, {"after", "10m"}, {"action", "Fail"}}),
            at + ".after: only valid with event: Hang or Straggler");
  EXPECT_EQ(error_of({{"event", "Hang"}, {"after", "10m"}, {"action", "RestartInPlace"}}),
            "no error");
  for (const char* text : {"10", "m", "-5s", "0s", "4s", "1.5h", "25h", "1 m", "10d", "999999m"}) {
    EXPECT_EQ(error_of({{"event", "Hang"}, {"after", text}, {"action", "Fail"}}),
              at + ".after: found \"" + text +
                  "\", expected a whole number with unit s, m or h, from 5s to 24h");
  }
}

TEST(TrainingJob, RulesAboutLossesFitTheJob) {
  const auto error_of = [](Json rule, const std::function<void(Json&)>& change = {}) {
    Json job = good_document();
    job["spec"]["failure"]["rules"] = Json::array({std::move(rule)});
    if (change) change(job["spec"]);
    const Result<TrainingJob> read = valid_training_job_from_json(job);
    return read.ok() ? "no error" : read.error().message;
  };
  const std::string at = "spec.failure.rules[0]";
  const auto with_path = [](Json& spec) { spec["checkpoint"] = {{"path", "/ckpt"}}; };
  const auto in_memory = [](Json& spec) { spec["checkpoint"] = {{"memory", {{"everySteps", 1}}}}; };
  const auto pipedream = [](Json& spec) {
    spec["nodes"] = 2;
    spec["checkpoint"] = {{"path", "/ckpt"}};
    spec["parallelism"] = {{"pipeline", 2}, {"pipelineSchedule", "pipedream"}};
    spec["train"]["optimizer"]["clipNorm"] = 0;
    spec["train"]["model"]["head"] = "own";
  };
  const Json spike = {{"event", "LossSpike"}, {"action", "Fail"}};
  const Json skip = {{"event", "LossNotFinite"}, {"action", "SkipBatch"}};
  const Json skip_spike = {{"event", "LossSpike"}, {"action", "SkipBatch"}, {"deviations", 6}};
  const Json roll_back = {{"event", "LossSpike"}, {"action", "RollBack"}};
  EXPECT_EQ(error_of(spike), "no error");
  EXPECT_EQ(error_of(skip), "no error");
  EXPECT_EQ(error_of(skip_spike, in_memory), "no error");
  EXPECT_EQ(error_of(roll_back, with_path), "no error");
  EXPECT_EQ(error_of(roll_back), at + ".action: RollBack needs a checkpoint to go back to, "
                                      "expected spec.checkpoint.path too");
  EXPECT_EQ(error_of(skip_spike), at + ".action: SkipBatch needs the state before the step, "
                                       "expected spec.checkpoint.memory with everySteps: 1");
  const auto seldom = [](Json& spec) { spec["checkpoint"] = {{"memory", {{"everySteps", 2}}}}; };
  for (const Json& rule : {skip, skip_spike}) {
    EXPECT_NE(error_of(rule, seldom).find("with everySteps: 1"), std::string::npos);
  }
  for (const char* action : {"RecreatePod", "RestartInPlace", "Fail"}) {
    EXPECT_EQ(error_of({{"event", "Straggler"}, {"action", action}, {"after", "2m"}}), "no error");
  }
  EXPECT_EQ(error_of({{"event", "Straggler"}, {"action", "Ignore"}}),
            at + ".action: found \"Ignore\" with event Straggler, expected RecreatePod, "
                 "RestartInPlace or Fail");
  EXPECT_EQ(error_of({{"exitCodes", {6}}, {"event", "Straggler"}, {"action", "Fail"}}),
            at +
                ".exitCodes: not valid with event: Straggler, LossNotFinite or LossSpike, expected "
                "none");
  EXPECT_EQ(error_of({{"event", "LossSpike"}, {"action", "RestartInPlace"}}),
            at + ".action: found \"RestartInPlace\" with event LossSpike, expected Fail, RollBack "
                 "or SkipBatch, because a restart repeats the loss");
  EXPECT_EQ(error_of({{"event", "Error"}, {"action", "SkipBatch"}}),
            at + ".action: found \"SkipBatch\", only valid with event: LossNotFinite or LossSpike");
  EXPECT_EQ(error_of({{"exitCodes", {6}}, {"event", "LossSpike"}, {"action", "Fail"}}),
            at +
                ".exitCodes: not valid with event: Straggler, LossNotFinite or LossSpike, expected "
                "none");
  EXPECT_EQ(error_of({{"event", "LossNotFinite"}, {"action", "Fail"}, {"deviations", 3}}),
            at + ".deviations: only valid with event: LossSpike");
  EXPECT_NE(error_of(skip, pipedream).find(at + ": \"SkipBatch\" does not work with"),
            std::string::npos);
  EXPECT_NE(error_of(spike, pipedream).find(at + ": \"LossSpike\" does not work with"),
            std::string::npos);
  EXPECT_EQ(error_of(skip,
                     [](Json& spec) {
                       spec.erase("train");
                       spec["command"] = {"true"};
                     }),
            at + ".event: found \"LossNotFinite\", which needs spec.train, expected another event");
}

TEST(TrainingJob, ACommandMayHaveARuleAboutHangs) {
  Json job = good_document();
  job["spec"].erase("train");
  job["spec"]["command"] = {"sleep", "100"};
  job["spec"]["failure"]["rules"] =
      Json::array({{{"event", "Hang"}, {"after", "5m"}, {"action", "RestartInPlace"}}});
  const Result<TrainingJob> read = valid_training_job_from_json(job);
  EXPECT_TRUE(read.ok()) << read.error().message;
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
       "spec.processesPerNode: 2 is not a multiple of spec.gpusPerNode: 4, expected 0 (one rank "
       "per GPU) or a multiple of the GPU count"},
      {"/spec/successPolicy", "RankOne",
       "spec.successPolicy: found \"RankOne\", expected AllRanks or RankZero"},
      {"/spec/successPolicy", "RankZero",
       "spec.successPolicy: RankZero is only valid with spec.command, expected AllRanks"},
  });
}

TEST(TrainingJob, TimeToSaveOnPreemptionIsADurationAndNeedsAFolder) {
  const auto error_of = [](const char* text) {
    return error_with("/spec/checkpoint", {{"path", "/ckpt"}, {"onPreemption", text}});
  };
  for (const char* text : {"1s", "60s", "10m", "24h", "1440m"}) {
    EXPECT_EQ(error_of(text), "no error") << text;
  }
  for (const char* text : {"60", "0s", "m", "1.5m", "-1s", "25h", "86401s"}) {
    EXPECT_EQ(error_of(text), "spec.checkpoint.onPreemption: found \"" + std::string(text) +
                                  "\", expected a whole number with unit s, m or h, from 1s to 24h")
        << text;
  }
  EXPECT_EQ(error_with("/spec/checkpoint", {{"onPreemption", "60s"}}),
            "spec.checkpoint.onPreemption: nothing is saved without a folder, expected "
            "spec.checkpoint.path too");
}

TEST(TrainingJob, AnElasticJobsNodesAreBetweenItsBoundsAndItKeepsStatesInMemory) {
  const std::string missing =
      "spec.checkpoint.memory: missing, but spec.elastic needs it with spec.train: a round of "
      "another size resumes from states in memory";
  const auto error_of = [](const Json& elastic) { return error_with("/spec/elastic", elastic); };
  EXPECT_EQ(error_of({{"min", 2}, {"max", 2}}), missing);
  EXPECT_EQ(error_of({{"min", 3}}), "spec.elastic.min: 3 is more than spec.nodes: 2\n" + missing);
  EXPECT_EQ(error_of({{"max", 1}}), "spec.elastic.max: 1 is less than spec.nodes: 2\n" + missing);
  EXPECT_EQ(error_of({{"min", 0}}),
            "spec.elastic.min: 0 is out of range, expected 1 to 4096\n" + missing);
}

TEST(TrainingJob, WhatThisVersionDoesNotCarryOutIsRefused) {
  expect_errors({
      {"/spec/scheduling", Json::object(), "spec.scheduling: not in this version"},
      {"/spec/command",
       {"python", "train.py"},
       "spec: found both train and command, expected exactly one of them"},
  });
}

// Returns the whole error of a job with servers that trains a click model, with one value changed.
std::string servers_error(const std::string& pointer, Json value) {
  Json document = document_of(R"(
apiVersion: lockstep.dev/v1alpha1
kind: TrainingJob
metadata: {name: clicks}
spec:
  nodes: 2
  parameterServers: {nodes: 2, consistency: boundedStaleness, staleness: 4}
  train:
    model: {family: factorizationMachine}
    data: {path: /data/clicks, format: criteo}
    steps: 100
    batch: {global: 32}
    optimizer: {name: adagrad, weightDecay: 0, clipNorm: 0}
)");
  document[Json::json_pointer(pointer)] = std::move(value);
  const Result<TrainingJob> job = valid_training_job_from_json(document);
  return job.ok() ? "no error" : job.error().message;
}

TEST(TrainingJob, WhatAJobWithServersCannotHaveIsRefusedByItsPath) {
  EXPECT_EQ(servers_error("/spec/nodes", 4), "no error");
  const std::string with = " with spec.parameterServers";
  for (const auto& [pointer, value, error] :
       std::vector<std::tuple<std::string, Json, std::string>>{
           {"/spec/gpusPerNode", 1,
            "spec.gpusPerNode: 1" + with + " is not in this version, expected 0"},
           {"/spec/parallelism",
            {{"sharding", "gradients"}},
            "spec.parallelism.sharding: gradients" + with +
                " is not in this version, expected none"},
           {"/spec/train/ema", 0.5,
            "spec.train.ema: 0.5" + with + " is not in this version, expected 0"},
           {"/spec/train/optimizer/clipNorm", 1,
            "spec.train.optimizer.clipNorm: 1.0 with spec.parameterServers, expected 0: servers "
            "update parts of the parameters, and never know the norm of all gradients"},
           {"/spec/parameterServers/consistency", "synchronous",
            "spec.parameterServers.staleness: 4 needs consistency: boundedStaleness (found "
            "\"synchronous\"), expected 0"},
           {"/spec/parameterServers/backupWorkers", 1,
            "spec.parameterServers.backupWorkers: 1 needs consistency: synchronous (found "
            "\"boundedStaleness\"), expected 0"},
           {"/spec/parameterServers/copies", 1, "no error"},
           {"/spec/parameterServers/copies", 2,
            "spec.parameterServers.copies: 2 further servers hold each parameter, expected less "
            "than the nodes (2)"},
           {"/spec/train/model",
            {{"family", "factorizationMachine"}, {"hidden", {4}}},
            "spec.train.model.hidden: only valid with family: mlp, wideAndDeep or "
            "deepFactorizationMachine"},
           {"/spec/train/model", {{"family", "wideAndDeep"}, {"hidden", {4}}}, "no error"},
           {"/spec/train/batch/micro", 4,
            "spec.train.batch.micro: 4" + with +
                " is not in this version, expected 0: a click model has no activations to save "
                "memory of"},
           {"/spec/parameterServers/pushPrecision", "fp16",
            "spec.parameterServers.pushPrecision: found \"fp16\", expected fp32, bf16 or int8"},
           {"/spec/parameterServers/pullPrecision", "int8", "no error"},
           {"/spec/parameterServers/rows",
            {{"idleSteps", 9}, {"minFrequency", 2}, {"halfLifeSteps", 100}},
            "no error"},
           {"/spec/parameterServers/rows",
            {{"idleSteps", 9}},
            "spec.parameterServers.rows.idleSteps: 9 needs minFrequency above 0: only rows that "
            "are used less expire"},
           {"/spec/parameterServers/rows",
            {{"halfLifeSteps", 9}},
            "spec.parameterServers.rows.halfLifeSteps: 9.0 needs idleSteps"},
           {"/spec/parameterServers/rows", {{"decay", 0.001}, {"pushThreshold", 0.01}}, "no error"},
           {"/spec/parameterServers",
            {{"nodes", 1}, {"backupWorkers", 1}, {"rows", {{"pushThreshold", 0.1}}}},
            "spec.parameterServers.rows.pushThreshold: only valid with backupWorkers: 0, since "
            "pushes that are late would lose what was kept back"},
           {"/spec/parameterServers/rows",
            {{"pushThreshold", -1}},
            "spec.parameterServers.rows.pushThreshold: -1 is out of range, expected 0 to 1e+06"},
           {"/spec/train/data/format", "tsv",
            "spec.train.data.format: found \"tsv\", expected criteo or libsvm"},
       }) {
    EXPECT_EQ(servers_error(pointer, value), error) << pointer;
  }
}

// Returns the whole error of a job with servers that trains this model on images.
std::string image_servers_error(int64_t nodes, const std::string& model,
                                const std::string& servers = "{nodes: 2}") {
  Json document = document_of(R"(
apiVersion: lockstep.dev/v1alpha1
kind: TrainingJob
metadata: {name: digits}
spec:
  train:
    data: {features: /data/images.npy, targets: /data/targets.npy}
    steps: 100
    batch: {global: 32}
    optimizer: {clipNorm: 0}
)");
  document["spec"]["nodes"] = nodes;
  document["spec"]["parameterServers"] = document_of(servers);
  document["spec"]["train"]["model"] = document_of(model);
  const Result<TrainingJob> job = valid_training_job_from_json(document);
  return job.ok() ? "no error" : job.error().message;
}

TEST(TrainingJob, WorkersNextToServersDoNotNormaliseTogether) {
  const std::string error =
      "spec.train.model.batchNorm: synchronized with spec.parameterServers is not in this version, "
      "expected local: workers exchange nothing";
  EXPECT_EQ(image_servers_error(2, "{preset: resnet20}"), error);
  EXPECT_EQ(image_servers_error(2, "{preset: vgg11, batchNorm: synchronized}"), error);
  EXPECT_EQ(image_servers_error(2, "{preset: resnet20, batchNorm: local}"), "no error");
  EXPECT_EQ(image_servers_error(1, "{preset: resnet20}"), "no error");
  EXPECT_EQ(image_servers_error(2, "{preset: lenet5}"), "no error") << "it does not normalise";
}

TEST(TrainingJob, OnlyClickModelsHaveRows) {
  EXPECT_EQ(image_servers_error(2, "{preset: lenet5}", "{nodes: 2, rows: {decay: 0.1}}"),
            "spec.parameterServers.rows.decay: only valid with a click model, which has rows");
}

// Returns the whole error of the good document with this spec.parallelism, in YAML.
std::string parallelism_error(const std::string& yaml) {
  return error_with("/spec/parallelism", document_of(yaml));
}

TEST(TrainingJob, EveryWayToShareStateIsValid) {
  for (const char* valid :
       {"{sharding: optimizer}", "{sharding: gradients, reducePrecision: bf16}",
        "{sharding: parameters, shardingGroup: node, reshardAfterForward: false, prefetch: false, "
        "gatherPrecision: bf16, offload: parameters, offloadPath: scratch}",
        "{offload: optimizer, reducePrecision: bf16}", "{exchange: firstRank}",
        "{sharding: none, shardingGroup: data, reshardAfterForward: true, offload: none}"}) {
    EXPECT_EQ(parallelism_error(valid), "no error") << valid;
  }
  Json document = good_document();
  document["spec"]["nodes"] = 1;
  document["spec"]["parallelism"] = {{"exchange", "host"}};
  EXPECT_TRUE(valid_training_job_from_json(document).ok());
  document["spec"]["processesPerNode"] = 1;
  document["spec"]["parallelism"] = {{"sharding", "parameters"}, {"shardingGroup", "node"}};
  EXPECT_TRUE(valid_training_job_from_json(document).ok()) << "one process divides nothing anyway";
}

TEST(TrainingJob, SharingThatWouldHaveNoEffectIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"{sequenceParallel: true}",
       "sequenceParallel: true needs spec.parallelism.tensor: 2 or more (found 1), expected false"},
      {"{shardingGroup: node}",
       "shardingGroup: \"node\" needs spec.parallelism.sharding: optimizer, gradients or "
       "parameters "
       "(found \"none\"), expected data"},
      {"{sharding: gradients, reshardAfterForward: false}",
       "reshardAfterForward: false needs spec.parallelism.sharding: parameters (found "
       "\"gradients\"), expected true"},
      {"{prefetch: false}",
       "prefetch: false needs spec.parallelism.sharding: parameters (found \"none\"), expected "
       "true"},
      {"{sharding: optimizer, gatherPrecision: bf16}",
       "gatherPrecision: \"bf16\" needs spec.parallelism.sharding: parameters (found "
       "\"optimizer\"), expected fp32"},
      {"{sharding: gradients, offload: parameters}",
       "offload: \"parameters\" needs spec.parallelism.sharding: parameters (found "
       "\"gradients\"), expected none or optimizer"},
      {"{offloadPath: /scratch}",
       "offloadPath: found \"/scratch\", but nothing is offloaded, expected "
       "spec.parallelism.offload too"},
      {"{exchange: firstRank, sharding: optimizer}",
       "exchange: \"firstRank\" needs spec.parallelism.sharding: none (found \"optimizer\"), "
       "expected allReduce"},
      {"{exchange: firstRank, offload: optimizer}",
       "exchange: \"firstRank\" needs spec.parallelism.offload: none (found \"optimizer\"), "
       "expected allReduce"},
      {"{exchange: firstRank, reducePrecision: bf16}",
       "exchange: \"firstRank\" needs spec.parallelism.reducePrecision: fp32 (found \"bf16\"), "
       "expected allReduce"},
      {"{exchange: host}",
       "exchange: host needs spec.nodes: 1 (found 2), because pods share no memory; expected "
       "allReduce or firstRank"},
      {"{exchange: ring}", "exchange: found \"ring\", expected allReduce, firstRank or host"}};
  for (const auto& [found, error] : cases) {
    EXPECT_EQ(parallelism_error(found), "spec.parallelism." + std::string(error)) << found;
  }
}

TEST(TrainingJob, TheTensorParallelRanksDivideTheContext) {
  const char* const refused =
      "spec.train.model.context: 9 is not a multiple of spec.parallelism.tensor: 2, expected one, "
      "or spec.parallelism.sequenceParallel: false";
  for (const bool divides : {true, false}) {
    Json document = good_document();
    document["spec"]["train"]["model"]["context"] = divides ? 8 : 9;
    document["spec"]["parallelism"] = {{"tensor", 2}, {"sequenceParallel", true}};
    const Result<TrainingJob> job = valid_training_job_from_json(document);
    const std::string error = job.ok() ? "" : job.error().message;
    EXPECT_EQ(error.find(refused) == std::string::npos, divides) << error;
    EXPECT_EQ(error.find("sequenceParallel: true needs"), std::string::npos) << error;
  }
}

TEST(TrainingJob, TheRanksOfANodeDivideTheStateIfThereAreSeveral) {
  Json document = good_document();
  document["spec"]["processesPerNode"] = 1;
  document["spec"]["parallelism"] = {{"sharding", "parameters"}, {"shardingGroup", "node"}};
  EXPECT_EQ(valid_training_job_from_json(document).error().message,
            "spec.parallelism.shardingGroup: node needs at least 2 data-parallel ranks on each "
            "node, found 1, expected data or a larger spec.processesPerNode");
  document["spec"]["processesPerNode"] = 4;
  document["spec"]["parallelism"]["pipeline"] = 2;
  document["spec"]["train"]["batch"] = {{"global", 8}};
  for (const int64_t pipeline : {1, 2, 4}) {  // of 8 ranks on 2 nodes
    document["spec"]["parallelism"]["pipeline"] = pipeline;
    document["spec"]["train"]["model"]["layers"] = 4;
    EXPECT_TRUE(valid_training_job_from_json(document).ok()) << pipeline;
  }
  document["spec"]["parallelism"]["pipeline"] = 1;
  document["spec"]["processesPerNode"] = 3;
  document["spec"]["parallelism"]["tensor"] = 2;
  document["spec"]["train"]["batch"] = {{"global", 6}};
  const std::string error = valid_training_job_from_json(document).error().message;
  EXPECT_NE(error.find("spec.parallelism.shardingGroup: node: 3 processes per node / tensor 2 does "
                       "not divide the 3 data-parallel ranks, expected data\n"),
            std::string::npos)
      << error;
}

TEST(TrainingJob, AllProblemsComeAtOnceButNoneAboutWhatCouldNotBeRead) {
  Json document = good_document();
  document["metadata"]["name"] = "Bad";
  document["spec"]["nods"] = 3;
  document["spec"]["train"]["batch"]["global"] = "many";  // so micro can't be checked
  document["spec"]["train"]["batch"]["micro"] = 48;
  document["spec"]["train"]["optimizer"]["warmupSteps"] = 1000;
  EXPECT_EQ(valid_training_job_from_json(document).error().message,
            "spec.train.batch.global: found the string \"many\", expected an integer\n"
            "spec.nods: unknown field, did you mean nodes?\n"
            "metadata.name: found \"Bad\", expected lower-case letters, digits and hyphens, "
            "starting with a letter and ending with a letter or digit (RFC 1035)\n"
            "spec.train.optimizer.warmupSteps: 1000 is more than spec.train.steps: 100");
}

}  // namespace
}  // namespace lockstep
