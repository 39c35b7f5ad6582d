#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/client/wait_condition.h"

namespace lockstep::cli {

struct LogFollowOptions {
  bool follow = false;
  bool previous = false;  // of the pods that the current ones replaced
  bool timestamps = false;
  std::optional<int64_t> tail;  // lines per pod
  std::optional<int64_t> rank;
  std::optional<int64_t> node;  // node index
};

// A pod of a job.
struct JobPod {
  std::string name;
  std::string uid;
  std::string phase;
  int64_t node = 0;
  int64_t incarnation = 0;
};

// Returns the node of a rank: in the current round if that leaves out nodes, else as the job's spec
// has it. kInvalid if no node has the rank.
Result<int64_t> node_of_rank(const TrainingJob& job, int64_t rank);

// Returns one pod per node, in order of node index: of the newest incarnation, or with `previous`
// of the one before it.
std::vector<JobPod> chosen_pods(const Json& pod_list, const LogFollowOptions& options);

// Merges the logs of several pods in order of time. Lines start with timestamps, as the API returns
// them; a line without one stays behind the line before it.
struct PodText {
  std::string prefix;
  std::string text;
};
std::string merged_logs(const std::vector<PodText>& texts, bool keep_timestamps);

// Prints the logs of the job's pods to stdout; lines start with their node if there are several.
// With `follow`, continues until the job and all logs have ended, or until the timeout.
Status follow_logs(Connection& connection, const JobName& job, const LogFollowOptions& options,
                   std::optional<TimePoint> until = std::nullopt);

}  // namespace lockstep::cli
