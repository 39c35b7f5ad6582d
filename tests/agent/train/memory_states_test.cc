#include "agent/train/checkpoint/memory_states.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep::train {
namespace {

constexpr uint64_t kValues = 5000;  // more than a page
constexpr uint64_t kOffset = 8192;

class MemoryStatesTest : public testing::Test {
 protected:
  ~MemoryStatesTest() override { close(fd_); }

  MemoryStates map(const Digest& identity = sha256("a job"), uint64_t values = kValues,
                   const KeptShare& share = {.data = 2, .shard_ranks = 1, .rank = 1}) {
    EXPECT_TRUE(MemoryStates::resize(fd_, kOffset + MemoryStates::bytes(values)).ok());
    Result<MemoryStates> states = MemoryStates::map({fd_, kOffset}, identity, share, values);
    EXPECT_TRUE(states.ok()) << states.error().message;
    return std::move(states).value();
  }

  static void keep(MemoryStates& states, int64_t step) {
    std::ranges::fill(states.begin(), static_cast<float>(step));
    states.complete({.step = step,
                     .samples = 4 * step,
                     .loss = 1.0 / static_cast<double>(step),
                     .losses = {.mean = 2, .losses = step}});
  }

  static std::vector<int64_t> steps(const MemoryStates& states) {
    std::vector<int64_t> steps;
    for (const KeptState& kept : states.kept()) {
      if (kept.step >= 0) steps.push_back(kept.step);
    }
    std::ranges::sort(steps);
    return steps;
  }

  static void expect_values(const MemoryStates& states, int64_t step) {
    const std::span<const float> values = states.values_of(step);
    ASSERT_EQ(values.size(), kValues);
    const auto is_of_step = [&](float value) { return value == static_cast<float>(step); };
    EXPECT_TRUE(std::ranges::all_of(values, is_of_step)) << step;
  }

  int fd_ = memfd_create("test-states", 0);
};

using Steps = std::vector<int64_t>;

TEST_F(MemoryStatesTest, KeepTheTwoNewestStates) {
  MemoryStates states = map();
  EXPECT_EQ(steps(states), Steps());
  for (int64_t step = 1; step <= 5; ++step) {
    keep(states, step);
    EXPECT_EQ(steps(states), step == 1 ? Steps{1} : (Steps{step - 1, step}));
  }
  expect_values(states, 4);
  expect_values(states, 5);
}

TEST_F(MemoryStatesTest, OutliveTheProgramThatKeptThem) {
  {
    MemoryStates states = map();
    keep(states, 7);
    keep(states, 8);
  }
  const MemoryStates states = map();
  EXPECT_EQ(steps(states), (Steps{7, 8}));
  expect_values(states, 7);
  const auto kept = states.kept();
  const auto newest = std::ranges::find(kept, 8, &KeptState::step);
  EXPECT_EQ(
      *newest,
      (KeptState{.step = 8, .samples = 32, .loss = 0.125, .losses = {.mean = 2, .losses = 8}}));
}

TEST_F(MemoryStatesTest, LoseAStateThatIsBeingReplaced) {
  {
    MemoryStates states = map();
    keep(states, 7);
    keep(states, 8);
    std::ranges::fill(states.begin(), 9.0f);  // the program is killed before it is complete
  }
  const MemoryStates states = map();
  EXPECT_EQ(steps(states), Steps{8});
  expect_values(states, 8);
}

TEST_F(MemoryStatesTest, OfAnotherJobOrSizeAreForgotten) {
  {
    MemoryStates states = map();
    keep(states, 7);
  }
  EXPECT_EQ(steps(map(sha256("another job"))), Steps());
  {
    MemoryStates states = map();
    EXPECT_EQ(steps(states), Steps());
    keep(states, 7);
  }
  EXPECT_EQ(steps(map(sha256("a job"), kValues + 1)), Steps());  // of the same pages
  EXPECT_EQ(steps(map(sha256("a job"), 4 * kValues)), Steps());
}

TEST_F(MemoryStatesTest, AreFoundWithTheShareThatTheyAreOf) {
  const auto find = [&](const Digest& identity) {
    auto found = MemoryStates::find({fd_, kOffset}, identity);
    EXPECT_TRUE(found.ok()) << found.error().message;
    return *std::move(found);
  };
  EXPECT_FALSE(find(sha256("a job")).has_value()) << "the file is empty";
  {
    MemoryStates states = map(sha256("a job"), kValues, {.data = 4, .shard_ranks = 2, .rank = 3});
    keep(states, 7);
  }
  EXPECT_FALSE(find(sha256("another job")).has_value());
  const std::optional<MemoryStates> found = find(sha256("a job"));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->share(), (KeptShare{.data = 4, .shard_ranks = 2, .rank = 3}));
  expect_values(*found, 7);
  EXPECT_EQ(steps(map(sha256("a job"), kValues, {.data = 4, .shard_ranks = 2, .rank = 2})),
            Steps());
}

TEST_F(MemoryStatesTest, OfLaterStepsAreForgottenAndReplacedFirst) {
  MemoryStates states = map();
  keep(states, 7);
  keep(states, 8);
  states.forget_after(7);
  EXPECT_EQ(steps(states), Steps{7});
  std::ranges::fill(states.begin(), 8.0f);
  EXPECT_EQ(steps(states), Steps{7});
  expect_values(states, 7);
}

TEST_F(MemoryStatesTest, IgnoreAFileOfNoise) {
  const uint64_t bytes = kOffset + MemoryStates::bytes(kValues);
  const std::string noise(bytes, '\x5a');
  ASSERT_EQ(write(fd_, noise.data(), bytes), static_cast<ssize_t>(bytes));
  MemoryStates states = map();
  EXPECT_EQ(steps(states), Steps());
  keep(states, 3);
  expect_values(states, 3);
}

}  // namespace
}  // namespace lockstep::train
