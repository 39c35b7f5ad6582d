// Gradients of which each rank keeps the sums of its shard, on ranks that are threads.
#include "agent/parallel/shard/sharded_gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <latch>
#include <memory>
#include <utility>
#include <vector>

#include "tests/agent/parallel/shard/shard_values.h"

namespace lockstep::parallel {
namespace {

struct Setup {
  ModelDesign design = sharded_models().front();
  int shards = 2;  // ranks that divide the gradients; groups of them hold the same
  bool is_whole = false;
  bool is_bf16 = false;
};

// Returns small integers, whose sums bf16 represents exactly, for an arena without padding.
std::vector<float> gradients_of(const ParameterArena& arena, int rank, int64_t micro_batch) {
  std::vector<float> values(static_cast<size_t>(arena.count));
  for (const ArenaEntry& entry : arena.entries) {
    for (int64_t i = entry.offset; i < entry.offset + entry.count; ++i) {
      values[static_cast<size_t>(i)] =
          static_cast<float>((i * 7 + rank * 5 + micro_batch * 3) % 9 - 4);
    }
  }
  return values;
}

// A rank with its gradients. Memory has NANs wherever the sink does not write.
class Rank {
 public:
  Rank(const Setup& setup, comm::Communicator& world)
      : setup_(setup),
        world_(world),
        shards_(world.split(world.rank() / setup.shards, world.rank()).value()),
        replicas_(world.split(world.rank() % setup.shards, world.rank()).value()),
        layout_(sharded_layout(setup.design, {.ranks = setup.shards})),
        places_(setup.is_whole ? GradientPlaces() : gradient_places(setup.design, layout_)),
        gradients_(
            static_cast<size_t>(setup.is_whole ? layout_.arena().count : layout_.shard_count()),
            NAN),
        buffers_(static_cast<size_t>(places_.count), NAN),
        travelling_(setup.is_whole ? gradients_.size() : buffers_.size(),
                    kernels::Bf16{.bits = 0x7fc0}),
        sink_(ShardedGradients::create({.layout = layout_,
                                        .places = places_,
                                        .gradients = gradients_.data(),
                                        .buffers = buffers_.data(),
                                        .travelling = setup.is_bf16 ? travelling_.data() : nullptr},
                                       {.shards = *shards_, .replicas = *replicas_},
                                       kernels::cpu_ops(),
                                       {.compute = compute_, .communication = communication_})
                  .value()) {}

  // Adds gradients of the parameters [first, last], from the last one down. A tied embedding gets
  // them in two parts: the head's come first.
  Status add(const std::vector<float>& values, int64_t first, int64_t last) {
    for (int64_t id = last; id >= first; --id) {
      add_to(id, values, is_split(id) ? 0.5f : 1);
      TRY(sink_.ready(id));
    }
    return {};
  }
  Status backward(const std::vector<float>& values) {
    if (is_split(0)) add_to(0, values, 0.5f);
    TRY(add(values, 0, last_id()));
    return sink_.end_micro_batch();
  }
  Status step(const std::vector<std::vector<float>>& micro_batches) {
    sink_.begin_step(kernels::cpu_ops());
    for (size_t i = 0; i < micro_batches.size(); ++i) {
      if (i + 1 == micro_batches.size()) sink_.enable_reduction();
      TRY(backward(micro_batches[i]));
    }
    TRY(sink_.finish());
    return sink_.wait();
  }

  // Returns the sums that this rank keeps, in the layout of its shard.
  std::vector<float> sums() const {
    return setup_.is_whole ? shard_of(layout_, shards_->rank(), gradients_) : gradients_;
  }
  std::vector<float> expected_shard(const std::vector<float>& whole) const {
    return shard_of(layout_, shards_->rank(), whole);
  }

  // Returns the values that this rank has received since the last call.
  int64_t received() {
    const uint64_t all = world_.traffic().bytes_received;
    const uint64_t bytes = all - std::exchange(counted_, all);
    return static_cast<int64_t>(bytes / (setup_.is_bf16 ? 2 : 4));
  }
  int64_t moved_count() const {
    int64_t count = 0;
    for (size_t unit = 0; unit < layout_.units().size(); ++unit) {
      count += parallel::moved_count(layout_, unit);
    }
    return count;
  }
  int64_t last_id() const { return layout_.arena().entries.back().id; }
  const ShardLayout& layout() const { return layout_; }
  const ParameterArena& arena() const { return layout_.arena(); }
  comm::Communicator& shards() { return *shards_; }
  ShardedGradients& sink() { return sink_; }

 private:
  bool is_split(int64_t id) const { return id == 0 && is_tied(setup_.design); }
  void add_to(int64_t id, const std::vector<float>& values, float factor) {
    const ArenaEntry& entry = *arena().find(id);
    float* to = sink_.buffer(id);
    for (int64_t i = 0; i < entry.count; ++i) {
      to[i] += factor * values[static_cast<size_t>(entry.offset + i)];
    }
  }

