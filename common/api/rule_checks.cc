#include "common/api/rule_checks.h"

#include <algorithm>

#include "common/api/rank_list.h"
#include "common/api/training_job_fields.h"
#include "common/layout/mesh.h"
#include "common/layout/model_design.h"
#include "common/layout/pipeline_schedule.h"

namespace lockstep {
namespace {

constexpr int64_t kNamespaceBytesMax = 63;
constexpr int64_t kTokensMax = int64_t{1} << 62;  // over the whole job

bool is_letter(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_label(std::string_view name) {
  return !name.empty() && is_letter(name.front()) && name.back() != '-' &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_letter(c) || is_digit(c) || c == '-'; });
}

bool is_domain_path(std::string_view name) {
  const size_t slash = name.find('/');
  return slash != std::string_view::npos && slash > 0 && slash + 1 < name.size() &&
         name.find('/', slash + 1) == std::string_view::npos;
}

bool is_duration(std::string_view text) {
  if (text.empty() || std::string_view("smh").find(text.back()) == std::string_view::npos) {
    return false;
  }
  text.remove_suffix(1);
  return std::all_of(text.begin(), text.end(), is_digit) &&
         text.find_first_not_of('0') != std::string_view::npos;
}

bool is_llama(std::string_view preset) {
  return preset.starts_with("llama-");
}

bool is_bert(std::string_view preset) {
  return preset.starts_with("bert-");
}

std::string text(int64_t value) {
  return std::to_string(value);
}

std::string at_item(std::string_view path, size_t index) {
  return std::string(path) + "[" + std::to_string(index) + "]";
}

// Returns whether an earlier item of the list is equal to this one by `get`.
template <class T, class Get>
bool is_repeated(const std::vector<T>& list, size_t index, Get get) {
  const auto end = list.begin() + static_cast<std::ptrdiff_t>(index);
  return std::any_of(list.begin(), end,
                     [&](const T& other) { return get(other) == get(list[index]); });
}

std::string not_in_this_version(const std::string& path, const std::string& found,
                                const std::string& expected) {
  return path + ": " + found + " is not in this version, expected " + expected;
}

// Each part of the model has a layer.
void check_parts(const ModelDesign& design, const ParallelismSpec& parallelism,
                 Problems& problems) {
  const int64_t count = stage_layers(design);
  const std::string layers =
      (transformer_of(design) != nullptr
           ? "expected at most spec.train.model.layers: "
           : "expected at most the layers between which the model is cut: ") +
      text(count);
  const int64_t parts = parallelism.pipeline * parallelism.virtualStages;
  if (parallelism.pipeline > count) {
    problems.push_back("spec.parallelism.pipeline: " + text(parallelism.pipeline) + " stages, " +
                       layers);
  } else if (parts > count) {
    problems.push_back("spec.parallelism.virtualStages: " + text(parallelism.virtualStages) +
                       " on each of " + text(parallelism.pipeline) + " stages are " + text(parts) +
                       " parts of the model, " + layers);
  }
  const std::string problem = part_problem(design, {.pipeline = parallelism.pipeline,
                                                    .virtual_stages = parallelism.virtualStages,
                                                    .part_layers = parallelism.stages});
  if (!problem.empty()) problems.push_back("spec.parallelism.stages: " + problem);
  if (parallelism.pipelineSchedule == pipeline_kind_name(PipelineKind::kPipeDream) &&
      is_tied(design)) {
    problems.push_back(
        "spec.parallelism.pipelineSchedule: pipedream needs spec.train.model.head: untied, because "
        "the first and the last stage would update a tied embedding at different times");
  }
}

void check_transformer(const ModelConfig& config, const ParallelismSpec& parallelism,
                       Problems& problems) {
  const bool is_complete = config.layers != 0 && config.width != 0 && config.heads != 0 &&
                           config.context != 0 && config.vocabulary != 0;
  if (!is_complete) return;  // another rule reports this
  for (std::string& problem : model_problems(config, parallelism.tensor, "spec.train.model")) {
    problems.push_back(std::move(problem));
  }
  if (parallelism.sequenceParallel && config.context % parallelism.tensor != 0) {
    problems.push_back(
        "spec.train.model.context: " + text(config.context) +
        " is not a multiple of spec.parallelism.tensor: " + text(parallelism.tensor) +
        ", expected one, or spec.parallelism.sequenceParallel: false");
  }
  check_parts(config, parallelism, problems);
}

// A model that is cut into stages, but not split.
void check_stages_alone(const ModelDesign& design, const ParallelismSpec& parallelism,
                        Problems& problems) {
  if (parallelism.tensor > 1) {
    problems.push_back("spec.parallelism.tensor: " + text(parallelism.tensor) +
                       " is not valid with family: " + std::string(family_name(design)) +
                       ", expected 1");
  }
  check_parts(design, parallelism, problems);
}

// The fields' limits and other rules find what mlp_problems() does.
void check_mlp(const ModelSpec& model, const ParallelismSpec& parallelism, Problems& problems) {
  check_stages_alone(mlp_config(model), parallelism, problems);
}

void check_convnet(const ModelSpec& model, const ParallelismSpec& parallelism, Problems& problems) {
  if (convnet_preset(model.preset) == nullptr) return;  // another rule reports this
  const ConvnetConfig config = convnet_config(model);
  const std::vector<std::string> found = convnet_problems(config, "spec.train.model");
  problems.insert(problems.end(), found.begin(), found.end());
  if (found.empty()) check_stages_alone(config, parallelism, problems);
}

// Returns what is wrong with the default, the last token of the vocabulary.
std::string problem_of_default_mask(const TrainSpec& train, int64_t vocabulary) {
  if (!train.model.weights.path.empty()) {
    return "missing, expected the id of [MASK] in the vocabulary of spec.train.model.weights (103 "
           "for "
           "bert-base-uncased)";
  }
  if (train.data.tokenizer != "bytes" || vocabulary != 256) return "";
  return "missing, expected a byte that no text has, or a spec.train.model.vocabulary of 257, "
         "which has "
         "a token of its own";
}

}  // namespace

const Pattern kLabel{"^[a-z](-*[a-z0-9])*$", is_label};
const Pattern kDomainPath{"^[^/]+/[^/]+$", is_domain_path};
const Pattern kDuration{"^0*[1-9][0-9]*[smh]$", is_duration};
const Pattern kLlamaPreset{"^llama-", is_llama};
const Pattern kBertPreset{"^bert-", is_bert};

void check_metadata(const TrainingJob& job, Problems& problems) {
  const std::string& name = job.metadata.name;
  if (name.empty()) {
    problems.push_back(missing_problem("metadata.name", "the job's name"));
  } else if (static_cast<int64_t>(name.size()) > kJobNameBytesMax) {
    problems.push_back("metadata.name: " + in_quotes(name) + " has " + std::to_string(name.size()) +
                       " characters, expected at most " + text(kJobNameBytesMax) +
                       " (pod names contain it)");
  }
  const std::string& where = job.metadata.namespace_;
  if (!is_label(where) || static_cast<int64_t>(where.size()) > kNamespaceBytesMax) {
    problems.push_back("metadata.namespace: found " + in_quotes(where) + ", expected " +
                       kLabelText + ", at most " + text(kNamespaceBytesMax) + " characters");
  }
}

void check_hang(const TrainingJob& job, Problems& problems) {
  for (size_t i = 0; i < job.spec.failure.rules.size(); ++i) {
    const FailureRule& rule = job.spec.failure.rules[i];
    const std::string path = at_item("spec.failure.rules", i);
    if (rule.event == kStraggler && !job.spec.train) {
      problems.push_back(path + ".event: found " + in_quotes(rule.event) +
                         ", which needs spec.train, expected another event");
    }
    if (is_duration(rule.after) && !hang_seconds_from_text(rule.after)) {
      problems.push_back(path + ".after: found " + in_quotes(rule.after) + ", expected " +
                         kHangText);
    }
  }
}

