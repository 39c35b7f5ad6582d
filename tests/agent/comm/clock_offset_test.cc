#include "agent/comm/clock_offset.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "tests/agent/comm/worlds.h"

namespace lockstep::comm {
namespace {

using test::make_world;
using test::on_all;
using test::Transport;
using test::World;

// The machine's clock, as a machine would see it whose clock is ahead by `shift`.
class ShiftedClock final : public Clock {
 public:
  explicit ShiftedClock(Duration shift) : shift_(shift) {}
  TimePoint now() const override { return clock_.now() + shift_; }
  WallTime wall_now() const override { return clock_.wall_now(); }

 private:
  SystemClock clock_;
  Duration shift_;
};

TEST(ClockOffset, IsThatOfTheShortestRoundTrip) {
  // Rank 0's clock is ahead by 1000. The second trip takes 10 in each direction.
  const std::vector<RoundTrip> trips = {{.sent_ns = 0, .answered_ns = 1'090, .received_ns = 100},
                                        {.sent_ns = 200, .answered_ns = 1'210, .received_ns = 220},
                                        {.sent_ns = 300, .answered_ns = 1'310, .received_ns = 350}};
  EXPECT_EQ(clock_offset_of(trips), (ClockOffset{.offset_ns = 1'000, .error_ns = 11}));
}

TEST(ClockOffset, IsWrongByNoMoreThanItSaysWhateverTheDirectionsTake) {
  constexpr int64_t kOffset = -5'000'000;
  for (int64_t there = 0; there <= 50; there += 7) {
    for (int64_t back = 0; back <= 50; back += 3) {
      const RoundTrip trip{
          .sent_ns = 77, .answered_ns = 77 + there + kOffset, .received_ns = 77 + there + back};
      const ClockOffset found = clock_offset_of({&trip, 1});
      EXPECT_LE(std::abs(found.offset_ns - kOffset), found.error_ns) << there << " " << back;
    }
  }
}

TEST(ClockOffset, IsFoundByEveryRankOfAWorld) {
  for (const Transport transport : {Transport::kTcp, Transport::kThreads}) {
    World world = make_world(transport, 3);
    on_all(world, [](Communicator& comm) {
      const ShiftedClock clock(std::chrono::hours(comm.rank()));
      const Result<ClockOffset> found = measure_clock_offset(comm, clock);
      ASSERT_TRUE(found.ok()) << found.error().message;
      const int64_t expected = -std::chrono::nanoseconds(std::chrono::hours(comm.rank())).count();
      EXPECT_LE(std::abs(found->offset_ns - expected), found->error_ns) << comm.rank();
      EXPECT_EQ(found->error_ns == 0, comm.rank() == 0);
    });
  }
}

TEST(ClockOffset, FailsWithTheCommunicator) {
  World world = make_world(Transport::kThreads, 2);
  world[0]->abort("a test");
  const SystemClock clock;
  on_all(world, [&](Communicator& comm) {
    const Result<ClockOffset> found = measure_clock_offset(comm, clock);
    ASSERT_FALSE(found.ok());
    EXPECT_NE(found.error().message.find("a test"), std::string::npos) << found.error().message;
  });
}

}  // namespace
}  // namespace lockstep::comm
