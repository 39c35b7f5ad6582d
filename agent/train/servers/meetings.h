#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "agent/rpc/server.h"
#include "agent/train/servers/job_calls.h"
#include "agent/train/servers/worker_watch.h"
#include "common/base/result.h"

namespace lockstep::train {

// The meetings of the workers, as one server runs them (kMeet). Some workers may have passed a
// meeting at another server before this one has all calls. Single-threaded.
class Meetings {
 public:
  explicit Meetings(uint32_t workers) : workers_(workers) {}

  // The newest call of a worker.
  struct Called {
    uint64_t meetings = 0;  // how many it has called
    uint64_t step = 0;      // kMeetStep and kMeetPlace
    uint64_t place = 0;
  };
  Called called(uint32_t rank) const;
  // Answers all calls of the meeting if this is the last worker's.
  void take(const MeetCall& call, rpc::Request request);
  // Returns for whom calls wait, if any do. Refuses calls that their workers have given up.
  std::optional<AwaitedWorkers> awaited();
  // Refuses what waits.
  void refuse_all(const Error& error);

 private:
  struct Meeting {
    std::map<uint32_t, MeetCall> calls;  // by rank
    std::vector<rpc::Request> waiting;
  };
  void forget_before(uint64_t number);

  const uint32_t workers_;
  std::map<uint64_t, Meeting> meetings_;  // by number
  std::map<uint32_t, Called> called_;     // by rank
};

}  // namespace lockstep::train