void check_milestones(const TrainingJob& job, Problems& problems) {
  if (!job.spec.train) return;
  const std::vector<int64_t>& milestones = job.spec.train->optimizer.milestones;
  for (size_t i = 0; i < milestones.size(); ++i) {
    const std::string path = at_item("spec.train.optimizer.milestones", i);
    if (i > 0 && milestones[i] <= milestones[i - 1]) {
      problems.push_back(path + ": " + std::to_string(milestones[i]) + " comes after " +
                         std::to_string(milestones[i - 1]) + ", expected ascending steps");
    }
    if (milestones[i] >= job.spec.train->steps) {
      problems.push_back(path + ": " + std::to_string(milestones[i]) +
                         " changes nothing, expected a step below spec.train.steps: " +
                         std::to_string(job.spec.train->steps));
    }
  }
}

void check_losses(const TrainingJob& job, Problems& problems) {
  const TrainingJobSpec& spec = job.spec;
  const bool overlaps =
      spec.parallelism.pipeline > 1 && spec.parallelism.pipelineSchedule == "pipedream";
  const std::optional<MemoryStatesSpec>& memory = spec.checkpoint.memory;
  for (size_t i = 0; i < spec.failure.rules.size(); ++i) {
    const FailureRule& rule = spec.failure.rules[i];
    const bool is_spike = rule.event == kLossSpike;
    if (!is_spike && rule.event != kLossNotFinite) continue;
    const std::string path = at_item("spec.failure.rules", i);
    if (!spec.train) {
      problems.push_back(path + ".event: found " + in_quotes(rule.event) +
                         ", which needs spec.train, expected another event");
    } else if (overlaps && (is_spike || is_about_loss(rule.action))) {
      problems.push_back(path + ": " + in_quotes(is_spike ? rule.event : rule.action) +
                         " does not work with pipelineSchedule: pipedream, whose stages learn the "
                         "loss of a step in later steps; expected LossNotFinite with Fail");
    } else if (rule.action == kRollBack && spec.checkpoint.path.empty()) {
      problems.push_back(path +
                         ".action: RollBack needs a checkpoint to go back to, expected "
                         "spec.checkpoint.path too");
    } else if (rule.action == kSkipBatch && (memory ? memory->everySteps != 1 : is_spike)) {
      problems.push_back(path +
                         ".action: SkipBatch needs the state before the step, expected "
                         "spec.checkpoint.memory with everySteps: 1");
    }
  }
}

void check_preemption(const TrainingJob& job, Problems& problems) {
  const std::string& found = job.spec.checkpoint.onPreemption;
  if (!is_duration(found) || preemption_seconds_from_text(found)) return;
  problems.push_back("spec.checkpoint.onPreemption: found " + in_quotes(found) + ", expected " +
                     kPreemptionText);
}

void check_groups(const TrainingJob& job, Problems& problems) {
  const std::vector<ProcessGroupSpec>& groups = job.spec.processGroups;
  const int64_t world = job.spec.nodes * processes_per_node(job.spec);
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string path = at_item("spec.processGroups", i);
    if (is_repeated(groups, i, [](const ProcessGroupSpec& group) { return group.name; })) {
      problems.push_back(path + ".name: " + in_quotes(groups[i].name) + " is listed twice");
    }
    const Result<std::vector<int64_t>> ranks = parse_ranks(groups[i].ranks, world);
    if (!ranks.ok()) problems.push_back(path + ".ranks: " + ranks.error().message);
  }
}

void check_model(const TrainingJob& job, Problems& problems) {
  if (!job.spec.train) return;
  const TrainSpec& train = *job.spec.train;
  if (train.model.family == kMlp) {
    check_mlp(train.model, job.spec.parallelism, problems);
  } else if (is_convnet(train.model)) {
    check_convnet(train.model, job.spec.parallelism, problems);
  } else if (!is_click_family(train.model.family)) {
    check_transformer(model_config(train), job.spec.parallelism, problems);
  }
}

