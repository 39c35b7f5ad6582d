#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "agent/comm/gpu/comm_device.h"

namespace lockstep::test {

// A stream: one thread runs its tasks in order, some time after they were issued. A task may wait
// for tasks of other streams, as the kernel of a collective does.
class FakeStream {
 public:
  FakeStream();
  ~FakeStream();
  void issue(std::function<void()> task);
  void drain();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last
};

// A GPU whose memory is the host's and whose streams are threads. Nothing is done yet when a call
// returns, which exposes callers that do not wait. Calls can be made to fail. Outlives its streams.
class FakeDevice final : public comm::CommDevice {
 public:
  explicit FakeDevice(int index) : index_(index) {}
  kernels::Device device() const override { return {kernels::DeviceType::kCuda, index_}; }

  Result<std::shared_ptr<void>> create_stream() override;
  Result<std::shared_ptr<void>> allocate(size_t bytes, std::string_view by) override;
  Result<std::shared_ptr<void>> allocate_pinned(size_t bytes, std::string_view by) override;
  Result<std::unique_ptr<comm::Mark>> mark(void* stream) override;
  Status copy(void* stream, const kernels::CopyArgs& args) override;
  Status to_boolean(void* stream, comm::DataType type, const comm::BooleanArgs& args) override;
  Status divide(void* stream, comm::DataType type, const DivideArgs& args) override;

  // Carries out this many more copies, truths and divisions; refuses later ones.
  void fail_after(int calls);
  // Returns how many page-locked bytes were ever allocated.
  size_t pinned_bytes() const;
  // Waits for everything that was issued.
  void drain();

 private:
  Status issue(void* stream, std::function<void()> task);

  const int index_;
  mutable std::mutex mutex_;
  std::set<FakeStream*> streams_;
  int calls_left_ = -1;  // -1: any number
  size_t pinned_bytes_ = 0;
};

inline FakeStream& fake_stream(void* handle) {
  return *static_cast<FakeStream*>(handle);
}

}  // namespace lockstep::test
