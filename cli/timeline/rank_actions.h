#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/timeline/recording.h"
#include "common/api/timeline.h"

namespace lockstep::cli {

// One action of a rank from its begin to its end, waits within it included. Times are nanoseconds
// on rank 0's clock.
struct ActionSpan {
  std::optional<ActionKind> action;  // none: outside the schedule
  int64_t step = 0;
  int64_t micro_batch = -1;
  int64_t chunk = 0;
  int64_t version = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  bool computes = false;  // false: it only communicates or waits
  struct Wait {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };
  std::vector<Wait> waits;  // in an action that computes

  // "forward 3", "forward 3, chunk 1", "receive activation 3", "update"; "begin of step" or "end of
  // step" outside the schedule. Micro-batches and chunks count from 0; the first chunk isn't named.
  std::string name() const;
};
std::vector<ActionSpan> action_spans(const RankTimeline& timeline);

// How a rank spent a step. All are nanoseconds.
struct StepUse {
  int64_t rank = 0;
  int64_t stage = 0;
  int64_t begin = 0;  // on rank 0's clock
  int64_t step = 0;   // the whole step
  int64_t data = 0;
  int64_t forward = 0;
  int64_t backward = 0;
  int64_t transfers = 0;    // sends and receives between stages, with the waits for them
  int64_t collectives = 0;  // waits for gathers and reductions
  int64_t update = 0;

  int64_t computing() const { return data + forward + backward + update; }
  int64_t other() const { return step - computing() - transfers - collectives; }
  // The share of the step in which the rank computed nothing.
  double bubble() const;
};
// Returns the use of a step by every rank that recorded it.
std::vector<StepUse> step_uses(const Recording& recording, int64_t step);

// The mean bubble of a stage's ranks.
struct StageBubble {
  int64_t stage = 0;
  double bubble = 0;
};
std::vector<StageBubble> stage_bubbles(const std::vector<StepUse>& uses);
// "bubble 31.2 % (stage 0: 30.1 %, stage 1: 32.3 %)"; with one stage only the first number.
std::string bubble_text(const std::vector<StepUse>& uses);
// "12.3 %"
std::string percent(double share);

}  // namespace lockstep::cli