  Setup setup_;
  comm::Communicator& world_;
  std::unique_ptr<comm::Communicator> shards_;
  std::unique_ptr<comm::Communicator> replicas_;
  ShardLayout layout_;
  GradientPlaces places_;
  std::vector<float> gradients_;
  std::vector<float> buffers_;
  std::vector<kernels::Bf16> travelling_;
  kernels::Stream compute_;
  kernels::Stream communication_;
  ShardedGradients sink_;
  uint64_t counted_ = 0;
};

// With zeros in all padding.
TEST(ShardedGradients, AreTheSumsOverRanksAndMicroBatches) {
  for (const ModelDesign& design : sharded_models()) {
    for (const bool is_whole : {false, true}) {
      for (const bool is_bf16 : {false, true}) {
        for (const auto& [ranks, shards] : {std::pair(1, 1), {2, 2}, {4, 4}, {4, 2}, {2, 1}}) {
          SCOPED_TRACE(testing::Message()
                       << family_name(design) << ", whole " << is_whole << ", bf16 " << is_bf16
                       << ", " << ranks << " ranks, " << shards << " shards");
          on_threads(ranks, [&, ranks = ranks, shards = shards](comm::Communicator& world) {
            Rank rank(
                {.design = design, .shards = shards, .is_whole = is_whole, .is_bf16 = is_bf16},
                world);
            for (int64_t step = 0; step < 2; ++step) {
              std::vector<std::vector<float>> mine;
              std::vector<float> expected(static_cast<size_t>(rank.arena().count));
              for (int64_t micro_batch = 2 * step; micro_batch < 2 * step + 2; ++micro_batch) {
                mine.push_back(gradients_of(rank.arena(), world.rank(), micro_batch));
                for (int other = 0; other < ranks; ++other) {
                  const auto theirs = gradients_of(rank.arena(), other, micro_batch);
                  for (size_t i = 0; i < expected.size(); ++i) expected[i] += theirs[i];
                }
              }
              const Status status = rank.step(mine);
              ASSERT_TRUE(status.ok()) << status.error().message;
              EXPECT_EQ(rank.sums(), rank.expected_shard(expected));
            }
          });
        }
      }
    }
  }
}

TEST(ShardedGradients, TravelOncePerStepIfTheyAreWholeElseOncePerMicroBatch) {
  for (const bool is_whole : {false, true}) {
    for (const bool is_bf16 : {false, true}) {
      on_threads(4, [&](comm::Communicator& world) {
        Rank rank({.shards = 4, .is_whole = is_whole, .is_bf16 = is_bf16}, world);
        (void)rank.received();
        const std::vector<float> mine = gradients_of(rank.arena(), world.rank(), 0);
        ASSERT_TRUE(rank.step({mine}).ok());
        EXPECT_EQ(rank.received(), rank.moved_count());
        ASSERT_TRUE(rank.step({mine, mine, mine}).ok());
        EXPECT_EQ(rank.received(), (is_whole ? 1 : 3) * rank.moved_count());
      });
    }
  }
}

// A collective of the group is over when the barrier after it is.
TEST(ShardedGradients, TravelAsSoonAsTheirUnitIsComplete) {
  for (const bool is_whole : {false, true}) {
    on_threads(2, [&](comm::Communicator& world) {
      Rank rank({.is_whole = is_whole}, world);
      rank.sink().begin_step(kernels::cpu_ops());
      rank.sink().enable_reduction();
      const std::vector<float> mine = gradients_of(rank.arena(), world.rank(), 0);
      const ShardUnit& last = rank.layout().units().back();
      ASSERT_LT(last.first_id, last.last_id);
      ASSERT_TRUE(rank.add(mine, last.first_id + 1, last.last_id).ok());
      ASSERT_TRUE(rank.shards().barrier().ok());
      (void)rank.received();
      ASSERT_TRUE(rank.add(mine, last.first_id, last.first_id).ok());
      ASSERT_TRUE(rank.shards().barrier().ok());
      EXPECT_EQ(rank.received(), last.piece);
      ASSERT_TRUE(rank.sink().finish().ok());
    });
  }
}

// Both addends and their sum.
TEST(ShardedGradients, AreRoundedToBf16IfTheyTravelSo) {
  for (const bool is_whole : {false, true}) {
    on_threads(2, [&](comm::Communicator& world) {
      Rank rank({.design = sharded_models().back(), .is_whole = is_whole, .is_bf16 = true}, world);
      const auto sent = [&](int64_t turn) {
        const auto values = drawn_values(rank.arena(), turn);
        return widened(rounded(sharded_models().back(), rank.arena(), values, 0, 0));
      };
      std::vector<float> sum = sent(0);
      const std::vector<float> other = sent(1);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
      ASSERT_TRUE(rank.step({drawn_values(rank.arena(), world.rank())}).ok());
      const auto expected = widened(rounded(sharded_models().back(), rank.arena(), sum, 0, 0));
      EXPECT_NE(expected, sum);
      EXPECT_EQ(rank.sums(), rank.expected_shard(expected));
    });
  }
}

TEST(ShardedGradients, ReturnTheErrorOfTheCommunicator) {
  for (const ModelDesign& design : sharded_models()) {
    for (const bool is_whole : {false, true}) {
      for (const int shards : {1, 2, 4}) {
        SCOPED_TRACE(testing::Message() << family_name(design) << ", whole " << is_whole << ", "
                                        << shards << " shards");
        std::latch formed(4);
        on_threads(4, [&](comm::Communicator& world) {
          Rank rank({.design = design, .shards = shards, .is_whole = is_whole}, world);
          formed.arrive_and_wait();
          if (world.rank() == 3) {
            world.abort("gone");
            return;
          }
          const Status status = rank.step({gradients_of(rank.arena(), world.rank(), 0)});
          ASSERT_FALSE(status.ok());
          EXPECT_EQ(status.error().blame, Blame::kPeer);
          EXPECT_NE(status.error().message.find("rank 3"), std::string::npos)
              << status.error().message;
        });
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel
