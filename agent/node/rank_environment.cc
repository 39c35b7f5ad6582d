#include "agent/node/rank_environment.h"

#include <algorithm>
#include <string_view>

#include "common/base/json.h"

namespace lockstep::node {
namespace {

class Variables {
 public:
  void set(std::string_view name, const std::string& value) {
    list_.push_back(std::string(name) + "=" + value);
  }
  void set(std::string_view name, int64_t value) { set(name, std::to_string(value)); }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
};

bool is_asked_for(const Assignment& assignment, std::string_view variables) {
  return std::find(assignment.variables.begin(), assignment.variables.end(), variables) !=
         assignment.variables.end();
}

// Formats "10.0.0.1:29500" or "[fd00::1]:29500".
std::string endpoint(const std::string& host, int64_t port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string world_path(const std::string& work_folder) {
  return work_folder + "/world.json";
}
std::string hostfile_path(const std::string& work_folder) {
  return work_folder + "/hostfile";
}
std::string hydra_hostfile_path(const std::string& work_folder) {
  return work_folder + "/hostfile.hydra";
}

std::string hostfile(const WorldAssignment& world, std::string_view before_count) {
  std::string text;
  for (const WorldMember& node : world.members) {
    text += node.host + std::string(before_count) + std::to_string(world.processes_per_node) + "\n";
  }
  return text;
}

// Source: PyTorch, torch/distributed/elastic/agent/server/local_elastic_agent.py (1.13), and "Torch
// Distributed Elastic, Environment Variables" in its documentation. There is one role. The agent
// runs no store, so rank 0's process opens the one at MASTER_PORT.
void add_torchrun(const Assignment& assignment, int64_t rank, Variables& out) {
  const WorldAssignment& world = assignment.world;
  out.set("GROUP_RANK", place_in_round(assignment));
  out.set("GROUP_WORLD_SIZE", std::ssize(world.members));
  out.set("ROLE_NAME", "default");
  out.set("ROLE_RANK", rank);
  out.set("ROLE_WORLD_SIZE", world.world_size());
  out.set("TORCHELASTIC_RESTART_COUNT", assignment.restarts);
  out.set("TORCHELASTIC_MAX_RESTARTS", assignment.max_restarts);
  out.set("TORCHELASTIC_RUN_ID", world.job_uid);
  out.set("TORCHELASTIC_USE_AGENT_STORE", "False");
}

// jax.distributed.initialize() reads the address itself; programs pass the other two on.
void add_jax(const Assignment& assignment, int64_t rank, Variables& out) {
  const WorldMember& first = assignment.world.members.front();
  out.set("JAX_COORDINATOR_ADDRESS", endpoint(first.host, first.port));
  out.set("JAX_NUM_PROCESSES", assignment.world.world_size());
  out.set("JAX_PROCESS_ID", rank);
}

// Source: TensorFlow, tf.distribute.cluster_resolver.TFConfigClusterResolver. Every rank is a
// worker; by convention the first one is the chief.
void add_tensorflow(const Assignment& assignment, int64_t rank, Variables& out) {
  const WorldAssignment& world = assignment.world;
  Json workers = Json::array();
  for (const WorldMember& node : world.members) {
    for (int64_t i = 0; i < world.processes_per_node; ++i) {
      workers.push_back(endpoint(node.host, node.port + i));
    }
  }
  out.set("TF_CONFIG", dump_json({{"cluster", {{"worker", std::move(workers)}}},
                                  {"task", {{"type", "worker"}, {"index", rank}}}}));
}

// Open MPI 4 (orte) and 5 (prte) read `host slots=N`; the hydra of MPICH and Intel MPI reads
// `host:N`. Sources: Open MPI, orte_hosts(7); MPICH, "Using the Hydra Process Manager".
void add_mpi(const std::string& work_folder, Variables& out) {
  out.set("LOCKSTEP_HOSTFILE", hostfile_path(work_folder));
  out.set("OMPI_MCA_orte_default_hostfile", hostfile_path(work_folder));
  out.set("PRTE_MCA_prte_default_hostfile", hostfile_path(work_folder));
  out.set("HYDRA_HOST_FILE", hydra_hostfile_path(work_folder));
  out.set("I_MPI_HYDRA_HOST_FILE", hydra_hostfile_path(work_folder));
}

void add_command(const Assignment& assignment, int64_t rank, const std::string& work_folder,
                 Variables& out) {
  out.set("LOCKSTEP_RESTARTS", assignment.restarts);
  out.set("LOCKSTEP_PROGRESS_FILE", progress_path(work_folder, rank));
  out.set("LOCKSTEP_WORLD_FILE", world_path(work_folder));
  if (!assignment.checkpoint.path.empty()) {
    out.set("LOCKSTEP_CHECKPOINT_PATH", assignment.checkpoint.path);
  }
  add_torchrun(assignment, rank, out);
  if (is_asked_for(assignment, "jax")) add_jax(assignment, rank, out);
  if (is_asked_for(assignment, "tensorflow")) add_tensorflow(assignment, rank, out);
  if (is_asked_for(assignment, "mpi")) add_mpi(work_folder, out);
}

}  // namespace

std::vector<RoundFile> round_files(const Assignment& assignment, const std::string& work_folder) {
  if (assignment.train) return {};
  const WorldAssignment& world = assignment.world;
  std::vector<RoundFile> files = {{world_path(work_folder), dump_json(world_file(world))}};
  if (is_asked_for(assignment, "mpi")) {
    files.push_back({hostfile_path(work_folder), hostfile(world, " slots=")});
    files.push_back({hydra_hostfile_path(work_folder), hostfile(world, ":")});
  }
  return files;
}

std::vector<std::string> rank_variables(const Assignment& assignment, int64_t local_rank,
                                        const std::string& work_folder) {
  const WorldAssignment& world = assignment.world;
  const WorldMember& first = world.members.front();
  const int64_t place = place_in_round(assignment);
  const int64_t rank = rank_in_round(assignment, local_rank);
  Variables out;
  out.set("LOCKSTEP_JOB_UID", world.job_uid);
  out.set("LOCKSTEP_JOB_NAME", assignment.job_name);
  out.set("LOCKSTEP_ROUND", world.round);
  out.set("LOCKSTEP_WORLD_HASH", assignment.hash);
  out.set("RANK", rank);
  out.set("LOCAL_RANK", local_rank);
  out.set("WORLD_SIZE", world.world_size());
  out.set("LOCAL_WORLD_SIZE", world.processes_per_node);
  out.set("NODE_RANK", place);
  out.set("MASTER_ADDR", first.host);
  out.set("MASTER_PORT", first.port);
  if (!assignment.train) add_command(assignment, rank, work_folder, out);
  return out.take();
}

std::vector<std::string> default_variables(const Assignment& assignment, int64_t threads) {
  if (assignment.train) return {};
  Variables out;
  out.set("OMP_NUM_THREADS", threads);
  // Makes a rank that waits in NCCL for a lost peer end with an error. Old and new name.
  out.set("NCCL_ASYNC_ERROR_HANDLING", 1);
  out.set("TORCH_NCCL_ASYNC_ERROR_HANDLING", 1);
  return out.take();
}

std::string progress_path(const std::string& work_folder, int64_t rank) {
  return work_folder + "/progress/rank-" + std::to_string(rank) + ".jsonl";
}

}  // namespace lockstep::node
