#pragma once

#include <cstdint>
#include <vector>

#include "controller/plan/pass.h"

namespace lockstep::plan {

// Returns the nodes that the next round of a job with spec.elastic is to have (RoundChoice): the
// most that its layout allows and whose pods run, but at least `elastic.min`.
// - A round without pods of an earlier one waits for those that are starting.
// - After a loss, the next round begins with the pods that run.
// - A round that is formed goes on until more nodes can train and no other pod is starting: pods
//   that come back together are one change of size.
// A round that leaves out nodes waits for the answers of its agents. If one is of an earlier
// version, which does not know such rounds, the job waits for all of its pods. Pods that cannot be
// scheduled or that are in trouble are not starting.
std::vector<int64_t> elastic_nodes(const Pass& pass);

// Returns whether the job would be valid with as many nodes.
bool can_train(const Pass& pass, int64_t nodes);

// Requeues the plan of an elastic job for when the choice may be another one, although no event
// says so: a pod has been starting for too long, or an agent that was not heard answers again.
void requeue_for_choice(Pass& pass);

}  // namespace lockstep::plan