void check_normalisation(const TrainingJob& job, Problems& problems) {
  if (!job.spec.train || !is_convnet(job.spec.train->model)) return;
  const DataSpec& data = job.spec.train->data;
  const int64_t channels = convnet_config(job.spec.train->model).channels;
  if (data.mean.size() != data.deviation.size()) {
    problems.push_back("spec.train.data.deviation: " + std::to_string(data.deviation.size()) +
                       " numbers, expected as many as in spec.train.data.mean: " +
                       std::to_string(data.mean.size()));
  } else if (data.mean.size() > 1 && std::ssize(data.mean) != channels) {
    problems.push_back("spec.train.data.mean: " + std::to_string(data.mean.size()) +
                       " numbers, expected 1, or one for each of the " + text(channels) +
                       " channels");
  }
}

void check_mask_token(const TrainingJob& job, Problems& problems) {
  if (!job.spec.train || !predicts_masked(model_design(*job.spec.train))) return;
  const int64_t token = job.spec.train->data.maskToken;
  const int64_t vocabulary = model_config(*job.spec.train).vocabulary;
  if (token == 0) {
    const std::string problem = problem_of_default_mask(*job.spec.train, vocabulary);
    if (!problem.empty()) problems.push_back("spec.train.data.maskToken: " + problem);
  }
  if (vocabulary == 0 || token < vocabulary) return;  // another rule reports a missing vocabulary
  problems.push_back("spec.train.data.maskToken: " + text(token) +
                     " is not below spec.train.model.vocabulary: " + text(vocabulary));
}

void check_attention_of_bert(const TrainingJob& job, Problems& problems) {
  if (!job.spec.train || !predicts_masked(model_design(*job.spec.train))) return;
  if (job.spec.train->attention != "cudnn") return;
  problems.push_back(
      "spec.train.attention: \"cudnn\" is not valid with family: bert, expected own or auto");
}

void check_tokens(const TrainingJob& job, Problems& problems) {
  if (!job.spec.train) return;
  const TrainSpec& train = *job.spec.train;
  // The limits of steps and batch suffice for the others.
  if (is_click_family(train.model.family)) return;
  if (transformer_of(model_design(train)) == nullptr) return;
  const int64_t context = std::max<int64_t>(model_config(train).context, 1);
  const int64_t tokens_of_step = train.batch.global * context;  // both factors are at most 2^20
  if (train.steps <= kTokensMax / tokens_of_step) return;
  problems.push_back("spec.train.steps: " + text(train.steps) + " x " + text(tokens_of_step) +
                     " tokens per step is out of range, expected at most " +
                     text(kTokensMax / tokens_of_step));
}

namespace {

// A field that some jobs cannot have in this version.
struct Unsupported {
  bool is_found = false;
  const char* path = "";
  std::string found;
  const char* expected = "";
};

// Whether ranks share batches, in whose statistics they would have to meet within a step.
bool meets_in_batches(const TrainingJobSpec& spec) {
  const ModelSpec& model = spec.train->model;
  const ConvnetPreset* preset = convnet_preset(model.preset);
  if (preset == nullptr || !has_batch_norm(preset->config.kind)) return false;
  return model.batchNorm != "local" && spec.nodes * processes_per_node(spec) > 1;
}

std::vector<Unsupported> unsupported_with_servers(const TrainingJobSpec& spec) {
  const TrainSpec& train = *spec.train;
  const ParallelismSpec& parallelism = spec.parallelism;
  const bool is_clicks = is_click_family(train.model.family);
  const auto number = [](double value) { return dump_json(Json(value)); };
  return {
      {spec.gpusPerNode > 0, "spec.gpusPerNode", text(spec.gpusPerNode), "0"},
      {spec.elastic.has_value(), "spec.elastic", "an elastic job", "none"},
      {spec.checkpoint.memory.has_value(), "spec.checkpoint.memory", "it", "none"},
      {parallelism.tensor > 1, "spec.parallelism.tensor", text(parallelism.tensor), "1"},
      {parallelism.pipeline > 1, "spec.parallelism.pipeline", text(parallelism.pipeline), "1"},
      {parallelism.sharding != "none", "spec.parallelism.sharding", parallelism.sharding, "none"},
      {parallelism.offload != "none", "spec.parallelism.offload", parallelism.offload, "none"},
      {parallelism.exchange != "allReduce", "spec.parallelism.exchange", parallelism.exchange,
       "allReduce"},
      {parallelism.reducePrecision != "fp32", "spec.parallelism.reducePrecision",
       parallelism.reducePrecision, "fp32"},
      {is_clicks && train.data.seed != 1, "spec.train.data.seed", text(train.data.seed),
       "1: click logs are read in their order"},
      {is_clicks && train.batch.micro > 0, "spec.train.batch.micro", text(train.batch.micro),
       "0: a click model has no activations to save memory of"},
      {train.bucketBytes != TrainSpec{}.bucketBytes, "spec.train.bucketBytes",
       text(train.bucketBytes), "none, because nothing is all-reduced"},
      {meets_in_batches(spec), "spec.train.model.batchNorm", "synchronized",
       "local: workers exchange nothing"},
      {train.ema > 0, "spec.train.ema", number(train.ema), "0"},
      {train.precision != "fp32", "spec.train.precision", train.precision, "fp32"},
      {train.timeline.everySteps > 0, "spec.train.timeline.everySteps",
       text(train.timeline.everySteps), "0"},
  };
}

std::vector<Unsupported> unsupported_with_muon(const TrainingJobSpec& spec) {
  const ParallelismSpec& parallelism = spec.parallelism;
  return {
      {spec.parameterServers.has_value(), "spec.parameterServers", "a job with servers", "none"},
      {parallelism.offload != "none", "spec.parallelism.offload", parallelism.offload, "none"},
      {parallelism.exchange != "allReduce", "spec.parallelism.exchange", parallelism.exchange,
       "allReduce"},
  };
}

}  // namespace

