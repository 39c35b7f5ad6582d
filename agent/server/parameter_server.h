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

#include "agent/rpc/server.h"
#include "agent/server/catalog.h"
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

// A server of parameters: the ranges and rows whose primary it is in a view. Workers pull and push
// them with ParameterClient. Calls with another view than the server's are refused (check_fence()),
// as are malformed ones, with a code and a message; nothing that a worker sends makes the server
// keep more than limits.h, the limits of remote calls, and rows_max say.
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
    Consistency consistency;
    uint64_t seed = 0;                         // of new rows; the same on all servers
    uint64_t rows_max = uint64_t{1} << 31;     // of one table
    size_t reply_bytes_max = size_t{1} << 30;  // under way to one worker
    HistoryRecorder recorder;                  // may be empty
    // Adds further methods to the server, whose handlers run on its thread; may be empty.
    std::function<void(rpc::Server&)> add_methods;
  };
  // kInvalid for wrong options, and for chains of more than one server: copies are not in this
  // version. Errors as rpc::Server::create().
  static Result<std::unique_ptr<ParameterServer>> create(Options options);
  // Waiting calls fail with kUnavailable.
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // Begins to serve. kUnavailable if the system refuses.
  Status start();
  // Continues with a later view of the round, which may differ in its number and workers. kConflict
  // for an earlier view, kInvalid for one that moves ranges: that is not in this version. From any
  // thread but the server's; blocks until calls are judged by this view.
  Status install(const View& view);

  // Writes all that this server holds (docs/formats.md, "State of a parameter server"). Nothing
  // else happens meanwhile; the state is that of one clock if every worker waits. Errors of the
  // sink.
  Status save(const StateSink& sink);
  // Takes this server's part of what any server of a job with this catalog has saved: call it once
  // for each of them. kCorrupt for other bytes. Then begin_at().
  Status load(const StateSource& source);
  // Goes on after `first` steps of earlier rounds. Before the workers' first pushes.
  void begin_at(uint64_t first);

  // Refuses all calls that wait. As install().
  void fail_waiting(const Error& error);

  struct Report {
    uint64_t view = 0;
    std::vector<Unit::Report> units;  // ranges, then tables
  };
  // As install(), returns the state at one moment.
  Report report();

 private:
  ParameterServer(Options options, std::shared_ptr<const View> view);
  void add_units();
  void add_unit(const UnitId& id, std::string name, std::unique_ptr<UnitState> state);
  void add_methods();
  void serve(const rpc::Method& method, CallKind kind, void (Unit::*handler)(UnitCall));
  void take(CallKind kind, void (Unit::*handler)(UnitCall), rpc::Request request);
  Result<KeyList> keys_of(uint32_t worker, const CallHead& head, const CallBody& body);
  Status check_keys(std::span<const uint64_t> keys) const;
  Status save_units(const StateSink& sink);
  Status load_units(const StateSource& source);
  Status load_range(uint32_t tensor, uint64_t begin, const SavedState& saved,
                    const StateSource& source);
  Status switch_to(std::shared_ptr<const View> view);

  Options options_;
  uint32_t rank_;
  std::unique_ptr<rpc::Server> rpc_;
  std::shared_ptr<ReplyMemory> replies_;
  // Only the strand uses these:
  std::unique_ptr<Routing> routing_;
  std::map<UnitId, std::unique_ptr<Unit>> units_;
  std::map<uint32_t, KeyLists> key_lists_;  // by worker
  std::unique_ptr<Strand> strand_;
  std::mutex mutex_;
  bool is_ending_ = false;  // no request goes to the strand any more; guarded by mutex_
};

}  // namespace lockstep::server
