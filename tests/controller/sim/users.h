#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/api/training_job.h"
#include "tests/controller/sim/chance.h"
#include "tests/controller/sim/fake_store.h"

namespace lockstep::sim {

struct JobOptions {
  std::string name;
  int64_t nodes = 1;
  int64_t steps = 10;
  int64_t max_restarts = 10;
  bool is_command = false;
  bool saves = false;         // all ranks save if a pod is stopped; for training only
  bool by_rank_zero = false;  // for commands only
  int64_t active_deadline = 0;
  int64_t ttl = -1;
  int64_t pending_timeout = 0;
  int64_t avoid_nodes = 0;
  int64_t elastic_min = 0;  // spec.elastic.min; 0: not elastic
  std::vector<FailureRule> rules{};
  bool has_new_agents = false;    // older ones know no rules about losses
  bool keeps_every_step = false;  // in memory, for SkipBatch
  int64_t servers = 0;            // spec.parameterServers.nodes; 0: none
  int64_t copies = 0;             // spec.parameterServers.copies
};

bool is_illegal(const Json& spec);

// The users who write jobs: they scale, suspend and delete them, write invalid specs, and edit
// pods.
class Users {
 public:
  Users(Chance& chance, FakeStore& store);

  // Creates a job and returns its key: namespace/name.
  std::string add_job(const JobOptions& options);
  // Undoes their illegal edits and suspensions.
  void calm_down();
  // Returns whether the job was deleted and will be created again.
  bool will_recreate(const std::string& key) const { return recreating_.contains(key); }

 private:
  void edit_jobs();
  void edit_pods();
  void edit_job(const std::string& key);
  void edit_rules(Json& spec);
  void spoil_label(const std::string& key);
  void replace_job(const std::string& key);
  void hold_job(const std::string& key);
  void let_go(const std::string& key, const std::string& uid);

  Chance& chance_;
  FakeStore& store_;
  std::multiset<std::string> recreating_;
};

}  // namespace lockstep::sim
