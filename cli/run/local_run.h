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

namespace lockstep {

struct LocalRunOptions {
  TrainingJob job;     // valid, its paths absolute, checkpoint.path set
  std::string output;  // an existing folder, absolute
  std::string program_folder;
  bool json = false;
};

// One `lockstep run`: a LocalCluster, the job in it, and the user who watches.
class LocalRun {
 public:
  // `clock` outlives it.
  LocalRun(const Clock& clock, LocalRunOptions options);
  ~LocalRun();

  // Until the job has ended or a signal came; returns the exit code of the program.
  int run();

 private:
  Status start();
  Status submit();
  // Why it is over.
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
  void look();
  ProgressSnapshot snapshot() const;
  void report_validation_losses();
  // What a command's ranks have printed since.
  void pass_output_on();
  // Deletes the job and waits for its pods, at most `patience`; a signal ends the patience.
  void stop(Duration patience);
  local::ApiResponse call(const std::string& method, const std::string& target, const Json& body);

  void finish(End end);
  void write_loss_curve();
  void print_result(End end);
  void print_json(End end) const;
  std::string result_json(End end) const;
  std::string state_text(End end) const;

  const Clock& clock_;
  const LocalRunOptions options_;
  const std::string target_;  // of the job in the API
  const TimePoint began_;
  Reporter reporter_;
  MetricsReader metrics_;
  RankLines rank_lines_;
  TrainingJobStatus status_;
  bool job_gone_ = false;
  int64_t validated_step_ = -1;
  int64_t controller_ends_ = 0;
  SignalWait signals_;  // what follows wakes it from its threads
  std::unique_ptr<local::LocalCluster> cluster_;
};

}  // namespace lockstep
