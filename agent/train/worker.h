#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>

#include "agent/comm/communicator.h"
#include "agent/parallel/compose.h"
#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/folder_storage.h"
#include "agent/train/checkpoint/retrying_storage.h"
#include "agent/train/checkpoint/run_settings.h"
#include "agent/train/checkpoint/saver.h"
#include "agent/train/checkpoint/share_delivery.h"
#include "agent/train/checkpoint/state_keeper.h"
#include "agent/train/data/batch_loader.h"
#include "agent/train/data/open_data.h"
#include "agent/train/forming.h"
#include "agent/train/gpu_monitor.h"
#include "agent/train/metrics_file.h"
#include "agent/train/progress_reporter.h"
#include "agent/train/timeline.h"
#include "agent/train/train_step.h"
#include "agent/train/validator.h"
#include "common/api/hang_limit.h"
#include "common/api/worker_config.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::train {

// Which rank has a share of the state in memory.
struct StateSourceRank {
  int rank = -1;
  bool is_held = false;  // for another rank
};

// One rank of the built-in training loop, from its configuration to its exit code, in phases
// (WorkerPhase): forming, loading, broadcasting, training with saving and validating in between,
// finishing. Each phase is a file of agent/train/phases. All ranks save and load checkpoints, each
// its share; rank 0 alone owns their folder and writes metrics and the sample. Without a checkpoint
// and weights every rank draws the initial parameters. One thread, and those of the loader, the
// communicator, the kernels and the saver.
class Worker {
 public:
  // The parts of the machine that a worker needs, in addition to its devices and sockets. They
  // outlive it.
  struct Surroundings {
    const Clock& clock;
    FileSystem& files;  // where checkpoints are
    Pause pause;
  };
  Worker(WorkerConfig config, ProgressReporter& progress, Surroundings surroundings);

  // The exit code of the process (worker_config.h); what went wrong is in the log.
  int run();

 private:
  Status run_phases();
  Status choose_device();
  void measure_peak();
  Status form();
  Status load();
  Status open_storage();
  Status share_starting_point();
  Status resume_or_begin();
  // Loads the newest checkpoint in storage of a step below that one, if there is one. All ranks
  // call it.
  Result<std::optional<Manifest>> load_checkpoint(
      int64_t below = std::numeric_limits<int64_t>::max());
  void go_on_from(const Manifest& manifest);
  bool keeps_states() const { return config_.checkpoint.memory && has_states_memory_; }
  // All ranks keep states in memory, or none does.
  Status agree_on_states();
  // The states that earlier rounds have left in this rank's file.
  struct FoundStates {
    std::optional<MemoryStates> own;
    std::optional<MemoryStates> held;
  };
  Result<FoundStates> find_states() const;
  // Makes the keeper, if there is none. All ranks call it.
  Status map_states();
  std::optional<CopyPeers> memory_peers() const;
  // Resumes from the newest state of which all shares are in some rank's memory. Returns whether
  // there was one.
  Result<bool> resume_from_memory();
  Status restore_own(const KeptState& state, const std::vector<StateSourceRank>& sources);
  // `sources`: by rank of that layout.
  Status restore_from_others(const KeptState& state,
                             const parallel::Composition::OtherLayout& layout,
                             std::vector<ShareSource> sources);
  void go_on_keeping();
  void begin_to_keep();
  void tell_kept_state();
  void keep_in_memory_if_due();
  Status tell_what_was_kept();
  void open_metrics();
  StateTable state_table() const;
  RunSettings settings() const;
  Status check_run(const Manifest& manifest, const std::string& path) const;
  Status choose_attention();
  Status choose_convolutions();
  Status has_room(const parallel::ComposeOptions& options,
                  const model::KernelChoice& kernels) const;
  Result<std::optional<kernels::Conv2dBy>> kept_convolutions() const;
  void keep_convolutions() const;
  Result<std::optional<kernels::AttentionBy>> kept_attention() const;
  void keep_attention() const;
  Result<parallel::ComposeOptions> compose_options();
  Status compose();
  void tell_memory(const parallel::ComposeOptions& options);
  Status share_start();
  Status prepare_steps();
  void prepare_timeline();
  Status train();
  void tell_what_is_trained() const;
  Status tell_what_was_sent(int64_t first_step, const comm::Traffic& before);
  Status step_once();
  // Judges the loss of the last step by the job's rules, and does what they say.
  Status judge_loss(const TrainStep::Outcome& outcome);
  // The last step, whose loss a rule is about.
  struct BadStep {
    std::string_view action;  // kRollBack or kSkipBatch
    std::string what;         // for people
    Blame blame = Blame::kDivergence;
    bool is_updated = false;  // the state is after its update
  };
  Status go_on_without(const BadStep& bad);
  // Return the step whose state this rank's share has then.
  Result<int64_t> go_back(const BadStep& bad);
  Result<int64_t> go_back_in_memory(const BadStep& bad);
  Result<std::optional<Manifest>> load_good_checkpoint();
  Error cannot_go_back(const BadStep& bad, const std::string& why) const;
  // Returns the next step after which a checkpoint or a validation needs an empty pipeline
  // (parallel::StepRequest::flush).
  int64_t next_flush() const;
  Status save_if_due();
  Status begin_save();
  Status complete_saves();
  Status validate_if_due();
  Status measure_validation_bytes();
  Status finish();
  Status sample();
  void add_position(StepNumbers& numbers) const;
  void add_speed(StepNumbers& numbers);
  void report(StepNumbers numbers);
  std::string attention_file() const { return config_.checkpoint.path + "/attention"; }
  std::string convolutions_file() const { return config_.checkpoint.path + "/convolutions"; }
  bool has_convolutions() const {  // where cuDNN may compute them
    return std::holds_alternative<ConvnetConfig>(design_) &&
           device_.type == kernels::DeviceType::kCuda;
  }
  bool stores() const { return !config_.checkpoint.path.empty(); }
  bool has_weights() const { return !config_.train.model.weights.path.empty(); }
  bool saves_now() const;  // the same on all ranks, which save together
  bool at_end() const { return position_.step >= config_.train.steps; }

