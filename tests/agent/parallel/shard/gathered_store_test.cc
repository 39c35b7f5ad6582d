// Blocks that are gathered from the shards of ranks, which are threads.
#include "agent/parallel/shard/gathered_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "tests/agent/parallel/offload/far_values.h"
#include "tests/agent/parallel/shard/shard_values.h"

namespace lockstep::parallel {
namespace {

using model::BlockUse;
using model::Pass;

struct Setup {
  ModelDesign design = sharded_models().front();
  ShardingOptions sharding = {};
  bool has_products = false;
  bool is_far = false;
  uint64_t rounding_seed = 0;
};

// A rank with its shard of the parameters that are drawn in a turn.
class Rank {
 public:
  Rank(const Setup& setup, comm::Communicator& group)
      : setup_(setup),
        group_(group),
        layout_(sharded_layout(setup.design, {.ranks = group.size()})),
        places_(parameter_places(setup.design, blocks_of({whole_model(setup.design)}), layout_,
                                 setup.sharding.reshard_after_forward)),
        gathered_(static_cast<size_t>(places_.count), NAN),
        has_copies_(setup.has_products || setup.sharding.gathers_bf16),
        copies_(has_copies_ ? gathered_.size() : 0),
        shard_(static_cast<size_t>(layout_.shard_count())),
        shard_copies_(shard_.size()),
        casts_(setup.design, layout_, setup.rounding_seed, kernels::cpu_ops()),
        far_(setup.is_far ? far_file(layout_.shard_count()) : FarMemory()),
        store_(GatheredStore::create(
                   {.design = setup.design,
                    .blocks = blocks_of({whole_model(setup.design)}),
                    .layout = layout_,
                    .sharding = setup.sharding,
                    .shard = setup.is_far ? nullptr : shard_.data(),
                    .far_shard = setup.is_far ? &far_ : nullptr,
                    .shard_copies = setup.sharding.gathers_bf16 ? shard_copies_.data() : nullptr,
                    .gathered = gathered_.data(),
                    .copies = has_copies_ ? copies_.data() : nullptr,
                    .casts = setup.has_products ? &casts_ : nullptr},
                   group, kernels::cpu_ops(), {compute_, communication_})
                   .value()) {
    write(0);
  }

  // Draws new parameters, as an update writes them to the shard. The store does not know it yet.
  void write(int64_t turn) {
    whole_ = drawn_values(layout_.arena(), turn);
    std::ranges::copy(shard_of(layout_, group_.rank(), whole_), shard_.begin());
    whole_copies_ = rounded(setup_.design, layout_.arena(), whole_, setup_.rounding_seed, turn);
    std::ranges::copy(shard_of(layout_, group_.rank(), whole_copies_), shard_copies_.begin());
    if (setup_.is_far) {
      ASSERT_TRUE(far_.write(0, shard_).ok());
    }
    if (setup_.sharding.gathers_bf16) whole_ = widened(whole_copies_);
  }

  // Expects that a block sees the parameters that were drawn last.
  void expect_whole(const BlockUse& use, std::span<const model::ParamView> views) const {
    const std::vector<int64_t> ids = block_parameters(setup_.design, use.block);
    ASSERT_EQ(views.size(), ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      const ArenaEntry& entry = *layout_.arena().find(ids[i]);
      const auto value = whole_.begin() + entry.offset;
      EXPECT_TRUE(std::equal(value, value + entry.count, views[i].value))
          << "block " << use.block << ", parameter " << ids[i];
      if (setup_.has_products) {
        const auto copy = whole_copies_.begin() + entry.offset;
        EXPECT_TRUE(std::equal(copy, copy + entry.count, views[i].product.bf16()))
            << "block " << use.block << ", copy of parameter " << ids[i];
      } else {
        EXPECT_EQ(views[i].product.data, views[i].value);
      }
    }
  }

