#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "agent/optim/schedule.h"
#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/folder_storage.h"
#include "agent/train/checkpoint/retrying_storage.h"
#include "agent/train/checkpoint/run_settings.h"
#include "agent/train/metrics_file.h"
#include "agent/train/progress_reporter.h"
#include "agent/train/servers/job_link.h"
#include "agent/train/servers/served_task.h"
#include "agent/train/servers/view_feed.h"
#include "common/api/worker_config.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::train {

// A rank that trains a model whose parameters are on servers, from its configuration to its exit
// code. A task trains (served_task.h). Rank 0 alone validates, and saves and loads checkpoints,
// while the others wait. One thread, and those of the client and the task.
class ServedWorker {
 public:
  struct Surroundings {
    const Clock& clock;
    FileSystem& files;
    Pause pause;
  };
  ServedWorker(WorkerConfig config, ProgressReporter& progress, Surroundings surroundings);

  // The exit code of the process (worker_config.h); what went wrong is in the log.
  int run();

 private:
  Status run_phases();
  Status form();
  Status make_client(std::optional<uint64_t> returned_at);
  // On the feed's thread.
  void follow(const ServersView& view);
  Status load();
  Status begin();
  // Whether this process takes the place of one that was lost in this round; then it goes on where
  // that one was.
  bool returns() const { return past_.has_value(); }
  Status come_back();
  Status take_up();
  // Rank 0's: takes the checkpoints over.
  Status take_checkpoints();
  Result<std::unique_ptr<ServedTask>> make_task();
  // Rank 0's. Returns the step of the checkpoint that the servers have loaded, or 0.
  Result<int64_t> resume();
  Result<int64_t> load_newest();
  Status train();
  Status step_once();
  void report(StepNumbers numbers, const StepNews& news, double step_seconds);
  Status judge_loss() const;
  // Whether a step is one after which the job saves, also if nobody stops it.
  bool is_saved(int64_t step) const;
  bool saves_now() const;
  Status save_if_due();
  Status save();
  bool is_validated(int64_t step) const;
  Status validate_if_due();
  Status validate();
  Status finish();
  Status leave();
  // Whether all workers complete a step before any begins the next one.
  bool keeps_step() const;
  void open_metrics(bool validates_again);
  void tell_of_last_step(const StepNews& news);
  bool stores() const { return !config_.checkpoint.path.empty(); }
  bool is_first() const { return config_.rank == 0; }
  bool at_end() const { return step_ >= config_.train.steps; }

  const WorkerConfig config_;
  ProgressReporter& progress_;
  const Surroundings surroundings_;
  FolderStorage files_;
  RetryingStorage storage_;
  std::optional<CheckpointFolder> checkpoints_;  // rank 0's
  std::optional<MetricsFile> metrics_;           // rank 0's
  OwnerRecord owner_;
  std::optional<ServersRound> round_;
  std::mutex view_mutex_;  // guards the next one, and that parameters_ is made
  ServersView followed_;
  std::optional<JobLink::Past> past_;
  std::unique_ptr<JobLink> link_;
  std::unique_ptr<rpc::Client> calls_;  // of parameters_
  std::unique_ptr<server::ParameterClient> parameters_;
  std::unique_ptr<ViewFeed> feed_;
  std::unique_ptr<ServedTask> task_;
  optim::LearningRateSchedule schedule_;
  int64_t step_ = 0;
  int64_t saved_step_ = -1;
  int64_t saves_ = 0;
  int64_t stop_at_ = 0;  // 0: nobody was asked to stop
  uint64_t told_step_ = 0;
  bool hears_stop_ = false;
  bool stopping_ = false;
  double loss_ = 0;  // of the newest step that all workers have completed
  double smoothed_seconds_ = 0;
  uint64_t staleness_ = 0;  // the largest of a step
  int64_t late_steps_ = 0;  // steps whose gradients counted for nothing
};

}  // namespace lockstep::train
