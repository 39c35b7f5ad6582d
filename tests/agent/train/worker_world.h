#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/api/progress_page.h"
#include "common/api/worker_config.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep::train {

// Real worker processes of one job, started like by an agent. Each node has its own address in
// 127.0.0.0/8, ports chosen by the system, and shared memory. Rounds run one after the other in the
// same checkpoint folder.
class WorkerWorld {
 public:
  struct Options {
    int64_t nodes = 1;
    int64_t per_node = 1;
    int64_t pipeline = 1;  // stages
    std::string schedule = "1f1b";
    bool encrypts = false;
    TrainSpec train;
    int64_t checkpoint_every = 0;
    bool checkpoint_at_end = true;
    int64_t checkpoint_keep = 3;
    int64_t hang_seconds = kHangSeconds;
    bool stores = true;                       // false: checkpoint.path is empty
    int64_t gpu = -1;                         // of every rank, as in WorkerConfig
    std::string program = "lockstep-worker";  // in the folder of the binaries
    // LOCKSTEP_MAX_CPU_ISA of the highest rank; empty: as in the environment.
    std::string max_cpu_isa = {};
    // Changes the configuration of a rank before it starts; empty: none.
    std::function<void(WorkerConfig&)> change = {};
    // spec.train.seed of the highest rank; none: as for the others.
    std::optional<int64_t> last_seed = {};
    // Changes the spec that the world is made from; empty: none.
    std::function<void(TrainingJobSpec&)> change_spec = {};
    int64_t memory_every = 0;   // spec.checkpoint.memory.everySteps; 0: no states in memory
    int64_t memory_copies = 0;  // spec.checkpoint.memory.copies
    // Nodes after those of the workers; their ranks are the highest ones.
    std::optional<ParameterServersSpec> servers = {};
    int64_t server_places = 0;  // of the first view (servers_view.h)
  };
  explicit WorkerWorld(Options options);
  ~WorkerWorld();  // ends all processes that it started

  int64_t size() const { return pods() * options_.per_node; }
  // Those of size(), and of servers that were added since.
  int64_t ranks() const { return std::ssize(processes_); }
  // The address with which the rank's node is in the round's world.
  const std::string& host(int64_t rank) const { return member_of(world_, rank).host; }
  const std::string& checkpoints() const { return checkpoints_; }
  const TemporaryFolder& folder() const { return folder_; }

  // Starts the processes of the next round, except the rank `without`.
  void start(int64_t without = -1);
  // Waits for all processes. Returns exit codes by rank (128 + signal if a signal ended one, -1 if
  // none was started).
  std::vector<int> wait();
  // start() and wait(); all must exit with 0.
  void run();

  void kill(int64_t rank, int signal);
  // In a round with servers: hands the rank a view of them (servers_view.h). One that is dead does
  // not read it.
  void give_view(int64_t rank, const std::string& view);
  // Starts the rank anew, in this view; its process has ended. Or starts the one after the last
  // rank, which that view adds.
  void start_again(int64_t rank, const std::string& view);
  // Between two rounds: the rank's states in memory are gone, as with its pod.
  void lose_memory(int64_t rank);
  // Between two rounds: the next ones have as many nodes as the list. Node i has the memory of the
  // former node from[i]; none if that is -1.
  void change_nodes(const std::vector<int64_t>& from);
  // Between two rounds: the next ones have these servers.
  void change_servers(const ParameterServersSpec& servers) { options_.servers = servers; }
  pid_t pid(int64_t rank) const { return processes_[static_cast<size_t>(rank)].pid; }
  // Returns whether a process of this rank runs.
  bool runs(int64_t rank);
  ProgressNumbers progress(int64_t rank) const;
  StorageNotes storage_notes(int64_t rank) const;
  // Returns when the condition holds for the rank's numbers, or the process has ended.
  void wait_until(int64_t rank, const std::function<bool(const ProgressNumbers&)>& condition);
  std::string log(int64_t rank) const;
  // Returns the most memory that the kernel counted as resident in the process, after wait().
  uint64_t peak_bytes(int64_t rank) const {
    return processes_[static_cast<size_t>(rank)].peak_bytes;
  }

  // Returns a value of metrics.jsonl by step, from 1; every step must be there exactly once.
  std::vector<double> metric(const std::string& name) const;
  // Returns the folder of a step's checkpoint, and the tensors of its files (stored_bytes()).
  std::string checkpoint_folder(int64_t step) const;
  std::string checkpoint_bytes(int64_t step, std::string_view stem) const;
  // Returns the folders of the checkpoints, the oldest first.
  std::vector<std::string> checkpoint_folders() const;

 private:
  struct Process {
    pid_t pid = -1;
    int exit_code = -1;
    uint64_t peak_bytes = 0;
  };
  int64_t pods() const { return options_.nodes + (options_.servers ? options_.servers->nodes : 0); }
  WorkerConfig config_of(int64_t rank) const;
  void spawn(int64_t rank, int shm_fd);
  static int exit_code_of(int status);
  bool gives_views() const { return options_.servers.has_value(); }

  Options options_;
  TemporaryFolder folder_;
  std::string checkpoints_;
  int64_t round_ = 0;
  WorldAssignment world_;
  std::vector<Process> processes_;
  std::vector<ProgressPage> pages_;
  std::vector<int> state_fds_;  // by rank, if states are kept in memory
  std::string begins_in_;       // view of the servers
  std::vector<int> channels_;   // by rank, if views are given: the agent's ends
};

// Runs a world that has ended once more, from its checkpoint of this step, and expects the losses
// and the last checkpoint that it had, bit for bit.
void expect_same_bits_from(WorkerWorld& world, int64_t step);

// Runs 8 steps with each optimizer that is not the default, and expects that they reduce the loss,
// keep the state that they need and continue from step 3 with the same bits.
void expect_same_bits_with_every_optimizer(WorkerWorld::Options options);

// Returns text that is easy to learn; the same for the same size.
std::string easy_text(size_t bytes);

}  // namespace lockstep::train
