#include "agent/parallel/tensor_sum_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "agent/comm/make_communicator.h"

namespace lockstep::parallel {
namespace {

constexpr ModelConfig kLlama{.layers = 2,
                             .width = 16,
                             .heads = 4,
                             .context = 8,
                             .vocabulary = 29,
                             .family = Family::kLlama,
                             .hidden = 24,
                             .tied = false,
                             .kv_heads = 2};

// Keeps the gradients as they are when they become ready.
class Recorder final : public GradientExchange {
 public:
  explicit Recorder(const ParameterArena& arena)
      : arena_(arena), gradients_(static_cast<size_t>(arena.count)), seen_(gradients_) {}
  float seen(int64_t element) const { return seen_[static_cast<size_t>(element)]; }

  void begin_step(const kernels::OpTable&) override {}
  void enable_reduction() override {}
  float* buffer(int64_t id) override { return gradients_.data() + arena_.find(id)->offset; }
  Status ready(int64_t id) override {
    const ArenaEntry& entry = *arena_.find(id);
    for (int64_t i = 0; i < entry.count; ++i) {
      const auto at = static_cast<size_t>(entry.offset + i);
      seen_[at] = gradients_[at];
    }
    return {};
  }
  Status end_micro_batch() override { return {}; }
  Status finish() override { return {}; }
  Status update(const UpdateRequest&) override { return {}; }
  Status wait() override { return {}; }
  std::span<const optim::OptimizerState> states() const override { return {}; }
  const std::vector<Bucket>& buckets() const override { return buckets_; }

 private:
  ParameterArena arena_;
  std::vector<Bucket> buckets_;
  std::vector<float> gradients_;
  std::vector<float> seen_;
};

// One rank of a tensor group. The exchange has the recorder.
struct Rank {
  Rank(const ModelConfig& config, comm::Communicator& group, bool each_micro_batch)
      : arena(parameter_arena(config, whole_model(config), {group.rank(), group.size()})) {
    auto made = std::make_unique<Recorder>(arena);
    recorder = made.get();
    exchange =
        with_tensor_sums(std::move(made),
                         {.design = config, .arena = arena, .each_micro_batch = each_micro_batch},
                         group, stream)
            .value();
  }
  // Gives the gradients of a micro-batch, which are 1 + place everywhere.
  Status backward(int64_t place) {
    for (auto entry = arena.entries.rbegin(); entry != arena.entries.rend(); ++entry) {
      std::fill_n(exchange->buffer(entry->id), entry->count, static_cast<float>(1 + place));
      TRY(exchange->ready(entry->id));
    }
    return exchange->end_micro_batch();
  }

  ParameterArena arena;
  kernels::Stream stream;
  Recorder* recorder = nullptr;
  std::unique_ptr<GradientExchange> exchange;
};

void on_ranks(int size, const std::function<void(comm::Communicator&)>& body) {
  auto world = comm::make_thread_world(size).value();
  std::vector<std::jthread> ranks;
  for (auto& communicator : world) ranks.emplace_back([&] { body(*communicator); });
}

// Ranks 0 and 1, with gradients of 1 and 2, have one head, ranks 2 and 3 the other.
void expect_seen(const Rank& rank, int place, bool is_summed) {
  const std::vector<Parameter> table = parameter_table(kLlama);
  for (const ArenaEntry& entry : rank.arena.entries) {
    const SharedRun shared =
        shared_run(table[static_cast<size_t>(entry.id)], entry, rank.arena.shard);
    for (int64_t i = 0; i < entry.count; ++i) {
      const bool is_shared = i >= shared.local && i < shared.local + shared.count;
      const int sum = place < 2 ? 1 + 2 : 3 + 4;
      ASSERT_EQ(rank.recorder->seen(entry.offset + i),
                static_cast<float>(is_summed && is_shared ? sum : 1 + place))
          << table[static_cast<size_t>(entry.id)].name << " at " << i;
    }
  }
}

TEST(TensorSums, AreMadeOfSharedElementsBeforeTheInnerExchangeGetsThem) {
  on_ranks(4, [](comm::Communicator& group) {
    Rank rank(kLlama, group, /*each_micro_batch=*/false);
    for (int step = 0; step < 2; ++step) {
      rank.exchange->begin_step(kernels::cpu_ops());
      ASSERT_TRUE(rank.backward(group.rank()).ok());
      expect_seen(rank, group.rank(), /*is_summed=*/false);
      rank.exchange->enable_reduction();
      ASSERT_TRUE(rank.backward(group.rank()).ok());
      expect_seen(rank, group.rank(), /*is_summed=*/true);
      ASSERT_TRUE(rank.exchange->wait().ok());
    }
  });
}

TEST(TensorSums, AreMadeOfEachMicroBatchIfItIsReducedAlone) {
  on_ranks(4, [](comm::Communicator& group) {
    Rank rank(kLlama, group, /*each_micro_batch=*/true);
    rank.exchange->begin_step(kernels::cpu_ops());
    ASSERT_TRUE(rank.backward(group.rank()).ok());
    expect_seen(rank, group.rank(), /*is_summed=*/true);
  });
}

TEST(TensorSums, LeaveTheExchangeAsItIsIfNothingIsShared) {
  on_ranks(2, [](comm::Communicator& group) {
    const Rank rank(kLlama, group, /*each_micro_batch=*/false);
    EXPECT_EQ(rank.exchange.get(), rank.recorder);
  });
}

TEST(TensorSums, ReturnTheErrorsOfTheGroup) {
  on_ranks(4, [](comm::Communicator& group) {
    Rank rank(kLlama, group, /*each_micro_batch=*/true);
    rank.exchange->begin_step(kernels::cpu_ops());
    if (group.rank() == 1) {
      group.abort("for a test");
      return;
    }
    const Status status = rank.backward(group.rank());
    EXPECT_TRUE(group.rank() != 0 || status.error().code == Code::kUnavailable);
  });
}

}  // namespace
}  // namespace lockstep::parallel
