#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "agent/comm/gpu/nccl_api.h"

namespace lockstep::test {

// An NCCL whose ranks are threads of this process and whose kernels are tasks of fake streams:
// - A collective runs when the streams of all ranks have reached it, in the order of the calls of
//   its communicator, whatever they are. Calls that do not match hang, as in NCCL.
// - Making a communicator and issuing a group are "in progress" for some calls of in_progress(),
//   and until the ranks are connected. For the first collective of a communicator, that is when all
//   its ranks have issued it; for the first message between two ranks, when both have.
// - It aborts the process on use of a communicator that is not ready or was destroyed, on a group
//   that is not closed, and on sums that NCCL does not have.
class FakeNccl final : public comm::NcclApi {
 public:
  // Puts a kernel into a stream's order; the kernel waits for those of other ranks.
  using Issue = std::function<void(void* stream, std::function<void()> kernel)>;

  FakeNccl();
  // For streams other than fake_device.h's.
  explicit FakeNccl(Issue issue);
  ~FakeNccl() override;

  int version() const override { return 22809; }
  Result<comm::NcclId> make_id() override;
  Result<Comm> init(const Init& init) override;
  Result<bool> in_progress(Comm comm) override;
  Status begin_group() override;
  Status issue(Comm comm, const comm::NcclCall& call) override;
  Status end_group() override;
  Status finalize(Comm comm) override;
  void destroy(Comm comm) override;
  void abort(Comm comm) override;

  // Sets the asynchronous error of all communicators from now on, as a broken link does.
  void break_links(const std::string& words);
  // Refuses calls of issue() from now on.
  void refuse_calls();
  // Returns how many communicators the ranks have ever made.
  int made() const;
  // Returns how many communicators were neither destroyed nor aborted.
  int alive() const;
  int aborted() const;

 private:
  struct Rank;
  struct World;
  struct Step;
  void carry_out(const Step& step);
  void run_collective(World& world, uint64_t number);

  const Issue issue_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t ids_ = 0;
  std::map<uint64_t, std::shared_ptr<World>> worlds_;
  std::string broken_;
  bool refuses_ = false;
  int made_ = 0;
  int alive_ = 0;
  int aborted_ = 0;
};

}  // namespace lockstep::test
