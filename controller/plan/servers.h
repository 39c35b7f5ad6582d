#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/api/servers_view.h"
#include "controller/plan/pass.h"

namespace lockstep::plan {

// Whether processes of the round may be started anew without ending it: it has servers, one process
// on each node, and a view that fits the spec.
bool has_views(const Pass& pass);
// Whether servers may be added to the round, and leave it. Only of a round that is formed.
bool has_places(const Pass& pass);
// Returns the text of the first view of a round with these nodes that begins now: with places if
// all of its agents know them, or else empty.
std::string view_of_new_round(const Pass& pass);
// Return the nodes of the round, ascending, also of servers that were added to it; and how many
// members the job must have until those that leave it have left. Only if has_places().
std::vector<int64_t> nodes_of_view(const Pass& pass);
size_t members_to_keep(const Pass& pass);
// Returns the pod of the next server to be added, if its agent is too old for that; else null.
const PodView* pod_too_old_to_join(const Pass& pass);
// Returns the nodes whose servers have left the round.
std::set<int64_t> nodes_that_left(const Pass& pass);
int64_t incarnation_that_left(const Pass& pass, int64_t node_index);  // 0: it has not
// Returns the view of the round's servers that status has. Only if has_views().
ServersView servers_view(const Pass& pass);
// Returns the nodes of the round, ascending, without those of servers that are gone or join, and of
// workers that are about to be started anew: the round goes on whatever these do.
std::vector<int64_t> counted_nodes(const Pass& pass);
std::vector<const PodView*> counted_pods(const Pass& pass);  // likewise; nullptr: unseen
// Returns the pods whose ranks have to end well before the job is complete: all but those of
// servers that are gone or join; nullptr: unseen.
std::vector<const PodView*> pods_that_must_end(const Pass& pass);
// Returns where the round began with servers and workers that are in other pods now, or wait for
// one; by node index.
std::map<int64_t, ServerPlace> moved_places(const Pass& pass);
// Returns the node indices of servers and workers that are gone with their pods, while the next
// ones do not run yet, as the view says.
std::set<int64_t> nodes_without_pods(const Pass& pass);
// Whether the processes of this report are those due to which their server is gone, or their worker
// is started anew: status has their failure already.
bool is_known_to_be_gone(const Pass& pass, const PodView& pod, const AgentState& state);
// Returns a server that shows no sign of life, without which the round can go on; nullopt if there
// is none.
std::optional<FailureStatus> lifeless_server(const Pass& pass);
// Whether the round goes on without the process that failed, while all (other) workers train: a
// server's, if copies hold everything that it has; or a worker's that has trained in this round, if
// all agents know that workers are started anew.
bool can_go_on_without(const Pass& pass, const FailureStatus& failure);
// Records that this server is gone, or that this worker has a new process: its agent will start it.
// Returns why the round goes on.
const char* lose_process(Pass& pass, const FailureStatus& failure);
// Whether some worker is about to be started anew, so that the ranks cannot save.
bool misses_worker(const Pass& pass);
// Whether the view says that some worker was started anew.
bool has_new_workers(const Pass& pass);
// Whether the round goes on without the pods of these nodes: all other workers train, copies hold
// everything that the servers have, and no agent is too old for that. A server or worker whose pod
// is being stopped asks all ranks to save and leave, so the round ends with it.
bool can_go_on_without_pods(const Pass& pass, const std::vector<int64_t>& lost);
// Whether the processes of these servers, or of these workers without which the round goes on,
// failed before their pods were lost: status has their failures already, such as those of a pod
// that is short of memory.
bool were_gone_before(const Pass& pass, const std::vector<int64_t>& lost);
// Records that these servers and workers are gone with their pods: the agents of other pods will
// start them. Before replace_lost(). Returns why the round goes on.
const char* lose_pods(Pass& pass, const std::vector<int64_t>& lost);

}  // namespace lockstep::plan