void check_muon(const TrainingJob& job, Problems& problems) {
  const TrainingJobSpec& spec = job.spec;
  if (!spec.train || spec.train->optimizer.name != "muon") return;
  for (const Unsupported& field : unsupported_with_muon(spec)) {
    if (!field.is_found) continue;
    problems.push_back(not_in_this_version(
        field.path, field.found + " with spec.train.optimizer.name: muon", field.expected));
  }
  const ModelSpec& model = spec.train->model;
  if (model.family != kMlp || model.hidden.size() > 1) return;
  problems.push_back("spec.train.model.hidden: found " + text(std::ssize(model.hidden)) +
                     " layers, but muon is for the matrices between hidden layers: expected two "
                     "layers or more, or "
                     "another spec.train.optimizer.name");
}

void check_servers(const TrainingJob& job, Problems& problems) {
  const TrainingJobSpec& spec = job.spec;
  if (!spec.train) return;  // another rule reports this
  const std::string& family = spec.train->model.family;
  if (!spec.parameterServers) {
    if (is_click_family(family)) {
      problems.push_back(not_in_this_version("spec.train.model.family",
                                             family + " without spec.parameterServers",
                                             "spec.parameterServers too"));
    }
    return;
  }
  for (const Unsupported& field : unsupported_with_servers(spec)) {
    if (!field.is_found) continue;
    problems.push_back(not_in_this_version(field.path, field.found + " with spec.parameterServers",
                                           field.expected));
  }
  const LossRules rules = loss_rules(spec);
  if (is_about_loss(rules.not_finite) || !rules.spike.empty()) {
    problems.push_back(not_in_this_version("spec.failure.rules",
                                           "a rule about losses with spec.parameterServers",
                                           "LossNotFinite with Fail, or none"));
  }
}

void check_command(const TrainingJob& job, Problems& problems) {
  size_t bytes = 0;
  for (const std::string& word : job.spec.command) bytes += word.size() + 1;
  if (bytes > kCommandBytesMax) {
    problems.push_back("spec.command: " + std::to_string(bytes) + " bytes, expected at most " +
                       std::to_string(kCommandBytesMax) + " (put a script into the image)");
  }
  const std::vector<std::string>& variables = job.spec.rendezvous.variables;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (!is_repeated(variables, i, [](const std::string& name) { return name; })) continue;
    problems.push_back(at_item("spec.rendezvous.variables", i) + ": " + in_quotes(variables[i]) +
                       " is listed twice");
  }
}

}  // namespace lockstep
