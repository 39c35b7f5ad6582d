#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/node/proc_table.h"
#include "agent/node/program_progress.h"
#include "common/api/progress_page.h"

namespace lockstep {

// What this node's processes have trained on, as counters that only grow while the agent lives:
// fed from the job's own counts, which fall back to the checkpoint's when a round begins.
class TrainCounters {
 public:
  // The numbers of the node's lowest rank; `share` is this node's part of the job's processes.
  void observe(const ProgressNumbers& numbers, double share);

  double tokens() const { return tokens_; }
  double samples() const { return samples_; }

 private:
  std::optional<ProgressNumbers> last_;
  double tokens_ = 0;
  double samples_ = 0;
};

// How often a rank's GPUs have reported an Xid while the agent lives, by bus and number (0:
// others).
using XidTotals = std::map<std::pair<std::string, uint32_t>, int64_t>;
// Adds what a worker's page counts.
void add_xids(const GpuNumbers& gpu, XidTotals& totals);

struct RankNumbers {
  int64_t rank = 0;
  ProgressNumbers numbers;
};

// What the program of a command's rank has said in this round.
struct ProgramNumbers {
  int64_t rank = 0;
  ProgramProgress said;
  std::optional<double> samples_per_second;
  std::optional<double> tokens_per_second;
  uint64_t lines = 0;          // taken of its progress file
  uint64_t lines_refused = 0;  // that are no progress
};

// A rank's GPU while it runs, and the Xid errors that its GPUs have reported in all rounds.
struct RankGpu {
  int64_t rank = 0;
  std::optional<GpuNumbers> now;
  XidTotals xids;
};

struct RankUsage {
  int64_t rank = 0;
  double cpu_seconds = 0;         // of all rounds
  std::optional<TreeUsage> tree;  // while it runs
};

struct MetricsInput {
  std::string job;
  std::string job_namespace;
  int64_t node_index = 0;
  int64_t round = 0;
  int64_t workers_running = 0;
  int64_t worker_restarts = 0;
  double tokens = 0;
  double samples = 0;
  double share = 1;                      // of the job's processes that run on this node
  std::vector<RankNumbers> ranks;        // that have reported in this round, lowest first
  std::vector<ProgramNumbers> programs;  // of a command, lowest rank first
  std::vector<RankUsage> usage;          // lowest rank first
  std::vector<RankGpu> gpus;             // of which anything is known, lowest rank first
};

// The Prometheus text format, version 0.0.4. Values that are not known (yet) have no series.
std::string render_metrics(const MetricsInput& input);

}  // namespace lockstep
