#pragma once

#include <string>

#include "common/base/result.h"

namespace lockstep::local {

// Where the output of containers is: the node knows, the server's `log` subresource asks.
class PodLogs {
 public:
  virtual ~PodLogs() = default;

  // The file to which the container's output was or is being appended, as plain lines; `previous`:
  // that of the instance before the last restart. What was appended so far has its time in the file
  // beside it (log_times.h); at the end, before the container's status says so, all has. kNotFound
  // with kubelet's words where there is none. Thread-safe.
  virtual Result<std::string> log_file(const std::string& pod_uid, const std::string& container,
                                       bool previous) const = 0;
};

}  // namespace lockstep::local
