#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "agent/rpc/client.h"
#include "agent/rpc/server.h"
#include "agent/server/catalog.h"
#include "agent/server/chain_peers.h"
#include "agent/server/history.h"
#include "agent/server/key_lists.h"
#include "agent/server/messages.h"
#include "agent/server/reply_memory.h"
#include "agent/server/routing.h"
#include "agent/server/strand.h"
#include "agent/server/unit.h"
#include "agent/server/unit_clock.h"
#include "agent/server/view.h"
#include "common/base/result.h"

namespace lockstep::server {

// A server of parameters: the ranges and rows of the chains that it is in. Workers pull and push
// those whose primary it is with ParameterClient; the others are copies, which follow the server
// before them in the chain. Calls with an older view than the server's are refused (check_fence()),
// those with a newer one wait until the server gets it. Malformed ones are refused with a code and
// a message; nothing that a worker sends makes the server keep more than limits.h, the limits of
// remote calls, and rows_max say.
//
// Owns the threads of an rpc::Server, and one that updates and reads parameters, call by call: a
// server is a sequence of events, which a recorder can see. The kernels' threads are those of the
// process (kernels::set_threads()).
class ParameterServer {
 public:
  struct Options {
    rpc::Server::Options rpc;  // `self` is the server's rank in the view
    Catalog catalog;
    View view;
    // All servers that may be in a chain with this one, in this view or a later one.
    std::vector<rpc::Client::ServerAddress> servers;
    Consistency consistency;
    uint64_t seed = 0;                         // of new rows; the same on all servers
    uint64_t rows_max = uint64_t{1} << 31;     // of one table and slot
    size_t reply_bytes_max = size_t{1} << 30;  // under way to one worker
    HistoryRecorder recorder;                  // may be empty
    // Adds further methods to the server, whose handlers run on its thread; may be empty.
    std::function<void(rpc::Server&)> add_methods;
  };
  // kInvalid for wrong options, and if the view is not the round's first and has this server in a
  // chain: a server begins with nothing, and joins. Errors as rpc::Server::create().
  static Result<std::unique_ptr<ParameterServer>> create(Options options);
  // Waiting calls fail with kUnavailable.
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // Begins to serve. kUnavailable if the system refuses.
  Status start();
  // Continues with a later view of the round. A chain may lose servers, keeps the order of the
  // others, and gets a server at its end that joined in an earlier view, once report() of the
  // server before it said that it is filled. Waiting calls survive where their primary does.
  // kConflict, with nothing changed, for an earlier view, and for one that this server cannot take
  // part in, because it lacks the parameters; kInvalid for other ranges, slots or arcs, another
  // order, or a server without an address. From any thread but the server's; blocks until calls are
  // judged by this view.
  Status install(const View& view);
  // Looks for these servers at these addresses from now on. Before install() of the view in which
  // they join; from any thread but the server's.
  void move_servers(const std::vector<rpc::Client::ServerAddress>& servers);

  // Writes all that this server holds (docs/formats.md, "State of a parameter server"). Nothing
  // else happens meanwhile; the state is that of one clock if every worker waits. Errors of the
  // sink. kConflict if the server goes by another view than this one; 0: by any.
  Status save(const StateSink& sink, uint64_t in_view = 0);
  // Takes this server's part of what any server of a job with this catalog has saved: call it once
  // for each of them. kCorrupt for other bytes. Then begin_at().
  Status load(const StateSource& source);
  // Goes on after `first` steps of earlier rounds. Before the workers' first pushes.
  void begin_at(uint64_t first);

  // Returns the highest clock of a worker in a unit that this server holds; 0 if it holds none. As
  // install().
  uint64_t highest_clock_of(uint32_t worker);

  // Refuses all calls that wait. As install().
  void fail_waiting(const Error& error);

  struct Report {
    uint64_t view = 0;
    std::vector<Unit::Report> units;  // ranges, then tables
  };
  // As install(), returns the state at one moment.
  Report report();
  // As install(), returns the rows of the table that are used most, of those whose primary this
  // server is; the first one most. A pull and a push are a use each. Looks at all rows.
  std::vector<HotRow> hottest(uint32_t table, size_t count);

 private:
  ParameterServer(Options options, std::shared_ptr<const View> view);
  void add_methods();
  void serve(const rpc::Method& method, CallKind kind, void (Unit::*handler)(UnitCall));
  void take(CallKind kind, void (Unit::*handler)(UnitCall), rpc::Request request);
  void take_copy(rpc::Request request);
  void take_view(rpc::Request request);
  // Returns whether the call may go on; otherwise it is refused, or `again` takes it when its view
  // is here.
  using Take = std::function<void(rpc::Request)>;
  bool is_of_this_view(const Fence& fence, rpc::Request& request, const Take& again);
  Result<SharedCall> copied_call(const CopyHead& head, Unit& unit, rpc::Request& request) const;
  void post(const Take& take, rpc::Request request);
  // Before tasks of the strand that follow each other: their replies go out together. A task that
  // may take long ends the burst first.
  void begin_burst();
  Result<KeyList> keys_of(uint32_t worker, const CallHead& head, const CallBody& body);
  Status check_keys(uint32_t slot, std::span<const uint64_t> keys) const;
  Status save_units(const StateSink& sink);
  Status load_units(const StateSource& source);
  Status load_rows(uint32_t table, SavedState saved, const StateSource& source);
  Status load_range(uint32_t tensor, uint64_t begin, const SavedState& saved,
                    const StateSource& source);
  // Views (server_views.cc).
  Status switch_to(std::shared_ptr<const View> view);
  Status check_first();
  Status check_next(const View& next);
  // Makes the ways that the view needs.
  Status prepare_peers(const View& view);
  Status check_unit(const UnitId& id, const Holders& now, const Holders& next) const;
  void place_units();
  void place_unit(const UnitId& id, const Holders& holders);
  std::unique_ptr<Unit> make_unit(const UnitId& id, bool is_whole) const;
  ViewReply view_reply() const;

  Options options_;
  uint32_t rank_;
  ChainPeers peers_;
  std::unique_ptr<rpc::Server> rpc_;
  std::shared_ptr<ReplyMemory> replies_;
  // Only the strand uses these:
  std::unique_ptr<Routing> routing_;
  std::map<UnitId, std::unique_ptr<Unit>> units_;
  std::map<uint32_t, KeyLists> key_lists_;  // by worker
  struct Early {
    std::shared_ptr<rpc::Request> request;
    Take take;
  };
  std::vector<Early> early_;  // calls that wait for their view
  std::optional<rpc::ReplyBurst> burst_;
  bool has_ended_ = false;
  std::unique_ptr<Strand> strand_;
  std::mutex mutex_;
  bool is_ending_ = false;  // no request goes to the strand any more; guarded by mutex_
};

}  // namespace lockstep::server