  // Uses a block once. Meanwhile `next` arrives, if it is a block.
  void use_block(const BlockUse& use, int64_t next = -1) {
    const auto views = store_.get(use);
    ASSERT_TRUE(views.ok()) << views.error().message;
    if (next >= 0 && next < blocks()) store_.prefetch({.block = next, .pass = use.pass});
    ASSERT_TRUE(group_.barrier().ok());
    if (use.pass != Pass::kBackward || backward_reads(setup_.design, use.block)) {
      expect_whole(use, *views);
    }
    store_.release(use);
  }
  // Uses all blocks in the order of the pass.
  void run(Pass pass) {
    const bool is_backward = pass == Pass::kBackward;
    for (int64_t i = 0; i < blocks(); ++i) {
      const int64_t block = is_backward ? blocks() - 1 - i : i;
      use_block({.block = block, .pass = pass}, is_backward ? block - 1 : block + 1);
    }
  }

  // Returns the values that this rank has received since the last call.
  int64_t received() {
    const uint64_t all = group_.traffic().bytes_received;
    const uint64_t bytes = all - std::exchange(counted_, all);
    return static_cast<int64_t>(bytes / (setup_.sharding.gathers_bf16 ? 2 : 4));
  }
  // Returns the values to receive for blocks [begin, end), each of which is gathered.
  int64_t count_of(int64_t begin, int64_t end) const {
    int64_t count = 0;
    for (int64_t block = begin; block < end; ++block) {
      for (const size_t unit : units_of(setup_.design, layout_, block)) {
        count += moved_count(layout_, unit);
      }
    }
    return count;
  }
  int64_t blocks() const { return block_count(setup_.design); }
  const ShardLayout& layout() const { return layout_; }
  const BlockPlaces& places() const { return places_; }
  GatheredStore& store() { return store_; }

 private:
  Setup setup_;
  comm::Communicator& group_;
  ShardLayout layout_;
  BlockPlaces places_;
  std::vector<float> gathered_;
  bool has_copies_;
  std::vector<kernels::Bf16> copies_;
  std::vector<float> shard_;
  std::vector<kernels::Bf16> shard_copies_;
  ParameterCasts casts_;
  FarMemory far_;
  std::vector<float> whole_;
  std::vector<kernels::Bf16> whole_copies_;
  kernels::Stream compute_;
  kernels::Stream communication_;
  GatheredStore store_;
  uint64_t counted_ = 0;
};

TEST(GatheredStore, ShowsEveryBlockTheWholeParameters) {
  for (const ModelDesign& design : sharded_models()) {
    for (const int ranks : {1, 2, 4}) {
      for (const bool reshards : {false, true}) {
        for (const bool prefetches : {false, true}) {
          for (const bool is_far : {false, true}) {
            SCOPED_TRACE(testing::Message()
                         << family_name(design) << ", " << ranks << " ranks, reshards " << reshards
                         << ", prefetches " << prefetches << ", far " << is_far);
            on_threads(ranks, [&](comm::Communicator& group) {
              Rank rank({.design = design,
                         .sharding = {.reshard_after_forward = reshards, .prefetch = prefetches},
                         .is_far = is_far},
                        group);
              for (const Pass pass :
                   {Pass::kForward, Pass::kBackward, Pass::kForward, Pass::kBackward}) {
                rank.run(pass);
              }
              rank.write(1);
              ASSERT_TRUE(rank.store().updated(1).ok());
              for (const Pass pass : {Pass::kForward, Pass::kBackward, Pass::kEvaluate}) {
                rank.run(pass);
              }
            });
          }
        }
      }
    }
  }
}

TEST(GatheredStore, GathersBlocksForForwardAndAgainForBackwardButTheLastOneOnce) {
  for (const ModelDesign& design : sharded_models()) {
    for (const bool prefetches : {false, true}) {
      on_threads(4, [&](comm::Communicator& group) {
        Rank rank({.design = design, .sharding = {.prefetch = prefetches}}, group);
        for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
          rank.run(Pass::kForward);
          EXPECT_EQ(rank.received(), rank.count_of(0, rank.blocks()));
          rank.run(Pass::kBackward);  // the first block reads nothing there
          EXPECT_EQ(rank.received(), rank.count_of(1, rank.blocks() - 1));
        }
        rank.run(Pass::kEvaluate);
        EXPECT_EQ(rank.received(), rank.count_of(0, rank.blocks()));
        rank.run(Pass::kEvaluate);
        EXPECT_EQ(rank.received(), rank.count_of(0, rank.blocks())) << "the last block was freed";
      });
    }
  }
}

TEST(GatheredStore, KeepsBlocksUntilBackwardIfItDoesNotReshard) {
  for (const ModelDesign& design : sharded_models()) {
    on_threads(2, [&](comm::Communicator& group) {
      Rank rank({.design = design, .sharding = {.reshard_after_forward = false}}, group);
      EXPECT_EQ(rank.places().count, rank.layout().arena().count);
      int64_t all = 0;  // a tied embedding once
      for (size_t unit = 0; unit < rank.layout().units().size(); ++unit) {
        all += moved_count(rank.layout(), unit);
      }
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
        rank.run(Pass::kForward);
        EXPECT_EQ(rank.received(), all);
        rank.run(Pass::kBackward);
        EXPECT_EQ(rank.received(), 0);
      }
      rank.run(Pass::kForward);
      EXPECT_EQ(rank.received(), all);
      ASSERT_TRUE(rank.store().updated(1).ok());
      rank.run(Pass::kForward);
      EXPECT_EQ(rank.received(), all) << "those of an earlier step are of no use";
    });
  }
}

