// The covering array between processes: over shared memory, over TCP, and across hosts that are
// network namespaces with delay and packet loss.
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "tests/agent/comm/cases.h"
#include "tests/agent/comm/covering.h"
#include "tests/agent/comm/namespaces.h"
#include "tests/agent/comm/small_frames.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::comm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Case;
using test::Meeting;
using test::Namespaces;
using test::Transport;

// Cases by number of ranks and limits.
using Key = std::pair<int, test::Limits>;
std::map<Key, std::vector<Case>> by_world(const std::vector<Case>& cases) {
  std::map<Key, std::vector<Case>> sorted;
  for (const Case& c : cases) sorted[{c.shape.world, c.limits}].push_back(c);
  return sorted;
}

// Runs all cases of a world until one fails.
void run_all(Communicator& comm, const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    test::run_case(c, comm);
    if (testing::Test::HasFailure()) return;
  }
}

class ForkedRanks : public testing::TestWithParam<Transport> {};

TEST_P(ForkedRanks, EveryPairOfFactorsThatThereCanBeGivesWhatAPlainLoopGives) {
  const uint64_t seed = 20261122 + static_cast<uint64_t>(GetParam());
  const test::TestSetup setup{.transports = {GetParam()}};
  const std::vector<Case> cases = test::covering_array(setup, seed);
  std::printf("%zu cases of seed %llu\n", cases.size(), static_cast<unsigned long long>(seed));
  EXPECT_EQ(test::missing_pairs(setup, cases), std::vector<std::string>{});
  for (const auto& [key, of_world] : by_world(cases)) {
    Meeting meeting(GetParam(), key.first);
    meeting.set_comm_limits(key.second);
    // A rank that has not run all of them exits with a failure.
    test::on_processes(
        meeting, [](int) {}, [&](Communicator& comm) { run_all(comm, of_world); });
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Comm, ForkedRanks, testing::Values(Transport::kShared, Transport::kTcp),
                         [](const auto& info) { return name_of(info.param); });

// Puts the ranks on hosts, equally many on each, one host after the other.
Meeting meet_across(const Namespaces& network, int size) {
  const int per_host = (size + network.hosts() - 1) / network.hosts();
  std::vector<Meeting::Place> places;
  for (int rank = 0; rank < size; ++rank) {
    const int host = rank / per_host;
    auto listener = network.listen_on_host(host);
    EXPECT_TRUE(listener.ok()) << listener.error().message;
    places.push_back({.host = Namespaces::address(host),
                      .listen_fd = listener.ok() ? listener->release() : -1,
                      .node = host});
  }
  return Meeting(places);
}

class ForkedHosts : public testing::Test {
 protected:
  void make(const Namespaces::Options& options) {
    auto made = Namespaces::create(options);
    if (!made.ok()) GTEST_SKIP() << made.error().message;
    network_ = std::move(*made);
  }

  void run(int size, Duration limit, const std::function<void(Communicator&)>& body,
           const CommLimits& limits = {}) {
    Meeting meeting = meet_across(*network_, size);
    meeting.set_limits(seconds(60), limit);
    meeting.set_comm_limits(limits);
    const int per_host = (size + network_->hosts() - 1) / network_->hosts();
    const auto enter = [&](int rank) { ASSERT_TRUE(network_->enter(rank / per_host).ok()); };
    test::on_processes(meeting, enter, body);
  }

  std::unique_ptr<Namespaces> network_;
};

TEST_F(ForkedHosts,
       EveryPairOfFactorsThatThereCanBeGivesWhatAPlainLoopGivesThoughPacketsAreLateAndLost) {
  constexpr uint64_t kSeed = 20261130;
  make({.hosts = 3, .delay = microseconds(200), .loss = 0.01, .seed = kSeed});
  if (IsSkipped()) return;
  const test::TestSetup setup{.transports = {Transport::kTcp}, .hosts = network_->hosts()};
  const std::vector<Case> cases = test::covering_array(setup, kSeed);
  std::printf("%zu cases of seed %llu\n", cases.size(), static_cast<unsigned long long>(kSeed));
  EXPECT_EQ(test::missing_pairs(setup, cases), std::vector<std::string>{});
  for (const auto& [key, of_world] : by_world(cases)) {
    const auto all_of_them = [&](Communicator& comm) { run_all(comm, of_world); };
    run(key.first, seconds(60), all_of_them, key.second);
    if (HasFailure()) return;
  }
  std::printf("%llu packets carried, %llu lost\n",
              static_cast<unsigned long long>(network_->carried()),
              static_cast<unsigned long long>(network_->lost()));
  EXPECT_GT(network_->carried(), 0u);
  EXPECT_GT(network_->lost(), 0u);
}

// The leaving rank's last message is lost, and sent again 200 ms later. Meanwhile heartbeats
// arrive; a socket that was closed would answer them by dropping what it has not sent yet.
TEST_F(ForkedHosts, ARankThatLeavesWhileTheNetworkLosesItsWordHasLeftForTheOthersAllTheSame) {
  make({.hosts = 2});
  if (IsSkipped()) return;
  // With a heartbeat every 50 ms.
  run(2, milliseconds(400), [&](Communicator& comm) {
    comm.set_silence_limit(seconds(30));
    ASSERT_TRUE(comm.barrier().ok());
    if (comm.rank() == 0) {
      std::this_thread::sleep_for(milliseconds(50));
      network_->cut(0);
      return;
    }
    std::this_thread::sleep_for(milliseconds(200));
    network_->mend(0);
    std::this_thread::sleep_for(milliseconds(1000));
    EXPECT_TRUE(comm.health().ok()) << comm.health().error().message;
  });
}

TEST_F(ForkedHosts, BehindACutLinkTheRanksOfTheOtherHostAreNamedAfterTheTimeLimit) {
  // After the ranks have met and begun to work.
  make({.hosts = 2, .delay = microseconds(100), .cut_after = 2000});
  if (IsSkipped()) return;
  run(4, seconds(4), [](Communicator& comm) {
    std::vector<float> values(1000, 1.f);
    Status status;
    while (status.ok()) {
      status = comm.all_reduce({.data = values.data(), .count = 1000}, ReduceOp::kMax);
    }
    const bool first_host = comm.rank() < 2;
    EXPECT_EQ(status.error().code, Code::kTimeout) << status.error().message;
    EXPECT_EQ(comm.suspect() >= 2, first_host) << comm.rank() << ": " << status.error().message;
  });
}

}  // namespace
}  // namespace lockstep::comm
