#pragma once

#include <string>

#include "common/base/result.h"

namespace lockstep::local {

// Finds the output of containers. The node implements it for the server's `log` subresource.
class PodLogs {
 public:
  virtual ~PodLogs() = default;

  // Returns the file with the container's output as plain lines, which may still grow. `previous`:
  // the output of the instance before the last restart. The arrival times of the output so far are
  // in the file of times_file_of() (log_times.h). When the container's status says that it ended,
  // the times are complete. kNotFound with the kubelet's message if there is no file. Thread-safe.
  virtual Result<std::string> log_file(const std::string& pod_uid, const std::string& container,
                                       bool previous) const = 0;
};

}  // namespace lockstep::local
