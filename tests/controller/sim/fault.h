#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::sim {

// Everything that goes wrong in a simulated cluster, or that somebody does to it. First what
// happens to controllers and to what they are told, then what happens to nodes and jobs.
enum class Fault : size_t {
  kLostRequest,  // never arrives; the caller times out
  kLostReply,    // is carried out; the caller times out
  kServerError,
  kThrottled,   // 429 with Retry-After
  kQuota,       // 403 to a new pod
  kWebhook,     // can't do without side effects: no pod is checked
  kPodRefused,  // 403 to a pod that was to be checked: what it needs isn't there
  kStorm,       // most requests are refused for a while
  kServerAway,  // nothing answers for minutes, and watches end
  kConflict,    // a status write meets somebody else's
  kWatchCut,
  kWatchExpired,   // 410 in the stream: compaction came in between
  kWatchTooLarge,  // the version is from the future
  kLaggingWatch,
  kRepeatedEvents,   // events that were delivered already come again
  kCoalescedEvents,  // only the newest of an object's events comes
  kLabelLost,        // somebody takes the label off a pod by which it is watched, for a while
  kCrash,            // of the controller, after a write
  kStall,            // the controller stands still for a while, and wakes up
  kToldToEnd,        // the controller is sent SIGTERM
  kSkewedClock,      // the controller's clock on the wall is minutes off, and runs fast or slow
  kHeldBack,         // a write waits for its turn at the rate limit
  kOldReport,        // an agent repeats what it said in an earlier round
  kOtherHash,        // an agent tells of its round with another hash
  kLaterRound,       // an agent tells of a round that nobody began
  kOtherJob,         // an agent tells what another job's does
  kWildNumbers,      // an agent tells of a failure that wasn't, with numbers beyond all bounds
  kFalseEnd,         // an agent says that its ranks have ended well
  kCutOff,           // no agent hears the controller, nor it them, for a while
  kCutOffByTurns,    // the same, one agent after the other: their last answers differ by a poll
  kWorkerKilled,
  kWorkerOom,
  kPodDeleted,
  kPodForceDeleted,
  kEvicted,
  kContainerExit,  // beside another one, which lives on
  kWorkerExit,     // with an exit code of which a job's rules may speak
  kWorkerHung,     // it stands still, and the others wait for it
  kBadMachine,     // a worker dies, on one machine alone
  kUnschedulable,  // a pod waits for room, for a while or, where the job limits that, for ever
  kImagePull,      // the same with its image
  kNodeLost,       // the agent falls silent, the pod stays and never finishes terminating
  kClockJump,      // of the wall clock
  kSuspend,
  kResume,
  kScale,
  kIllegalEdit,
  kCorrection,   // of the illegal edit
  kJobReplaced,  // deleted, and made again under the same name
  kJobDeleted,   // for good
  kJobHeld,      // deleted, and kept by a finalizer until its pods are gone
  kCount,
};
inline constexpr size_t kFaults = static_cast<size_t>(Fault::kCount);
std::string_view fault_name(Fault fault);

// What the controller was seen to do.
enum class Transition : size_t {
  kPodCreated,
  kPodRemoved,
  kRoundFormed,
  kRestartInPlace,
  kHangNamed,
  kRecreatePod,
  kRecovered,
  kComplete,
  kFailed,
  kSuspended,
  kResumed,
  kInvalid,
  kValidAgain,
  kResized,
  kDeadlineExceeded,
  kFailedByRule,
  kIgnored,         // a failure, by a rule: it does not count
  kRecreateByRule,  // where the process alone had failed
  kNodeAvoided,     // a pod that is kept from machines on which others failed
  kPendingGivenUp,
  kCompleteByRankZero,
  kExpired,   // deleted by ttlSecondsAfterFinished
  kLeader,    // another replica leads
  kReleased,  // the lease was given up
  kCount,
};
inline constexpr size_t kTransitions = static_cast<size_t>(Transition::kCount);
std::string_view transition_name(Transition transition);

// How often what happened, in one seed or in many.
struct Counts {
  std::array<int64_t, kFaults> faults{};
  std::array<int64_t, kTransitions> transitions{};
  int64_t seeds = 0;
  int64_t jobs = 0;
  int64_t events = 0;
  double simulated_seconds = 0;

  int64_t all_faults() const;
  // Nothing has happened to controllers and to what they are told.
  bool controllers_are_well() const;
  Counts& operator+=(const Counts& other);
};

}  // namespace lockstep::sim
