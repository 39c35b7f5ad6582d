#include "agent/parallel/tensor_sum_exchange.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "agent/parallel/works.h"

namespace lockstep::parallel {
namespace {

// The gradients of one parameter that are added up.
struct Sum {
  int64_t id = 0;     // of the parameter
  int64_t local = 0;  // element within the rank's part
  int64_t count = 0;
  comm::Communicator* group = nullptr;
};

class TensorSumExchange final : public GradientExchange {
 public:
  // `sums`: ascending by id.
  TensorSumExchange(std::unique_ptr<GradientExchange> inner, const TensorSumOptions& options,
                    std::vector<Sum> sums, std::unique_ptr<comm::Communicator> owned,
                    kernels::Stream& compute)
      : inner_(std::move(inner)),
        sums_(std::move(sums)),
        each_micro_batch_(options.each_micro_batch),
        observer_(options.observe_waits),
        owned_(std::move(owned)),
        compute_(compute) {}

  void expect_update(const UpdateRequest& request) override { inner_->expect_update(request); }
  void begin_step(const kernels::OpTable& ops) override {
    is_final_ = each_micro_batch_;
    inner_->begin_step(ops);
  }
  void enable_reduction() override {
    is_final_ = true;
    inner_->enable_reduction();
  }
  float* buffer(int64_t id) override { return inner_->buffer(id); }
  Status ready(int64_t id) override {
    if (is_final_) TRY(add_up(id));
    return inner_->ready(id);
  }
  Status end_micro_batch() override {
    is_final_ = each_micro_batch_;
    return inner_->end_micro_batch();
  }
  Status finish() override { return inner_->finish(); }
  Status update(const UpdateRequest& request) override { return inner_->update(request); }
  Status wait() override {
    TRY(wait_for(works_));
    return inner_->wait();
  }

  Status parameters_written(int64_t step) override { return inner_->parameters_written(step); }
  std::span<const optim::OptimizerState> states() const override { return inner_->states(); }
  const std::vector<Bucket>& buckets() const override { return inner_->buckets(); }
  OffloadCounts offload_counts() const override { return inner_->offload_counts(); }
  SharedTraffic shared_traffic() const override { return inner_->shared_traffic(); }

 private:
  Status add_up(int64_t id) {
    const auto sum =
        std::lower_bound(sums_.begin(), sums_.end(), id,
                         [](const Sum& each, int64_t wanted) { return each.id < wanted; });
    if (sum == sums_.end() || sum->id != id) return {};
    const comm::CommBuffer gradients{.data = inner_->buffer(id) + sum->local,
                                     .count = sum->count,
                                     .type = comm::DataType::kF32,
                                     .device = compute_.device(),
                                     .stream = compute_.handle()};
    if (sum->group->device_traits().is_stream_ordered) {
      works_.push_back(sum->group->start_all_reduce(gradients, comm::ReduceOp::kSum));
      return {};
    }
    if (observer_) observer_(true);
    const Status status = sum->group->all_reduce(gradients, comm::ReduceOp::kSum);
    if (observer_) observer_(false);
    return status;
  }

  std::unique_ptr<GradientExchange> inner_;
  std::vector<Sum> sums_;
  bool each_micro_batch_;
  std::function<void(bool)> observer_;
  std::unique_ptr<comm::Communicator> owned_;  // the group of shared elements, if there are any
  kernels::Stream& compute_;
  bool is_final_ = false;          // gradients that become ready are not added to any more
  std::vector<comm::Work> works_;  // stream-ordered ones, whose results are still to be had
};

// Returns the group of the neighbours that have the same elements as this rank.
Result<std::unique_ptr<comm::Communicator>> group_of_sharers(const TensorShard& shard,
                                                             int64_t sharers,
                                                             comm::Communicator& tensor_group) {
  std::vector<int> ranks;
  const int64_t first = shard.index / sharers * sharers;
  for (int64_t i = 0; i < sharers; ++i) ranks.push_back(static_cast<int>(first + i));
  return tensor_group.sub_group(ranks);
}

}  // namespace

Result<std::unique_ptr<GradientExchange>> with_tensor_sums(std::unique_ptr<GradientExchange> inner,
                                                           const TensorSumOptions& options,
                                                           comm::Communicator& tensor_group,
                                                           kernels::Stream& compute) {
  const std::vector<Parameter> table = parameter_table(options.design);
  std::vector<Sum> sums;
  int64_t sharers = 1;
  for (const ArenaEntry& entry : options.arena.entries) {
    const Parameter& parameter = table[static_cast<size_t>(entry.id)];
    if (options.splits_rows && parameter.works_on_rows) {
      sums.push_back({.id = entry.id, .count = entry.count, .group = &tensor_group});
      continue;
    }
    const SharedRun shared = shared_run(parameter, entry, options.arena.shard);
    if (shared.count == 0) continue;
    CHECK(sharers == 1 || sharers == shared.shards);
    sharers = shared.shards;
    sums.push_back({.id = entry.id, .local = shared.local, .count = shared.count});
  }
  if (sums.empty()) return inner;
  std::unique_ptr<comm::Communicator> owned;
  if (sharers > 1) {
    TRY_ASSIGN(owned, group_of_sharers(options.arena.shard, sharers, tensor_group));
  }
  for (Sum& sum : sums) {
    if (sum.group == nullptr) sum.group = owned.get();
  }
  return std::unique_ptr<GradientExchange>(std::make_unique<TensorSumExchange>(
      std::move(inner), options, std::move(sums), std::move(owned), compute));
}

}  // namespace lockstep::parallel
