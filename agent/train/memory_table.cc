#include "agent/train/memory_table.h"

#include <algorithm>
#include <cstdio>

namespace lockstep::train {
namespace {

constexpr int64_t kMicroBatchMax = 4096;
constexpr int64_t kSequenceMax = 4096;
constexpr uint64_t kGigabyte = 1'000'000'000;

parallel::ComposeOptions options_of(const ModelConfig& config) {
  parallel::ComposeOptions options{.design = config, .mesh = {}, .optimizer = {}};
  options.sequence = std::min(config.context, kSequenceMax);
  options.precision = kernels::Precision::kBf16;
  options.device = {kernels::DeviceType::kCuda, 0};
  return options;
}

bool fits(parallel::ComposeOptions options, int64_t micro_batch, uint64_t bytes) {
  options.micro_batch = micro_batch;
  const Result<parallel::MemoryPlan> plan = parallel::plan_memory(options);
  return plan.ok() && plan->device.bytes + plan->device.reserve <= bytes;
}

// Parameters with their copies, gradients and states of the optimizer.
uint64_t state_bytes(const parallel::ComposeOptions& options) {
  const Result<parallel::MemoryPlan> plan = parallel::plan_memory(options);
  CHECK(plan.ok());
  const kernels::ArenaPlan& arena = plan->device;
  return kernels::bytes_of(arena, kernels::ArenaUse::kParameters) +
         kernels::bytes_of(arena, kernels::ArenaUse::kGradients) +
         kernels::bytes_of(arena, kernels::ArenaUse::kOptimizer);
}

std::string gigabytes(uint64_t bytes) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.1f GB",
                static_cast<double>(bytes) / static_cast<double>(kGigabyte));
  return text;
}

std::string row_of(const std::string& name, std::span<const int64_t> gpu_gigabytes) {
  const Result<ModelConfig> config = model_preset(name);
  CHECK(config.ok());
  parallel::ComposeOptions options = options_of(*config);
  std::string row = "| " + name + " | " + std::to_string(parameter_count(*config)) + " | " +
                    gigabytes(state_bytes(options)) + " | " + std::to_string(options.sequence) +
                    " |";
  for (const int64_t size : gpu_gigabytes) {
    std::string cell;
    for (const auto& [recompute, ignored] : kRecomputes) {
      options.recompute = recompute;
      const int64_t most = largest_micro_batch(options, static_cast<uint64_t>(size) * kGigabyte);
      cell += (cell.empty() ? " " : " / ") + (most == 0 ? "-" : std::to_string(most));
    }
    row += cell + " |";
  }
  return row + "\n";
}

}  // namespace

int64_t largest_micro_batch(const parallel::ComposeOptions& options, uint64_t bytes) {
  int64_t most = 0;
  for (int64_t step = kMicroBatchMax; step > 0; step /= 2) {
    const int64_t more = most + step;
    if (more <= kMicroBatchMax && fits(options, more, bytes)) most = more;
  }
  return most;
}

std::string memory_table(std::span<const int64_t> gpu_gigabytes) {
  std::string head = "| preset | parameters | their state | tokens of a sequence |";
  std::string line = "|---|---|---|---|";
  for (const int64_t size : gpu_gigabytes) {
    head += " " + std::to_string(size) + " GB: ";
    for (const auto& [ignored, name] : kRecomputes) {
      head += (name == kRecomputes[0].second ? "" : " / ") + std::string(name);
    }
    head += " |";
    line += "---|";
  }
  std::string table = head + "\n" + line + "\n";
  for (const std::string& name : model_preset_names()) table += row_of(name, gpu_gigabytes);
  return table;
}

}  // namespace lockstep::train
