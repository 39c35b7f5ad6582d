#include <algorithm>

#include "common/api/agent_messages.h"
#include "common/api/command_rules.h"
#include "common/api/status_fields.h"
#include "common/api/training_job.h"
#include "common/api/training_job_fields.h"
#include "common/api/world_assignment.h"

namespace lockstep {
namespace {

// `<job>-worker-<index>-<incarnation>` is a pod's name and host name, limited to 63 bytes. The
// suffix needs up to "-worker-" + 4 digits + "-" + 10 digits.
constexpr size_t kNameBytesMax = 40;
constexpr int64_t kPortMax = 65535;
constexpr int64_t kTokensMax = int64_t{1} << 62;  // over the whole job

constexpr std::string_view kReservedGroups[] = {"world", "pipeline", "data", "tensor"};

// Collects the problems that the rules find. Each rule checks its own fields and ignores the rest.
struct Rules {
  const TrainingJob& job;
  const TrainingJobSpec& spec = job.spec;
  Problems problems{};

  void add(std::string_view path, const std::string& text) {
    problems.push_back(std::string(path) + ": " + text);
  }
  void not_in_this_version(std::string_view path, const std::string& found,
                           const std::string& expected) {
    add(path, found + " is not in this version, expected " + expected);
  }

  void check_metadata();
  void check_program();
  void check_mesh();
  void check_gpus();
  void check_attention();
  void check_ports();
  void check_groups();
  void check_model(const TrainSpec& train);
  void check_batch(const BatchSpec& batch);
  void check_rounding(const TrainSpec& train);
  void check_steps(const TrainSpec& train);
  void check_failure_rules();
  void check_hang(const FailureRule& rule, const std::string& path);
  void check_managed_by();
  void check_version();
};

std::string text(int64_t value) {
  return std::to_string(value);
}

// RFC 1035 label: lower-case letters, digits and hyphens; begins with a letter, ends with a letter
// or digit.
bool is_label(std::string_view name) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && is_letter(name.front()) && name.back() != '-' &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || is_digit(c) || c == '-'; });
}

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

constexpr char kLabelRule[] =
    "lower-case letters, digits and hyphens, starting with a letter and ending with a letter or "
    "digit";

void Rules::check_metadata() {
  const std::string& name = job.metadata.name;
  if (name.empty()) {
    add("metadata.name", "missing, expected the job's name");
  } else if (!is_label(name)) {
    add("metadata.name", "found " + in_quotes(name) + ", expected " + kLabelRule + " (RFC 1035)");
  } else if (name.size() > kNameBytesMax) {
    add("metadata.name", in_quotes(name) + " has " + text(static_cast<int64_t>(name.size())) +
                             " characters, expected at most " + text(kNameBytesMax) +
                             " (pod names contain it)");
  }
  const std::string& where = job.metadata.namespace_;
  if (!is_label(where) || where.size() > 63) {
    add("metadata.namespace",
        "found " + in_quotes(where) + ", expected " + kLabelRule + ", at most 63 characters");
  }
}

void Rules::check_program() {
  if (spec.train.has_value() && !spec.command.empty()) {
    add("spec", "found both train and command, expected exactly one of them");
  } else if (!spec.train.has_value() && spec.command.empty()) {
    add("spec", "found neither train nor command, expected exactly one of them");
  }
  if (spec.train.has_value() && spec.successPolicy == kRankZero) {
    add("spec.successPolicy", "RankZero is only valid with spec.command, expected AllRanks");
  }
}

void Rules::check_mesh() {
  const int64_t processes = processes_per_node(spec);
  const int64_t world = spec.nodes * processes;
  const std::string made_of =
      " (spec.nodes: " + text(spec.nodes) + " x " + text(processes) + " processes each)";
  if (world > kWorldSizeMax) {
    add("spec.nodes", "a world of " + text(world) + " ranks" + made_of + ", expected at most " +
                          text(kWorldSizeMax));
  }
  const int64_t model = spec.parallelism.pipeline * spec.parallelism.tensor;
  if (world % model != 0) {
    add("spec.parallelism", "pipeline " + text(spec.parallelism.pipeline) + " x tensor " +
                                text(spec.parallelism.tensor) + " = " + text(model) +
                                " does not divide the world of " + text(world) + " ranks" +
                                made_of);
  }
}

// A command may use several GPUs from one process; each rank of the built-in loop has one.
void Rules::check_gpus() {
  const int64_t gpus = spec.gpusPerNode;
  const int64_t processes = processes_per_node(spec);
  if (!spec.train || gpus == 0 || processes % gpus == 0) return;
  add("spec.processesPerNode",
      text(processes) + " is not a multiple of spec.gpusPerNode: " + text(gpus) +
          ", expected 0 (one rank per GPU) or a multiple of the GPU count");
}

// An explicit cudnn must not silently fall back to another implementation; auto uses whatever is
// available.
void Rules::check_attention() {
  if (!spec.train || spec.train->attention != "cudnn") return;
  if (spec.gpusPerNode > 0 && spec.train->precision == "bf16") return;
  add("spec.train.attention",
      "cudnn needs spec.gpusPerNode: 1 or more and spec.train.precision: bf16; expected own or "
      "auto");
}

