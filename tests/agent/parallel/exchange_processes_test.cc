// Ranks that are processes and share the memory that their node's agent has made for them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "agent/comm/make_communicator.h"
#include "common/base/sha256.h"
#include "tests/agent/comm/worlds.h"
#include "tests/agent/parallel/exchange_ranks.h"

namespace lockstep::parallel {
namespace {

using test::Meeting;
using test::Transport;

constexpr int64_t kSteps = 3;

// The memory after that of the communicator.
SharedSegment::Place place_in(Meeting& meeting, const comm::Communicator& comm) {
  return {.fd = meeting.options(comm.rank()).shm_fd, .offset = comm::shm_bytes(comm.size())};
}

void expect_same_everywhere(comm::Communicator& comm, const Exchanged& result) {
  const Digest digest =
      sha256(std::string_view(reinterpret_cast<const char*>(result.parameters.data()),
                              result.parameters.size() * sizeof(float)));
  const auto all = comm.all_gather_value(digest);
  ASSERT_TRUE(all.ok());
  for (const Digest& other : *all) EXPECT_EQ(other, digest);
  const auto norms = comm.all_gather_value(result.norms.back());
  ASSERT_TRUE(norms.ok());
  for (const double other : *norms) EXPECT_EQ(other, result.norms.back());
}

class ExchangeProcesses : public testing::TestWithParam<Exchange> {};
INSTANTIATE_TEST_SUITE_P(Of, ExchangeProcesses,
                         testing::Values(Exchange::kFirstRank, Exchange::kHost),
                         [](const auto& info) { return std::string(exchange_name(info.param)); });

TEST_P(ExchangeProcesses, GiveWhatTheAllReduceGives) {
  for (const int ranks : {1, 2, 3, 4}) {
    Meeting meeting(Transport::kShared, ranks);
    test::on_processes(
        meeting, [](int) {},
        [&](comm::Communicator& comm) {
          const Exchanged expected = exchanged({}, comm, kSteps);
          const Exchanged result =
              exchanged({.exchange = GetParam(), .shared = place_in(meeting, comm)}, comm, kSteps);
          EXPECT_LT(distance(result.parameters, expected.parameters), 1e-6);
          if (ranks <= 2) {
            EXPECT_TRUE(result == expected);
          }
          expect_same_everywhere(comm, result);
        });
    if (HasFailure()) return;
  }
}

enum class Moment { kInBackward, kBeforeTheUpdate, kAfterTheUpdate };

// Ends the process without a word in the middle of its second step.
void end_at(Moment moment, ExchangeRank& rank) {
  ASSERT_TRUE(rank.step(1).ok());
  if (moment == Moment::kInBackward) {
    rank.exchange().begin_step(rank.ops());
    rank.exchange().enable_reduction();
    const Bucket& first = rank.exchange().buckets().front();
    ASSERT_TRUE(rank.make(1, 0).ok());
    ASSERT_TRUE(rank.add(first.first_id, first.last_id).ok());
  } else {
    ASSERT_TRUE(rank.backward(2).ok());
    ASSERT_TRUE(rank.exchange().finish().ok());
    if (moment == Moment::kAfterTheUpdate) {
      ASSERT_TRUE(rank.update(2).ok());
    }
  }
  ::_exit(0);
}

TEST_P(ExchangeProcesses, NameARankThatEnds) {
  for (const Moment moment :
       {Moment::kInBackward, Moment::kBeforeTheUpdate, Moment::kAfterTheUpdate}) {
    for (const int ends : {0, 1}) {
      Meeting meeting(Transport::kShared, 3);
      test::on_processes(
          meeting, [](int) {},
          [&](comm::Communicator& comm) {
            ExchangeRank rank({.exchange = GetParam(), .shared = place_in(meeting, comm)}, comm);
            if (comm.rank() == ends) end_at(moment, rank);
            // How many steps the others do depends on time.
            Status status;
            for (int64_t step = 1; status.ok(); ++step) status = rank.step(step);
            EXPECT_EQ(status.error().blame, Blame::kPeer);
            EXPECT_EQ(comm.suspect(), ends) << status.error().message;
            EXPECT_NE(status.error().message.find("rank " + std::to_string(ends)),
                      std::string::npos)
                << status.error().message;
          });
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel
