#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace lockstep {

// Which servers of a round hold what they should, and which workers were started anew
// (docs/servers.md, "Views"). The controller decides it and records it in status before anybody
// acts on it; agents hand it to their processes.

enum class ServerState : uint8_t {
  kWhole,    // has everything that it should hold
  kJoining,  // is being filled by others
  kGone,     // has nothing: it was lost, and its agent or that of another pod starts it anew
};

// A pod of a server: its incarnation and its address.
struct ServerPlace {
  int64_t incarnation = 0;
  std::string host;  // empty: it does not run yet, and the server is gone

  bool operator==(const ServerPlace&) const = default;
};

// Where a server's pod was when the round began, and where its pod is now.
struct ServerMove {
  ServerPlace from;  // as in the round's world
  ServerPlace to;

  bool operator==(const ServerMove&) const = default;
};

struct ServerStanding {
  ServerState state = ServerState::kWhole;
  int64_t since = 1;  // number of the first view with this state, or with this pod
  std::optional<ServerMove> move{};

  bool operator==(const ServerStanding&) const = default;
};

// A view of a round's servers, by place among the servers. Views are numbered from 1; in the first
// one all are whole. Each later one changes servers of the one before:
//   whole or joining or gone -> gone;  gone -> joining;  joining -> whole
// At most one server joins at a time. A server moves to another pod while it is gone. Or else it
// says that the process of a worker was lost, and is started anew by its agent.
struct ServersView {
  int64_t number = 1;
  std::vector<ServerStanding> servers;
  // Those that were started anew, by rank: number of the newest view that says so.
  std::map<int64_t, int64_t> workers{};

  bool operator==(const ServersView&) const = default;
};

inline constexpr size_t kServersInViewMax = 1024;
inline constexpr size_t kWorkersInViewMax = 1024;
inline constexpr size_t kServersViewBytesMax = 24 * 1024;

ServersView first_servers_view(size_t servers);

// Returns the view's only text: "4:1,-2,+4" is view 4, with a server that is whole since view 1,
// one that is gone since view 2, and one that joins since view 4. "-5@1/10.0.0.3>2/10.0.0.7" is
// one that is gone since view 5, in which it moved from the pod of incarnation 1 at the first
// address to that of incarnation 2 at the second one. "6:1,1;0@6,3@4": the workers of ranks 0 and 3
// were started anew in views 6 and 4.
std::string text_of(const ServersView& view);
// kInvalid for any text that text_of() does not return, and for a view that cannot be.
Result<ServersView> servers_view_from_text(std::string_view text);
// Returns the first view if the text is empty. kInvalid also for another number of servers.
Result<ServersView> servers_view_from_text(std::string_view text, size_t servers);

// Returns the next view, in which that server has this state.
ServersView next_view(const ServersView& view, size_t server, ServerState state);
// Returns the next view, in which this worker is started anew.
ServersView view_with_new_worker(const ServersView& view, int64_t rank);
// Returns the next view, in which these servers are gone and in other pods. If one has moved
// before, its `from` does not count.
ServersView moved_view(const ServersView& view, const std::map<size_t, ServerMove>& moves);
// Returns whether some server is in another pod than when the round began.
bool has_moved_server(const ServersView& view);
// Returns the number of the newest view that changed a server; 1: none did.
int64_t servers_changed_in(const ServersView& view);
// Returns the number of the view in which this worker was started anew last; 1: it was not.
int64_t worker_since(const ServersView& view, int64_t rank);
// Returns whether some server is whole of each server and the `copies` that follow it in the list,
// around its end.
bool holds_everything(const ServersView& view, int64_t copies);
// Returns the server that joins, or the number of servers.
size_t joining_server(const ServersView& view);

}  // namespace lockstep
