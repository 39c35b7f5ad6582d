#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/api/servers_view.h"
#include "controller/plan/pass.h"

// Functions that the files about servers share. Only of a round with views (has_views()).
namespace lockstep::plan {

// Returns the place of the node's server in the view; nullopt for a worker's node. Jobs with
// servers leave no node out, and those with views have one process on each.
std::optional<size_t> server_of_node(const Pass& pass, const ServersView& view, int64_t node_index);
size_t node_of_server(const Pass& pass, size_t server);
const PodView* pod_of_server(const Pass& pass, size_t server);  // nullptr: unseen
// Returns the place of the server's pod with which the round began; nullopt if that pod is unseen.
std::optional<ServerPlace> first_place(const Pass& pass, const ServersView& view, size_t server);
// Whether the server is gone with its pod, and the next one does not run yet.
bool awaits_pod(const ServerStanding& server);
// Whether the worker of this node was lost with its pod, likewise.
bool awaits_pod(const ServersView& view, int64_t node);
// Whether the agents of all pods but the lost ones speak this version, or a later one.
bool all_speak(const Pass& pass, int64_t protocol, const std::vector<int64_t>& lost);
// Whether the round may go on without some process at all, and without these nodes. In a later view
// than the first one, a failure of the same moment may have set Running to False.
bool may_go_on(const Pass& pass, const std::vector<int64_t>& lost = {});
// Whether the text of this view, and of those with which its servers come back, fits in status.
bool fits(const ServersView& view);

}  // namespace lockstep::plan
