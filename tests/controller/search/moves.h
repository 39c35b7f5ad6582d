#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/controller/search/world.h"

namespace lockstep::search {

// One step of one part of the world. The first group happens on its own, in the order in which a
// fair cluster would do it; each of the second group, from kLoseRequest on, is a fault.
enum class MoveKind {
  kServe,     // a request reaches the server or the agent
  kAnswer,    // an answer reaches the controller
  kJobEvent,  // the watch delivers the next event
  kPodEvent,
  kListJobs,
  kListPods,
  kPlan,         // the controller takes the job from its queue
  kHear,         // an agent's report reaches the controller
  kCollect,      // the garbage collector deletes a pod of a deleted job, if the watch keeps up
  kRemove,       // the kubelet removes a pod that is being deleted
  kStart,        // the kubelet starts a pod
  kNotice,       // a rank notices that a peer is gone, and leaves
  kTrain,        // a round's ranks have all connected, and train
  kFinish,       // a rank ends well
  kResume,       // the user ends the suspension
  kWake,         // nothing else can happen: time passes until the controller's timer
  kStray,        // a request of a dead controller arrives
  kLoseRequest,  // it never arrives
  kLoseReply,    // the request was carried out, but the caller times out
  kQuota,        // the server refuses a pod for now
  kTouch,        // somebody changes the job just before a status write
  kCrash,        // the controller dies, and another one starts
  kExpirePods,   // the watch has lost its place (410): the events in between are never delivered
  kSlow,         // the timer fires earlier than that, between plans: something takes long
  kOldReport,    // an agent's report of an earlier round arrives late
  kKillWorker,
  kDeletePod,
  kForceDelete,
  kEvict,
  kLoseMachine,  // the agent falls silent, and its pod stays
  kSuspend,
  kScale,  // to one node, or back to two
  kDeleteJob,
};
inline bool is_fault(MoveKind kind) {
  return kind >= MoveKind::kLoseRequest;
}
// Returns whether a user does that to the job. It is a fault, too.
inline bool is_edit(MoveKind kind) {
  return kind >= MoveKind::kSuspend;
}

struct Move {
  MoveKind kind{};
  size_t place = 0;      // of a request
  std::string object{};  // UID of an agent's pod, or key of a pod

  std::string name() const;
};

// Returns every move that is possible now: those of the first group in the order of the enum, then
// the faults. The first move of a world that has any is thus that of a fair cluster without faults.
std::vector<Move> moves_of(const World& world);
void apply(World& world, const Move& move);

}  // namespace lockstep::search
