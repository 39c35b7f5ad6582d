#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/json.h"

namespace lockstep::local {

// A parsed GET .../pods/<name>/log: which instance of which container, and how much of its output.
struct LogRequest {
  std::string namespace_;
  std::string pod;
  std::string pod_uid;
  std::string container;
  std::string container_id;  // of the instance; "" if the pod's status has none
  bool previous = false;
  bool follow = false;
  std::optional<int64_t> tail_lines;
  std::optional<int64_t> limit_bytes;
  std::optional<WallTime> since;  // skip lines that arrived before
  bool timestamps = false;        // prefix each line with its arrival time
};

// Returns the status of the container or init container with this name; null if there is none.
const Json* container_status(const Json& pod, std::string_view name);

}  // namespace lockstep::local
