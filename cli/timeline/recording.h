#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/api/timeline.h"
#include "common/base/result.h"

namespace lockstep::cli {

// The files of one recording: what the ranks of one round did in the same steps.
struct Recording {
  std::vector<RankTimeline> ranks;  // in ascending order; at least one
  std::vector<std::string> notes;   // what was left out, and why

  // The recorded steps, in ascending order.
  std::vector<int64_t> steps() const;
};

inline constexpr size_t kRecordedRanksMax = 1024;
inline constexpr size_t kRecordingBytesMax = size_t{256} << 20;

// Reads the recording that has this step, else the newest one, from a folder of checkpoints or from
// its folder `timeline`. Files that are damaged, or that belong to another round than the newest,
// are left out with a note. kNotFound without such a recording; kInvalid beyond the limits above,
// and if no file of the recording can be read.
Result<Recording> read_recording(const std::string& folder, std::optional<int64_t> step);

}  // namespace lockstep::cli
