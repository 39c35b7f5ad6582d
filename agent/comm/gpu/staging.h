#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/comm/gpu/comm_device.h"
#include "agent/comm/gpu/device_backend.h"
#include "agent/comm/gpu/staging_plan.h"

namespace lockstep::comm {

// Operations on device memory by way of page-locked host memory and a communicator there: for GPUs
// that NCCL cannot serve. A thread copies one part in while the previous one travels, and copies
// each out afterwards. Two parts of an operation are under way at a time, so that 4 * kStagingBytes
// of memory serve an operation of any size. The memory is kept for the next one.
//
// Every part carries the count of the whole operation. So ranks whose calls differ find this in the
// first part, even if their parts are equally long.
//
// Sums and their order are those of the communicator on the host, part by part (plan_staging). Work
// issued on the call's stream after wait() has returned runs after the operation. Work issued
// before that is not ordered with it.
class StagingBackend final : public DeviceBackend {
 public:
  struct Options {
    Communicator* host = nullptr;  // outlives the backend, which does not disturb its calls
    std::shared_ptr<CommDevice> device;
    size_t chunk_bytes = kStagingBytes;
  };
  static Result<std::unique_ptr<DeviceBackend>> create(const Options& options);
  ~StagingBackend() override;

  void start(std::vector<DeviceCall> calls) override;
  Result<std::unique_ptr<DeviceBackend>> sub_group(Communicator& host) override;
  void fail(const Error& error) override;
  void set_silence_limit(Duration limit) override { group_->set_silence_limit(limit); }
  DeviceTraits device_traits() const override { return {}; }
  std::string name() const override { return "host memory"; }
  CollectiveCounts counts() const override { return {entered_.load(), completed_.load()}; }

 private:
  enum class Stage : uint8_t { kFree, kCopyingIn, kWaiting, kRunning, kCopyingOut };
  struct Memory {
    std::shared_ptr<void> data;
    size_t bytes = 0;
  };
  struct Slot {
    Stage stage = Stage::kFree;
    size_t chunk = 0;
    Memory in;
    Memory out;
    std::unique_ptr<Mark> mark;
    Work work;
  };
  struct Job {
    DeviceCall call;
    std::vector<int64_t> send_counts;
    std::vector<int64_t> receive_counts;
    std::vector<StagingChunk> chunks;
    std::unique_ptr<Mark> begin;  // after everything the caller had issued
    bool is_ready = false;        // the stream has passed `begin`
    size_t begun = 0;             // chunks
    size_t issued = 0;
    size_t done = 0;
    Slot slots[kStagingSlots];
  };
  // Chunks of one lane go to the host in order; lanes are independent.
  using Lane = std::pair<Collective, int>;

  StagingBackend(Options options, std::unique_ptr<Communicator> group);
  Status make_streams();
  Status check(const std::vector<DeviceCall>& calls) const;
  static Lane lane_of(const Call& call);
  std::optional<Error> broken();
  void work();
  bool step_all();
  Result<bool> step(Job& job);
  Result<bool> step(Job& job, Slot& slot);
  Status copy_in(Job& job, Slot& slot);
  bool issue(Job& job, Slot& slot);
  Status copy_out(Job& job, Slot& slot);
  bool may_end(Job& job);
  void finish(Job& job, const Status& status);
  Result<Memory> take_memory(size_t bytes);
  void give_back(Job& job);

  const Options options_;
  const std::unique_ptr<Communicator> group_;  // same ranks; only for the chunks
  std::shared_ptr<void> stream_in_;
  std::shared_ptr<void> stream_out_;
  std::atomic<uint64_t> entered_{0};
  std::atomic<uint64_t> completed_{0};

  // For the worker thread.
  std::list<Job> jobs_;
  std::map<Lane, std::deque<Job*>> lanes_;               // jobs with chunks still to be issued
  std::multimap<size_t, std::shared_ptr<void>> memory_;  // page-locked, unused, by size
  // May be in use after a fault; kept until the end.
  std::vector<std::shared_ptr<void>> quarantined_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Job> fresh_;
  std::optional<Error> broken_;
  bool stopping_ = false;
  std::thread worker_;  // last
};

}  // namespace lockstep::comm
