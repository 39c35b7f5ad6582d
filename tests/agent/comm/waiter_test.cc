#include "agent/comm/waiter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>

namespace lockstep::comm {
namespace {

// A link without data; with a descriptor it needs poll.
class Silent final : public Link {
 public:
  explicit Silent(int fd) : Link(1), fd_(fd) {}
  Result<size_t> write(std::initializer_list<Bytes>) override { return size_t{0}; }
  Result<Bytes> peek(Want) override { return Bytes{}; }
  void consume(size_t) override {}
  Result<size_t> read(std::span<std::byte>) override { return size_t{0}; }
  int fd() const override { return fd_; }
  std::string describe() const override { return "nothing"; }

 private:
  int fd_;
};

class Waiting : public testing::Test {
 protected:
  Waiting() {
    auto region = ShmRegion::anonymous(2);
    EXPECT_TRUE(region.ok());
    region_ = *region;
    // More ranks than cores: it sleeps without spinning.
    auto waiter =
        Waiter::create({.region = region_, .local_rank = 0, .local_ranks = 2, .cores = 1});
    EXPECT_TRUE(waiter.ok());
    waiter_ = std::move(*waiter);
  }

  std::vector<WaitReason> memory() { return {{.link = &in_memory_, .input = true}}; }
  std::vector<WaitReason> both() {
    return {{.link = &in_memory_, .input = true}, {.link = &polled_, .input = true}};
  }

  std::shared_ptr<ShmRegion> region_;
  std::unique_ptr<Waiter> waiter_;
  UniqueFd event_ = std::move(make_event_fd()).value();
  Silent in_memory_{-1};
  Silent polled_{event_.get()};
};

TEST_F(Waiting, WhereRanksShareCoresItLiesDownAtTheFirstPause) {
  waiter_->pause(both(), Duration::zero());
  EXPECT_TRUE(region_->wake(0)) << "a neighbour has to ring the bell of who polls";
}

TEST_F(Waiting, WhoBeginsToPollAfterItLayDownForMemoryTellsItsNeighbours) {
  waiter_->pause(memory(), Duration::zero());
  waiter_->pause(both(), Duration::zero());
  EXPECT_TRUE(region_->wake(0)) << "it sleeps in poll, and its neighbours think in a futex";
}

TEST_F(Waiting, AWakeUpBetweenLyingDownAndSleepingIsNotLost) {
  waiter_->pause(memory(), Duration::zero());
  EXPECT_FALSE(region_->wake(0));
  // Would sleep for an hour if it ignored the bell.
  waiter_->pause(memory(), std::chrono::hours(1));
}

// A neighbour hands over one thing after another. At the same time the program of this rank wakes
// its driver, as it does when it issues an operation. Once everything is quiet, nobody rings again:
// a wake-up that is lost lets the driver sleep to the end of its limit.
TEST_F(Waiting, NoWakeUpIsLostBetweenTheProgramsAndTheNeighbours) {
  constexpr int kTurns = 30'000;
  constexpr Duration kLimit = std::chrono::seconds(20);
  std::atomic<int> posted = 0, taken = 0;
  std::barrier turn(3);
  std::thread program([&] {
    for (int i = 0; i < kTurns; ++i) {
      turn.arrive_and_wait();
      waiter_->wake();
    }
  });
  std::thread neighbour([&] {
    for (int i = 0; i < kTurns; ++i) {
      turn.arrive_and_wait();
      ++posted;
      if (region_->wake(0)) waiter_->wake();
    }
  });
  int lost = 0;
  for (int i = 0; i < kTurns; ++i) {
    turn.arrive_and_wait();
    while (posted == taken) {
      const TimePoint from = SystemClock().now();
      const Duration limit = lost == 0 ? kLimit : std::chrono::milliseconds(1);
      waiter_->pause(both(), limit);
      lost += SystemClock().now() - from >= limit ? 1 : 0;
    }
    ++taken;
    waiter_->moved();
  }
  program.join();
  neighbour.join();
  EXPECT_EQ(lost, 0) << "the first one, and then sleeps of a millisecond";
}

}  // namespace
}  // namespace lockstep::comm
