#pragma once

#include <memory>

#include "agent/comm/communicator.h"
#include "agent/comm/core.h"

namespace lockstep {

// The communicator of the world or of a sub-group: checks calls, and hands operations to the core.
class GroupCommunicator final : public Communicator {
 public:
  GroupCommunicator(std::shared_ptr<Core> core, std::shared_ptr<Group> group)
      : core_(std::move(core)), group_(std::move(group)) {}

  int rank() const override { return group_->rank; }
  int size() const override { return static_cast<int>(group_->ranks.size()); }
  Work start_all_reduce(const CommBuffer& buffer, ReduceOp op) override;
  Work start_broadcast(const CommBuffer& buffer, int root) override;
  Status all_reduce(const CommBuffer& buffer, ReduceOp op) override;
  Status broadcast(const CommBuffer& buffer, int root) override;
  Status barrier() override;
  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  Result<std::unique_ptr<Communicator>> sub_group(const std::vector<int>& ranks) override;
  void abort(const std::string& reason) override;
  int suspect() const override;
  CollectiveCounts counts() const override;
  Traffic traffic() const override { return core_->traffic(); }
  std::string describe() const override;

  // The first operation of a world: returns when all ranks are there, within this time.
  Status form(Duration limit);

 private:
  std::shared_ptr<Operation> operation(CollectiveKind kind) const;
  Result<std::shared_ptr<Operation>> all_reduce_operation(const CommBuffer& buffer, ReduceOp op);
  Result<std::shared_ptr<Operation>> broadcast_operation(const CommBuffer& buffer, int root);
  Work start(Result<std::shared_ptr<Operation>> operation);
  Status run(Result<std::shared_ptr<Operation>> operation);

  std::shared_ptr<Core> core_;
  std::shared_ptr<Group> group_;
};

}  // namespace lockstep
