#include "common/api/rules.h"

#include <algorithm>

#include "common/api/agent_messages.h"
#include "common/api/rule_checks.h"
#include "common/api/training_job_fields.h"

namespace lockstep {
namespace {

// Fields that only some families read: below spec.train.model, and below spec.train.
constexpr const char* kTransformerModelFields[] = {"layers",
                                                   "width",
                                                   "heads",
                                                   "context",
                                                   "vocabulary",
                                                   "hiddenWidth",
                                                   "head",
                                                   "kvHeads",
                                                   "ropeBase",
                                                   "ropeScaling.factor",
                                                   "ropeScaling.lowFrequencyFactor",
                                                   "ropeScaling.highFrequencyFactor",
                                                   "ropeScaling.originalContext",
                                                   "normEpsilon",
                                                   "weights.path"};
constexpr const char* kTransformerTrainFields[] = {"data.tokenizer", "data.pieces", "attention",
                                                   "sample.tokens"};
constexpr const char* kMlpModelFields[] = {"inputs", "activation", "task"};
constexpr const char* kTableTrainFields[] = {"data.features", "data.targets"};
constexpr const char* kConvnetModelFields[] = {"imageHeight", "imageWidth", "imageChannels",
                                               "batchNorm"};
constexpr const char* kConvnetTrainFields[] = {"data.flip", "data.cropPadding", "data.mean",
                                               "data.deviation"};
constexpr char kConvnetPresets[] = "lenet5 vgg11 vgg16 resnet20 resnet18 resnet50";
constexpr char kClickFamilies[] =
    "logisticRegression factorizationMachine wideAndDeep deepFactorizationMachine";
constexpr char kFactorFamilies[] = "factorizationMachine wideAndDeep deepFactorizationMachine";
constexpr char kDeepClickFamilies[] = "wideAndDeep deepFactorizationMachine";
constexpr char kMissingDimension[] = "missing, expected a number, or spec.train.model.preset";
constexpr char kMeshGroups[] = "world pipeline data tensor";
constexpr int64_t kPortsEnd = 65536;
constexpr int64_t kServerRanksMax = 1024;  // of a view (agent/server/limits.h)
// TF_CONFIG names every rank, and Linux limits an environment variable to 128 KiB (execve(2)).
constexpr int64_t kTensorflowWorldMax = 2048;

std::string text(int64_t value) {
  return std::to_string(value);
}

// Collects the rules. Its members name what several rules compute.
class Table {
 public:
  std::vector<Rule> rules() {
    check(check_metadata, {"metadata"});
    require(root_, "metadata.name",
            root_["metadata.name"] == "" || root_.matches("metadata.name", kLabel),
            std::string("[found {}, ]expected ") + kLabelText + " (RFC 1035)",
            {root_["metadata.name"]});
    add_program();
    add_checkpoint();
    add_failure_rules();
    add_mesh();
    add_elastic();
    add_ports();
    add_groups();
    add_families();
    add_model();
    add_mlp();
    add_convnet();
    add_clicks();
    add_batch();
    add_training();
    add_optimizer();
    add_command();
    add_sharing();
    add_servers();
    return std::move(rules_);
  }

 private:
  void require(const Scope& scope, std::string field, Expression holds, std::string text,
               std::vector<Expression> values = {}) {
    rules_.push_back({.scope = scope.path(),
                      .field = std::move(field),
                      .holds = std::move(holds),
                      .text = std::move(text),
                      .values = std::move(values)});
  }
  void check(void (*find)(const TrainingJob&, Problems&), std::vector<std::string> reads) {
    rules_.push_back({.check = find, .reads = std::move(reads)});
  }
  // The condition holds if the job has the built-in loop.
  Expression in_train(const Expression& holds) const { return !spec_.given("train") || holds; }

  void add_program();
  void add_checkpoint();
  void add_failure_rules();
  void add_mesh();
  void add_elastic();
  void add_ports();
  void add_groups();
  void add_families();
  void add_model();
  void add_mlp();
  void add_convnet();
  void add_clicks();
  void add_batch();
  void add_training();
  void add_timeline();
  void add_optimizer();
  void add_command();
  void add_sharing();
  void add_schedules();
  void add_servers();

