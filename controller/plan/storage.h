#pragma once

#include "controller/plan/pass.h"

namespace lockstep::plan {

// Sets the conditions about the job's checkpoints in storage, and sends their events, by the report
// of rank 0 in the current round, or else in the round that has just ended. Each condition appears
// when it is first true.
// - CheckpointFailing: the newest save failed. It ends when a later save succeeds; a round that has
//   not saved yet does not change it.
// - CheckpointSetAside: a corrupt checkpoint was set aside. It begins when training resumes, or
//   when the round ends before that. It ends when a later round resumes without setting one aside.
// - BatchSkipped: training went on without batches, because of a loss and a rule of the job. It
//   stays, and its message tells the newest case.
// Applies to a job that has ended too: its last save may have failed.
void derive_storage(Pass& pass);

}  // namespace lockstep::plan
