#pragma once

#include <string>

#include "common/api/training_job.h"
#include "controller/plan/pass.h"

namespace lockstep::plan {

// Returns why the job must end with `newest`, a failure that no rule is about; empty if it may
// restart. A program that fails the same way at every start, without ever having made progress,
// would only hold its pods: Limits::equal_starts such starts that span Limits::equal_starts_span
// end the job. All of this follows from status and the agents' reports:
//
// - A start counts if the program itself ended it: a rank exits with an error, dies of a signal of
//   its own (others send SIGKILL and SIGTERM), exceeds its pod's memory, or cannot be executed. The
//   built-in loop's exit codes that blame storage, ports, devices or peers do not count.
// - Other failures (lost pods, evictions, images that cannot be pulled, hangs) are passed over:
//   they neither count nor end the series.
// - Starts fail the same way if reason, exit code (and so the signal) and the job's generation are
//   equal. Rank, node and message may differ. Another exit code, or an edit of the spec such as a
//   suspension, begins a new series.
// - Progress is a step, a checkpoint or, for a command that reports no steps, another number or a
//   round that ran for Limits::attempt_max. A job that has ever made any is never ended here.
// - The series is what status.failures holds of it. Ten failures span more than two minutes because
//   of the backoff.
//
// `moves` says that the failed rank's pod is about to leave its node for failure.avoidNodes. If all
// of these starts failed on that node, another one gets its try.
std::string why_never_started(const Pass& pass, const FailureStatus& newest, bool moves);

}  // namespace lockstep::plan
