// Parameters of which each rank updates its slices, on ranks that are threads.
#include "agent/parallel/shard/regathered_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/agent/parallel/shard/shard_values.h"

namespace lockstep::parallel {
namespace {

using model::BlockUse;
using model::Pass;

struct Setup {
  ModelDesign design = sharded_models().front();
  int64_t unit_bytes = 0;
  bool has_copies = false;
};

constexpr uint64_t kSeed = 5;

// A rank with all parameters of a model, which are unknown at first.
class Rank {
 public:
  Rank(const Setup& setup, comm::Communicator& group)
      : setup_(setup),
        group_(group),
        layout_(
            sharded_layout(setup.design, {.ranks = group.size(), .unit_bytes = setup.unit_bytes})),
        parameters_(static_cast<size_t>(layout_.arena().count), NAN),
        copies_(setup.has_copies ? parameters_.size() : 0),
        casts_(setup.design, layout_, kSeed, kernels::cpu_ops()),
        store_(RegatheredStore::create(
                   {.replica = {.design = setup.design,
                                .blocks = blocks_of({whole_model(setup.design)}),
                                .arena = layout_.arena(),
                                .parameters = parameters_.data(),
                                .copies = setup.has_copies ? copies_.data() : nullptr},
                    .layout = layout_,
                    .casts = setup.has_copies ? &casts_ : nullptr},
                   group, {compute_, communication_})
                   .value()) {}

  // Updates this rank's slices, as a step does.
  Status update(int64_t step) {
    whole_ = drawn_values(layout_.arena(), step);
    whole_copies_ = rounded(setup_.design, layout_.arena(), whole_, kSeed, step);
    std::ranges::fill(parameters_, NAN);
    for (const ShardSlice& slice : layout_.slices(group_.rank())) {
      std::copy_n(whole_.begin() + slice.offset, slice.count, parameters_.begin() + slice.offset);
    }
    return store_.updated(step);
  }

  // Expects that a block sees the whole parameters of the last update.
  void expect_whole(const BlockUse& use) {
    const auto views = store_.get(use);
    ASSERT_TRUE(views.ok()) << views.error().message;
    const std::vector<int64_t> ids = block_parameters(setup_.design, use.block);
    ASSERT_EQ(views->size(), ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      const ArenaEntry& entry = *layout_.arena().find(ids[i]);
      const auto value = whole_.begin() + entry.offset;
      EXPECT_TRUE(std::equal(value, value + entry.count, (*views)[i].value)) << ids[i];
      const kernels::ConstView& product = (*views)[i].product;
      if (setup_.has_copies) {
        const auto copy = whole_copies_.begin() + entry.offset;
        EXPECT_TRUE(std::equal(copy, copy + entry.count, product.bf16())) << ids[i];
      } else {
        EXPECT_EQ(product.data, (*views)[i].value);
      }
    }
    store_.release(use);
  }
  bool has_all() const { return parameters_ == whole_; }

  // Returns the values that this rank has received since the last call.
  int64_t received() {
    const uint64_t all = group_.traffic().bytes_received;
    return static_cast<int64_t>((all - std::exchange(counted_, all)) / sizeof(float));
  }
  int64_t blocks() const { return block_count(setup_.design); }
  const ShardLayout& layout() const { return layout_; }
  RegatheredStore& store() { return store_; }

