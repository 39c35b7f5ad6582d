#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/node/proc_table.h"
#include "common/api/progress_page.h"

namespace lockstep::node {

// By the metric's name in the table of a step's numbers.
using CountsByMetric = std::map<std::string_view, double>;

// Counts what this node's processes have trained on. The counters never decrease while the agent
// lives, although the job's own counts return to those of the checkpoint when a round begins.
class TrainCounters {
 public:
  // `numbers` are those of the node's lowest rank; `share` is this node's share of the job's
  // processes.
  void observe(const ProgressNumbers& numbers, double share);

  const CountsByMetric& counts() const { return counts_; }

 private:
  std::optional<ProgressNumbers> last_;
  CountsByMetric counts_;
};

// How often a rank's GPUs have reported an Xid while the agent lives, by bus and Xid number (0:
// others).
using XidTotals = std::map<std::pair<std::string, uint32_t>, int64_t>;
// Adds the counts of a worker's page.
void add_xids(const GpuNumbers& gpu, XidTotals& totals);

// The checkpoints that ranks 0 have saved and set aside on this node, over all rounds of this
// agent, and the states that one keeps in memory.
struct StorageTotals {
  double saved = 0;
  double failed = 0;
  double set_aside = 0;
  double blocked_seconds = 0;
  double save_seconds = 0;  // of the newest complete save; 0: there was none
  double kept_step = -1;    // of the newest state in memory; -1: none
  double kept_bytes = 0;    // of all states in memory
  double kept_blocked_seconds = 0;
};
// Adds the notes of a worker's page.
void add_notes(const StorageNotes& notes, StorageTotals& totals);

struct RankNumbers {
  int64_t rank = 0;
  ProgressNumbers numbers;
};

// The progress that a command's rank has reported in this round.
struct ProgramNumbers {
  int64_t rank = 0;
  StepNumbers numbers;
  uint64_t lines = 0;           // lines accepted from its progress file
  uint64_t lines_rejected = 0;  // invalid lines
};

// A rank's GPU while it runs, and the Xid errors of its GPUs over all rounds.
struct RankGpu {
  int64_t rank = 0;
  std::optional<GpuNumbers> now;
  XidTotals xids;
};

struct RankUsage {
  int64_t rank = 0;
  double cpu_seconds = 0;         // over all rounds
  std::optional<TreeUsage> tree;  // while it runs
};

struct MetricsInput {
  std::string job;
  std::string job_namespace;
  int64_t node_index = 0;
  int64_t round = 0;
  int64_t workers_running = 0;
  int64_t worker_restarts = 0;
  CountsByMetric counts;
  double share = 1;                      // share of the job's processes on this node
  std::vector<RankNumbers> ranks;        // ranks that have reported in this round, lowest first
  std::vector<ProgramNumbers> programs;  // for a command; lowest rank first
  std::vector<RankUsage> usage;          // lowest rank first
  std::vector<RankGpu> gpus;             // GPUs with any known value, lowest rank first
  std::optional<StorageTotals> storage;  // if this node has or had a rank 0 that saves
};

// Renders the Prometheus text format, version 0.0.4. Unknown values have no series.
std::string render_metrics(const MetricsInput& input);

}  // namespace lockstep::node