  const WorkerConfig config_;
  ProgressReporter& progress_;
  const Surroundings surroundings_;

  kernels::Device device_;
  kernels::DeviceInfo device_info_;  // of a GPU
  double matmul_peak_ = 0;  // FLOP/s that rank 0's products reach; 0: not measured, as on the CPU
  std::unique_ptr<GpuMonitor> monitor_;
  kernels::AttentionBy attention_ = kernels::AttentionBy::kOwn;
  kernels::Conv2dBy convolutions_ = kernels::Conv2dBy::kOwn;
  ModelDesign design_;
  BatchShape batch_;
  Agreement agreement_;
  LossRules losses_;  // the same on all ranks
  TrainingPosition position_;
  int64_t saved_step_ = -1;  // whose state is stored or being saved; the same on all ranks
  double loss_ = 0;          // of the newest step that changed the state, as far as it is known
  HangLimit hang_limit_;
  double smoothed_seconds_ = 0;
  bool stopping_ = false;

  std::unique_ptr<comm::Communicator> world_;
  OpenedData data_;
  std::optional<FolderStorage> files_;           // where checkpoints are, if anywhere; its
  std::optional<RetryingStorage> storage_;       // reads are tried again
  std::optional<CheckpointFolder> checkpoints_;  // rank 0's
  OwnerRecord owner_;                            // rank 0's, known to all
  std::optional<MetricsFile> metrics_;           // rank 0's
  std::unique_ptr<parallel::Composition> model_;
  std::optional<BatchLoader> loader_;
  std::optional<TrainStep> step_;
  std::optional<Timeline> timeline_;  // if steps are recorded
  std::optional<Validator> validator_;
  std::optional<double> validation_bytes_per_token_;  // once it was measured; NAN: unknown
  std::unique_ptr<comm::Communicator> outcomes_;      // all ranks, for the saver
  std::optional<Saver> saver_;     // if there is storage; last, since it reads the model's snapshot
  int64_t stored_step_ = -1;       // of the newest checkpoint when states were looked for
  bool has_states_memory_ = true;  // all ranks have
  uint64_t states_bytes_ = 0;      // of the file of states in memory
  std::optional<StateKeeper> keeper_;  // if states are kept in memory; last, as the one before
};

}  // namespace lockstep::train
