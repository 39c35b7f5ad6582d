#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/json.h"

namespace lockstep::local {

// GET .../pods/<name>/log, understood: which instance of which container, and how much of its
// output.
struct LogRequest {
  std::string namespace_;
  std::string pod;
  std::string pod_uid;
  std::string container;
  std::string container_id;  // of the instance; "" where the pod's status names none
  bool previous = false;
  bool follow = false;
  std::optional<int64_t> tail_lines;
  std::optional<int64_t> limit_bytes;
  std::optional<WallTime> since;  // lines that came before are left out
  bool timestamps = false;        // each line begins with when it came
};

// The container's status of that name among containers, init containers; null where there is none.
const Json* container_status(const Json& pod, std::string_view name);

}  // namespace lockstep::local