// The last block was kept for a backward, which does not come next.
TEST(GatheredStore, ShowsTheWholeParametersIfForwardComesTwice) {
  for (const ModelDesign& design : sharded_models()) {
    for (const bool reshards : {false, true}) {
      on_threads(2, [&](comm::Communicator& group) {
        Rank rank({.design = design, .sharding = {.reshard_after_forward = reshards}}, group);
        for (const Pass pass :
             {Pass::kForward, Pass::kForward, Pass::kBackward, Pass::kForward, Pass::kBackward}) {
          ASSERT_NO_FATAL_FAILURE(rank.run(pass));
        }
      });
    }
  }
}

TEST(GatheredStore, ReusesTheMemoryOfBlocksThatWereReleased) {
  on_threads(2, [](comm::Communicator& group) {
    Rank rank({}, group);
    EXPECT_LT(rank.places().count, rank.layout().arena().count);
    const BlockUse embedding{.block = 0, .pass = Pass::kForward};
    const BlockUse second{.block = 2, .pass = Pass::kForward};
    const float* value = rank.store().get(embedding)->front().value;
    const float before = *value;
    rank.store().release(embedding);
    EXPECT_EQ(rank.store().get(second)->front().value, value);
    EXPECT_NE(*value, before);
    rank.store().release(second);
    (void)rank.received();
    rank.use_block(embedding);
    EXPECT_EQ(rank.received(), rank.count_of(0, 1));
  });
}

// A collective of the group is over when the barrier after it is.
TEST(GatheredStore, GathersAPrefetchedBlockOnceAndBeforeItIsUsed) {
  for (const bool prefetches : {false, true}) {
    on_threads(2, [&](comm::Communicator& group) {
      Rank rank({.sharding = {.prefetch = prefetches}}, group);
      const BlockUse use{.block = 1, .pass = Pass::kForward};
      rank.store().prefetch(use);
      rank.store().prefetch(use);
      ASSERT_TRUE(group.barrier().ok());
      const int64_t all = rank.count_of(1, 2);
      EXPECT_EQ(rank.received(), prefetches ? all : 0);
      rank.use_block(use);
      EXPECT_EQ(rank.received(), prefetches ? 0 : all);
    });
  }
}

