#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/api/progress_page.h"
#include "common/api/worker_config.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep {

// Real worker processes of one job, as an agent would start them: each node an address of its own
// in 127.0.0.0/8, ports that the system chose, memory shared within a node. Rounds follow each
// other in the same checkpoint folder.
class WorkerWorld {
 public:
  struct Options {
    int64_t nodes = 1;
    int64_t per_node = 1;
    TrainSpec train;
    int64_t checkpoint_every = 0;
    int64_t checkpoint_keep = 3;
    int64_t hang_seconds = kHangSeconds;
    bool stores = true;                       // false: there is no checkpoint.path
    int64_t gpu = -1;                         // of every rank, as WorkerConfig has it
    std::string program = "lockstep-worker";  // below the folder of the binaries
    std::string
        max_cpu_isa;  // of the highest rank, as LOCKSTEP_MAX_CPU_ISA; empty: the environment's
  };
  explicit WorkerWorld(Options options);
  ~WorkerWorld();  // nothing that it started outlives it

  int64_t size() const { return options_.nodes * options_.per_node; }
  const std::string& checkpoints() const { return checkpoints_; }
  const TemporaryFolder& folder() const { return folder_; }

  // The processes of the next round, but for the rank `without`.
  void start(int64_t without = -1);
  // Exit codes by rank (128 + signal where one ended it, -1 where none was started).
  std::vector<int> wait();
  // start() and wait(); all exit with 0.
  void run();

  void kill(int64_t rank, int signal);
  // Whether a process of this rank runs.
  bool runs(int64_t rank);
  ProgressNumbers progress(int64_t rank) const;
  // Returns when the condition holds for the rank's numbers, or the process has ended.
  void wait_until(int64_t rank, const std::function<bool(const ProgressNumbers&)>& condition);
  std::string log(int64_t rank) const;

  // Of metrics.jsonl, by step from 1; every step is there exactly once.
  std::vector<double> metric(const std::string& name) const;
  // Bytes of a file of the checkpoint of this step.
  std::string checkpoint_file(int64_t step, const std::string& name) const;

 private:
  struct Process {
    pid_t pid = -1;
    int exit_code = -1;
  };
  WorkerConfig config_of(int64_t rank) const;
  void spawn(int64_t rank, int shm_fd);
  static int exit_code_of(int status);

  Options options_;
  TemporaryFolder folder_;
  std::string checkpoints_;
  int64_t round_ = 0;
  WorldAssignment world_;
  std::vector<Process> processes_;
  std::vector<ProgressPage> pages_;
};

// Text that is easy to learn, the same for the same size.
std::string easy_text(size_t bytes);

}  // namespace lockstep
