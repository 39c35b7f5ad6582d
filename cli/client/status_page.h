#pragma once

#include <string>
#include <vector>

#include "common/api/training_job.h"
#include "common/base/clock.h"

namespace lockstep {

struct StatusInput {
  TrainingJob job;
  Json pods = Json::array();    // Pod objects
  Json events = Json::array();  // Event objects of core/v1
  std::string trouble;          // why pods or events are missing; empty: they aren't
  WallTime now{};
  int width = 100;
};

// A page for people: what the job is doing, how far it is, what went wrong last, its conditions,
// pods and the last events. Control characters of what comes from a server are taken out.
std::string status_page(const StatusInput& input);

// For --stuck: which rank holds the others up, what it is missing from and who waits for it, since
// when; that nothing is known to be stuck; or that nothing can be known, of a program of the
// user's.
std::string stuck_page(const TrainingJob& job, WallTime now);

}  // namespace lockstep