TEST(GatheredStore, ForgetsWhatItPrefetchedBeforeAnUpdate) {
  on_threads(2, [](comm::Communicator& group) {
    Rank rank({}, group);
    const BlockUse use{.block = 1, .pass = Pass::kForward};
    rank.store().prefetch(use);
    ASSERT_TRUE(rank.store().settle().ok());
    rank.write(1);
    ASSERT_TRUE(rank.store().updated(1).ok());
    rank.use_block(use);
    EXPECT_EQ(rank.received(), 2 * rank.count_of(1, 2));
  });
}

TEST(GatheredStore, GathersTheBitsOfABf16CastInHalfTheBytes) {
  for (const ModelDesign& design : sharded_models()) {
    for (const int ranks : {1, 2, 4}) {
      on_threads(ranks, [&](comm::Communicator& group) {
        Rank rank({.design = design, .sharding = {.gathers_bf16 = true}, .has_products = true},
                  group);
        rank.run(Pass::kForward);
        EXPECT_EQ(rank.received(), rank.count_of(0, rank.blocks()));
        rank.run(Pass::kBackward);
      });
    }
  }
}

TEST(GatheredStore, RoundsCopiesForProductsAsTheStepSays) {
  for (const ModelDesign& design : sharded_models()) {
    for (const int64_t step : {0, 3}) {
      on_threads(4, [&](comm::Communicator& group) {
        Rank rank({.design = design, .has_products = true, .rounding_seed = 5}, group);
        rank.write(step);
        ASSERT_TRUE(rank.store().updated(step).ok());
        rank.run(Pass::kForward);
        rank.run(Pass::kBackward);
      });
    }
  }
}

TEST(GatheredStore, ReportsEachWaitAndItsPass) {
  on_threads(2, [](comm::Communicator& group) {
    Rank rank({}, group);
    std::vector<std::pair<Pass, bool>> waits;
    rank.store().observe_waits([&](Pass pass, bool begins) { waits.emplace_back(pass, begins); });
    rank.use_block({.block = 1, .pass = Pass::kForward});
    rank.use_block({.block = 1, .pass = Pass::kBackward});
    const std::vector<std::pair<Pass, bool>> expected = {{Pass::kForward, true},
                                                         {Pass::kForward, false},
                                                         {Pass::kBackward, true},
                                                         {Pass::kBackward, false}};
    EXPECT_EQ(waits, expected);
  });
}

// Each way to learn that the other rank has left.
struct Ending {
  const char* name;
  Status (*find_out)(GatheredStore& store);
};

TEST(GatheredStore, ReturnsTheErrorOfTheCommunicator) {
  static constexpr BlockUse kUse{.block = 1, .pass = Pass::kForward};
  const auto get = [](GatheredStore& store) -> Status {
    TRY(store.get(kUse));
    return {};
  };
  const Ending endings[] = {{"get", get},
                            {"get after prefetch",
                             [](GatheredStore& store) -> Status {
                               store.prefetch(kUse);
                               TRY(store.get(kUse));
                               return {};
                             }},
                            {"settle",
                             [](GatheredStore& store) {
                               store.prefetch(kUse);
                               return store.settle();
                             }},
                            {"updated", [](GatheredStore& store) {
                               store.prefetch(kUse);
                               return store.updated(1);
                             }}};
  for (const Ending& ending : endings) {
    SCOPED_TRACE(ending.name);
    on_threads(2, [&](comm::Communicator& group) {
      Rank rank({}, group);
      if (group.rank() == 1) {
        group.abort("gone");
        return;
      }
      const Status status = ending.find_out(rank.store());
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().blame, Blame::kPeer);
      EXPECT_NE(status.error().message.find("rank 1"), std::string::npos) << status.error().message;
      EXPECT_FALSE(get(rank.store()).ok()) << "the next block";
    });
  }
}

}  // namespace
}  // namespace lockstep::parallel
