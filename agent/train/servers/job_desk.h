#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "agent/rpc/server.h"
#include "agent/train/servers/job_calls.h"
#include "common/base/clock.h"

namespace lockstep::train {

// A server's side of the calls in job_calls.h: meetings, reports of steps, and orders that the
// server's own thread carries out. Outlives the rpc::Server, before whose end close() is called.
// Thread-safe.
class JobDesk {
 public:
  // Ranks below `workers` are workers.
  explicit JobDesk(uint32_t workers) : workers_(workers) {}

  void add_methods(rpc::Server& server);
  // Refuses what waits, and all that comes.
  void close();

  enum class OrderKind { kLoad, kSave };
  struct Order {
    OrderKind kind;
    rpc::Request request;
  };
  // Blocks until rank 0 has an order, all workers have left, or the time is over.
  std::optional<Order> next(Duration at_most);
  bool all_have_left() const;
  // Whether a worker left because it was asked to stop.
  bool was_stopped() const;
  // This server was asked to stop, and tells the workers.
  void ask_to_stop();

 private:
  struct Meeting {
    std::map<uint32_t, MeetCall> calls;  // by rank
    std::vector<rpc::Request> requests;
  };
  struct Step {
    std::map<uint32_t, StepReport> reports;  // by rank
    std::vector<rpc::Request> waiting;
  };

  void serve(rpc::Server& server, const rpc::Method& method,
             void (JobDesk::*handler)(rpc::Request));
  void meet(rpc::Request request);
  void report_step(rpc::Request request);
  void load(rpc::Request request) { order(OrderKind::kLoad, std::move(request)); }
  void save(rpc::Request request) { order(OrderKind::kSave, std::move(request)); }
  void order(OrderKind kind, rpc::Request request);
  void leave(rpc::Request request);
  void hello(rpc::Request request);
  void answer(rpc::Request& request) const;

  const uint32_t workers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
  std::map<uint64_t, Meeting> meetings_;  // by number
  std::map<uint64_t, Step> steps_;        // that not all workers have reported
  uint64_t highest_step_ = 0;             // that a worker has reported
  StepNews news_;
  std::deque<Order> orders_;
  std::set<uint32_t> left_;
  bool was_stopped_ = false;
};

}  // namespace lockstep::train
