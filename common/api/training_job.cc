#include "common/api/training_job.h"

#include <algorithm>
#include <charconv>

#include "common/api/reread.h"
#include "common/api/status_fields.h"
#include "common/api/training_job_fields.h"

namespace lockstep {
namespace {

// Known fields of metav1.ObjectMeta. Those that are not in our struct belong to the server.
constexpr std::string_view kMetadataFields[] = {
    "name",         "namespace",         "uid",
    "generation",   "creationTimestamp", "resourceVersion",
    "labels",       "deletionTimestamp", "deletionGracePeriodSeconds",
    "annotations",  "finalizers",        "ownerReferences",
    "generateName", "managedFields",     "selfLink"};

void expect_text(const Json& document, std::string_view key, std::string_view expected,
                 Problems& problems) {
  const std::string path(key);
  const Json* found = find_member(document, key);
  if (found == nullptr) {
    problems.push_back(missing_problem(path, in_quotes(expected)));
  } else if (!found->is_string() || found->get_ref<const std::string&>() != expected) {
    problems.push_back(type_problem(path, *found, in_quotes(expected)));
  }
}

void read_metadata(const Json& document, ObjectMeta& metadata, const ReadRules& rules,
                   Problems& problems) {
  const Json* found = find_member(document, "metadata");
  if (found == nullptr) {
    problems.push_back(missing_problem("metadata.name", "the job's name"));
    return;
  }
  if (!found->is_object()) {
    problems.push_back(type_problem("metadata", *found, "an object"));
    return;
  }
  // Kubernetes tools write `creationTimestamp: null`.
  Json present;
  const bool has_null =
      std::any_of(found->begin(), found->end(), [](const Json& value) { return value.is_null(); });
  if (has_null) {
    present = Json::object();
    for (const auto& [key, value] : found->items()) {
      if (!value.is_null()) present[key] = value;
    }
  }
  read_json(has_null ? present : *found, metadata, "metadata", kReadStored, problems);
  if (rules.unknown_is_problem) {
    const std::vector<std::string_view> known(std::begin(kMetadataFields),
                                              std::end(kMetadataFields));
    add_unknown_fields(*found, "metadata", known, problems);
  }
}

void read_status(const Json& document, TrainingJobStatus& status, Problems& problems) {
  const Json* found = find_member(document, "status");
  if (found != nullptr) read_json(*found, status, "status", kReadLeniently, problems);
}

TrainingJob read_job(const Json& document, const ReadRules& rules, Problems& problems) {
  TrainingJob job;
  if (!document.is_object()) {
    problems.push_back(type_problem("", document, "a TrainingJob"));
    return job;
  }
  expect_text(document, "apiVersion", kApiVersion, problems);
  expect_text(document, "kind", kKind, problems);
  read_metadata(document, job.metadata, rules, problems);
  if (const Json* spec = find_member(document, "spec")) {
    read_json(*spec, job.spec, "spec", rules, problems);
  } else {
    problems.push_back(missing_problem("spec", "an object"));
  }
  read_status(document, job.status, problems);
  if (rules.unknown_is_problem) {
    add_unknown_fields(document, "", {"apiVersion", "kind", "metadata", "spec", "status"},
                       problems);
  }
  return job;
}

constexpr int64_t kByteValues = 256;

// Returns the product, saturated at the largest integer.
int64_t product(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? INT64_MAX : result;
}

}  // namespace

Result<TrainingJob> stored_training_job_from_json(const Json& document) {
  Problems problems;
  TrainingJob job = read_job(document, kReadStored, problems);
  if (!problems.empty()) return to_error(problems);
  return job;
}

bool reread_stored_job(const Json& document, TrainingJob& job) {
  Problems problems;
  ObjectMeta metadata;
  read_metadata(document, metadata, kReadStored, problems);
  const bool is_same = metadata.generation > 0 && metadata.generation == job.metadata.generation &&
                       metadata.uid == job.metadata.uid && find_member(document, "spec") != nullptr;
  if (!problems.empty() || !is_same) return false;
  TrainingJobStatus status;
  read_status(document, status, problems);
  if (!problems.empty()) return false;
  job.metadata = std::move(metadata);
  job.status = std::move(status);
  return true;
}

Result<TrainingJob> valid_training_job_from_json(const Json& document) {
  Problems problems;
  TrainingJob job = read_job(document, kReadStrictly, problems);
  // Paths whose values are defaults, because the user's could not be read
  std::vector<std::string> unread;
  for (const std::string& problem : problems)
    unread.push_back(problem.substr(0, problem.find(": ")));
  for (std::string& problem : validate(job)) {
    const bool speaks_of_unread = std::any_of(
        unread.begin(), unread.end(),
        [&](const std::string& path) { return problem.find(path) != std::string::npos; });
    if (!speaks_of_unread) problems.push_back(std::move(problem));
  }
  if (!problems.empty()) return to_error(problems);
  return job;
}

Json to_json(const TrainingJob& job) {
  Json document = {{"apiVersion", kApiVersion},
                   {"kind", kKind},
                   {"metadata", write_json(job.metadata)},
                   {"spec", spec_to_json(job.spec)}};
  if (job.status != TrainingJobStatus{}) document["status"] = status_to_json(job.status);
  return document;
}

Json spec_to_json(const TrainingJobSpec& spec) {
  return write_json(spec);
}

Json status_to_json(const TrainingJobStatus& status) {
  return write_json(status);
}

Json train_to_json(const TrainSpec& train) {
  return write_json(train);
}

namespace {

// Returns the preset, or the defaults of the job's model family.
ModelConfig base_config(const ModelSpec& model) {
  if (const Result<ModelConfig> preset = model_preset(model.preset); preset.ok()) return *preset;
  ModelConfig config;
  const Result<Family> family = family_from_name(model.family);
  config.family = family.ok() ? *family : Family::kGpt2;
  config.tied = config.design().tied_by_default;
  config.norm_epsilon = config.design().norm_epsilon;
  return config;
}

}  // namespace

ModelConfig model_config(const TrainSpec& train) {
  const ModelSpec& model = train.model;
  ModelConfig config = base_config(model);
  const auto override_with = [](auto given, auto& dimension) {
    if (given != 0) dimension = given;
  };
  override_with(model.layers, config.layers);
  override_with(model.width, config.width);
  override_with(model.heads, config.heads);
  override_with(model.context, config.context);
  override_with(model.vocabulary, config.vocabulary);
  override_with(model.hiddenWidth, config.hidden);
  override_with(model.kvHeads, config.kv_heads);
  override_with(model.ropeBase, config.rotary_base);
  override_with(model.ropeScaling.factor, config.rotary_scaling.factor);
  override_with(model.ropeScaling.lowFrequencyFactor, config.rotary_scaling.low_turns);
  override_with(model.ropeScaling.highFrequencyFactor, config.rotary_scaling.high_turns);
  override_with(model.ropeScaling.originalContext, config.rotary_scaling.original_context);
  override_with(model.normEpsilon, config.norm_epsilon);
  if (!model.head.empty()) config.tied = model.head == "tied";
  if (config.vocabulary == 0 && train.data.tokenizer == "bytes") {
    config.vocabulary = kByteValues + (predicts_masked(config) ? 1 : 0);  // the mask token
  }
  return config;
}

MlpConfig mlp_config(const ModelSpec& model) {
  MlpConfig config{.inputs = model.inputs, .hidden = model.hidden, .outputs = model.outputs};
  const Result<MlpActivation> activation = mlp_activation_from_name(model.activation);
  if (activation.ok()) config.activation = *activation;
  if (const Result<MlpTask> task = mlp_task_from_name(model.task); task.ok()) config.task = *task;
  return config;
}

bool is_convnet(const ModelSpec& model) {
  return model.family == kConvnet || convnet_preset(model.preset) != nullptr;
}

bool is_bert(const ModelSpec& model) {
  return model.family == kBert || model.preset.starts_with("bert-");
}

ConvnetConfig convnet_config(const ModelSpec& model) {
  const ConvnetPreset* preset = convnet_preset(model.preset);
  ConvnetConfig config = preset != nullptr ? preset->config : ConvnetConfig();
  const auto override_with = [](int64_t given, int64_t& dimension) {
    if (given != 0) dimension = given;
  };
  override_with(model.imageHeight, config.height);
  override_with(model.imageWidth, config.width);
  override_with(model.imageChannels, config.channels);
  override_with(model.outputs, config.classes);
  const Result<BatchNormScope> scope = batch_norm_scope_from_name(model.batchNorm);
  if (scope.ok()) config.batch_norm = *scope;
  return config;
}

bool is_click_family(std::string_view family) {
  return family == kLogisticRegression || family == kFactorizationMachine ||
         family == kWideAndDeep || family == kDeepFactorizationMachine;
}

int64_t click_factors(const ModelSpec& model) {
  if (model.family == kLogisticRegression) return 0;
  return model.factors > 0 ? model.factors : kDefaultFactors;
}

bool has_click_pairs(const ModelSpec& model) {
  return model.family == kFactorizationMachine || model.family == kDeepFactorizationMachine;
}

std::vector<int64_t> click_hidden(const ModelSpec& model) {
  if (model.family != kWideAndDeep && model.family != kDeepFactorizationMachine) return {};
  if (!model.hidden.empty()) return model.hidden;
  return {std::begin(kDefaultClickHidden), std::end(kDefaultClickHidden)};
}

int64_t pod_count(const TrainingJobSpec& spec) {
  return spec.nodes + (spec.parameterServers ? spec.parameterServers->nodes : 0);
}

int64_t mask_token(const DataSpec& data, const ModelConfig& model) {
  return data.maskToken > 0 ? data.maskToken : model.vocabulary - 1;
}

ModelDesign model_design(const TrainSpec& train) {
  if (train.model.family == kMlp) return mlp_config(train.model);
  if (is_convnet(train.model)) return convnet_config(train.model);
  return model_config(train);
}

double tokens_per_step(const TrainSpec& train) {
  const ModelSpec& model = train.model;
  if (model.family == kMlp || is_convnet(model) || is_click_family(model.family)) return 0;
  return static_cast<double>(train.batch.global) * static_cast<double>(model_config(train).context);
}

namespace {

// Parses a whole number with a unit: s, m or h. nullopt for other text, or outside the limits.
std::optional<int64_t> seconds_from_text(std::string_view text, int64_t minimum, int64_t maximum) {
  if (text.empty()) return std::nullopt;
  const char unit = text.back();
  const int64_t factor = unit == 's' ? 1 : unit == 'm' ? 60 : unit == 'h' ? 3600 : 0;
  int64_t number = 0;
  const char* end = text.data() + text.size() - 1;
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (factor == 0 || stop != end || error != std::errc()) return std::nullopt;
  if (number > maximum / factor || number * factor < minimum) return std::nullopt;
  return number * factor;
}

}  // namespace

std::optional<int64_t> hang_seconds_from_text(std::string_view text) {
  return seconds_from_text(text, kHangSecondsMin, kHangSecondsMax);
}

std::optional<int64_t> preemption_seconds_from_text(std::string_view text) {
  return seconds_from_text(text, 1, kGraceSecondsMax);
}

int64_t grace_seconds(const TrainingJobSpec& spec) {
  const std::optional<int64_t> to_save = preemption_seconds_from_text(spec.checkpoint.onPreemption);
  return std::max(spec.terminationGracePeriodSeconds, to_save.value_or(0));
}

bool is_about_loss(std::string_view action) {
  return action == kRollBack || action == kSkipBatch;
}

LossRules loss_rules(const TrainingJobSpec& spec) {
  LossRules found;
  const std::vector<FailureRule>& rules = spec.failure.rules;
  const auto first_about = [&](std::string_view event) {
    return std::ranges::find(rules, event, &FailureRule::event);
  };
  if (const auto rule = first_about(kLossNotFinite); rule != rules.end()) {
    found.not_finite = rule->action;
  }
  if (const auto rule = first_about(kLossSpike); rule != rules.end()) {
    found.spike = rule->action;
    if (rule->deviations > 0) found.deviations = rule->deviations;
  }
  return found;
}

int64_t hang_seconds(const TrainingJobSpec& spec) {
  for (const FailureRule& rule : spec.failure.rules) {
    if (rule.event == kHang) return hang_seconds_from_text(rule.after).value_or(kHangSeconds);
  }
  return kHangSeconds;
}

int64_t command_hang_seconds(const TrainingJobSpec& spec) {
  if (spec.train) return 0;
  for (const FailureRule& rule : spec.failure.rules) {
    if (rule.event != kHang) continue;
    return hang_seconds_from_text(rule.after).value_or(kCommandHangSeconds);
  }
  return 0;
}

int64_t processes_per_node(const TrainingJobSpec& spec) {
  const int64_t given = spec.processesPerNode > 0 ? spec.processesPerNode : spec.gpusPerNode;
  return std::max<int64_t>(given, 1);
}

std::string recompute_of(std::string_view recompute, std::string_view schedule) {
  if (recompute != "auto") return std::string(recompute);
  return schedule == "gpipe" ? "blocks" : "none";
}

int64_t port_count(const TrainingJobSpec& spec) {
  return processes_per_node(spec) * (spec.train.has_value() ? 1 : kPortRounds);
}

int64_t round_port(const TrainingJobSpec& spec, int64_t round) {
  if (spec.train.has_value()) return spec.rendezvous.port;
  const int64_t window = std::max<int64_t>(round - 1, 0) % kPortRounds;
  return spec.rendezvous.port + window * processes_per_node(spec);
}

int64_t data_parallel_size(const TrainingJobSpec& spec) {
  const int64_t world = product(std::max<int64_t>(spec.nodes, 1), processes_per_node(spec));
  const int64_t model = product(std::max<int64_t>(spec.parallelism.tensor, 1),
                                std::max<int64_t>(spec.parallelism.pipeline, 1));
  return std::max<int64_t>(world / model, 1);
}

void take_largest(const HoldingsStatus& one, std::optional<HoldingsStatus>& largest) {
  if (!largest) {
    largest = one;
    return;
  }
  largest->sharding = one.sharding;
  for (int64_t HoldingsStatus::*number :
       {&HoldingsStatus::shardingRanks, &HoldingsStatus::parametersBytes,
        &HoldingsStatus::gradientsBytes, &HoldingsStatus::optimizerBytes,
        &HoldingsStatus::gatheredBytes, &HoldingsStatus::activationsBytes,
        &HoldingsStatus::offloadedBytes}) {
    (*largest).*number = std::max((*largest).*number, one.*number);
  }
}

int64_t micro_batch(const TrainingJobSpec& spec) {
  const BatchSpec batch = spec.train.value_or(TrainSpec{}).batch;
  if (batch.micro > 0) return batch.micro;
  return std::max<int64_t>(batch.global / data_parallel_size(spec), 1);
}

}  // namespace lockstep
