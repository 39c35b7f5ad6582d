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
  kGone,     // has nothing: it was lost, or is new, and its agent or that of another pod starts it
  kLeaving,  // as kWhole, while others take over what it holds
  kLeft,     // the job has fewer servers now: it holds nothing, and nobody starts it
};

// Whether a server in this state holds what it should.
inline bool is_holding(ServerState state) {
  return state == ServerState::kWhole || state == ServerState::kLeaving;
}
// Whether nobody calls a server in this state.
inline bool is_absent(ServerState state) {
  return state == ServerState::kGone || state == ServerState::kLeft;
}

// A pod of a server: its incarnation and its address.
struct ServerPlace {
  int64_t incarnation = 0;
  std::string host;  // empty: it does not run yet, and the server is gone or has left

  bool operator==(const ServerPlace&) const = default;
};

// Where a server's pod was when the round began, and where its pod is now.
struct ServerMove {
  ServerPlace from;  // as in the round's world; empty: the server was added later
  ServerPlace to;

  bool operator==(const ServerMove&) const = default;
};

struct ServerStanding {
  ServerState state = ServerState::kWhole;
  // Number of the first view with this state, or with this pod; if it leaves, of the state before.
  int64_t since = 1;
  std::optional<ServerMove> move{};
  // It was added, and has never been whole since: others hold what it is to take over.
  bool is_new = false;
  // Number of the view in which it began to leave, if it does; or in which it left, if it has, or
  // had before it was added again; or else 0.
  int64_t left_in = 0;

  bool operator==(const ServerStanding&) const = default;
};

// A view of a round's servers, by place among the servers. Views are numbered from 1; in the first
// one all are whole. Each later one changes servers of the one before:
//   whole or joining or gone or leaving -> gone;  gone -> joining;  joining -> whole
// At most one server joins at a time. A server moves to another pod while it is gone. Or else it
// says that the process of a worker was lost, and is started anew by its agent.
//
// The last server may leave, and others may be added after it, one at a time:
//   whole -> leaving -> left;  left or none -> gone, and new
// A new one counts once it has been whole.
struct ServersView {
  int64_t number = 1;
  std::vector<ServerStanding> servers;
  // The shares in which all parameters are cut for the round (server_places.h). 0: as many as there
  // are servers, and no server is added or leaves, since some process is too old for that.
  int64_t places = 0;
  // Those that were started anew, by rank: number of the newest view that says so.
  std::map<int64_t, int64_t> workers{};
  // Those of them whose pods were lost since the round began.
  std::map<int64_t, ServerMove> worker_moves{};

  bool operator==(const ServersView&) const = default;
};

inline constexpr size_t kServersInViewMax = 1024;
inline constexpr int64_t kPlacesMax = 1024;
inline constexpr size_t kWorkersInViewMax = 1024;
inline constexpr size_t kServersViewBytesMax = 24 * 1024;

ServersView first_servers_view(size_t servers, int64_t places = 0);

// Returns the view's only text: "4:1,-2,+4" is view 4, with a server that is whole since view 1,
// one that is gone since view 2, and one that joins since view 4. "-5@1/10.0.0.3>2/10.0.0.7" is
// one that is gone since view 5, in which it moved from the pod of incarnation 1 at the first
// address to that of incarnation 2 at the second one. "6:1,1;0@6,3@4": the workers of ranks 0 and 3
// were started anew in views 6 and 4. With 8 places, "7:1,1~7#8" has a server that leaves since
// view 7, "9:1,!9@1/10.0.0.3>2/#8" one that has left, and "5:1,1,*+5@>1/10.0.0.9#8" one that was
// added and joins since view 5; with "*3+5", it had left in view 3. ";0@6@1/10.0.0.2>2/" says of
// the worker of rank 0 also that it had the pod of incarnation 1, and has that of incarnation 2.
std::string text_of(const ServersView& view);
// kInvalid for any text that text_of() does not return, and for a view that cannot be.
Result<ServersView> servers_view_from_text(std::string_view text);
// Returns the first view if the text is empty. kInvalid also if the round began with another number
// of servers.
Result<ServersView> servers_view_from_text(std::string_view text, size_t servers);

// Returns how many servers the round began with.
size_t first_servers(const ServersView& view);
// Returns how many servers count: those that have not left and are not new. They are the first of
// the list.
size_t counted_servers(const ServersView& view);

// Returns the next view, in which that server is whole, joins, or is gone.
ServersView next_view(const ServersView& view, size_t server, ServerState state);
// Returns the next view, in which this worker is started anew.
ServersView view_with_new_worker(const ServersView& view, int64_t rank);
// Returns the next view, in which these servers are gone and in other pods, and these workers, by
// rank, are started anew in other pods. If one has moved before, its `from` does not count.
ServersView moved_view(const ServersView& view, const std::map<size_t, ServerMove>& moves,
                       const std::map<int64_t, ServerMove>& workers = {});
// Return the next view, in which a server is added after those that count, and runs in this pod; or
// the last of those that count leaves; or the one that leaves has left. `first`: as in the world,
// empty if it was added; `next_incarnation`: of its pod if it is added
// again.
ServersView view_with_new_server(const ServersView& view, const ServerPlace& pod);
ServersView view_with_leaving_server(const ServersView& view);
ServersView view_without_last_server(const ServersView& view, const ServerPlace& first,
                                     int64_t next_incarnation);
// Returns the next view, in which the new server, which is gone, has left.
ServersView view_without_new_server(const ServersView& view);
// Returns whether some server is in another pod than when the round began.
bool has_moved_server(const ServersView& view);
// Returns the number of the newest view that changed a server; 1: none did.
int64_t servers_changed_in(const ServersView& view);
// Returns the number of the view in which this worker was started anew last; 1: it was not.
int64_t worker_since(const ServersView& view, int64_t rank);
// Returns the server that joins, or the number of servers.
size_t joining_server(const ServersView& view);

}  // namespace lockstep
