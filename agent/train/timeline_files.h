#pragma once

#include <cstdint>
#include <string>

#include "common/api/timeline.h"
#include "common/base/result.h"

namespace lockstep::train {

// How many recordings stay in a folder; each has a file per rank.
inline constexpr size_t kTimelinesKept = 16;

// Writes a rank's part of a recording to its file in the folder, which is made if it is missing. A
// reader finds the whole file or none. The file is not synced. Errors blame storage.
Status write_timeline_file(const std::string& folder, const RankTimeline& timeline);

// Removes, after the recording that ends with `step`, what is no longer of use: recordings older
// than the newest kTimelinesKept, those of later steps (of a run that went back to an earlier
// checkpoint), and files of ranks that a world of `ranks` does not have. Leaves all names that are
// not ours. One rank calls it. Returns the first error; tries all removals.
struct TimelineExtent {
  int64_t step = 0;
  int64_t ranks = 1;
};
Status remove_old_timelines(const std::string& folder, const TimelineExtent& now);

}  // namespace lockstep::train