void Rules::check_ports() {
  const int64_t processes = processes_per_node(spec);
  const int64_t first = spec.rendezvous.port;
  const int64_t last = first + port_count(spec) - 1;
  const std::string users = text(processes) + " processes" +
                            (spec.train ? "" : " with " + text(kPortRounds) + " ports each");
  if (last > kPortMax) {
    add("spec.rendezvous.port", text(first) + " leaves no room for " + users +
                                    ", expected at most " + text(kPortMax - port_count(spec) + 1));
  } else if (first <= kAgentPort && kAgentPort <= last) {
    add("spec.rendezvous.port", text(first) + " to " + text(last) + ", the ports of " + users +
                                    ", include the agent's port " + text(kAgentPort) +
                                    ", expected a range without it");
  }
}

void Rules::check_groups() {
  const int64_t world = spec.nodes * processes_per_node(spec);
  for (size_t i = 0; i < spec.processGroups.size(); ++i) {
    const ProcessGroupSpec& group = spec.processGroups[i];
    const std::string path = "spec.processGroups[" + std::to_string(i) + "]";
    const auto same_name = [&](const ProcessGroupSpec& other) { return other.name == group.name; };
    const auto end = spec.processGroups.begin() + static_cast<std::ptrdiff_t>(i);
    if (!is_label(group.name)) {
      add(path + ".name", "found " + in_quotes(group.name) + ", expected " + kLabelRule);
    } else if (std::find(std::begin(kReservedGroups), std::end(kReservedGroups), group.name) !=
               std::end(kReservedGroups)) {
      add(path + ".name",
          in_quotes(group.name) + " is reserved for the mesh, expected another name");
    } else if (std::any_of(spec.processGroups.begin(), end, same_name)) {
      add(path + ".name", in_quotes(group.name) + " is listed twice");
    }
    const Result<std::vector<int64_t>> ranks = parse_ranks(group.ranks, world);
    if (!ranks.ok()) add(path + ".ranks", ranks.error().message);
  }
}

void Rules::check_hang(const FailureRule& rule, const std::string& path) {
  if (rule.event == kHang && !spec.train.has_value()) {
    not_in_this_version(path + ".event", "event Hang with spec.command",
                        "another event (set a time limit in the program)");
  }
  if (rule.after.empty()) return;
  if (rule.event != kHang) add(path + ".after", "only valid with event: Hang");
  if (!hang_seconds_from_text(rule.after)) {
    add(path + ".after", "found " + in_quotes(rule.after) +
                             ", expected a whole number with unit s, m or h, from 5s to 24h");
  }
}

void Rules::check_failure_rules() {
  for (size_t i = 0; i < spec.failure.rules.size(); ++i) {
    const FailureRule& rule = spec.failure.rules[i];
    const std::string path = "spec.failure.rules[" + std::to_string(i) + "]";
    if (rule.exitCodes.empty() && rule.event.empty()) {
      add(path, "found neither exitCodes nor event, expected at least one of them");
    }
    if (rule.action.empty()) {
      add(path + ".action", "found \"\", expected Fail, RestartInPlace, RecreatePod or Ignore");
    }
    check_hang(rule, path);
    const bool is_of_process = rule.event.empty() || has_word(kProcessEvents, rule.event);
    if (rule.action == "RestartInPlace" && !is_of_process) {
      add(path + ".action", "found RestartInPlace, but " + rule.event +
                                " removes the pod; expected RecreatePod, Ignore or Fail");
    }
  }
}

void Rules::check_model(const TrainSpec& train) {
  constexpr char kPath[] = "spec.train.model";
  const ModelConfig config = model_config(train);
  if (const std::string& family = train.model.family;
      !family.empty() && family != family_name(config.family)) {
    add(std::string(kPath) + ".family",
        in_quotes(family) +
            " is not the family of spec.train.model.preset: " + in_quotes(train.model.preset) +
            ", expected " + std::string(family_name(config.family)));
  }
  const std::pair<const char*, int64_t> needed[] = {{".layers", config.layers},
                                                    {".width", config.width},
                                                    {".heads", config.heads},
                                                    {".context", config.context}};
  bool complete = true;
  for (const auto& [field, value] : needed) {
    if (value != 0) continue;
    add(std::string(kPath) + field, "missing, expected a number, or spec.train.model.preset");
    complete = false;
  }
  if (config.vocabulary == 0) {
    add(std::string(kPath) + ".vocabulary",
        "missing, expected the number of token ids (spec.train.data.tokenizer: " +
            in_quotes(train.data.tokenizer) + " does not determine it)");
    complete = false;
  }
  if (!complete) return;
  for (std::string& problem : model_problems(config, spec.parallelism.tensor, kPath)) {
    problems.push_back(std::move(problem));
  }
  if (train.data.tokenizer == "bytes" && config.vocabulary < 256) {
    add(std::string(kPath) + ".vocabulary",
        text(config.vocabulary) +
            " is too small for spec.train.data.tokenizer: bytes, expected at least 256");
  }
  if (spec.parallelism.pipeline > config.layers) {
    add("spec.parallelism.pipeline",
        text(spec.parallelism.pipeline) +
            " stages, expected at most spec.train.model.layers: " + text(config.layers));
  }
}

