#pragma once

#include <string>
#include <vector>

#include "common/api/training_job.h"
#include "common/base/clock.h"

namespace lockstep::cli {

struct StatusInput {
  TrainingJob job;
  Json pods = Json::array();    // Pod objects
  Json events = Json::array();  // Event objects of core/v1
  std::string trouble;          // why pods or events are missing; empty if none are
  WallTime now{};
  int width = 100;
};

// Returns a page for people: what the job is doing, its progress, the last failure, its conditions,
// pods and last events. Replaces control characters in text from a server.
std::string status_page(const StatusInput& input);

// Returns the page for --stuck: which rank blocks the others, which operation it is missing from,
// who waits for it and since when. Otherwise says that nothing is known to be stuck, or, for a
// user's program, that nothing can be known.
std::string stuck_page(const TrainingJob& job, WallTime now);

}  // namespace lockstep::cli
