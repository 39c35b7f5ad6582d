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

namespace lockstep {

// What NCCL takes of a GPU for one communicator, about: a connection has 4 MiB for large messages
// (NCCL_BUFFSIZE as it is documented) and as much again and more for small ones, and a channel has
// one in the ring and three in the tree, of up to 32 channels. An estimate, not measured.
inline constexpr uint64_t kNcclMemoryBytes = uint64_t{32} * 4 * (10 << 20);

// Operations on device memory by NCCL (nccl_plan.h says how, and what is promised). Not run on a
// GPU.
//
// With the first operation, and not before, so that groups that are never used take no memory of
// the GPU, the ranks meet through the communicator on the host: rank 0's id is broadcast there, on
// a thread of the group's own, so that groups meet side by side; that operation waits for it.
// start() issues on the call's stream, with NCCL's connections made where they were missing, so
// that what is issued on the stream afterwards comes behind the operation: start() waits for them
// (device_communicator.h says what callers make of it).
//
// The thread looks at what is under way, and once a second where nothing is: whether the stream has
// come to the operation's end, NCCL's asynchronous errors, the communicator on the host (which
// knows at once when a rank ends or aborts), and the time limit, which counts from when the stream
// has come to the operation. It tells the host's report what has begun and is over: collectives
// count as entered when the stream has come to them. Whom a rank waits for NCCL doesn't say. A
// fault aborts NCCL's communicator, before any operation returns with it, and, if it began here,
// breaks the one on the host, which tells the other ranks.
class NcclBackend final : public DeviceBackend {
 public:
  struct Options {
    Communicator* host = nullptr;  // outlives the backend; its calls are not disturbed
    std::shared_ptr<CommDevice> device;
    std::shared_ptr<NcclApi> nccl;
    Duration limit = std::chrono::seconds(60);
    std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
    // What set_silence_limit() says, to a backend and to those of its sub-groups and its parent;
    // zero: `limit`. Null: of a new family.
    std::shared_ptr<std::atomic<Duration>> silence_limit = nullptr;
    // Ranks compare what they call before every collective: finds mismatches instead of hanging, at
    // the price of a small all_gather on the host, which start() waits for. Sends aren't compared.
    // kConflict where it is found; ranks that hear of it before have its words as kUnavailable.
    bool check_mismatches = false;
  };
  static Result<std::unique_ptr<DeviceBackend>> create(const Options& options);
  // Waits, where there was an operation, until the other ranks have come and leave too, as long as
  // the limit.
  ~NcclBackend() override;

  void start(std::vector<DeviceCall> calls) override;
  Result<std::unique_ptr<DeviceBackend>> sub_group(Communicator& host) override;
  void fail(const Error& error) override;
  void set_silence_limit(Duration limit) override;
  // A communicator of one rank has no connections.
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
    std::unique_ptr<Mark> begin;  // both null until issued: for good where issuing failed
    std::unique_ptr<Mark> end;
    Duration limit{};
    bool is_running = false;  // the stream has come to it
    TimePoint since{};
  };
  using PendingList = std::list<Pending>;

  NcclBackend(const Options& options, std::unique_ptr<Communicator> group,
              std::unique_ptr<ActivityReport> report);
  TimePoint now() const { return options_.clock->now(); }
  // The callers'.
  Status prepare(std::vector<DeviceCall>& calls, PendingList& pending);
  Status issue(PendingList& pending);
  Status issue_steps(PendingList& pending);
  Status run_local(const Pending& pending, const std::vector<LocalStep>& steps);
  Status check_headers(const PendingList& pending);
  Status wait_formed();
  Status settle();
  std::byte* at(const Pending& pending, NcclPlace place) const;

  // The thread's.
  void wait_for_work(Duration look);
  void tell_begun(Pending& pending);
  void tell_over(const Pending& pending);
  void watch();
  void form_when_wanted();
  Status form();
  void look_once();
  Status look_at(Pending& pending, TimePoint when);
  void end_pending(const Error& error);
  void leave();

  // Anyone's.
  Duration limit() const;
  std::optional<Error> broken();
  Error break_all(const Error& error);
  Status take_scratch(Pending& pending);
  void give_back(Pending& pending);

  const Options options_;
  NcclApi& nccl_;
  const std::unique_ptr<Communicator> group_;  // of the same ranks: ids, headers, faults
  const std::unique_ptr<ActivityReport> report_;
  std::atomic<uint64_t> entered_{0};
  std::atomic<uint64_t> completed_{0};

  std::mutex issue_mutex_;        // one start() at a time
  std::mutex nccl_mutex_;         // one call of NCCL's at a time
  NcclApi::Comm comm_ = nullptr;  // made and ended by the thread; null: none, or aborted

  std::mutex mutex_;
  std::condition_variable changed_;
  PendingList pending_;
  std::multimap<size_t, std::shared_ptr<void>> scratch_;  // not in use, by size
  std::optional<Error> broken_;
  bool wanted_ = false;  // an operation was started
  bool formed_ = false;
  bool stopping_ = false;
  std::thread watcher_;  // last
};

}  // namespace lockstep