void Rules::check_batch(const BatchSpec& batch) {
  const int64_t model = spec.parallelism.pipeline * spec.parallelism.tensor;
  if (spec.nodes * processes_per_node(spec) % model != 0) return;  // check_mesh reports this
  const int64_t data = data_parallel_size(spec);
  const std::string global = "spec.train.batch.global: " + text(batch.global);
  if (batch.micro > 0 && batch.global % batch.micro != 0) {
    add("spec.train.batch.micro", text(batch.micro) + " does not divide " + global);
  } else if (batch.global % data != 0) {
    add("spec.train.batch.global",
        text(batch.global) + " is not a multiple of the " + text(data) + " data-parallel ranks");
  } else if (batch.global % (data * micro_batch(spec)) != 0) {
    add("spec.train.batch.micro", text(batch.micro) + " x " + text(data) +
                                      " data-parallel ranks = " + text(batch.micro * data) +
                                      " does not divide " + global);
  }
}

void Rules::check_rounding(const TrainSpec& train) {
  if (train.rounding == "nearest" || train.precision == "bf16") return;
  add("spec.train.rounding",
      in_quotes(train.rounding) + " needs spec.train.precision: bf16, expected nearest");
}

void Rules::check_steps(const TrainSpec& train) {
  const OptimizerSpec& optimizer = train.optimizer;
  if (optimizer.warmupSteps > train.steps) {
    add("spec.train.optimizer.warmupSteps",
        text(optimizer.warmupSteps) + " is more than spec.train.steps: " + text(train.steps));
  }
  if (optimizer.minimumLearningRate > optimizer.learningRate) {
    add("spec.train.optimizer.minimumLearningRate",
        dump_json(optimizer.minimumLearningRate) +
            " is more than spec.train.optimizer.learningRate: " +
            dump_json(optimizer.learningRate));
  }
  if (train.validation.everySteps > 0 && train.data.validationFraction == 0) {
    add("spec.train.validation.everySteps",
        text(train.validation.everySteps) +
            " needs validation data, expected spec.train.data.validationFraction above 0");
  }
  const int64_t context = std::max<int64_t>(model_config(train).context, 1);
  const int64_t tokens_of_step = train.batch.global * context;  // both factors are at most 2^20
  if (train.steps > kTokensMax / tokens_of_step) {
    add("spec.train.steps", text(train.steps) + " x " + text(tokens_of_step) +
                                " tokens per step is out of range, expected at most " +
                                text(kTokensMax / tokens_of_step));
  }
}

void Rules::check_managed_by() {
  const std::string& name = spec.managedBy;
  const size_t slash = name.find('/');
  const bool is_path = slash != std::string::npos && slash > 0 && slash + 1 < name.size() &&
                       name.find('/', slash + 1) == std::string::npos;
  if (name.empty() || is_path) return;
  add("spec.managedBy", "found " + in_quotes(name) + ", expected domain/path");
}

void Rules::check_version() {
  if (!spec.train) return;
  if (spec.parallelism.tensor > 1) {
    not_in_this_version("spec.parallelism.tensor", text(spec.parallelism.tensor), "1");
  }
  if (spec.parallelism.pipeline > 1) {
    not_in_this_version("spec.parallelism.pipeline", text(spec.parallelism.pipeline), "1");
  }
  if (spec.parallelism.sharding != "none") {
    not_in_this_version("spec.parallelism.sharding", in_quotes(spec.parallelism.sharding), "none");
  }
}

}  // namespace

Problems validate(const TrainingJob& job) {
  Rules rules{job};
  rules.check_metadata();
  const size_t before = rules.problems.size();
  check_ranges(job.spec, "spec", rules.problems);
  const bool in_range = rules.problems.size() == before;
  rules.check_program();
  if (job.spec.train.has_value() && job.spec.train->data.path.empty()) {
    rules.add("spec.train.data.path", "missing, expected a file or a folder");
  }
  rules.check_failure_rules();
  rules.check_managed_by();
  if (!in_range) return rules.problems;  // the rules below assume valid ranges
  rules.check_mesh();
  rules.check_gpus();
  rules.check_attention();
  rules.check_ports();
  rules.check_groups();
  if (job.spec.train.has_value()) {
    rules.check_model(*job.spec.train);
    rules.check_batch(job.spec.train->batch);
    rules.check_rounding(*job.spec.train);
    rules.check_steps(*job.spec.train);
    if (!job.spec.rendezvous.variables.empty()) {
      rules.add("spec.rendezvous.variables", "only valid with spec.command, which is not set");
    }
  } else {
    for (std::string& problem : command_problems(job.spec)) {
      rules.problems.push_back(std::move(problem));
    }
  }
  rules.check_version();
  return rules.problems;
}

}  // namespace lockstep
