#include "agent/parallel/compose_options.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <variant>

#include "common/layout/parameters.h"
#include "common/layout/pipedream_schedule.h"
#include "common/layout/schedule_check.h"

namespace lockstep::parallel {
namespace {

Status check_sharing(const ComposeOptions& options) {
  const ShardingOptions& sharding = options.sharding;
  const bool is_sharded = sharding.sharding != Sharding::kNone;
  if (sharding.ranks < 1 || options.mesh.data % sharding.ranks != 0 ||
      (!is_sharded && sharding.ranks != 1)) {
    return invalid("[compose] the " + std::to_string(options.mesh.data) +
                   " data-parallel ranks cannot be divided into groups of " +
                   std::to_string(sharding.ranks));
  }
  if (sharding.gathers_bf16 && sharding.sharding != Sharding::kParameters) {
    return invalid("[compose] parameters travel as bf16 only if they are sharded");
  }
  const bool is_other = options.exchange != Exchange::kAllReduce;
  if (is_other &&
      (is_sharded || sharding.reduces_bf16 || options.offload.offload != Offload::kNone)) {
    return invalid("[compose] the exchange " + std::string(exchange_name(options.exchange)) +
                   " works only without sharding, offload and bf16 gradients");
  }
  if (options.offload.offload == Offload::kParameters &&
      sharding.sharding != Sharding::kParameters) {
    return invalid("[compose] parameters are offloaded only if they are sharded");
  }
  if (options.offload.offload == Offload::kParameters && offloads_to_file(options) &&
      options.device.type == kernels::DeviceType::kCuda) {
    return invalid(
        "[compose] this version offloads a GPU's parameters only to page-locked memory, "
        "not to \"" +
        options.offload.path + "\": omit offloadPath");
  }
  return {};
}

// Servers update: this rank needs neither ranks nor an optimizer.
Status check_servers(const ComposeOptions& options) {
  if (options.exchange != Exchange::kServers) return {};
  if (options.mesh.size() != 1 || options.device.type != kernels::DeviceType::kCpu ||
      options.precision != kernels::Precision::kF32) {
    return invalid(
        "[compose] the exchange servers works only for a rank that computes alone, on a CPU and in "
        "fp32");
  }
  return {};
}

Status check_stages(const ComposeOptions& options) {
  const Mesh& mesh = options.mesh;
  if (mesh.pipeline == 1 && mesh.virtual_stages == 1) return {};
  if (mesh.pipeline == 1) {
    return invalid("[compose] expected a pipeline for " + std::to_string(mesh.virtual_stages) +
                   " virtual stages, got one stage");
  }
  const int64_t layers = stage_layers(options.design);
  if (mesh.pipeline * mesh.virtual_stages > layers) {
    return invalid("[compose] expected at most as many stages as layers, " +
                   std::to_string(layers) + ", got " +
                   std::to_string(mesh.pipeline * mesh.virtual_stages));
  }
  if (const std::string problem = part_problem(options.design, mesh); !problem.empty()) {
    return invalid("[compose] the layers of the stages: " + problem, Blame::kConfig);
  }
  return validate(pipeline_shape(options));
}

// Running statistics move a tenth of their distance from where they were when the micro-batch was
// sent forward. They swing, below zero in the end, if that was long ago: a delay of d steps is
// safe as long as a tenth of it is below 1/e.
Status check_delay(const ComposeOptions& options) {
  constexpr int64_t kDelayMax = 3;
  const std::vector<Parameter> parameters = parameter_table(options.design);
  const bool has_statistics = std::ranges::any_of(parameters, &Parameter::is_statistic);
  const int64_t delayed = options.mesh.pipeline - 1;
  if (!has_statistics || delayed <= kDelayMax * options.micro_batches) return {};
  return invalid("[compose] pipedream: expected at least " +
                     std::to_string((delayed + kDelayMax - 1) / kDelayMax) +
                     " micro-batches a step for the running statistics of " +
                     std::to_string(options.mesh.pipeline) + " stages, got " +
                     std::to_string(options.micro_batches),
                 Blame::kConfig);
}

Status check_versions(const ComposeOptions& options) {
  if (!steps_overlap(options)) return {};
  if (is_tied(options.design)) {
    return invalid("[compose] pipedream works only without a tied embedding");
  }
  if (options.sharding.sharding != Sharding::kNone) {
    return invalid("[compose] pipedream works only without sharding");
  }
  if (options.versions.is_vertical && !options.versions.stashes) {
    return invalid("[compose] vertical sync works only with weight stashing");
  }
  TRY(check_delay(options));
  if (!options.versions.stashes && options.recompute != Recompute::kNone) {
    return invalid(
        "[compose] pipedream without weight stashing works only without recomputation, which "
        "would read other parameters than forward");
  }
  return {};
}

Status check_muon(const ComposeOptions& options) {
  if (options.optimizer.kind != optim::OptimizerKind::kMuon) return {};
  if (options.exchange != Exchange::kAllReduce || options.offload.offload != Offload::kNone) {
    return invalid(
        "[compose] muon works in this version only with the exchange allReduce and without "
        "offload",
        Blame::kConfig);
  }
  if (std::ranges::none_of(parameter_table(options.design), &Parameter::is_hidden_matrix)) {
    return invalid(
        "[compose] muon is for the matrices of hidden layers, of which this model has none: "
        "expected adamw, sgd or adagrad",
        Blame::kConfig);
  }
  return {};
}

}  // namespace

Status check(const ComposeOptions& options) {
  const Mesh& mesh = options.mesh;
  TRY(check_stages(options));
  TRY(check_servers(options));
  if (mesh.pipeline * mesh.tensor != 1 && options.exchange == Exchange::kHost) {
    return invalid(
        "[compose] the exchange host works only without tensor and pipeline parallelism");
  }
  if (options.sequence_parallel &&
      (options.mesh.tensor == 1 || options.sequence % options.mesh.tensor != 0)) {
    return invalid("[compose] " + std::to_string(options.mesh.tensor) +
                   " tensor-parallel ranks cannot divide sequences of " +
                   std::to_string(options.sequence));
  }
  if (splits_backward(options) && (options.recompute != Recompute::kNone ||
                                   options.sharding.sharding >= Sharding::kGradients)) {
    return invalid(
        "[compose] zerobubble works only without recomputation and without sharded gradients");
  }
  TRY(check_versions(options));
  TRY(check_muon(options));
  return check_sharing(options);
}

bool offloads_to_file(const ComposeOptions& options) {
  return options.device.type == kernels::DeviceType::kCpu || !options.offload.path.empty();
}

PipelineShape pipeline_shape(const ComposeOptions& options) {
  const int64_t stages = options.mesh.pipeline;
  return {.kind = stages == 1 ? PipelineKind::kNaive : options.pipeline,
          .stages = stages,
          .micro_batches = options.micro_batches,
          .chunks = options.mesh.virtual_stages,
          .versions = options.versions};
}

std::vector<int64_t> micro_batches_in_flight(const ComposeOptions& options) {
  const PipelineShape shape = pipeline_shape(options);
  if (shape.chunks == 1) return {in_flight_bound(shape, options.place.pipeline)};
  const Result<PipelineSchedule> schedule = pipeline_schedule(shape);
  CHECK(schedule.ok());
  std::vector<int64_t> in_flight;
  for (int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    in_flight.push_back(
        peak_in_flight((*schedule)[static_cast<size_t>(options.place.pipeline)], chunk));
  }
  return in_flight;
}

bool is_ring(const ComposeOptions& options) {
  return options.mesh.virtual_stages > 1;
}

uint64_t channel_count(const ComposeOptions& options) {
  const bool has_before = is_ring(options) || options.place.pipeline > 0;
  const bool has_after = is_ring(options) || options.place.pipeline + 1 < options.mesh.pipeline;
  return (has_before ? 2u : 0u) + (has_after ? 2u : 0u);
}

kernels::DType transfer_dtype(const ComposeOptions& options) {
  return options.transfer.value_or(model::activation_dtype(options.device.type, options.precision));
}

int64_t edge_count(const ComposeOptions& options, int64_t block) {
  if (block == 0 || block == block_count(options.design)) return 0;
  const int64_t parts = options.sequence_parallel ? options.mesh.tensor : 1;
  return options.micro_batch * edge_values(options.design, options.sequence, block) / parts;
}

int64_t largest_edge(const ComposeOptions& options) {
  int64_t largest = 0;
  for (const Stage& chunk : chunks_of(options)) {
    largest = std::max({largest, edge_count(options, chunk.begin), edge_count(options, chunk.end)});
  }
  return largest;
}

std::vector<Stage> chunks_of(const ComposeOptions& options) {
  return stage_chunks(options.design, options.mesh, options.place.pipeline);
}

TensorShard shard_of(const ComposeOptions& options) {
  return {options.place.tensor, options.mesh.tensor};
}

ParameterArena arena_of(const ComposeOptions& options) {
  return parameter_arena(options.design, chunks_of(options), shard_of(options));
}

int64_t stashed_values(const ComposeOptions& options) {
  return stashed_versions(pipeline_shape(options), options.place.pipeline) *
         arena_of(options).count;
}

bool splits_backward(const ComposeOptions& options) {
  return gradients_in(pipeline_shape(options)) == ActionKind::kBackwardWeights;
}

bool adds_up_batches(const ComposeOptions& options) {
  return options.mesh.data > 1 && shares_batches(options.design);
}

bool steps_overlap(const ComposeOptions& options) {
  return pipeline_shape(options).kind == PipelineKind::kPipeDream;
}

model::ModelOptions model_options(const ComposeOptions& options, const Stage& chunk,
                                  const model::KernelChoice& kernels) {
  return {.design = options.design,
          .stage = chunk,
          .precision = options.precision,
          .recompute = options.recompute,
          .sequence_parallel = options.sequence_parallel,
          .splits_backward = splits_backward(options),
          .kernels = kernels,
          .dropout = options.dropout};
}

ActivationShape micro_batch_shape(const ComposeOptions& options, PassMode mode) {
  return {options.micro_batch, options.sequence, mode};
}

Result<model::ConvolutionChoice> prepare_convolutions(const ComposeOptions& options) {
  if (!std::holds_alternative<ConvnetConfig>(options.design)) {
    return unavailable("[cudnn] expected a model with convolutions");
  }
  TRY(check(options));
  if (options.device.type == kernels::DeviceType::kCpu) {
    return unavailable("[cudnn] expected a GPU, got none");
  }
  std::set<int64_t, std::greater<>> sizes(options.samples.begin(), options.samples.end());
  sizes.erase(0);
  sizes.insert(options.micro_batch);
  model::ConvolutionChoice choice;
  for (const int64_t samples : sizes) {  // the largest first
    for (const Stage& chunk : chunks_of(options)) {
      TRY(model::add_convolutions(model_options(options, chunk, {}), samples, options.device,
                                  choice));
    }
  }
  return choice;
}

std::optional<kernels::AttentionShape> attention_of(const ComposeOptions& options) {
  return model::attention_of(options.design, shard_of(options),
                             micro_batch_shape(options, PassMode::kTrain));
}

BatchDesign batch_design(const ComposeOptions& options) {
  return batch_design(options.design, options.sequence);
}

}  // namespace lockstep::parallel
