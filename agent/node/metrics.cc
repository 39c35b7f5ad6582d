#include "agent/node/metrics.h"

#include <algorithm>
#include <utility>

#include "common/api/step_number_table.h"
#include "common/base/utf8.h"
#include "common/metrics/exposition.h"
#include "common/metrics/process.h"

namespace lockstep::node {
namespace {

using Type = Exposition::Type;

MetricLabels labels_of(const StepMetric& metric) {
  MetricLabels labels;
  for (const MetricLabel& label : metric.labels) {
    if (label.name != nullptr) labels.emplace_back(label.name, label.value);
  }
  return labels;
}

void add_known(const std::optional<double>& value, const MetricLabels& labels, Exposition& out) {
  if (value) out.add(*value, labels);
}

// Adds the series of one row of the table to its family.
void add_series(const StepNumber& number, const MetricsInput& input, Exposition& out) {
  const MetricLabels labels = labels_of(number.metric);
  if (number.metric.scope == MetricScope::kCount) {
    const auto count = input.counts.find(number.metric.name);
    return out.add(count == input.counts.end() ? 0 : count->second, labels);
  }
  for (const RankNumbers& rank : input.ranks) {
    std::optional<double> value = value_of(number, rank.numbers);
    if (number.metric.scope == MetricScope::kRank) {
      MetricLabels of_rank = {{"rank", std::to_string(rank.rank)}};
      of_rank.insert(of_rank.end(), labels.begin(), labels.end());
      add_known(value, of_rank, out);
      continue;
    }
    if (value && number.metric.scope == MetricScope::kNode) *value *= input.share;
    return add_known(value, labels, out);  // the lowest rank's
  }
}

void add_training(const MetricsInput& input, Exposition& out) {
  std::string_view family;
  for (const StepNumber& number : step_number_table()) {
    const StepMetric& metric = number.metric;
    if (metric.help == nullptr) continue;
    const bool is_count = metric.scope == MetricScope::kCount;
    if (metric.name != family) {
      out.family(metric.name, metric.help, is_count ? Type::kCounter : Type::kGauge);
    }
    family = metric.name;
    add_series(number, input, out);
  }
}

void add_programs(const MetricsInput& input, Exposition& out) {
  if (input.programs.empty()) return;
  for (const StepNumber& number : step_number_table()) {
    if (number.metric.command_help == nullptr) continue;
    out.family(number.metric.name, number.metric.command_help, Type::kGauge);
    for (const ProgramNumbers& program : input.programs) {
      add_known(value_of(number, program.numbers), {{"rank", std::to_string(program.rank)}}, out);
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

struct StorageCounter {
  const char* name;
  const char* help;
  double StorageTotals::*value;
};
constexpr StorageCounter kStorageCounters[] = {
    {"lockstep_checkpoint_saves_total", "Checkpoints saved completely", &StorageTotals::saved},
    {"lockstep_checkpoint_save_failures_total", "Checkpoints that could not be saved",
     &StorageTotals::failed},
    {"lockstep_checkpoint_set_aside_total", "Corrupt checkpoints set aside",
     &StorageTotals::set_aside},
    {"lockstep_checkpoint_blocked_seconds_total",
     "Seconds in which training waited for checkpoints to be saved",
     &StorageTotals::blocked_seconds},
};

void add_storage(const MetricsInput& input, Exposition& out) {
  if (!input.storage) return;
  for (const StorageCounter& counter : kStorageCounters) {
    out.single(counter.name, counter.help, Type::kCounter, (*input.storage).*counter.value);
  }
  if (input.storage->save_seconds > 0) {
    out.single("lockstep_checkpoint_save_seconds",
               "Seconds of the newest complete save, from its snapshot until it was durable",
               Type::kGauge, input.storage->save_seconds);
  }
  if (input.storage->kept_step < 0) return;
  out.single("lockstep_checkpoint_memory_step", "Step of rank 0's newest state in memory",
             Type::kGauge, input.storage->kept_step);
  out.single("lockstep_checkpoint_memory_bytes",
             "Memory that rank 0 takes for its states and for those it keeps for another rank",
             Type::kGauge, input.storage->kept_bytes);
  out.single("lockstep_checkpoint_memory_blocked_seconds_total",
             "Seconds in which training waited for copies of rank 0's state in memory",
             Type::kCounter, input.storage->kept_blocked_seconds);
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

void add_notes(const StorageNotes& notes, StorageTotals& totals) {
  totals.saved += static_cast<double>(std::max<int64_t>(notes.saved, 0));
  totals.failed += static_cast<double>(std::max<int64_t>(notes.failed, 0));
  totals.set_aside += static_cast<double>(std::max<int64_t>(notes.set_aside, 0));
  if (notes.blocked_seconds > 0) totals.blocked_seconds += notes.blocked_seconds;
  if (notes.save_seconds > 0) totals.save_seconds = notes.save_seconds;
  if (notes.kept_blocked_seconds > 0) totals.kept_blocked_seconds += notes.kept_blocked_seconds;
  if (notes.kept_step < 0) return;
  totals.kept_step = static_cast<double>(notes.kept_step);
  totals.kept_bytes = static_cast<double>(std::max<int64_t>(notes.kept_bytes, 0));
}

void TrainCounters::observe(const ProgressNumbers& numbers, double share) {
  // Before training, the counts come from a checkpoint and were already counted when trained on.
  const bool same_round = last_ && last_->round == numbers.round;
  if (numbers.phase >= WorkerPhase::kTraining && (same_round || !last_)) {
    const ProgressNumbers before = last_.value_or(ProgressNumbers{});
    for (const StepNumber& number : step_number_table()) {
      if (number.metric.scope != MetricScope::kCount) continue;
      const double grown =
          value_of(number, numbers).value_or(0) - value_of(number, before).value_or(0);
      counts_[number.metric.name] += share * std::max(grown, 0.0);
    }
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
  add_storage(input, out);
  add_agent(input, out);
  add_usage(input, out);
  add_gpus(input, out);
  add_process_metrics(out);
  return out.text();
}

}  // namespace lockstep::node