 private:
  Setup setup_;
  comm::Communicator& group_;
  ShardLayout layout_;
  std::vector<float> parameters_;
  std::vector<kernels::Bf16> copies_;
  ParameterCasts casts_;
  std::vector<float> whole_;
  std::vector<kernels::Bf16> whole_copies_;
  kernels::Stream compute_;
  kernels::Stream communication_;
  RegatheredStore store_;
  uint64_t counted_ = 0;
};

TEST(RegatheredStore, ShowsEveryBlockWhatAllRanksHaveUpdated) {
  for (const ModelDesign& design : sharded_models()) {
    for (const int ranks : {1, 2, 4}) {
      for (const int64_t unit_bytes : {0, 8192}) {
        for (const bool has_copies : {false, true}) {
          SCOPED_TRACE(testing::Message() << family_name(design) << ", " << ranks << " ranks, units"
                                          << " of " << unit_bytes << ", copies " << has_copies);
          on_threads(ranks, [&](comm::Communicator& group) {
            Rank rank({.design = design, .unit_bytes = unit_bytes, .has_copies = has_copies},
                      group);
            for (int64_t step = 0; step < 3; ++step) {
              ASSERT_TRUE(rank.update(step).ok());
              for (int64_t block = 0; block < rank.blocks(); ++block) {
                rank.expect_whole({.block = block, .pass = Pass::kForward});
              }
              for (int64_t block = rank.blocks() - 1; block >= 0; --block) {
                rank.expect_whole({.block = block, .pass = Pass::kBackward});
              }
              ASSERT_TRUE(rank.store().settle().ok());
            }
          });
        }
      }
    }
  }
}

TEST(RegatheredStore, GathersEachUnitOncePerUpdate) {
  on_threads(4, [](comm::Communicator& group) {
    Rank rank({}, group);
    int64_t all = 0;
    for (size_t unit = 0; unit < rank.layout().units().size(); ++unit) {
      all += moved_count(rank.layout(), unit);
    }
    EXPECT_EQ(rank.received(), 0);
    for (int64_t step = 1; step < 3; ++step) {
      ASSERT_TRUE(rank.update(step).ok());
      for (const Pass pass : {Pass::kForward, Pass::kBackward, Pass::kEvaluate}) {
        for (int64_t block = 0; block < rank.blocks(); ++block) {
          rank.expect_whole({.block = block, .pass = pass});
        }
      }
      EXPECT_EQ(rank.received(), all);
    }
  });
}

TEST(RegatheredStore, HasAllParametersOnceItIsSettled) {
  for (const ModelDesign& design : sharded_models()) {
    on_threads(2, [&](comm::Communicator& group) {
      Rank rank({.design = design}, group);
      ASSERT_TRUE(rank.update(1).ok());
      ASSERT_TRUE(rank.store().settle().ok());
      EXPECT_TRUE(rank.has_all());
      EXPECT_GT(rank.received(), 0);
      ASSERT_TRUE(rank.store().settle().ok());
      EXPECT_EQ(rank.received(), 0);
    });
  }
}

// A block waits for its own units alone.
TEST(RegatheredStore, WaitsForTheUnitsOfABlockWhenItIsFirstUsed) {
  on_threads(2, [](comm::Communicator& group) {
    Rank rank({}, group);
    std::vector<bool> waits;
    rank.store().observe_waits([&](Pass pass, bool begins) {
      EXPECT_EQ(pass, Pass::kForward);
      waits.push_back(begins);
    });
    ASSERT_TRUE(rank.update(1).ok());
    EXPECT_TRUE(waits.empty());
    rank.expect_whole({.block = 1, .pass = Pass::kForward});
    EXPECT_EQ(waits, (std::vector<bool>{true, false}));
    rank.expect_whole({.block = 1, .pass = Pass::kBackward});
    EXPECT_EQ(waits.size(), 2u);
    ASSERT_TRUE(rank.store().settle().ok());
    EXPECT_EQ(waits.size(), 2 * rank.layout().units().size());
  });
}

TEST(RegatheredStore, ReturnsTheErrorOfTheCommunicator) {
  const auto expect_left = [](const Status& status) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().blame, Blame::kPeer);
    EXPECT_NE(status.error().message.find("rank 1"), std::string::npos) << status.error().message;
  };
  for (const bool by_get : {false, true}) {
    on_threads(2, [&](comm::Communicator& group) {
      Rank rank({}, group);
      if (group.rank() == 1) {
        group.abort("gone");
        return;
      }
      ASSERT_TRUE(rank.update(1).ok()) << "it only starts";
      if (by_get) {
        const auto views = rank.store().get({.block = 1, .pass = Pass::kForward});
        ASSERT_FALSE(views.ok());
        expect_left(views.error());
      }
      expect_left(rank.update(2));
    });
  }
}

}  // namespace
}  // namespace lockstep::parallel
