#pragma once

#include <memory>
#include <string>

#include "cli/run/metrics_reader.h"
#include "cli/run/rank_lines.h"
#include "cli/run/reporter.h"
#include "cli/run/signal_wait.h"
#include "common/api/training_job.h"
#include "common/base/clock.h"
#include "local/local_cluster.h"

namespace lockstep::cli {

struct LocalRunOptions {
  TrainingJob job;     // valid, with absolute paths and checkpoint.path set
  std::string output;  // an existing folder, absolute
  std::string program_folder;
  bool json = false;
};

// One `lockstep run`: a LocalCluster, the job in it, and the output for the user.
class LocalRun {
 public:
  // `clock` outlives the object.
  LocalRun(const Clock& clock, LocalRunOptions options);
  ~LocalRun();

  // Runs until the job has ended or a signal arrives; returns the program's exit code.
  int run();

 private:
  Status start();
  Status submit();
  // Why the run ended.
  enum class End {
    kComplete,
    kFailed,
    kInterrupted,
    kInvalid,
    kNoAddress,
    kControllerLost,
    kJobGone
  };
  End follow();
  void poll();
  ProgressSnapshot snapshot() const;
  // Says that this run resumes an earlier one in the same folder, once its checkpoint is known.
  void report_resumption(const TrainingJobStatus& status);
  void report_validation_losses();
  // Prints the new output of a command's ranks.
  void forward_output();
  // Returns the part of the failure's message that forward_output() has not printed.
  std::string new_to_user(const FailureStatus& failure) const;
  // Deletes the job and waits for its pods for at most `timeout`, or until a signal. Then kills
  // those that are left.
  void stop(Duration timeout);
  local::ApiResponse call(const std::string& method, const std::string& target, const Json& body);

  void finish(End end);
  void write_loss_curve();
  void print_cause(End end);
  void print_result(End end);
  void print_files();
  void print_json(End end) const;
  std::string result_json(End end) const;
  std::string state_text(End end) const;

  const Clock& clock_;
  const LocalRunOptions options_;
  const std::string target_;  // API path of the job
  const TimePoint began_;
  Reporter reporter_;
  MetricsReader metrics_;
  RankLines rank_lines_;
  TrainingJobStatus status_;
  bool job_gone_ = false;
  int64_t earlier_step_ = 0;  // last step of an earlier run in the same folder
  int64_t saved_step_ = 0;    // of the newest checkpoint there, before this run
  int64_t validated_step_ = -1;
  int64_t controller_exits_ = 0;
  SignalWait signals_;  // woken by threads of the members below
  std::unique_ptr<local::LocalCluster> cluster_;
};

}  // namespace lockstep::cli
