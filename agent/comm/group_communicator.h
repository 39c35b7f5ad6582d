#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/comm/core.h"

namespace lockstep::comm {

// The communicator of the world or of a sub-group: checks calls, and passes operations to the core.
class GroupCommunicator final : public Communicator {
 public:
  GroupCommunicator(std::shared_ptr<Core> core, std::shared_ptr<Group> group)
      : core_(std::move(core)), group_(std::move(group)) {}
  ~GroupCommunicator() override { core_->close_group(*group_); }

  using Communicator::run;
  using Communicator::start;
  int rank() const override { return group_->rank; }
  int size() const override { return static_cast<int>(group_->ranks.size()); }
  Work start(std::span<const Call> calls) override;
  Status run(std::span<const Call> calls) override;
  Result<std::unique_ptr<Communicator>> sub_group(const std::vector<int>& ranks) override;
  std::unique_ptr<ActivityReport> make_report() override;
  void abort(const std::string& reason) override;
  void set_silence_limit(Duration limit) override { core_->set_operation_limit(limit); }
  Status health() const override;
  int suspect() const override;
  CollectiveCounts counts() const override;
  Traffic traffic() const override { return core_->traffic(); }
  const HostMap& hosts() const override { return group_->hosts; }
  std::string path_to(int rank) const override;
  std::string describe() const override;

  // Runs the first operation of a world: returns when all ranks have joined, within this time.
  Status form(Duration limit);

 private:
  Result<Operation::Start> prepare(const Call& call) const;
  Result<std::vector<Operation::Start>> prepare_all(std::span<const Call> calls) const;

  std::shared_ptr<Core> core_;
  std::shared_ptr<Group> group_;
};

}  // namespace lockstep::comm
