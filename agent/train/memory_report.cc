#include "agent/train/memory_report.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "agent/train/memory_table.h"
#include "common/layout/pipedream_schedule.h"
#include "common/layout/pipeline_schedule.h"
#include "common/layout/schedule_time.h"
#include "kernels/device/device_errors.h"

namespace lockstep::train {
namespace {

bool on_gpus(const JobPlan& plan) {
  return plan.gpus_per_node > 0;
}

std::string counted(int64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

std::string row(const std::string& name, uint64_t bytes) {
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "%20llu bytes  ",
                static_cast<unsigned long long>(bytes));
  std::string text = "  " + name;
  text.append(text.size() < 72 ? 72 - text.size() : 1, ' ');
  return text + number.data() + kernels::bytes_text(bytes) + "\n";
}

std::string arena_rows(const kernels::ArenaPlan& arena) {
  std::string text;
  uint64_t given = 0;
  for (const kernels::ArenaPart& part : arena.parts) {
    given += part.bytes;
    if (part.bytes > 0) text += row(std::string(name_of(part.use)) + ": " + part.name, part.bytes);
  }
  text += row("alignment", arena.bytes - given) + row("total", arena.bytes);
  if (arena.reserve == 0) return text;
  return text + row("kept free for CUDA, cuBLASLt and NCCL (estimate)", arena.reserve);
}

std::string part_row(const parallel::MemoryPart& part) {
  static constexpr const char* kSuffixes[] = {"", " (at most)", " (estimate)"};
  return row(std::string(name_of(part.place)) + ": " + part.name +
                 kSuffixes[static_cast<size_t>(part.basis)],
             part.bytes);
}

// Returns nothing for a job without scratch files.
std::string scratch_rows(const JobPlan& plan) {
  const uint64_t bytes = plan.memory.offloaded_bytes;
  if (bytes == 0 || !parallel::offloads_to_file(plan.options)) return "";
  const std::string& folder = plan.options.offload.path;
  return "scratch files of a process, in " + (folder.empty() ? "$TMPDIR or /tmp" : folder) + ":\n" +
         row("offloaded values", bytes);
}

std::string recompute_name(Recompute recompute) {
  for (const auto& [kind, name] : kRecomputes) {
    if (kind == recompute) return name;
  }
  return "";
}

// Returns the length of a transformer's samples, and what only some families have.
std::string sample_text(const JobPlan& plan) {
  const parallel::ComposeOptions& options = plan.options;
  const char* const unknown =
      plan.lacks_cudnn ? ", as this machine cannot tell the workspace of cuDNN's" : "";
  if (std::holds_alternative<ConvnetConfig>(options.design) && on_gpus(plan)) {
    const bool by_cudnn = options.convolutions == kernels::Conv2dBy::kCudnn;
    return std::string(" samples; convolutions: ") + (by_cudnn ? "cudnn" : "own") + unknown;
  }
  if (tokens_per_sample(options.design) == 0) return " samples";
  return " x " + std::to_string(options.sequence) +
         " tokens; recompute: " + recompute_name(options.recompute) +
         "; attention: " + (options.attention == kernels::AttentionBy::kCudnn ? "cudnn" : "own") +
         unknown;
}

std::string overlapping_text(const JobPlan& plan, const PipelineShape& shape) {
  const int64_t kept = 1 + stashed_versions(shape, plan.options.place.pipeline);
  return counted(shape.stages, "stage", "stages") +
         ", pipedream: batches follow each other, and a stage waits only while the pipeline fills "
         "and empties; the largest rank keeps " +
         counted(kept, "version", "versions") + " of its parameters\n";
}

// Returns a line on the stages and how long they wait for each other, and nothing without a
// pipeline.
std::string pipeline_text(const JobPlan& plan) {
  const PipelineShape shape = parallel::pipeline_shape(plan.options);
  if (shape.stages == 1) return "";
  if (shape.kind == PipelineKind::kPipeDream) return overlapping_text(plan, shape);
  const Result<PipelineSchedule> schedule = pipeline_schedule(shape);
  if (!schedule.ok()) return "";
  char idle[16];
  std::snprintf(idle, sizeof idle, "%.1f", 100 * schedule_time(shape, *schedule, {}).idle_ratio);
  const std::string chunks =
      shape.chunks > 1 ? " of " + counted(shape.chunks, "chunk", "chunks") + " each" : "";
  return counted(shape.stages, "stage", "stages") + chunks + ", " +
         std::string(pipeline_kind_name(shape.kind)) + ": " +
         counted(shape.micro_batches, "micro-batch", "micro-batches") +
         " of a step pass through them, and a stage waits " + idle + " % of the time\n";
}

std::string head_text(const JobPlan& plan) {
  const parallel::ComposeOptions& options = plan.options;
  const std::string where = on_gpus(plan) ? "on GPUs" : "on CPUs";
  return counted(plan.nodes * plan.ranks_per_node, "process", "processes") + " on " +
         counted(plan.nodes, "node", "nodes") + ", " + where + " in " +
         (options.precision == kernels::Precision::kBf16 ? "bf16" : "fp32") +
         "; micro-batches of " + std::to_string(options.micro_batch) + sample_text(plan) + "\n";
}

uint64_t bytes_needed(const JobPlan& plan, const MemoryLimit& limit) {
  if (on_gpus(plan)) return plan.gpu_bytes();
  const uint64_t workers = static_cast<uint64_t>(limit.nodes) * plan.node_bytes();
  const uint64_t servers = plan.server_node_bytes();
  if (limit.servers == 0) return std::max(workers, servers);
  return workers + static_cast<uint64_t>(limit.servers) * servers;
}

// Tells the user how to make a job fit a GPU, or how to use the rest of it.
std::string largest_micro_batches(const JobPlan& plan, const MemoryLimit& limit) {
  std::string text;
  parallel::ComposeOptions options = plan.options;
  const uint64_t bytes = limit.bytes / static_cast<uint64_t>(plan.ranks_per_gpu());
  for (const auto& [kind, name] : kRecomputes) {
    options.recompute = kind;
    text += (text.empty() ? "" : ", ") + std::to_string(largest_micro_batch(options, bytes)) +
            " with recompute: " + name;
  }
  // These count our own attention and convolutions, whichever the job uses.
  return "; the largest spec.train.batch.micro is " + text +
         " (it has to divide each rank's share of batch.global)";
}

}  // namespace

std::vector<MemoryLimit> limits_here(const JobPlan& plan) {
  const kernels::Device device{
      on_gpus(plan) ? kernels::DeviceType::kCuda : kernels::DeviceType::kCpu, 0};
  const Result<kernels::DeviceInfo> here = kernels::describe(device);
  if (!here.ok() || here->memory_bytes == 0) return {};
  const std::string size = " (" + kernels::bytes_text(here->memory_bytes) + ")";
  if (on_gpus(plan)) return {{"the " + here->name + " of this machine" + size, here->memory_bytes}};
  const int64_t all = plan.nodes + plan.server_nodes;
  const std::string nodes = all == 1 ? "" : " with all " + std::to_string(all) + " nodes";
  return {{"this machine" + size + nodes, here->memory_bytes, plan.nodes, plan.server_nodes}};
}

bool fits(const JobPlan& plan, const MemoryLimit& limit) {
  return bytes_needed(plan, limit) <= limit.bytes;
}

std::string fit_text(const JobPlan& plan, const MemoryLimit& limit) {
  const uint64_t needed = bytes_needed(plan, limit);
  const std::string verdict =
      needed <= limit.bytes
          ? "fits, " + kernels::bytes_text(limit.bytes - needed) + " to spare"
          : "does not fit, " + kernels::bytes_text(needed - limit.bytes) + " short";
  return limit.name + ": " + verdict + (on_gpus(plan) ? largest_micro_batches(plan, limit) : "");
}

std::string memory_line(const JobPlan& plan) {
  const std::string count = std::to_string(plan.nodes * plan.ranks_per_node) + " processes";
  const std::string processes = plan.first_takes_more() ? "rank 0 takes the most of " + count + ", "
                                : plan.nodes * plan.ranks_per_node == 1
                                    ? "the process takes "
                                    : "each of " + count + " takes ";
  const std::string host =
      kernels::bytes_text(plan.node_bytes() / static_cast<uint64_t>(plan.ranks_per_node));
  if (plan.server_nodes > 0) {
    const uint64_t bytes = plan.server_node_bytes() / static_cast<uint64_t>(plan.ranks_per_node);
    return processes + host + ", and " +
           counted(plan.server_nodes * plan.ranks_per_node, "server", "servers") + " up to " +
           kernels::bytes_text(bytes);
  }
  if (!on_gpus(plan)) return processes + host;
  const kernels::ArenaPlan& gpu = plan.memory.device;
  return processes + kernels::bytes_text(gpu.bytes + gpu.reserve) + " of a GPU and " + host +
         " of the host";
}

std::string memory_report(const JobPlan& plan, const std::vector<MemoryLimit>& limits) {
  const parallel::MemoryPlan& memory = plan.memory;
  std::string text = head_text(plan) + pipeline_text(plan) + "\n";
  text += std::string(on_gpus(plan) ? "GPU memory" : "memory") + " of a process:\n";
  text += arena_rows(memory.device);
  text += std::string(on_gpus(plan) ? "page-locked memory" : "memory") +
          " of a process, for copies:\n" + arena_rows(memory.pinned);
  text += "other memory of a process:\n";
  for (const parallel::MemoryPart& part : memory.others) text += part_row(part);
  text += scratch_rows(plan);
  if (plan.server_nodes > 0) text += "memory of the server that holds the most:\n";
  for (const parallel::MemoryPart& part : plan.server) text += part_row(part);
  text += "\n";
  if (plan.first_takes_more()) {
    text += "These are the bytes of rank 0. The others have no states of the optimizer.\n";
  }
  if (memory.logits_rows > 0) {
    text += "The activations include " + kernels::bytes_text(memory.logits_bytes) +
            " for the logits of " + std::to_string(memory.logits_rows) + " tokens.\n";
  }
  text += "memory: " + memory_line(plan) + "\n";
  for (const MemoryLimit& limit : limits) text += fit_text(plan, limit) + "\n";
  return text;
}

}  // namespace lockstep::train
