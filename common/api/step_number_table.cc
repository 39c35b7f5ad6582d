#include "common/api/step_number_table.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

namespace lockstep {
namespace {

constexpr int kLossDigits = 7;
constexpr int kRateDigits = 5;
constexpr int kRatioDigits = 4;

constexpr StepMetric flops_by(const char* formula) {
  return {.name = "lockstep_train_model_flops_per_second",
          .help =
              "Model FLOPs per second of this node's processes; sum over the nodes for the job's. "
              "FLOPs per token: formula palm 6N + 12LCT, causal 6N + 6LCT",
          .scope = MetricScope::kNode,
          .labels = {{{"formula", formula}}}};
}

constexpr StepMetric mfu_by(const char* formula, const char* peak) {
  return {.name = "lockstep_train_mfu_ratio",
          .help =
              "Model FLOPs utilisation: the job's model FLOPs divided by its GPUs' peak in "
              "bf16, from the datasheet or from matrix products measured on rank 0",
          .labels = {{{"formula", formula}, {"peak", peak}}}};
}

// The row of one part of a step's seconds.
constexpr StepNumber part_of_step(StepNumber::Value member, std::string_view file,
                                  const char* part) {
  return {.member = member,
          .file = file,
          .metric = {.name = "lockstep_train_step_seconds",
                     .help = "Seconds of the last step by part; communication is what backward did "
                             "not hide",
                     .scope = MetricScope::kRank,
                     .labels = {{{"part", part}}}}};
}

constexpr StepNumber kTable[] = {
    {.member = &StepNumbers::step,
     .file = "step",
     .status = {.name = "step", .meaning = "Completed steps.", .minimum = 0},
     .from_command = true,
     .metric = {.name = "lockstep_train_step",
                .help = "Optimizer steps done",
                .command_help = "Optimizer steps done, as reported by the rank's program"}},
    {.member = &StepNumbers::steps,
     .status = {.name = "steps", .meaning = "Total steps of the job.", .minimum = 0},
     .from_command = true},
    {.member = &StepNumbers::loss,
     .file = "loss",
     .status = {.name = "loss",
                .meaning = "Loss of the last step (nats per token, or a command's own unit); "
                           "absent if it is not finite."},
     .status_digits = kLossDigits,
     .from_command = true,
     .metric = {.name = "lockstep_train_loss",
                .help = "Loss of the last step, nats per token",
                .command_help = "Loss of the last step, as reported by the rank's program"},
     .run = {"loss {}", NumberStyle::kThreeDecimals},
     .page_row = "Loss",
     .page = {"{}", NumberStyle::kFourDigits}},
    {.member = &StepNumbers::validation_loss,
     .file = "validationLoss",
     .status = {.name = "validationLoss",
                .meaning = "Newest loss on the held-back data, in nats per token."},
     .status_digits = kLossDigits,
     .from_command = true,
     .metric = {.name = "lockstep_train_validation_loss",
                .help = "Loss of the last validation, nats per token",
                .command_help = "Loss of the last validation, as reported by the rank's program"},
     .page_row = "Loss",
     .page = {"validation {}", NumberStyle::kFourDigits}},
    {.member = &StepNumbers::validation_loss_per_byte,
     .file = "validationLossPerByte",
     .status = {.name = "validationLossPerByte",
                .meaning = "Newest loss on the held-back text, in nats per byte; absent if it is "
                           "unknown which bytes the tokens stand for."},
     .status_digits = kLossDigits,
     .metric = {.name = "lockstep_train_validation_loss_per_byte",
                .help = "Loss of the last validation, nats per byte of text"},
     .page_row = "Loss",
     .page = {"{} per byte", NumberStyle::kFourDigits}},
    {.member = &StepNumbers::validation_accuracy,
     .file = "validationAccuracy",
     .status = {.name = "validationAccuracy",
                .meaning = "Share of the held-back samples that the newest validation classified "
                           "right, from 0 to 1."},
     .status_digits = kLossDigits,
     .metric = {.name = "lockstep_train_validation_accuracy_ratio",
                .help = "Share of the held-back samples that the last validation classified right"},
     .page_row = "Loss",
     .page = {"accuracy {}", NumberStyle::kFourDigits}},
    {.member = &StepNumbers::validation_top5_accuracy,
     .file = "validationTop5Accuracy",
     .status = {.name = "validationTop5Accuracy",
                .meaning = "Share of the held-back images whose class was among the five most "
                           "likely ones in the newest validation, from 0 to 1."},
     .status_digits = kLossDigits,
     .metric = {.name = "lockstep_train_validation_top5_accuracy_ratio",
                .help = "Share of the held-back images whose class was among the five most likely "
                        "ones in the last validation"},
     .page_row = "Loss",
     .page = {"top-5 {}", NumberStyle::kFourDigits}},
    {.member = &StepNumbers::validation_auc,
     .file = "validationAuc",
     .status = {.name = "validationAuc",
                .meaning = "Area under the ROC curve of the newest validation of a click model, "
                           "from 0 to 1."},
     .status_digits = kLossDigits,
     .metric = {.name = "lockstep_train_validation_auc_ratio",
                .help = "Area under the ROC curve of the last validation"},
     .page_row = "Loss",
     .page = {"AUC {}", NumberStyle::kFourDigits}},
    {.member = &StepNumbers::learning_rate,
     .file = "learningRate",
     .metric = {.name = "lockstep_train_learning_rate", .help = "Learning rate of the last step"}},
    {.member = &StepNumbers::gradient_norm,
     .file = "gradientNorm",
     .metric = {.name = "lockstep_train_gradient_norm",
                .help = "Global norm of the gradient before clipping"}},
    {.member = &StepNumbers::tokens_per_second,
     .file = "tokensPerSecond",
     .status = {.name = "tokensPerSecond",
                .meaning = "Tokens per second of the whole job, over the last steps; absent if "
                           "tokens are not counted.",
                .minimum = 0},
     .status_digits = kRateDigits,
     .is_summed = true,
     .metric = {.name = "lockstep_train_tokens_per_second",
                .help = "Tokens per second of this node's processes; sum over the nodes for the "
                        "job's",
                .command_help = "Tokens per second, from the counts that the rank's program "
                                "reports",
                .scope = MetricScope::kNode},
     .run = {"{} tok/s", NumberStyle::kRate},
     .page_row = "Speed",
     .page = {"{} tokens/s", NumberStyle::kRate}},
    {.member = &StepNumbers::samples_per_second,
     .file = "samplesPerSecond",
     .status = {.name = "samplesPerSecond",
                .meaning =
                    "Samples per second of the whole job, if a command counts samples or the "
                    "model has no tokens.",
                .minimum = 0},
     .status_digits = kRateDigits,
     .is_summed = true,
     .metric = {.name = "lockstep_train_samples_per_second",
                .help =
                    "Samples per second of this node's processes, of models without tokens; sum "
                    "over the nodes for the job's",
                .command_help = "Samples per second, from the counts that the rank's program "
                                "reports",
                .scope = MetricScope::kNode},
     .run = {"{} samples/s", NumberStyle::kRate},
     .page_row = "Speed",
     .page = {"{} samples/s", NumberStyle::kRate}},
    {.member = &StepNumbers::palm_flops_per_second,
     .file = "flopsPerSecond.palm",
     .metric = flops_by("palm")},
    {.member = &StepNumbers::causal_flops_per_second,
     .file = "flopsPerSecond.causal",
     .metric = flops_by("causal")},
    {.member = &StepNumbers::palm_mfu,
     .file = "mfu.palm",
     .status = {.name = "mfu",
                .meaning =
                    "Model FLOPs utilisation, between 0 and 1: tokensPerSecond x (6N + 12LCT), "
                    "PaLM's formula, divided by the datasheet peak of the job's GPUs in bf16; "
                    "absent on the CPU, in fp32 and for GPUs that are not in the table.",
                .minimum = 0},
     .status_digits = kRatioDigits,
     .metric = mfu_by("palm", "datasheet"),
     .run = {"MFU {} %", NumberStyle::kPercent},
     .page_row = "Speed",
     .page = {"MFU {} % (PaLM)", NumberStyle::kPercent}},
    {.member = &StepNumbers::causal_mfu,
     .file = "mfu.causal",
     .metric = mfu_by("causal", "datasheet")},
    {.member = &StepNumbers::palm_mfu_of_measured,
     .file = "mfuOfMeasuredPeak.palm",
     .metric = mfu_by("palm", "measured")},
    {.member = &StepNumbers::causal_mfu_of_measured,
     .file = "mfuOfMeasuredPeak.causal",
     .metric = mfu_by("causal", "measured")},
    {.member = &StepNumbers::tokens,
     .status = {.name = "tokens", .meaning = "Tokens trained on since step 0.", .minimum = 0},
     .from_command = true,
     .is_summed = true,
     .metric = {.name = "lockstep_train_tokens_total",
                .help =
                    "Tokens trained on by this node's processes; sum over the nodes for the job's",
                .scope = MetricScope::kCount}},
    {.member = &StepNumbers::samples,
     .status = {.name = "samples", .meaning = "Sequences trained on since step 0.", .minimum = 0},
     .from_command = true,
     .is_summed = true,
     .metric = {.name = "lockstep_train_samples_total",
                .help = "Sequences trained on by this node's processes; sum over the nodes for the "
                        "job's",
                .scope = MetricScope::kCount}},
    part_of_step(&StepNumbers::data_seconds, "seconds.data", "data"),
    part_of_step(&StepNumbers::forward_seconds, "seconds.forward", "forward"),
    part_of_step(&StepNumbers::backward_seconds, "seconds.backward", "backward"),
    part_of_step(&StepNumbers::communication_seconds, "seconds.communication", "communication"),
    part_of_step(&StepNumbers::update_seconds, "seconds.update", "update"),
    {.member = &StepNumbers::step_seconds, .file = "seconds.total"},
    {.member = &StepNumbers::slowest_worker,
     .file = "slowestWorker",
     .status = {.name = "slowestWorker",
                .meaning = "Rank of the worker that has completed the fewest steps, of a job with "
                           "servers whose workers need not keep step.",
                .minimum = 0},
     .may_be_unknown = true,
     .metric = {.name = "lockstep_train_slowest_worker_rank",
                .help = "Rank of the worker that has completed the fewest steps, of a job with "
                        "servers whose workers need not keep step"},
     .page_row = "Slowest",
     .page = {"worker {}", NumberStyle::kWhole}},
    {.member = &StepNumbers::slowest_worker_step,
     .file = "slowestWorkerStep",
     .status = {.name = "slowestWorkerStep",
                .meaning = "Steps that the slowest worker has completed.",
                .minimum = 0},
     .may_be_unknown = true,
     .metric = {.name = "lockstep_train_slowest_worker_step",
                .help = "Steps that the slowest worker has completed"},
     .page_row = "Slowest",
     .page = {"at step {}", NumberStyle::kWhole}},
    {.member = &StepNumbers::server_rows,
     .metric = {.name = "lockstep_train_server_rows",
                .help = "Rows of all tables on this server",
                .scope = MetricScope::kRank}},
};
static_assert(sizeof(StepNumbers) == std::size(kTable) * sizeof(std::optional<double>),
              "expected one row for each member of StepNumbers");

bool is_finite(const std::optional<int64_t>& count) {
  return count.has_value();
}
bool is_finite(const std::optional<double>& value) {
  return value && std::isfinite(*value);
}

void add(const std::optional<int64_t>& other, std::optional<int64_t>& sum) {
  // Both addends are at most kMax, like every integer of the API, so the sum cannot overflow.
  constexpr auto kMax = static_cast<int64_t>(kIntegerMax);
  if (other) sum = std::min(sum.value_or(0) + *other, kMax);
}
void add(const std::optional<double>& other, std::optional<double>& sum) {
  if (other) sum = sum.value_or(0) + *other;
}

void copy_to_status(const std::optional<int64_t>& from, std::optional<int64_t>& to) {
  to = from.value_or(0);
}
void copy_to_status(const std::optional<double>& from, std::optional<double>& to) {
  if (is_finite(from)) to = from;
}

// A path has one or two parts: "loss", "seconds.data".
struct LinePath {
  explicit LinePath(std::string_view path) : key(path.substr(path.find('.') + 1)) {
    if (key.size() < path.size()) object = path.substr(0, path.size() - key.size() - 1);
  }
  std::string_view key;
  std::string_view object = {};  // empty: the line itself
};

}  // namespace

std::span<const StepNumber> step_number_table() {
  return kTable;
}

std::optional<double> value_of(const StepNumber& number, const StepNumbers& numbers) {
  return std::visit(
      [&](auto member) -> std::optional<double> {
        if (!is_finite(numbers.*member)) return std::nullopt;
        return static_cast<double>(*(numbers.*member));
      },
      number.member);
}

void update(StepNumbers& numbers, const StepNumbers& newer) {
  const auto take = [&](auto member) {
    if (newer.*member) numbers.*member = newer.*member;
  };
  for (const StepNumber& number : kTable) std::visit(take, number.member);
}

void add_counts(const StepNumbers& others, StepNumbers& numbers) {
  const auto add_member = [&](auto member) { add(others.*member, numbers.*member); };
  for (const StepNumber& number : kTable) {
    if (number.is_summed) std::visit(add_member, number.member);
  }
}

StepNumbers numbers_in_status(const StepNumbers& numbers) {
  StepNumbers in_status;
  for (const StepNumber& number : kTable) {
    if (number.status.name.empty()) continue;
    if (number.may_be_unknown && !value_of(number, numbers)) continue;
    std::visit([&](auto member) { copy_to_status(numbers.*member, in_status.*member); },
               number.member);
  }
  return in_status;
}

Json metrics_line(const StepNumbers& numbers) {
  Json line = Json::object();
  for (const StepNumber& number : kTable) {
    if (number.file.empty() || !value_of(number, numbers)) continue;
    const LinePath path(number.file);
    Json& object = path.object.empty() ? line : line[std::string(path.object)];
    std::visit([&](auto member) { object[std::string(path.key)] = *(numbers.*member); },
               number.member);
  }
  return line;
}

StepNumbers numbers_from_metrics_line(const Json& line) {
  StepNumbers numbers;
  Problems problems;  // stays empty
  for (const StepNumber& number : kTable) {
    const LinePath path(number.file);
    const Json* object = path.object.empty() ? &line : find_member(line, path.object);
    const Json* value = object == nullptr ? nullptr : find_member(*object, path.key);
    if (number.file.empty() || value == nullptr) continue;
    std::visit(
        [&](auto member) {
          read_json(*value, numbers.*member, number.file, kReadLeniently, problems);
        },
        number.member);
  }
  return numbers;
}

}  // namespace lockstep
