#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/comm/gpu/comm_device.h"
#include "agent/comm/gpu/device_backend.h"
#include "agent/comm/gpu/nccl_api.h"
#include "agent/comm/gpu/nccl_plan.h"

namespace lockstep::comm {

// Memory that NCCL reserves on a GPU for one communicator, approximately. A connection has 4 MiB
// for large messages (the documented NCCL_BUFFSIZE), and more than that again for small ones. Each
// of up to 32 channels has one connection in the ring and three in the tree. An estimate, not
// measured.
inline constexpr uint64_t kNcclMemoryBytes = uint64_t{32} * 4 * (10 << 20);

// Operations on device memory by NCCL (nccl_plan.h has the mapping and the guarantees). Run with
// one rank.
//
// A group's ranks set up NCCL with its first operation and not before, so that unused groups take
// no GPU memory. They use the communicator on the host: rank 0 broadcasts its id there, on a thread
// of the group's own, so that groups are set up concurrently. The first operation waits for this.
// start() issues on the call's stream, and waits until NCCL has made missing connections, so that
// later work on the stream runs after the operation (device_communicator.h tells callers what
// follows from this).
//
// The thread polls operations under way, and once a second if there are none. It checks
// - whether the stream has reached the operation's end
// - NCCL's asynchronous errors
// - the communicator on the host, which knows immediately when a rank ends or aborts
// - the time limit, which counts from when the stream has reached the operation.
// It reports to the host which operations have begun and which are over; a collective counts as
// entered when the stream has reached it. NCCL does not say for whom a rank waits. A fault aborts
// NCCL's communicator before any operation returns with it. If the fault began here, it also breaks
// the communicator on the host, which tells the other ranks.
class NcclBackend final : public DeviceBackend {
 public:
  struct Options {
    Communicator* host = nullptr;  // outlives the backend, which does not disturb its calls
    std::shared_ptr<CommDevice> device;
    std::shared_ptr<NcclApi> nccl;
    Duration limit = std::chrono::seconds(60);
    std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
    // The limit that set_silence_limit() sets, shared by a backend, its parent and its sub-groups;
    // zero: `limit`. Null: made here.
    std::shared_ptr<std::atomic<Duration>> silence_limit = nullptr;
    // Ranks compare their calls before every collective. This finds mismatches instead of hanging,
    // at the price of a small all_gather on the host, which start() waits for. Sends are not
    // compared. A rank that finds a mismatch returns kConflict; a rank that hears of it first
    // returns the same text as kUnavailable.
    bool check_mismatches = false;
  };
  static Result<std::unique_ptr<DeviceBackend>> create(const Options& options);
  // If there was an operation, waits until the other ranks have arrived and leave too, for at most
  // the limit.
  ~NcclBackend() override;

  void start(std::vector<DeviceCall> calls) override;
  Result<std::unique_ptr<DeviceBackend>> sub_group(Communicator& host) override;
  void fail(const Error& error) override;
  void set_silence_limit(Duration limit) override;
  // A communicator of one rank has no connections, and so takes no memory.
  DeviceTraits device_traits() const override {
    return {.is_stream_ordered = true, .memory_bytes = group_->size() > 1 ? kNcclMemoryBytes : 0};
  }
  std::string name() const override { return "NCCL " + nccl_version_text(nccl_.version()); }
  CollectiveCounts counts() const override { return {entered_.load(), completed_.load()}; }

 private:
  // One call from its issue to its end.
  struct Pending {
    DeviceCall call;
    NcclPlan plan;
    std::shared_ptr<void> scratch;
    size_t scratch_bytes = 0;
    std::unique_ptr<Mark> begin;  // both null until issued; they stay null if issuing failed
    std::unique_ptr<Mark> end;
    Duration limit{};
    bool is_running = false;  // the stream has reached it
    TimePoint since{};
  };
  using PendingList = std::list<Pending>;

  NcclBackend(const Options& options, std::unique_ptr<Communicator> group,
              std::unique_ptr<ActivityReport> report);
  TimePoint now() const { return options_.clock->now(); }
  // For the callers' threads.
  Status prepare(std::vector<DeviceCall>& calls, PendingList& pending);
  Status issue(PendingList& pending);
  Status issue_steps(PendingList& pending);
  Status run_local(const Pending& pending, const std::vector<LocalStep>& steps);
  Status check_headers(const PendingList& pending);
  Status wait_formed();
  Status wait_connected();
  std::byte* at(const Pending& pending, NcclPlace place) const;

  // For the watcher thread.
  void wait_for_work(Duration interval);
  void report_begun(Pending& pending);
  void report_completed(const Pending& pending);
  void watch();
  void form_on_first_operation();
  Status form();
  void poll_once();
  Status poll_pending(Pending& pending, TimePoint when);
  void end_pending(const Error& error);
  void shut_down();

  // For any thread.
  Duration limit() const;
  std::optional<Error> broken();
  Error break_all(const Error& error);
  Status take_scratch(Pending& pending);
  void give_back(Pending& pending);

  const Options options_;
  NcclApi& nccl_;
  const std::unique_ptr<Communicator> group_;  // same ranks: for ids, headers, faults
  const std::unique_ptr<ActivityReport> report_;
  std::atomic<uint64_t> entered_{0};
  std::atomic<uint64_t> completed_{0};

  std::mutex issue_mutex_;        // one start() at a time
  std::mutex nccl_mutex_;         // one call of NCCL's at a time
  NcclApi::Comm comm_ = nullptr;  // made and ended by the watcher; null: none, or aborted

  std::mutex mutex_;
  std::condition_variable changed_;
  PendingList pending_;
  std::multimap<size_t, std::shared_ptr<void>> scratch_;  // unused, by size
  std::optional<Error> broken_;
  bool has_operation_ = false;  // an operation was started
  bool formed_ = false;
  bool stopping_ = false;
  std::thread watcher_;  // last
};

}  // namespace lockstep::comm
