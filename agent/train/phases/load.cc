// Phase 2: data, model, device memory and storage.
#include <algorithm>
#include <string>

#include "agent/comm/make_communicator.h"
#include "agent/train/attention_choice.h"
#include "agent/train/checkpoint/file_io.h"
#include "agent/train/convolution_choice.h"
#include "agent/train/holdings.h"
#include "agent/train/job_plan.h"
#include "agent/train/matmul_peak.h"
#include "agent/train/worker.h"
#include "common/base/log.h"

namespace lockstep::train {
namespace {

constexpr size_t kChoiceBytesMax = 16;

// Returns the contents of a file that keeps a choice, without white space around them, as an editor
// may add; empty if there is no file.
Result<std::string> read_choice(const std::string& path) {
  const Result<std::string> text = read_small_file(path, kChoiceBytesMax);
  if (!text.ok() && text.error().code == Code::kNotFound) return std::string();
  if (!text.ok()) return text.error();
  constexpr char kSpace[] = " \t\r\n";
  const size_t begin = std::min(text->find_first_not_of(kSpace), text->size());
  return text->substr(begin, text->find_last_not_of(kSpace) + 1 - begin);
}

// Keeps the first choice, also where this start could not take it.
template <class By>
Status keep_choice(const std::string& path, const Result<std::optional<By>>& kept, By by) {
  if (!kept.ok()) return kept.error();
  return *kept ? Status() : write_file_synced(path, name_of(by));
}

// The communicator has the beginning of the memory that the ranks of the node share.
parallel::SharedSegment::Place shared_place(const WorkerConfig& config) {
  return {.fd = static_cast<int>(config.shm_fd),
          .offset = comm::shm_bytes(static_cast<int>(config.world.processes_per_node))};
}

}  // namespace

Status Worker::load() {
  progress_.enter(WorkerPhase::kLoading);
  const DataSpec& data = config_.train.data;
  TRY_ASSIGN(data_, open_data(data, design_));
  measure_peak();
  TRY(choose_attention());
  TRY(choose_convolutions());
  TRY(compose());
  position_.weights_seed = static_cast<uint64_t>(config_.train.seed);
  position_.data_seed = static_cast<uint64_t>(data.seed);
  return stores() ? open_storage() : Status();
}

// Rank 0's stands for all; the memory that it takes is free again before the model's is taken.
void Worker::measure_peak() {
  const bool counts = config_.rank == 0 && device_.type == kernels::DeviceType::kCuda &&
                      agreement_.precision == kernels::Precision::kBf16;
  if (!counts) return;
  Result<double> peak = matmul_peak(device_, {}, surroundings_.clock);
  if (peak.ok()) {
    matmul_peak_ = *peak;
  } else {
    log_info("the peak matmul speed of the GPU could not be measured",
             {{"reason", peak.error().message}});
  }
}

// Keeps a measured choice, so that a run resumed from its checkpoint computes as before.
Status Worker::choose_attention() {
  TRY_ASSIGN(const parallel::ComposeOptions options, compose_options());
  const std::optional<kernels::AttentionShape> shape = parallel::attention_of(options);
  if (!shape) return {};
  TRY_ASSIGN(const std::optional<kernels::AttentionBy> kept, kept_attention());
  AttentionWish wish{.setting = config_.train.attention,
                     .shape = *shape,
                     .device = device_,
                     .precision = agreement_.precision,
                     .kept = kept};
  wish.room = [&](size_t workspace) -> Status {
    const model::AttentionChoice cudnn{
        .by = kernels::AttentionBy::kCudnn, .shape = wish.shape, .workspace_bytes = workspace};
    return has_room(options, {.attention = cudnn});
  };
  TRY_ASSIGN(attention_, lockstep::train::choose_attention(*world_, wish, surroundings_.clock));
  return {};
}

// Checks that the device has room for all that training takes with these kernels.
Status Worker::has_room(const parallel::ComposeOptions& options,
                        const model::KernelChoice& kernels) const {
  const comm::DeviceTraits traits = world_->device_traits();
  TRY_ASSIGN(
      const parallel::MemoryPlan plan,
      parallel::plan_memory(
          options, {.kernels = kernels,
                    .collectives_bytes = parallel::device_groups(options) * traits.memory_bytes,
                    .data_rank = coordinates(options.mesh, config_.rank).data,
                    .is_stream_ordered = traits.is_stream_ordered}));
  return kernels::check_free_memory(device_, plan.device);
}

// Keeps the choice, like that of the attention.
Status Worker::choose_convolutions() {
  if (!has_convolutions()) return {};
  TRY_ASSIGN(const std::optional<kernels::Conv2dBy> kept, kept_convolutions());
  TRY_ASSIGN(const parallel::ComposeOptions options, compose_options());
  const auto prepare = [&]() -> Result<model::ConvolutionChoice> {
    TRY_ASSIGN(model::ConvolutionChoice made, parallel::prepare_convolutions(options));
    TRY(has_room(options, {.convolutions = made}));
    return made;
  };
  TRY_ASSIGN(convolutions_, lockstep::train::choose_convolutions(*world_, prepare(), kept));
  return {};
}

Result<std::optional<kernels::Conv2dBy>> Worker::kept_convolutions() const {
  if (config_.rank != 0 || !stores()) return std::optional<kernels::Conv2dBy>();
  TRY_ASSIGN(const std::string kept, read_choice(convolutions_file()));
  return convolutions_named(kept);
}

void Worker::keep_convolutions() const {
  if (!has_convolutions()) return;
  const Status kept = keep_choice(convolutions_file(), kept_convolutions(), convolutions_);
  if (kept.ok()) return;
  log_info("the choice of convolutions could not be saved", {{"reason", kept.error().message}});
}

Result<std::optional<kernels::AttentionBy>> Worker::kept_attention() const {
  if (config_.rank != 0 || !stores() || config_.train.attention != "auto") {
    return std::optional<kernels::AttentionBy>();
  }
  TRY_ASSIGN(const std::string kept, read_choice(attention_file()));
  return attention_named(kept);
}

void Worker::keep_attention() const {
  if (transformer_of(design_) == nullptr || config_.train.attention != "auto") return;
  const Status kept = keep_choice(attention_file(), kept_attention(), attention_);
  if (kept.ok()) return;
  log_info("the attention choice could not be saved", {{"reason", kept.error().message}});
}

Result<parallel::ComposeOptions> Worker::compose_options() {
  const WorldAssignment& world = config_.world;
  const int64_t data_rank = coordinates(mesh_of(world), config_.rank).data;
  std::vector<int64_t> samples, first_samples;
  for (int64_t i = 0; batch_.samples > 0 && i < batch_.accumulation; ++i) {
    samples.push_back(batch_.rows(i, data_rank));
    first_samples.push_back(global_sample(batch_, {.micro_index = i, .rank = data_rank}));
  }
  return lockstep::train::compose_options(config_.train,
                                          {.mesh = mesh_of(world),
                                           .groups = world.groups,
                                           .place = coordinates(mesh_of(world), config_.rank),
                                           .sharing = world.layout,
                                           .schedule = world.layout.schedule,
                                           .ranks_per_node = world.processes_per_node,
                                           .micro_batch = batch_.micro,
                                           .micro_batches = batch_.accumulation,
                                           .samples = std::move(samples),
                                           .step_samples = batch_.global(),
                                           .first_samples = std::move(first_samples),
                                           .precision = agreement_.precision,
                                           .attention = attention_,
                                           .convolutions = convolutions_,
                                           .device = device_,
                                           .shared = shared_place(config_),
                                           .keeps_states = keeps_states()});
}

Status Worker::compose() {
  TRY_ASSIGN(parallel::ComposeOptions options, compose_options());
  options.observe_micro_batch = [this](int64_t micro_batch) {
    progress_.numbers().micro_batch = micro_batch;
    progress_.publish();
  };
  TRY_ASSIGN(model_, parallel::Composition::create(options, *world_, surroundings_.clock));
  tell_memory(options);
  return {};
}

void Worker::tell_memory(const parallel::ComposeOptions& options) {
  const kernels::ArenaPlan& device = model_->memory().device;
  const Holdings holdings = holdings_of(options, model_->memory());
  progress_.numbers().holdings = holdings;
  progress_.publish();
  log_info("memory", {{"parametersBytes", holdings.parameters_bytes},
                      {"gradientsBytes", holdings.gradients_bytes},
                      {"optimizerBytes", holdings.optimizer_bytes},
                      {"gatheredBytes", holdings.gathered_bytes},
                      {"activationsBytes", holdings.activations_bytes},
                      {"offloadedBytes", holdings.offloaded_bytes},
                      {"workspaceBytes", kernels::bytes_of(device, kernels::ArenaUse::kWorkspace)},
                      {"sharding", sharding_name(options.sharding.sharding)},
                      {"shardingRanks", holdings.sharding_ranks},
                      {"offload", offload_name(options.offload.offload)},
                      {"exchange", exchange_name(options.exchange)},
                      {"recompute", config_.train.recompute},
                      {"totalBytes", device.bytes},
                      {"reserveBytes", device.reserve},
                      {"pinnedBytes", model_->memory().pinned.bytes}});
}

// Rank 0 takes the storage over; the others learn in share_starting_point() whether they see the
// same.
Status Worker::open_storage() {
  files_.emplace(config_.checkpoint.path, surroundings_.files);
  storage_.emplace(*files_, surroundings_.pause);
  if (config_.rank != 0) return {};
  TRY(storage_->again([this] { return files_->make_root(); }));
  owner_ = {.job_uid = config_.world.job_uid,
            .job_name = config_.job_name,
            .round = config_.world.round,
            .boot_id = config_.boot_id};
  checkpoints_.emplace(*storage_, owner_, config_.checkpoint.keep);
  return checkpoints_->prepare();
}

// Older versions stored the data seed with the position, and no other settings. Their optimizer was
// AdamW. Later ones kept no averages.
Status Worker::check_run(const Manifest& manifest, const std::string& path) const {
  RunSettings stored = manifest.settings;
  stored.emplace("spec.train.data.seed", std::to_string(manifest.position.data_seed));
  stored.emplace("spec.train.optimizer.name", "adamw");
  stored.emplace("spec.train.ema", "none");
  return check_settings(settings(), stored, path);
}

RunSettings Worker::settings() const {
  return run_settings(config_.train, data_.samples->size());
}

StateTable Worker::state_table() const {
  return {parameter_table(design_), model_->optimizer_states()};
}

}  // namespace lockstep::train
