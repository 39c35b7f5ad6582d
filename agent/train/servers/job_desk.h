#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "agent/rpc/server.h"
#include "agent/train/servers/meetings.h"
#include "agent/train/servers/step_reports.h"
#include "agent/train/servers/worker_watch.h"
#include "common/base/clock.h"

namespace lockstep::train {

// A server's side of the calls in job_calls.h: meetings, reports of steps, and orders that the
// server's own thread carries out. It may begin in the middle of the job. Outlives the rpc::Server,
// before whose end close() is called. Thread-safe.
class JobDesk {
 public:
  // Ranks below `workers` are workers.
  explicit JobDesk(uint32_t workers) : workers_(workers), meetings_(workers), steps_(workers) {}

  void add_methods(rpc::Server& server);
  // Refuses what waits, and all that comes.
  void close();

  enum class OrderKind { kLoad, kSave, kReturn };
  struct Order {
    OrderKind kind;
    rpc::Request request;
  };
  // Blocks until a worker has an order, all workers have left, or the time is over. Only kReturn
  // may be another worker's than that of rank 0.
  std::optional<Order> next(Duration at_most);
  bool all_have_left() const;
  // Whether rank 0 has: then the job needs no server.
  bool first_has_left() const;
  // Whether a worker left because it was asked to stop.
  bool was_stopped() const;
  // The newest step that all workers have completed.
  uint64_t step() const;
  // Returns for which workers calls wait here; nothing if none waits, or if the worker that is
  // waited for is away. Drops calls that their workers have given up.
  std::optional<AwaitedWorkers> awaited();
  // These workers are started anew since views of these numbers. Until they tell of a step, or come
  // to a meeting, they are away: nobody is to blame for waiting for them.
  void note_lost(const std::map<int64_t, int64_t>& workers);
  bool is_away(uint32_t worker) const;
  // Returns what the worker has told this server: all of ReturnReply but `first` and the clocks.
  ReturnReply past_of(uint32_t worker) const;
  // Refuses what waits, and will: this worker hangs. The others can ask which one.
  void blame(uint32_t worker);
  // This server was asked to stop, and tells the workers.
  void ask_to_stop();

 private:
  void serve(rpc::Server& server, const rpc::Method& method,
             void (JobDesk::*handler)(rpc::Request));
  void meet(rpc::Request request);
  void report_step(rpc::Request request);
  void return_worker(rpc::Request request);
  void load(rpc::Request request) { order(OrderKind::kLoad, std::move(request)); }
  void save(rpc::Request request) { order(OrderKind::kSave, std::move(request)); }
  void order(OrderKind kind, rpc::Request request);
  void leave(rpc::Request request);
  void hello(rpc::Request request);
  Error hang_error() const;
  bool is_away_now(uint32_t worker) const;
  void note_away(uint32_t worker, uint64_t view);

  const uint32_t workers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
  Meetings meetings_;
  StepReports steps_;
  std::deque<Order> orders_;
  std::map<uint32_t, bool> left_;  // by rank: whether it was asked to stop
  // By rank: the newest view in which the worker was started anew, and whether it is away since.
  struct Beginning {
    uint64_t view = 0;
    bool is_away = false;
  };
  std::map<uint32_t, Beginning> beginnings_;
  std::optional<uint32_t> hung_;
};

}  // namespace lockstep::train
