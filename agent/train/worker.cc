#include "agent/train/worker.h"

#include <utility>

#include "agent/train/exit_code.h"
#include "common/base/log.h"

namespace lockstep::train {

Worker::Worker(WorkerConfig config, ProgressReporter& progress, Surroundings surroundings)
    : config_(std::move(config)),
      progress_(progress),
      surroundings_(std::move(surroundings)),
      hang_limit_(std::chrono::seconds(config_.hang_seconds), kSilenceLimit,
                  longest_step(config_.world, config_.train.batch)) {}

int Worker::run() {
  const Status status = run_phases();
  monitor_.reset();     // which takes a last look
  progress_.publish();  // with the suspect, if there is one
  progress_.follow(nullptr);
  if (status.ok()) return stopping_ ? kExitStopped : 0;
  const int exit_code = exit_code_of(status.error());
  log_error("worker failed", {{"rank", config_.rank},
                              {"step", position_.step},
                              {"exitCode", exit_code},
                              {"reason", status.error().message}});
  // Peers that wait for this rank learn why at once, rather than that it is gone.
  if (world_ != nullptr) world_->abort(status.error().message);
  return exit_code;
}

Status Worker::run_phases() {
  TRY(choose_device());
  TRY(form());
  TRY(load());
  TRY(share_start());
  TRY(prepare_steps());
  TRY(train());
  return stopping_ ? Status() : finish();
}

}  // namespace lockstep::train
