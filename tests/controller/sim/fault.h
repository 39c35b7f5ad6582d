#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::sim {

// Everything that goes wrong in a simulated cluster, and everything users do to it. The first group
// hits controllers and what they are told; the second, from kWorkerKilled on, hits nodes and jobs.
enum class Fault : size_t {
  kLostRequest,  // the request never arrives; the caller times out
  kLostReply,    // the request is carried out; the caller times out
  kServerError,
  kThrottled,   // 429 with Retry-After
  kQuota,       // 403 for a new pod
  kWebhook,     // it does not support dry runs: pod checks fail
  kPodRefused,  // 403 for a pod check: something the pod needs is missing
  kStorm,       // most requests fail for a while
  kServerAway,  // no replies for minutes; watches end
  kConflict,    // another client changes the object just before a status write
  kWatchCut,
  kWatchExpired,   // 410 in the stream: the events were compacted
  kWatchTooLarge,  // the requested version is newer than the server's
  kLaggingWatch,
  kRepeatedEvents,      // delivered events are delivered again
  kCoalescedEvents,     // only an object's newest modification is delivered
  kLabelLost,           // a pod loses the label that selects it for the watch, for a while
  kCrash,               // the controller dies after a write
  kStall,               // the controller freezes for a while, then continues
  kTerminated,          // the controller receives SIGTERM
  kSkewedClock,         // the controller's wall clock is minutes off and drifts
  kRateLimited,         // a write waits for the rate limiter
  kOldReport,           // an agent repeats its report of an earlier round
  kOtherHash,           // an agent reports its round with another hash
  kLaterRound,          // an agent reports a round that nobody began
  kOtherJob,            // an agent reports another job's state
  kWildNumbers,         // an agent reports a made-up failure with out-of-range numbers
  kFalseEnd,            // an agent falsely reports that its ranks ended well
  kPartition,           // no message passes between controllers and agents for a while
  kStaggeredPartition,  // the same, but agents are cut off one by one within a poll interval
  kWorkerKilled,
  kWorkerOom,
  kPodDeleted,
  kPodForceDeleted,
  kEvicted,
  kContainerExit,  // the node container ends; another container lives on
  kWorkerExit,     // with an exit code that a job's rules may match
  kWorkerHung,     // a worker hangs, and the others wait for it
  kRankSlow,       // a rank computes for longer than its peers, for a while
  kLossNotFinite,  // the loss of a step is NaN, whenever that step is computed
  kLossSpike,      // the loss of a step has a spike, likewise
  kBadMachine,     // a worker dies, always on the same machine
  kUnschedulable,  // no room for a pod for a while; for ever only if the job limits that
  kImagePull,      // the same, because its image cannot be pulled
  kNodeLost,       // the agent falls silent; its pod stays and never finishes terminating
  kClockJump,      // the wall clock jumps
  kSuspend,
  kResume,
  kScale,
  kScaleServers,  // of a job that has some
  kRulesEdited,   // the rules about losses of a job that has some
  kIllegalEdit,
  kCorrection,   // the illegal edit is undone
  kJobReplaced,  // deleted, and created again under the same name
  kJobDeleted,   // deleted for good
  kJobHeld,      // deleted; a finalizer keeps it until its pods are gone
  kCount,
};
inline constexpr size_t kFaults = static_cast<size_t>(Fault::kCount);
std::string_view fault_name(Fault fault);

// Observed actions of the controller and status transitions of jobs.
enum class Transition : size_t {
  kPodCreated,
  kPodRemoved,
  kRoundFormed,
  kRestartInPlace,
  kHangNamed,
  kRecreatePod,
  kRecovered,
  kDrained,  // a round ended because all ranks saved and left
  kComplete,
  kFailed,
  kSuspended,
  kResumed,
  kInvalid,
  kValidAgain,
  kResized,
  kDeadlineExceeded,
  kFailedByRule,
  kIgnored,         // a rule says that the failure does not count
  kRecreateByRule,  // a rule recreates the pod though only its process failed
  kNodeAvoided,     // a new pod is kept off machines where others failed
  kSlowNamed,       // Straggling names a rank
  kSlowNoMore,      // the rank that it named is as fast as others
  kSlowReplaced,    // a rule restarts the round because of a slow rank, or fails the job
  kBatchSkipped,    // training went on without batches
  kFailedByLoss,
  kServersView,     // a round goes on with another view of its servers
  kServerMoved,     // one of them is in another pod now
  kServerAdded,     // a round has one more that counts
  kServerRemoved,   // or one less
  kWorkerReturned,  // a round goes on with another process of a worker
  kPendingGivenUp,
  kCompleteByRankZero,
  kExpired,   // deleted by ttlSecondsAfterFinished
  kLeader,    // another replica becomes leader
  kReleased,  // the lease is released
  kCount,
};
inline constexpr size_t kTransitions = static_cast<size_t>(Transition::kCount);
std::string_view transition_name(Transition transition);

// Counts of faults and transitions, for one seed or the sum of many.
struct Counts {
  std::array<int64_t, kFaults> faults{};
  std::array<int64_t, kTransitions> transitions{};
  int64_t seeds = 0;
  int64_t jobs = 0;
  int64_t events = 0;
  int64_t left_out = 0;   // nodes that a round leaves out and the one before did not
  int64_t came_back = 0;  // the reverse
  double simulated_seconds = 0;

  int64_t all_faults() const;
  // Returns whether no fault of the first group (see Fault) has happened.
  bool controllers_are_well() const;
  Counts& operator+=(const Counts& other);
};

}  // namespace lockstep::sim
