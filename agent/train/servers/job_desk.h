#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "agent/rpc/server.h"
#include "agent/train/servers/job_calls.h"
#include "agent/train/servers/worker_watch.h"
#include "common/base/clock.h"

namespace lockstep::train {

// A server's side of the calls in job_calls.h: meetings, reports of steps, and orders that the
// server's own thread carries out. It may begin in the middle of the job, with calls of meetings
// and steps that some workers have passed elsewhere. Outlives the rpc::Server, before whose end
// close() is called. Thread-safe.
class JobDesk {
 public:
  // Ranks below `workers` are workers.
  explicit JobDesk(uint32_t workers) : workers_(workers), reached_(workers), unaware_(workers) {}

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
  // Whether rank 0 has: then the job needs no server.
  bool first_has_left() const;
  // Whether a worker left because it was asked to stop.
  bool was_stopped() const;
  // The newest step that all workers have completed.
  uint64_t step() const;
  // Returns for which workers calls wait here; nothing if none waits. Drops calls that their
  // workers have given up.
  std::optional<AwaitedWorkers> awaited();
  // Refuses what waits, and will: this worker hangs. The others can ask which one.
  void blame(uint32_t worker);
  // This server was asked to stop, and tells the workers.
  void ask_to_stop();

 private:
  struct Meeting {
    std::map<uint32_t, MeetCall> calls;  // by rank
    std::vector<rpc::Request> requests;  // that wait
  };
  struct WaitingReport {
    uint64_t step = 0;
    rpc::Request request;
  };

  void serve(rpc::Server& server, const rpc::Method& method,
             void (JobDesk::*handler)(rpc::Request));
  void meet(rpc::Request request);
  void forget_meetings_before(uint64_t number);
  void report_step(rpc::Request request);
  void agree_on_stop(uint32_t rank, const StepReport& report);
  // Keeps the report until all workers have reported this step.
  void add_loss(uint32_t rank, const StepReport& report);
  uint64_t reached_by_all() const;
  void drop_unwanted();
  void load(rpc::Request request) { order(OrderKind::kLoad, std::move(request)); }
  void save(rpc::Request request) { order(OrderKind::kSave, std::move(request)); }
  void order(OrderKind kind, rpc::Request request);
  void leave(rpc::Request request);
  void hello(rpc::Request request);
  void answer(rpc::Request& request) const;
  void refuse(rpc::Request& request) const;
  // Returns the workers for which this does not hold.
  std::vector<uint32_t> workers_without(const std::function<bool(uint32_t)>& has_come) const;

  const uint32_t workers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
  std::map<uint64_t, Meeting> meetings_;  // by number
  // Reports by rank, of steps that not all workers have reported.
  std::map<uint64_t, std::map<uint32_t, StepReport>> steps_;
  std::vector<WaitingReport> waiting_;
  std::vector<uint64_t> reached_;  // the newest step that each worker has reported
  // The newest step that each worker has reported, of those that do not know where to stop.
  std::vector<uint64_t> unaware_;
  StepNews news_;
  std::deque<Order> orders_;
  std::set<uint32_t> left_;
  bool was_stopped_ = false;
  std::optional<uint32_t> hung_;
};

}  // namespace lockstep::train
