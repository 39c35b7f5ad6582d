#include "cli/timeline/timeline_table.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "cli/client/aligned.h"
#include "cli/timeline/rank_actions.h"

namespace lockstep::cli {
namespace {

std::string milliseconds(int64_t nanoseconds) {
  char text[48];
  std::snprintf(text, sizeof text, "%.3f ms", static_cast<double>(nanoseconds) * 1e-6);
  return text;
}

std::vector<std::string> row_of(const StepUse& use) {
  std::vector<std::string> row = {std::to_string(use.rank), std::to_string(use.stage),
                                  milliseconds(use.step)};
  for (const int64_t part : {use.data, use.forward, use.backward, use.transfers, use.collectives,
                             use.update, use.other()}) {
    row.push_back(
        percent(static_cast<double>(part) / static_cast<double>(std::max<int64_t>(use.step, 1))));
  }
  row.push_back(percent(use.bubble()));
  return row;
}

std::string clocks_line(const Recording& recording) {
  if (recording.ranks.size() < 2) return "";
  int64_t error = 0;
  for (const RankTimeline& rank : recording.ranks) error = std::max(error, rank.clock.error_ns);
  return "clocks aligned to rank 0's within " + milliseconds(error) + "\n";
}

std::string dropped_line(const Recording& recording) {
  int64_t dropped = 0;
  for (const RankTimeline& rank : recording.ranks) dropped = std::max(dropped, rank.dropped);
  if (dropped == 0) return "";
  return "up to " + std::to_string(dropped) +
         " of a rank's first actions had no room: record fewer steps at a time\n";
}

}  // namespace

std::string timeline_table(const Recording& recording, int64_t step) {
  const std::vector<StepUse> uses = step_uses(recording, step);
  std::vector<std::vector<std::string>> rows = {{"RANK", "STAGE", "STEP", "DATA", "FORWARD",
                                                 "BACKWARD", "TRANSFERS", "COLLECTIVES", "UPDATE",
                                                 "OTHER", "BUBBLE"}};
  for (const StepUse& use : uses) rows.push_back(row_of(use));
  return "step " + std::to_string(step) + ", round " +
         std::to_string(recording.ranks.front().round) + "\n" + aligned(rows) + bubble_text(uses) +
         "\n" + clocks_line(recording) + dropped_line(recording);
}

}  // namespace lockstep::cli
