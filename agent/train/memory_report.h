#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/train/job_plan.h"

namespace lockstep::train {

// Memory that a job is to fit into: of a GPU, or of a machine for jobs on CPUs.
struct MemoryLimit {
  std::string name;  // "80 GB"
  uint64_t bytes = 0;
  int64_t nodes = 1;    // of the job, on that machine; GPUs are not shared by nodes
  int64_t servers = 0;  // nodes of servers there; 0: the machine is for a node of either kind
};
// Returns the GPU of this machine, or the machine with all nodes of the job. Empty if the job needs
// a GPU and this machine has none.
std::vector<MemoryLimit> limits_here(const JobPlan& plan);

bool fits(const JobPlan& plan, const MemoryLimit& limit);
// Returns for example "80 GB: fits, 62.1 GiB to spare" and, for GPUs, the largest
// spec.train.batch.micro for each kind of recomputation.
std::string fit_text(const JobPlan& plan, const MemoryLimit& limit);

// Returns in one line what each process takes.
std::string memory_line(const JobPlan& plan);
// Returns all parts of the plan with their bytes, and then fit_text() for each limit.
std::string memory_report(const JobPlan& plan, const std::vector<MemoryLimit>& limits);

}  // namespace lockstep::train
