#include "agent/node/metrics.h"

#include <algorithm>
#include <utility>

#include "common/base/utf8.h"
#include "common/metrics/exposition.h"
#include "common/metrics/process.h"

namespace lockstep::node {
namespace {

using Type = Exposition::Type;

struct TrainGauge {
  const char* name;
  const char* help;
  double ProgressNumbers::*value;
};
constexpr TrainGauge kGauges[] = {
    {"lockstep_train_loss", "Loss of the last step, nats per token", &ProgressNumbers::loss},
    {"lockstep_train_validation_loss", "Loss of the last validation, nats per token",
     &ProgressNumbers::validation_loss},
    {"lockstep_train_learning_rate", "Learning rate of the last step",
     &ProgressNumbers::learning_rate},
    {"lockstep_train_gradient_norm", "Global norm of the gradient before clipping",
     &ProgressNumbers::gradient_norm},
};

struct StepPart {
  const char* part;
  double ProgressNumbers::*value;
};
constexpr StepPart kParts[] = {
    {"data", &ProgressNumbers::data_seconds},
    {"forward", &ProgressNumbers::forward_seconds},
    {"backward", &ProgressNumbers::backward_seconds},
    {"communication", &ProgressNumbers::communication_seconds},
    {"update", &ProgressNumbers::update_seconds},
};

struct FlopsFormula {
  const char* name;
  double ProgressNumbers::*flops;
};
constexpr FlopsFormula kFormulas[] = {{"palm", &ProgressNumbers::palm_flops_per_second},
                                      {"causal", &ProgressNumbers::causal_flops_per_second}};

// Ratios are those of the whole job and the same on every node.
void add_flops(const ProgressNumbers& numbers, double share, Exposition& out) {
  out.family("lockstep_train_model_flops_per_second",
             "Model FLOPs per second of this node's processes; sum over the nodes for the job's. "
             "FLOPs per token: formula palm 6N + 12LCT, causal 6N + 6LCT",
             Type::kGauge);
  for (const FlopsFormula& formula : kFormulas) {
    const double flops = numbers.*formula.flops;
    if (flops > 0) out.add(flops * share, {{"formula", formula.name}});
  }
  out.family(
      "lockstep_train_mfu_ratio",
      "Model FLOPs utilisation: the job's model FLOPs divided by its GPUs' peak in bf16, from the "
      "datasheet or from matrix products measured on rank 0",
      Type::kGauge);
  for (const FlopsFormula& formula : kFormulas) {
    const double flops = numbers.*formula.flops;
    out.add(flops_ratio(flops, numbers.datasheet_flops_per_second),
            {{"formula", formula.name}, {"peak", "datasheet"}});
    out.add(flops_ratio(flops, numbers.measured_flops_per_second),
            {{"formula", formula.name}, {"peak", "measured"}});
  }
}

void add_training(const MetricsInput& input, Exposition& out) {
  out.single("lockstep_train_tokens_total",
             "Tokens trained on by this node's processes; sum over the nodes for the job's",
             Type::kCounter, input.tokens);
  out.single("lockstep_train_samples_total",
             "Sequences trained on by this node's processes; sum over the nodes for the job's",
             Type::kCounter, input.samples);
  if (input.ranks.empty()) return;
  const ProgressNumbers& lowest = input.ranks.front().numbers;
  out.single("lockstep_train_step", "Optimizer steps done", Type::kGauge,
             static_cast<double>(lowest.step));
  if (lowest.step == 0) return;  // the rest describes the last step
  out.single("lockstep_train_tokens_per_second",
             "Tokens per second of this node's processes; sum over the nodes for the job's",
             Type::kGauge, lowest.tokens_per_second * input.share);
  for (const TrainGauge& gauge : kGauges) {
    out.single(gauge.name, gauge.help, Type::kGauge, lowest.*gauge.value);
  }
  add_flops(lowest, input.share, out);
  out.family("lockstep_train_step_seconds",
             "Seconds of the last step by part; communication is what backward did not hide",
             Type::kGauge);
  for (const RankNumbers& rank : input.ranks) {
    for (const StepPart& part : kParts) {
      out.add(rank.numbers.*part.value, {{"rank", std::to_string(rank.rank)}, {"part", part.part}});
    }
  }
}

template <class T>
std::optional<double> as_number(const std::optional<T>& value) {
  if (!value) return std::nullopt;
  return static_cast<double>(*value);
}

// Uses the same metric names as the built-in loop.
struct ProgramGauge {
  const char* name;
  const char* help;
  std::optional<double> (*value)(const ProgramNumbers& program);
};
constexpr ProgramGauge kProgramGauges[] = {
    {"lockstep_train_step", "Optimizer steps done, as reported by the rank's program",
     [](const ProgramNumbers& program) { return as_number(program.reported.step); }},
    {"lockstep_train_loss", "Loss of the last step, as reported by the rank's program",
     [](const ProgramNumbers& program) { return program.reported.loss; }},
    {"lockstep_train_validation_loss",
     "Loss of the last validation, as reported by the rank's program",
     [](const ProgramNumbers& program) { return program.reported.validation_loss; }},
    {"lockstep_train_samples_per_second",
     "Samples per second, from the counts that the rank's program reports",
     [](const ProgramNumbers& program) { return program.samples_per_second; }},
    {"lockstep_train_tokens_per_second",
     "Tokens per second, from the counts that the rank's program reports",
     [](const ProgramNumbers& program) { return program.tokens_per_second; }},
};

void add_programs(const MetricsInput& input, Exposition& out) {
  if (input.programs.empty()) return;
  for (const ProgramGauge& gauge : kProgramGauges) {
    out.family(gauge.name, gauge.help, Type::kGauge);
    for (const ProgramNumbers& program : input.programs) {
      const std::optional<double> value = gauge.value(program);
      if (value) out.add(*value, {{"rank", std::to_string(program.rank)}});
    }
  }
  out.family("lockstep_program_progress_lines",
             "Lines of the rank's progress file in this round, by whether they were valid",
             Type::kGauge);
  for (const ProgramNumbers& program : input.programs) {
    const std::string rank = std::to_string(program.rank);
    out.add(static_cast<double>(program.lines), {{"rank", rank}, {"understood", "true"}});
    out.add(static_cast<double>(program.lines_rejected), {{"rank", rank}, {"understood", "false"}});
  }
}

struct UsageMetric {
  const char* name;
  const char* help;
  Type type;
  int64_t TreeUsage::*value;
};
constexpr UsageMetric kUsages[] = {
    {"lockstep_process_resident_memory_bytes",
     "Resident memory of the rank's processes; shared pages count once per process", Type::kGauge,
     &TreeUsage::resident_bytes},
    {"lockstep_process_count", "Processes of the rank", Type::kGauge, &TreeUsage::processes},
    {"lockstep_process_open_fds", "Open file descriptors of the rank's processes", Type::kGauge,
     &TreeUsage::open_files},
    {"lockstep_process_io_read_bytes",
     "Bytes read from storage by the rank's processes in this round", Type::kGauge,
     &TreeUsage::read_bytes},
    {"lockstep_process_io_written_bytes",
     "Bytes written to storage by the rank's processes in this round", Type::kGauge,
     &TreeUsage::written_bytes},
};

void add_usage(const MetricsInput& input, Exposition& out) {
  out.family("lockstep_process_cpu_seconds_total",
             "CPU seconds of the rank's processes, over all rounds of this agent", Type::kCounter);
  for (const RankUsage& rank : input.usage) {
    out.add(rank.cpu_seconds, {{"rank", std::to_string(rank.rank)}});
  }
  for (const UsageMetric& usage : kUsages) {
    out.family(usage.name, usage.help, usage.type);
    for (const RankUsage& rank : input.usage) {
      if (!rank.tree) continue;
      out.add(static_cast<double>((*rank.tree).*usage.value),
              {{"rank", std::to_string(rank.rank)}});
    }
  }
}

struct GpuGauge {
  const char* name;
  const char* help;
  double GpuNumbers::*value;
};
constexpr GpuGauge kGpuGauges[] = {
    {"lockstep_gpu_busy_ratio",
     "Fraction of the last sample's time in which a kernel ran on the rank's GPU; does not measure "
     "how much of the GPU it used",
     &GpuNumbers::busy_ratio},
    {"lockstep_gpu_memory_used_bytes", "Memory in use on the rank's GPU, by all processes",
     &GpuNumbers::memory_used_bytes},
    {"lockstep_gpu_memory_size_bytes", "Memory of the rank's GPU", &GpuNumbers::memory_size_bytes},
    {"lockstep_gpu_power_watts", "Power draw of the rank's GPU", &GpuNumbers::power_watts},
};

void add_gpus(const MetricsInput& input, Exposition& out) {
  for (const GpuGauge& gauge : kGpuGauges) {
    out.family(gauge.name, gauge.help, Type::kGauge);
    for (const RankGpu& gpu : input.gpus) {
      if (!gpu.now) continue;
      out.add((*gpu.now).*gauge.value, {{"rank", std::to_string(gpu.rank)},
                                        {"bus", clean_utf8(gpu.now->bus.data())},
                                        {"uuid", uuid_text(gpu.now->uuid)}});
    }
  }
  out.family(
      "lockstep_gpu_xid_errors_total",
      "Xid errors of the rank's GPU, by NVIDIA's number (other: several numbers); each rank that "
      "shares a GPU counts them",
      Type::kCounter);
  for (const RankGpu& gpu : input.gpus) {
    for (const auto& [which, count] : gpu.xids) {
      const auto& [bus, number] = which;
      out.add(static_cast<double>(count),
              {{"rank", std::to_string(gpu.rank)},
               {"bus", clean_utf8(bus)},
               {"xid", number == 0 ? "other" : std::to_string(number)}});
    }
  }
}

void add_agent(const MetricsInput& input, Exposition& out) {
  out.single("lockstep_agent_round", "Round that this agent runs", Type::kGauge,
             static_cast<double>(input.round));
  out.single("lockstep_agent_workers_running", "Running worker processes", Type::kGauge,
             static_cast<double>(input.workers_running));
  out.single("lockstep_agent_worker_restarts_total",
             "Worker processes started again in a later round", Type::kCounter,
             static_cast<double>(input.worker_restarts));
  out.family("lockstep_build_info", "The version of this agent, as a label", Type::kGauge);
  out.add(1, {{"version", LOCKSTEP_VERSION}});
}

}  // namespace

void add_xids(const GpuNumbers& gpu, XidTotals& totals) {
  for (const XidCount& xid : gpu.xids) {
    if (xid.count > 0) totals[{gpu.bus.data(), xid.number}] += xid.count;
  }
}

void TrainCounters::observe(const ProgressNumbers& numbers, double share) {
  // Before training, the counts come from a checkpoint and were already counted when trained on.
  const bool same_round = last_ && last_->round == numbers.round;
  if (numbers.phase >= WorkerPhase::kTraining && (same_round || !last_)) {
    const ProgressNumbers before = last_.value_or(ProgressNumbers{});
    tokens_ += share * static_cast<double>(std::max<int64_t>(numbers.tokens - before.tokens, 0));
    samples_ += share * static_cast<double>(std::max<int64_t>(numbers.samples - before.samples, 0));
  }
  last_ = numbers;
}

std::string render_metrics(const MetricsInput& input) {
  // The Prometheus client does not check labels; one that is not UTF-8 would invalidate the whole
  // scrape.
  Exposition out({{"job", clean_utf8(input.job)},
                  {"namespace", clean_utf8(input.job_namespace)},
                  {"node_index", std::to_string(input.node_index)}});
  add_training(input, out);
  add_programs(input, out);
  add_agent(input, out);
  add_usage(input, out);
  add_gpus(input, out);
  add_process_metrics(out);
  return out.text();
}

}  // namespace lockstep::node