  const Scope root_{""};
  const Scope spec_{"spec"};
  const Scope train_{"spec.train"};
  const Scope model_{"spec.train.model"};
  // In model_, and in train_.
  const Expression is_mlp_ = model_["family"] == kMlp;
  const Expression trains_mlp_ = train_["model.family"] == kMlp;
  const Expression is_clicks_ = is_one_of(model_["family"], kClickFamilies);
  const Expression trains_clicks_ = is_one_of(train_["model.family"], kClickFamilies);
  const Expression has_convnet_preset_ = is_one_of(model_["preset"], kConvnetPresets);
  const Expression is_convnet_ = model_["family"] == kConvnet || has_convnet_preset_;
  const Expression trains_convnet_ =
      train_["model.family"] == kConvnet || is_one_of(train_["model.preset"], kConvnetPresets);
  const Expression is_transformer_ = !is_mlp_ && !is_clicks_ && !is_convnet_;
  const Expression trains_transformer_ = !trains_mlp_ && !trains_clicks_ && !trains_convnet_;
  const Expression trains_bert_ =
      train_["model.family"] == kBert || train_.matches("model.preset", kBertPreset);
  const Expression nodes_ = spec_["nodes"];
  const Expression gpus_ = spec_["gpusPerNode"];
  const Expression processes_ =
      spec_.positive_or("processesPerNode", spec_.positive_or("gpusPerNode", 1));
  const Expression world_ = nodes_ * processes_;
  const Expression tensor_ = spec_["parallelism.tensor"];
  const Expression pipeline_ = spec_["parallelism.pipeline"];
  const Expression is_interleaved_ = spec_["parallelism.pipelineSchedule"] == "interleaved";
  const Expression data_ = world_ / (pipeline_ * tensor_);  // data-parallel ranks
  const Expression has_mesh_ = world_ % (pipeline_ * tensor_) == 0;
  std::vector<Rule> rules_;
};

void Table::add_program() {
  const Expression has_train = spec_.given("train");
  const Expression has_command = spec_.given("command");
  require(spec_, "", !has_train || !has_command,
          "found both train and command, expected exactly one of them");
  require(spec_, "", has_train || has_command,
          "found neither train nor command, expected exactly one of them");
  require(spec_, "successPolicy", in_train(spec_["successPolicy"] != kRankZero),
          "RankZero is only valid with spec.command, expected AllRanks");
  require(train_, "data.path", trains_mlp_ || trains_convnet_ || train_.given("data.path"),
          "missing, expected a file or a folder");
  require(train_, "data.path", !trains_mlp_ || train_.is_default("data.path"),
          "[found {}, which is ]not valid with family: mlp; omit the field", {train_["data.path"]});
  require(spec_, "managedBy", !spec_.given("managedBy") || spec_.matches("managedBy", kDomainPath),
          "[found {}, ]expected domain/path", {spec_["managedBy"]});
}

void Table::add_checkpoint() {
  const Scope checkpoint("spec.checkpoint");
  const Expression has_time = checkpoint.given("onPreemption");
  require(checkpoint, "onPreemption", !has_time || checkpoint.matches("onPreemption", kDuration),
          std::string("[found {}, ]expected ") + kPreemptionText, {checkpoint["onPreemption"]});
  require(checkpoint, "onPreemption", !has_time || checkpoint.given("path"),
          "nothing is saved without a folder, expected spec.checkpoint.path too");
  check(check_preemption, {"spec.checkpoint"});
}

void Table::add_failure_rules() {
  const Scope rule("spec.failure.rules[]");
  const Expression has_after = rule.given("after");
  require(rule, "", rule.given("exitCodes") || rule.given("event"),
          "found neither exitCodes nor event, expected at least one of them");
  require(rule, "after", !has_after || is_one_of(rule["event"], "Hang Straggler"),
          "only valid with event: Hang or Straggler");
  require(rule, "after", !has_after || rule.matches("after", kDuration),
          std::string("[found {}, ]expected ") + kHangText, {rule["after"]});
  const Expression is_about_loss = is_one_of(rule["event"], kLossEvents);
  require(rule, "action", !is_about_loss || is_one_of(rule["action"], kLossActions),
          "[found {} with event {text}, ]expected Fail, RollBack or SkipBatch, because a restart "
          "repeats the loss",
          {rule["action"], rule["event"]});
  require(rule, "action", is_about_loss || !is_one_of(rule["action"], "RollBack SkipBatch"),
          "[found {}, ]only valid with event: LossNotFinite or LossSpike", {rule["action"]});
  const Expression is_slow = rule["event"] == kStraggler;
  require(rule, "exitCodes", !(is_about_loss || is_slow) || !rule.given("exitCodes"),
          "not valid with event: Straggler, LossNotFinite or LossSpike, expected none");
  require(rule, "action", !is_slow || rule["action"] != "Ignore",
          "[found {} with event Straggler, ]expected RecreatePod, RestartInPlace or Fail",
          {rule["action"]});
  require(rule, "deviations", rule["deviations"] == 0 || rule["event"] == kLossSpike,
          "only valid with event: LossSpike");
  require(rule, "action",
          rule["action"] != "RestartInPlace" || !rule.given("event") || is_about_loss ||
              is_one_of(rule["event"], kProcessEvents),
          "found RestartInPlace, but event [{text} ]removes the pod; expected RecreatePod, Ignore "
          "or Fail",
          {rule["event"]});
  check(check_hang, {"spec.failure.rules"});
  check(check_losses, {"spec.failure.rules"});
}

void Table::add_mesh() {
  const char* made_of = " (spec.nodes[: {}] x [{} ]processes each)";
  require(
      spec_, "nodes", world_ <= kWorldSizeMax,
      std::string("a world of [{} ]ranks") + made_of + ", expected at most " + text(kWorldSizeMax),
      {world_, nodes_, processes_});
  require(spec_, "parallelism", has_mesh_,
          std::string("pipeline [{} ]x tensor [{} = {} ]does not divide the world of [{} ]ranks") +
              made_of,
          {pipeline_, tensor_, pipeline_ * tensor_, world_, nodes_, processes_});
  // A command may use several GPUs from one process; each rank of the built-in loop has one.
  require(spec_, "processesPerNode", in_train(gpus_ == 0 || processes_ % gpus_ == 0),
          "{} is not a multiple of spec.gpusPerNode[: {}], expected 0 (one rank per GPU) or a "
          "multiple of the GPU count",
          {processes_, gpus_});
  // An explicit cudnn must not silently fall back to another implementation; auto uses whatever is
  // available.
  require(spec_, "train.attention",
          in_train(spec_["train.attention"] != "cudnn" ||
                   (gpus_ > 0 && spec_["train.precision"] == "bf16")),
          "cudnn needs spec.gpusPerNode: 1 or more and spec.train.precision: bf16; expected own or "
          "auto");
}

void Table::add_elastic() {
  const Expression is_elastic = spec_.given("elastic");
  const Expression fewest = spec_["elastic.min"];
  const Expression most = spec_["elastic.max"];
  require(spec_, "elastic.min", !is_elastic || fewest <= nodes_, "{} is more than spec.nodes[: {}]",
          {fewest, nodes_});
  require(spec_, "elastic.max", !is_elastic || nodes_ <= most, "{} is less than spec.nodes[: {}]",
          {most, nodes_});
  require(
      spec_, "elastic", !is_elastic || !spec_.given("processGroups"),
      "not valid with spec.processGroups, because their ranks may be missing; omit one of them");
  require(
      spec_, "checkpoint.memory", in_train(!is_elastic || spec_.given("checkpoint.memory")),
      "missing, but spec.elastic needs it with spec.train: a round of another size resumes from "
      "states in memory");
}

void Table::add_ports() {
  const Expression port = spec_["rendezvous.port"];
  const Expression ports = processes_ * either(spec_.given("train"), 1, kPortRounds);
  const Expression each =
      either(spec_.given("train"), "", (" with " + text(kPortRounds) + " ports each").c_str());
  require(spec_, "rendezvous.port", port + ports <= kPortsEnd,
          "{} leaves no room for [{} ]processes[{text}, expected at most {}]",
          {port, processes_, each, kPortsEnd - ports});
  require(spec_, "rendezvous.port", port > kAgentPort || port + ports <= kAgentPort,
          "[{} to {}, ]the ports of [{} ]processes[{text},] include the agent's port " +
              text(kAgentPort) + ", expected a range without it",
          {port, port + ports - 1, processes_, each});
}

void Table::add_groups() {
  const Scope group("spec.processGroups[]");
  require(group, "name", group.matches("name", kLabel),
          std::string("[found {}, ]expected ") + kLabelText, {group["name"]});
  require(group, "name", !is_one_of(group["name"], kMeshGroups),
          "{} is reserved for the mesh, expected another name", {group["name"]});
  check(check_groups,
        {"spec.processGroups", "spec.nodes", "spec.processesPerNode", "spec.gpusPerNode"});
}

// Each family refuses the fields that only others read.
void Table::add_families() {
  const char* not_here =
      "[found {}, which is ]only valid with family: gpt2, llama or bert; omit the field";
  for (const char* field : kTransformerModelFields) {
    require(model_, field, is_transformer_ || model_.is_default(field), not_here, {model_[field]});
  }
  for (const char* field : kTransformerTrainFields) {
    require(train_, field, trains_transformer_ || train_.is_default(field), not_here,
            {train_[field]});
  }
  require(train_, "recompute",
          trains_transformer_ || train_["recompute"] == "auto" || train_["recompute"] == "none",
          "[found {}, which is ]only valid with family: gpt2, llama or bert; omit the field",
          {train_["recompute"]});
  require(model_, "preset", !(is_mlp_ || is_clicks_) || model_.is_default("preset"),
          "[found {}, which is ]not valid with this family, which has no presets; omit the field",
          {model_["preset"]});
  const auto only_with = [&](const Scope& scope, const char* field, const Expression& is_read,
                             const std::string& families) {
    const bool is_plain = scope.fallback(field).is_number() || scope.fallback(field).is_boolean();
    require(scope, field, is_read || (is_plain ? scope.is_default(field) : !scope.given(field)),
            "only valid with family: " + families);
  };
  for (const char* field : kMlpModelFields) only_with(model_, field, is_mlp_, "mlp");
  only_with(model_, "hidden", is_mlp_ || is_one_of(model_["family"], kDeepClickFamilies),
            "mlp, wideAndDeep or deepFactorizationMachine");
  only_with(model_, "outputs", is_mlp_ || is_convnet_, "mlp or convnet");
  for (const char* field : kTableTrainFields) {
    only_with(train_, field, trains_mlp_ || trains_convnet_, "mlp or convnet");
  }
  for (const char* field : kConvnetModelFields) only_with(model_, field, is_convnet_, "convnet");
  for (const char* field : kConvnetTrainFields) {
    only_with(train_, field, trains_convnet_, "convnet");
  }
}

void Table::add_mlp() {
  const Expression outputs = train_["model.outputs"];
  require(train_, "model.inputs", !trains_mlp_ || train_["model.inputs"] > 0,
          "missing, expected the number of values of a sample");
  require(train_, "model.outputs", !trains_mlp_ || outputs > 0,
          "missing, expected the number of classes or values");
  require(model_, "outputs",
          !(is_mlp_ || is_convnet_) || model_["task"] == "regression" || model_["outputs"] != 1,
          "1 class, expected at least 2, or for an mlp spec.train.model.task: regression");
  require(train_, "data.features", !trains_mlp_ || train_.given("data.features"),
          "missing, expected a .npy file");
  require(train_, "data.targets",
          !(trains_mlp_ || (trains_convnet_ && train_.given("data.features"))) ||
              train_.given("data.targets"),
          "missing, expected a .npy file");
}

// Its data are files of images and classes, or CIFAR-10's, which have both.
void Table::add_convnet() {
  const Expression has_path = train_.given("data.path");
  require(model_, "preset", !is_convnet_ || model_.given("preset"),
          "missing, expected the name of a convolutional network");
  require(train_, "data.features", !trains_convnet_ || has_path || train_.given("data.features"),
          "missing, expected a file of images, or CIFAR-10's as spec.train.data.path");
  require(train_, "data.path",
          !trains_convnet_ || !has_path ||
              (!train_.given("data.features") && !train_.given("data.targets")),
          "found features or targets too, expected either these or a path");
  check(check_normalisation, {"spec.train.model", "spec.train.data"});
}

void Table::add_clicks() {
  const Expression is_deep = is_one_of(train_["model.family"], kDeepClickFamilies);
  require(model_, "factors", is_one_of(model_["family"], kFactorFamilies) || model_["factors"] == 0,
          "only valid with family: factorizationMachine, wideAndDeep or deepFactorizationMachine; "
          "omit the field");
  require(train_, "data.format", trains_clicks_ || !train_.given("data.format"),
          "only valid with the family of a click model; omit the field");
  require(train_, "data.format", !trains_clicks_ || train_.given("data.format"),
          "missing, expected criteo or libsvm");
  require(train_, "data.format", !is_deep || train_["data.format"] != "libsvm",
          "libsvm has no columns, which the hidden layers of this family read; expected criteo");
  require(train_, "dropout", !trains_clicks_ || train_.is_default("dropout"),
          "[found {}, which is ]not in this version with the family of a click model; omit the "
          "field",
          {train_["dropout"]});
}

void Table::add_model() {
  const Expression has_preset = train_.given("model.preset");
  const Expression is_bytes = train_["data.tokenizer"] == "bytes";
  const Expression vocabulary = train_["model.vocabulary"];
  const Expression width = model_["width"];
  const Expression heads = model_["heads"];
  const Expression kv_heads = model_["kvHeads"];
  const Expression is_llama = model_.matches("preset", kLlamaPreset);
  const Expression is_bert = model_.matches("preset", kBertPreset);
  require(
      model_, "family",
      !model_.given("family") || is_mlp_ || is_clicks_ || !model_.given("preset") ||
          ((model_["family"] == "llama") == is_llama && (model_["family"] == kBert) == is_bert &&
           (model_["family"] == kConvnet) == has_convnet_preset_),
      "{} is not the family of spec.train.model.preset[: {}, expected {text}]",
      {model_["family"], model_["preset"],
       either(has_convnet_preset_, kConvnet,
              either(is_llama, "llama", either(is_bert, kBert, "gpt2")))});
  for (const char* dimension : {"model.layers", "model.width", "model.heads", "model.context"}) {
    require(train_, dimension, !trains_transformer_ || has_preset || train_[dimension] > 0,
            kMissingDimension);
  }
  require(train_, "model.vocabulary",
          !trains_transformer_ || has_preset || is_bytes || vocabulary > 0,
          "missing, expected the number of token ids (spec.train.data.tokenizer[: {}] does not "
          "determine it)",
          {train_["data.tokenizer"]});
  require(train_, "data.maskToken", trains_bert_ || train_.is_default("data.maskToken"),
          "only valid with family: bert; omit the field");
  require(train_, "sample.tokens", !trains_bert_ || train_.is_default("sample.tokens"),
          "[found {}, which is ]not valid with family: bert, which predicts masked tokens and "
          "cannot continue a text; omit the field",
          {train_["sample.tokens"]});
  check(check_mask_token, {"spec.train.model", "spec.train.data"});
  check(check_attention_of_bert, {"spec.train.model", "spec.train.attention"});
  require(train_, "data.pieces", !is_bytes || !train_.given("data.pieces"),
          "only valid with tokenizer: u16 or u32; omit the field");
  require(model_, "heads", width == 0 || heads == 0 || width % heads == 0,
          "{} does not divide spec.train.model.width[: {}]", {heads, width});
  require(model_, "kvHeads", heads == 0 || kv_heads == 0 || heads % kv_heads == 0,
          "{} does not divide spec.train.model.heads[: {}]", {kv_heads, heads});
  check(check_model, {"spec.train.model", "spec.train.data.tokenizer", "spec.parallelism"});
  require(train_, "model.vocabulary", !is_bytes || vocabulary == 0 || vocabulary >= 256,
          "{} is too small for spec.train.data.tokenizer: bytes, expected at least 256",
          {vocabulary});
}

void Table::add_batch() {
  const Scope batch("spec.train.batch");
  const Expression global = spec_["train.batch.global"];
  const Expression micro = spec_["train.batch.micro"];
  const Expression fits = global % data_ == 0;
  const Expression may_be_uneven = spec_.given("elastic") && !is_interleaved_;
  require(batch, "micro", batch["micro"] == 0 || batch["global"] % batch["micro"] == 0,
          "{} does not divide spec.train.batch.global[: {}]", {batch["micro"], batch["global"]});
  require(spec_, "train.batch.global", in_train(!has_mesh_ || fits || may_be_uneven),
          "{} is not a multiple of the [{} ]data-parallel ranks", {global, data_});
  require(spec_, "train.batch.global", in_train(!has_mesh_ || !may_be_uneven || global >= data_),
          "{} is less than the [{} ]data-parallel ranks", {global, data_});
  require(spec_, "train.batch.micro",
          in_train(!has_mesh_ || !fits || micro == 0 || global % micro != 0 ||
                   global % (micro * data_) == 0 || may_be_uneven),
          "{} x [{} ]data-parallel ranks[ = {}] does not divide spec.train.batch.global[: {}]",
          {micro, data_, micro * data_, global});
  const Expression turns = pipeline_ * data_;  // micro-batches take turns in groups of one a stage
  require(spec_, "train.batch.global",
          in_train(!has_mesh_ || !is_interleaved_ || !fits || global % turns == 0),
          "{} is not a multiple of [{} ]stages x [{} ]data-parallel ranks, but an interleaved "
          "pipeline's micro-batches are a multiple of its stages",
          {global, pipeline_, data_});
  require(spec_, "train.batch.micro",
          in_train(!has_mesh_ || !is_interleaved_ || micro == 0 || global % turns != 0 ||
                   global % (micro * data_) != 0 || global % (micro * turns) == 0),
          "{} x [{} ]stages x [{} ]data-parallel ranks does not divide "
          "spec.train.batch.global[: {}], but an interleaved pipeline's micro-batches are a "
          "multiple of its stages",
          {micro, pipeline_, data_, global});
}

void Table::add_training() {
  const Expression steps = train_["steps"];
  const Expression warmup = train_["optimizer.warmupSteps"];
  const Expression rate = train_["optimizer.learningRate"];
  const Expression final_rate = train_["optimizer.minimumLearningRate"];
  const Expression validation = train_["validation.everySteps"];
  require(train_, "rounding", train_["rounding"] == "nearest" || train_["precision"] == "bf16",
          "{} needs spec.train.precision: bf16, expected nearest", {train_["rounding"]});
  require(train_, "optimizer.warmupSteps", warmup <= steps,
          "{} is more than spec.train.steps[: {}]", {warmup, steps});
  const Expression decay = train_["optimizer.decaySteps"];
  require(train_, "optimizer.decaySteps", decay == 0 || warmup + decay <= steps,
          "{} and spec.train.optimizer.warmupSteps[: {}] are more than spec.train.steps[: {}]",
          {decay, warmup, steps});
  require(train_, "optimizer.minimumLearningRate", final_rate <= rate,
          "{} is more than spec.train.optimizer.learningRate[: {}]", {final_rate, rate});
  require(train_, "validation.everySteps",
          validation == 0 || train_["data.validationFraction"] > 0.0,
          "{} needs validation data, expected spec.train.data.validationFraction above 0",
          {validation});
  add_timeline();
  check(check_tokens, {"spec.train.steps", "spec.train.batch.global", "spec.train.model"});
  require(spec_, "rendezvous.variables", in_train(!spec_.given("rendezvous.variables")),
          "only valid with spec.command, which is not set");
}

void Table::add_timeline() {
  const Expression every = train_["timeline.everySteps"];
  const Expression recorded = train_["timeline.steps"];
  require(train_, "timeline.everySteps", every <= train_["steps"],
          "{} is more than spec.train.steps[: {}], so nothing would be recorded",
          {every, train_["steps"]});
  require(train_, "timeline.steps", recorded == 1 || recorded <= every,
          "{} is more than spec.train.timeline.everySteps[: {}]", {recorded, every});
  const Expression in_spec = spec_["train.timeline.everySteps"];
  require(spec_, "train.timeline.everySteps",
          in_train(in_spec == 0 || spec_.given("checkpoint.path")),
          "{} needs a folder for the recordings, expected spec.checkpoint.path too", {in_spec});
}

void Table::add_optimizer() {
  const Scope optimizer("spec.train.optimizer");
  const Expression name = optimizer["name"];
  const auto only_with = [&](const char* field, const Expression& is_read, const char* names) {
    require(optimizer, field, is_read || optimizer.is_default(field),
            std::string("[found {}, which is ]only valid with name: ") + names + "; omit the field",
            {optimizer[field]});
  };
  const Expression has_adamw = name == "adamw" || name == "muon";
  only_with("beta1", has_adamw, "adamw or muon");
  only_with("beta2", has_adamw, "adamw or muon");
  only_with("epsilon", name != "sgd", "adamw, adagrad or muon");
  only_with("momentum", name == "sgd", "sgd");
  only_with("nesterov", name == "sgd", "sgd");
  only_with("matrixLearningRate", name == "muon", "muon");
  only_with("matrixMomentum", name == "muon", "muon");
  check(check_muon, {"spec.train", "spec.parallelism", "spec.parameterServers"});
  const Expression schedule = optimizer["schedule"];
  const auto only_scheduled = [&](const char* field, const char* with) {
    require(
        optimizer, field, schedule == with || optimizer.is_default(field),
        std::string("[found {}, which is ]only valid with schedule: ") + with + "; omit the field",
        {optimizer[field]});
  };
  only_scheduled("decaySteps", "warmupStableDecay");
  only_scheduled("factor", "step");
  require(optimizer, "decaySteps", schedule != "warmupStableDecay" || optimizer["decaySteps"] > 0,
          "missing, expected how many steps the learning rate falls for");
  require(optimizer, "milestones", schedule == "step" || !optimizer.given("milestones"),
          "only valid with schedule: step; omit the field");
  require(optimizer, "milestones", schedule != "step" || optimizer.given("milestones"),
          "missing, expected the steps after which the learning rate falls");
  check(check_milestones, {"spec.train.optimizer.milestones", "spec.train.steps"});
  require(optimizer, "nesterov",
          name != "sgd" || !optimizer["nesterov"] || optimizer["momentum"] > 0.0,
          "needs momentum, expected spec.train.optimizer.momentum above 0");
}

void Table::add_command() {
  require(spec_, "command[0]", !spec_.given("command") || spec_.first("command") != "",
          "[found {}, ]expected a program", {spec_.first("command")});
  check(check_command, {"spec.command", "spec.rendezvous.variables"});
  require(spec_, "rendezvous.variables",
          !spec_.contains("rendezvous.variables", "tensorflow") || world_ <= kTensorflowWorldMax,
          "TF_CONFIG of [{} ]ranks exceeds the size of an environment variable, expected at most " +
              text(kTensorflowWorldMax) + " ranks",
          {world_});
  require(spec_, "security.encryption",
          spec_.given("train") || spec_["security.encryption"] == "none",
          "[found {}, which is ]only valid with spec.train, expected none, because a command's "
          "traffic is its own",
          {spec_["security.encryption"]});
  // A command does these things itself.
  for (const char* field :
       {"parallelism.sequenceParallel", "parallelism.pipelineSchedule", "parallelism.virtualStages",
        "parallelism.sharding", "parallelism.shardingGroup", "parallelism.reshardAfterForward",
        "parallelism.prefetch", "parallelism.gatherPrecision", "parallelism.reducePrecision",
        "parallelism.transferPrecision", "parallelism.offload", "parallelism.offloadPath",
        "parallelism.exchange", "parallelism.weightStashing", "parallelism.verticalSync",
        "checkpoint.everySteps", "checkpoint.atEnd", "checkpoint.keep",
        "rendezvous.timeoutSeconds"}) {
    require(spec_, field, spec_.given("train") || spec_.is_default(field),
            "[found {}, which is ]only valid with spec.train; omit the field, because a command "
            "does this itself",
            {spec_[field]});
  }
  for (const char* field : {"parallelism.stages", "checkpoint.memory"}) {
    require(spec_, field, spec_.given("train") || !spec_.given(field),
            "only valid with spec.train; omit the field, because a command does this itself");
  }
}

// Some schedules split backward, or work with several versions of the parameters.
void Table::add_schedules() {
  const Scope parallelism("spec.parallelism");
  const Expression schedule = parallelism["pipelineSchedule"];
  const Expression sharding = parallelism["sharding"];
  const Expression is_pipedream = schedule == "pipedream";
  for (const auto& [field, expected] :
       {std::pair("weightStashing", "true"), std::pair("verticalSync", "false")}) {
    require(parallelism, field, parallelism.is_default(field) || is_pipedream,
            std::string("needs spec.parallelism.pipelineSchedule: pipedream[ (found {})], "
                        "expected ") +
                expected,
            {schedule});
  }
  require(parallelism, "verticalSync",
          parallelism.is_default("verticalSync") || parallelism.is_default("weightStashing"),
          "needs spec.parallelism.weightStashing: true, expected false");
  require(parallelism, "sharding", !is_pipedream || sharding == "none",
          "{} with pipelineSchedule: pipedream, expected none: each rank keeps several versions of "
          "all parameters of its stage",
          {sharding});
  require(
      parallelism, "sharding",
      schedule != "zerobubble" || sharding == "none" || sharding == "optimizer",
      "{} with pipelineSchedule: zerobubble, expected none or optimizer: it holds the gradients "
      "of several micro-batches back",
      {sharding});
  require(spec_, "train.recompute",
          in_train(spec_["parallelism.pipelineSchedule"] != "zerobubble" ||
                   spec_["train.recompute"] == "auto" || spec_["train.recompute"] == "none"),
          "{} with spec.parallelism.pipelineSchedule: zerobubble, expected none: it reads "
          "activations again after backward",
          {spec_["train.recompute"]});
  require(spec_, "train.recompute",
          in_train(spec_.is_default("parallelism.weightStashing") ||
                   spec_["train.recompute"] == "auto" || spec_["train.recompute"] == "none"),
          "{} with spec.parallelism.weightStashing: false, expected none: backward would recompute "
          "with other parameters than forward had",
          {spec_["train.recompute"]});
  require(spec_, "train.optimizer.clipNorm",
          in_train(spec_["parallelism.pipelineSchedule"] != "pipedream" ||
                   spec_["train.optimizer.clipNorm"] == 0.0),
          "{} with spec.parallelism.pipelineSchedule: pipedream, expected 0: stages update at "
          "different times, and never know the norm of all gradients",
          {spec_["train.optimizer.clipNorm"]});
}

// A field that would have no effect with the others is refused.
void Table::add_sharing() {
  const Scope parallelism("spec.parallelism");
  const Expression sharding = parallelism["sharding"];
  const Expression offload = parallelism["offload"];
  const Expression exchange = parallelism["exchange"];
  const auto needs = [&](const char* field, const Expression& has_effect, const char* other,
                         const std::string& text) {
    require(parallelism, field, parallelism.is_default(field) || has_effect,
            "{} needs spec.parallelism." + text, {parallelism[field], parallelism[other]});
  };
  needs("sequenceParallel", parallelism["tensor"] > 1, "tensor",
        "tensor: 2 or more[ (found {})], expected false");
  needs("shardingGroup", sharding != "none", "sharding",
        "sharding: optimizer, gradients or parameters[ (found {})], expected data");
  const Expression shards_parameters = sharding == "parameters";
  const char* parameters = "sharding: parameters[ (found {})], expected ";
  for (const auto& [field, expected] :
       {std::pair("reshardAfterForward", "true"), std::pair("prefetch", "true"),
        std::pair("gatherPrecision", "fp32")}) {
    needs(field, shards_parameters, "sharding", std::string(parameters) + expected);
  }
  require(parallelism, "offload", offload != "parameters" || shards_parameters,
          std::string("{} needs spec.parallelism.") + parameters + "none or optimizer",
          {offload, sharding});
  require(parallelism, "offloadPath", !parallelism.given("offloadPath") || offload != "none",
          "[found {}, but ]nothing is offloaded, expected spec.parallelism.offload too",
          {parallelism["offloadPath"]});
  needs("exchange", sharding == "none", "sharding",
        "sharding: none[ (found {})], expected allReduce");
  needs("exchange", offload == "none", "offload", "offload: none[ (found {})], expected allReduce");
  needs("exchange", parallelism["reducePrecision"] == "fp32", "reducePrecision",
        "reducePrecision: fp32[ (found {})], expected allReduce");
  require(spec_, "parallelism.exchange", spec_["parallelism.exchange"] != "host" || nodes_ == 1,
          "host needs spec.nodes: 1[ (found {})], because pods share no memory; expected allReduce "
          "or firstRank",
          {nodes_});
  require(spec_, "parallelism.exchange",
          spec_["parallelism.exchange"] != "host" || (tensor_ == 1 && pipeline_ == 1),
          "host needs ranks that hold the same, but spec.parallelism.pipeline [{} ]x tensor [{} ]"
          "divide the model; expected allReduce or firstRank",
          {pipeline_, tensor_});
  needs("pipelineSchedule", parallelism["pipeline"] > 1, "pipeline",
        "pipeline above 1[ (found {})], expected 1f1b");
  needs("transferPrecision", parallelism["pipeline"] > 1, "pipeline",
        "pipeline above 1[ (found {})], expected auto");
  needs("virtualStages", parallelism["pipelineSchedule"] == "interleaved", "pipelineSchedule",
        "pipelineSchedule: interleaved[ (found {})], expected 1");
  require(parallelism, "virtualStages",
          parallelism["pipelineSchedule"] != "interleaved" || parallelism["virtualStages"] > 1,
          "{} with pipelineSchedule: interleaved, expected 2 or more",
          {parallelism["virtualStages"]});
  require(parallelism, "stages", !parallelism.given("stages") || parallelism["pipeline"] > 1,
          "needs spec.parallelism.pipeline above 1[ (found {})], expected none",
          {parallelism["pipeline"]});
  add_schedules();
  const Expression by_data = spec_["parallelism.shardingGroup"] == "data";
  // A node has several data-parallel ranks of a stage, or several stages.
  const Expression group = processes_ / tensor_;
  require(
      spec_, "parallelism.shardingGroup",
      by_data || !has_mesh_ ||
          (processes_ % tensor_ == 0 && (data_ % group == 0 || group % data_ == 0)),
      "node: [{} ]processes per node / tensor [{} ]does not divide the [{} ]data-parallel ranks, "
      "expected data",
      {processes_, tensor_, data_});
  require(spec_, "parallelism.shardingGroup", by_data || world_ == 1 || group > 1,
          "node needs at least 2 data-parallel ranks on each node[, found {}], expected data or a "
          "larger spec.processesPerNode",
          {group});
}

void Table::add_servers() {
  const Scope servers("spec.parameterServers");
  const Expression has_servers = spec_.given("parameterServers");
  const Expression consistency = servers["consistency"];
  const Expression backups = spec_["parameterServers.backupWorkers"];
  const Expression ranks = (nodes_ + spec_["parameterServers.nodes"]) * processes_;
  require(servers, "staleness", servers["staleness"] == 0 || consistency == "boundedStaleness",
          "{} needs consistency: boundedStaleness[ (found {})], expected 0",
          {servers["staleness"], consistency});
  require(servers, "backupWorkers", servers["backupWorkers"] == 0 || consistency == "synchronous",
          "{} needs consistency: synchronous[ (found {})], expected 0",
          {servers["backupWorkers"], consistency});
  require(spec_, "parameterServers.backupWorkers", !has_servers || backups + 1 <= world_,
          "{} is not less than the [{} ]ranks of workers", {backups, world_});
  require(spec_, "parameterServers.nodes", !has_servers || ranks <= kWorldSizeMax,
          "a world of [{} ]ranks of workers and servers, expected at most " + text(kWorldSizeMax),
          {ranks});
  const Expression server_ranks = spec_["parameterServers.nodes"] * processes_;
  require(spec_, "parameterServers.nodes", !has_servers || server_ranks <= kServerRanksMax,
          "[{} ]ranks of servers, expected at most " + text(kServerRanksMax), {server_ranks});
  const Expression copies = spec_["parameterServers.copies"];
  require(servers, "copies", servers["copies"] + 1 <= servers["nodes"],
          "{} further servers hold each parameter, expected less than the nodes[ ({})]",
          {servers["copies"], servers["nodes"]});
  require(spec_, "parameterServers.copies", !has_servers || copies == 0 || processes_ == 1,
          "{} needs one process on each node[, found {}]", {copies, processes_});
  const Scope rows("spec.parameterServers.rows");
  require(rows, "idleSteps", rows["idleSteps"] == 0 || rows["minFrequency"] > 0.0,
          "{} needs minFrequency above 0: only rows that are used less expire",
          {rows["idleSteps"]});
  for (const char* field : {"minFrequency", "halfLifeSteps"}) {
    require(rows, field, rows[field] == 0.0 || rows["idleSteps"] > 0, "{} needs idleSteps",
            {rows[field]});
  }
  require(spec_, "parameterServers.rows.pushThreshold",
          !has_servers || backups == 0 || spec_["parameterServers.rows.pushThreshold"] == 0.0,
          "only valid with backupWorkers: 0, since pushes that are late would lose what was kept "
          "back",
          {});
  const Expression has_rows = is_one_of(spec_["train.model.family"], kClickFamilies);
  for (const char* field : {"idleSteps", "decay", "pushThreshold"}) {
    const std::string path = std::string("parameterServers.rows.") + field;
    const bool is_integer = field == std::string("idleSteps");
    const Expression is_off = is_integer ? spec_[path] == 0 : spec_[path] == 0.0;
    require(spec_, path.c_str(), in_train(!has_servers || has_rows || is_off),
            "only valid with a click model, which has rows", {});
  }
  require(spec_, "parameterServers", !has_servers || spec_.given("train"),
          "only valid with spec.train; omit the field, because a command does this itself");
  require(spec_, "train.optimizer.clipNorm",
          in_train(!has_servers || spec_["train.optimizer.clipNorm"] == 0.0),
          "{} with spec.parameterServers, expected 0: servers update parts of the parameters, and "
          "never know the norm of all gradients",
          {spec_["train.optimizer.clipNorm"]});
  check(check_servers, {"spec.parameterServers", "spec.train", "spec.parallelism"});
}

// Returns the text for people, with the values if there is an object to take them from.
std::string filled(const Rule& rule, const Json* self) {
  std::string filled;
  size_t next = 0;
  bool in_brackets = false;
  for (size_t i = 0; i < rule.text.size(); ++i) {
    const char c = rule.text[i];
    if (c == '[' || c == ']') {
      in_brackets = c == '[';
    } else if (c == '{') {
      const size_t end = rule.text.find('}', i);
      const bool is_raw = end > i + 1;
      i = end;
      if (self == nullptr) continue;
      const Json value = rule.values[next++].value(*self);
      filled += !value.is_string() ? dump_json(value)
                : is_raw           ? value.get<std::string>()
                                   : in_quotes(value.get<std::string>());
    } else if (self != nullptr || !in_brackets) {
      filled += c;
    }
  }
  return filled;
}

}  // namespace

std::span<const Rule> spec_rules() {
  static const std::vector<Rule> kRules = Table().rules();
  return kRules;
}

std::string problem_of(const Rule& rule, const std::string& path, const Json& self) {
  const std::string dot = path.empty() || rule.field.empty() ? "" : ".";
  return path + dot + rule.field + ": " + filled(rule, &self);
}

std::string server_message(const Rule& rule) {
  const std::string text = filled(rule, nullptr);
  if (rule.field.empty()) return text;
  return rule.field + (rule.text.starts_with("{} ") ? "" : ": ") + text;
}

std::span<const FixedField> fixed_rules() {
  static constexpr FixedField kFixed[] = {
      {"gpusPerNode", "gpusPerNode"},
      {"processesPerNode", "processesPerNode"},
      {"threadsPerProcess", "threadsPerProcess"},
      {"image", "image"},
      {"command"},
      {"parallelism",
       "parallelism.tensor parallelism.sequenceParallel parallelism.pipeline "
       "parallelism.pipelineSchedule parallelism.virtualStages parallelism.transferPrecision "
       "parallelism.exchange"},
      // The cost of a rule is limited.
      {"parallelism",
       "parallelism.sharding parallelism.shardingGroup "
       "parallelism.reshardAfterForward parallelism.prefetch parallelism.gatherPrecision "
       "parallelism.reducePrecision parallelism.offload parallelism.offloadPath"},
      {"parallelism", "parallelism.weightStashing parallelism.verticalSync"},
      {"processGroups"},
      {"rendezvous", "rendezvous.port"},
      {"checkpoint", "checkpoint.path"},
      {"security", "security.encryption"},
      {"podTemplate"},
      {"successPolicy", "successPolicy"},
      {"managedBy"},
      {"parameterServers"},
      {"train",
       "train.model.preset train.model.family train.data.path train.data.features "
       "train.data.targets train.steps train.batch.global train.precision"}};
  return kFixed;
}

}  // namespace lockstep
