// Compositions whose ranks exchange gradients in other ways than by all-reduce.
#include <gtest/gtest.h>

#include <array>

#include "agent/comm/make_communicator.h"
#include "agent/parallel/compose.h"
#include "tests/agent/comm/worlds.h"
#include "tests/agent/parallel/exchange_ranks.h"
#include "tests/agent/parallel/kept_state.h"

namespace lockstep::parallel {
namespace {

constexpr ModelConfig kConfig{2, 16, 2, 8, 50};
constexpr int64_t kSteps = 6;

// Micro-batches that differ from rank to rank and from one to the next.
class DrawnTokens final : public BatchFeed {
 public:
  explicit DrawnTokens(int rank) : next_(static_cast<uint32_t>(rank + 1) * 7919) {}
  Result<std::optional<DeviceBatch>> next() override {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      next_ = next_ * 1664525 + 1013904223;
      tokens_[i] = static_cast<int32_t>((next_ >> 16) % 50);
      targets_[i] = static_cast<int32_t>((next_ >> 8) % 50);
    }
    return std::optional<DeviceBatch>(
        {.rows = 2, .counted = 16, .tensors = {tokens_.data(), targets_.data()}});
  }

 private:
  uint32_t next_;
  std::array<int32_t, 16> tokens_{};
  std::array<int32_t, 16> targets_{};
};

struct Trained {
  std::vector<double> numbers;  // losses and norms
  std::vector<float> parameters;

  bool operator==(const Trained&) const = default;
};

struct Run {
  Exchange exchange = Exchange::kAllReduce;
  int ranks = 1;
  int64_t first = 1;  // step
  int64_t last = kSteps;
  KeptState* from = nullptr;  // state to continue
  KeptState* to = nullptr;    // gets the state at the end
};

void train_rank(const Run& run, comm::Communicator& comm, int fd, Trained& mine) {
  const SystemClock clock;
  auto made = Composition::create({.design = kConfig,
                                   .mesh = {.data = run.ranks},
                                   .micro_batches = 2,
                                   .micro_batch = 2,
                                   .sequence = 8,
                                   .bucket_bytes = 4096,
                                   .optimizer = {.epsilon = 1e-5},
                                   .exchange = run.exchange,
                                   .shared = {.fd = fd}},
                                  comm, clock);
  ASSERT_TRUE(made.ok()) << made.error().message;
  Composition& model = **made;
  if (run.from == nullptr) {
    ASSERT_TRUE(model.initialise(7).ok());
  } else {
    ASSERT_TRUE(model.read_share(*run.from).ok());
    ASSERT_TRUE(model.exchange_shares(run.first - 1).ok());
  }
  DrawnTokens feed(comm.rank() + static_cast<int>(run.first) * 16);
  for (int64_t step = run.first; step <= run.last; ++step) {
    const auto report =
        model.run_step(feed, {.step = step, .learning_rate = 0.01, .clip_norm = 0.3});
    ASSERT_TRUE(report.ok()) << report.error().message;
    mine.numbers.push_back(*report->numbers.loss);
    mine.numbers.push_back(*report->numbers.gradient_norm);
  }
  const DeviceState state = model.state();
  mine.parameters.assign(state.parameters, state.parameters + state.arena->count);
  if (run.to == nullptr) return;
  model.reserve_snapshot();
  ASSERT_TRUE(model.take_snapshot().ok());
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (rank == comm.rank()) run.to->add(model.snapshot());
    ASSERT_TRUE(comm.barrier().ok());
  }
}

std::vector<Trained> train(const Run& run) {
  const SharedFile file;
  test::World world = test::make_world(test::Transport::kThreads, run.ranks);
  std::vector<Trained> results(world.size());
  test::on_all(world, [&](comm::Communicator& comm) {
    train_rank(run, comm, file.fd(), results[static_cast<size_t>(comm.rank())]);
  });
  return results;
}

class ExchangedCompositions : public testing::TestWithParam<Exchange> {};
INSTANTIATE_TEST_SUITE_P(Of, ExchangedCompositions,
                         testing::Values(Exchange::kFirstRank, Exchange::kHost),
                         [](const auto& info) { return std::string(exchange_name(info.param)); });

TEST_P(ExchangedCompositions, TrainAsTheAllReduceDoes) {
  for (const int ranks : {1, 2, 4}) {
    const std::vector<Trained> expected = train({.ranks = ranks});
    const std::vector<Trained> results = train({.exchange = GetParam(), .ranks = ranks});
    for (const Trained& result : results) EXPECT_TRUE(result == results[0]);
    if (ranks <= 2) {
      EXPECT_TRUE(results[0] == expected[0]) << ranks << " ranks";
    }
    EXPECT_LT(distance(results[0].parameters, expected[0].parameters), 1e-6);
    for (size_t i = 0; i < expected[0].numbers.size(); ++i) {
      EXPECT_NEAR(results[0].numbers[i] / expected[0].numbers[i], 1, 1e-6);
    }
  }
}

// With two ranks all exchanges have the same bits, so a state may continue in any of them.
TEST(ExchangedStates, ContinueTheStatesOfOneAnother) {
  constexpr Exchange kAll[] = {Exchange::kAllReduce, Exchange::kFirstRank, Exchange::kHost};
  KeptState expected_state(kConfig);
  const auto first = train({.ranks = 2, .last = 3, .to = &expected_state});
  const auto expected = train({.ranks = 2, .first = 4, .from = &expected_state});
  for (const Exchange saving : kAll) {
    KeptState kept(kConfig);
    EXPECT_TRUE(train({.exchange = saving, .ranks = 2, .last = 3, .to = &kept}) == first);
    EXPECT_TRUE(kept.is_whole());
    for (const Exchange loading : kAll) {
      EXPECT_TRUE(train({.exchange = loading, .ranks = 2, .first = 4, .from = &kept}) == expected)
          << exchange_name(saving) << " to " << exchange_name(loading);
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel
