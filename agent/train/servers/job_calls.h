#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "agent/rpc/method.h"
#include "agent/rpc/wire.h"

namespace lockstep::train {

// The calls by which the workers of a job with servers agree, in addition to those for parameters.
// Workers make them to all servers of their view that are not gone. So any of these can take over
// for another one: whatever a worker has passed, it has told all of them, or still tells them.
// Answers at once; HelloReply.
inline const rpc::Method kHello("lockstep.job.hello", rpc::Repeats::kAllowed);
// Waits until all workers have called it with this number; MeetCall to MeetReply. Each server runs
// each meeting, with the same result; a worker goes on with the first answer. A worker that calls
// again replaces its call. No worker is more than one meeting ahead of another.
inline const rpc::Method kMeet("lockstep.job.meet", rpc::Repeats::kNever);
// A worker has completed a step; StepReport to StepNews. May be repeated, also for earlier steps.
inline const rpc::Method kReportStep("lockstep.job.step", rpc::Repeats::kNever);
// From rank 0 while all others wait: the state of a checkpoint. LoadCall; the body is its manifest.
// StorageReply.
inline const rpc::Method kLoadState("lockstep.job.load", rpc::Repeats::kNever);
// Likewise, to the servers that are whole: writes the ranges and rows whose primary the server is.
// SaveCall; the body is the folder. StorageReply, whose body is the list of files (format_files()).
// kConflict if the server goes by another view. A repeated call for the same folder and view gets
// the same reply.
inline const rpc::Method kSaveState("lockstep.job.save", rpc::Repeats::kAllowed);
// Asks where a worker was whose process was lost, for the process that takes its place. ReturnCall
// to ReturnReply. A server that was started anew knows less than the others.
inline const rpc::Method kReturn("lockstep.job.return", rpc::Repeats::kAllowed);
// The worker needs the server no more. LeaveCall. A server ends once all workers have left.
inline const rpc::Method kLeaveJob("lockstep.job.leave", rpc::Repeats::kNever);

inline constexpr size_t kMeetValues = 4;

struct HelloReply {
  uint64_t hangs = 0;  // 1 + the rank of a worker that others have waited for too long; 0: none
};

// The last two values say where the worker is: the newest step that it has reported in this round
// (0: none), and how many meetings it has called since, but for the first one.
struct MeetCall {
  uint64_t number = 0;  // of the meeting, from 0
  std::array<double, kMeetValues> values{};
};
inline constexpr size_t kMeetStep = 2;
inline constexpr size_t kMeetPlace = 3;
struct MeetReply {
  std::array<double, kMeetValues> sums{};  // over the workers, in the order of ranks
};

struct StepReport {
  uint64_t step = 0;     // completed
  uint64_t stops = 0;    // 1: this worker, or a server that it knows of, was asked to stop
  uint64_t waits = 0;    // 1: answer once all workers have reported the step, or a later one
  uint64_t leads = 0;    // 1: this server decides at which step all stop (JobLink, leader_of())
  uint64_t stop_at = 0;  // that the worker knows of, as StepNews
  uint64_t rows = 0;     // 0: the loss was told before
  double loss_sum = 0;   // over these rows
};
struct StepNews {
  uint64_t stop_at = 0;  // the step after which all workers stop; 0: none
  uint64_t stops = 0;    // 1: the server was asked to stop
  // The newest step that all workers have reported.
  uint64_t step = 0;
  uint64_t rows = 0;
  double loss_sum = 0;
  // The worker that has reported the fewest steps (of several, the lowest rank), and their number.
  uint64_t slowest = 0;
  uint64_t slowest_step = 0;
};

struct LoadCall {
  uint64_t first = 0;  // clock to begin at
};

// An error of the server's storage is an answer, so that it is not taken for a lost server.
struct StorageReply {
  uint64_t failure = 0;  // 1 + the code of an error, whose message is the body; 0: none
};

struct SaveCall {
  uint64_t view = 0;  // number of the caller's
};

struct ReturnCall {
  uint64_t since = 0;  // number of the view in which the worker was started anew
};
struct ReturnReply {
  uint64_t first = 0;     // 1 + the step after which the round began; 0: unknown
  uint64_t step = 0;      // the newest that the worker has reported
  uint64_t meetings = 0;  // that the worker has called
  uint64_t met_step = 0;  // kMeetStep and kMeetPlace of the last one
  uint64_t met_place = 0;
  uint64_t has_left = 0;       // 1: it needed the servers no more; 2: because it was asked to stop
  uint64_t highest_clock = 0;  // ParameterServer::highest_clock_of()
};

struct LeaveCall {
  uint64_t stopped = 0;  // 1: the worker was asked to stop; 0: the job is complete
};

// Returns the head's bytes, valid as long as the head.
template <class Head>
rpc::Bytes head_bytes(const Head& head) {
  return std::as_bytes(std::span(&head, 1));
}

}  // namespace lockstep::train
