#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "common/api/servers_view.h"
#include "controller/plan/pass.h"

namespace lockstep::plan {

// Whether the round has servers whose parameters others hold, too.
bool has_copies(const Pass& pass);
// Returns the view of the round's servers that status has. Only if has_copies().
ServersView servers_view(const Pass& pass);
// Returns the node indices of servers that are gone or join: the round goes on whatever they do.
std::set<int64_t> spared_nodes(const Pass& pass);
// Whether the processes of this report are those due to which their server is gone: status has
// their failure already.
bool is_known_to_be_gone(const Pass& pass, const PodView& pod, const AgentState& state);
// Returns a server that shows no sign of life, without which the round can go on; nullopt if there
// is none.
std::optional<FailureStatus> lifeless_server(const Pass& pass);
// Whether the round goes on without the process that failed, a server's: all workers train, and
// copies hold everything that it has.
bool can_go_on_without(const Pass& pass, const FailureStatus& failure);
// Records that this server is gone: its agent will start it anew.
void lose_server(Pass& pass, const FailureStatus& failure);

}  // namespace lockstep::plan
