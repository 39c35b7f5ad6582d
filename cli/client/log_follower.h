#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/client/following.h"

namespace lockstep {

struct LogOptions {
  bool follow = false;
  bool previous = false;  // of the pods that the present ones replaced
  bool timestamps = false;
  std::optional<int64_t> tail;  // lines of each pod
  std::optional<int64_t> rank;
  std::optional<int64_t> node;  // its index
};

// A pod of a job.
struct JobPod {
  std::string name;
  std::string uid;
  std::string phase;
  int64_t node = 0;
  int64_t incarnation = 0;
};

// For each node index the pod of the newest incarnation, or of the one before it, in their order.
std::vector<JobPod> chosen_pods(const Json& pod_list, const LogOptions& options);

// Lines with timestamps before them, as the API gives them, of several pods: one text in the order
// of time. Lines without a timestamp stay behind the one before them.
struct PodText {
  std::string prefix;
  std::string text;
};
std::string merged_logs(const std::vector<PodText>& texts, bool keep_timestamps);

// Prints the logs of the job's pods to stdout, each line with its node where there are several;
// following, until the job has ended and every log with it, or the time has come.
Status follow_logs(Connection& connection, const JobName& job, const LogOptions& options,
                   std::optional<TimePoint> until = std::nullopt);

}  // namespace lockstep
