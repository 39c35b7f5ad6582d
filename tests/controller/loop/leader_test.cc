#include <gtest/gtest.h>

#include "controller/loop/leader_election.h"
#include "controller/loop/leader_guarded_client.h"
#include "tests/controller/sim/connection.h"

namespace lockstep::loop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A connection that can lose the replies to writes and run a function before the next write.
class Wire final : public ApiClient {
 public:
  explicit Wire(ApiClient& api) : api_(api) {}

  void send(ApiRequest request, Done done) override {
    verbs.push_back(request.verb);
    const bool is_write = request.verb == ApiVerb::kReplace;
    if (is_write && before_write) std::exchange(before_write, {})();
    if (is_refusing) return lose(std::move(request), std::move(done), "refused");
    if (!is_write || answers_lost == 0) return api_.send(std::move(request), std::move(done));
    --answers_lost;
    lose(std::move(request), std::move(done), "the answer was lost");
  }
  std::unique_ptr<WatchHandle> watch(WatchRequest request, WatchHandler handler) override {
    return api_.watch(std::move(request), std::move(handler));
  }

  int answers_lost = 0;
  bool is_refusing = false;  // nobody hears an answer
  std::function<void()> before_write{};
  std::vector<ApiVerb> verbs;

 private:
  void lose(ApiRequest request, Done done, const std::string& message) {
    api_.send(std::move(request), [done = std::move(done), message](const ApiReply&) {
      done({.outcome = ApiOutcome::kTimeout, .message = message});
    });
  }

  ApiClient& api_;
};

// One of two replicas on one store. It has its own timers, so that it can be stopped.
struct Replica {
  Replica(sim::World& world, ManualClock& clock, const std::string& name)
      : connection(world, name),
        timers(clock),
        election(
            wire, timers, random, {.identity = name}, [this] { ++started; }, [this] { ++lost; }) {}
  // Returns whether it took the lease and has not noticed a loss since.
  bool leads() const { return started > lost; }
  sim::Connection connection;
  Wire wire{connection};
  Timers timers;
  Random random{5};
  int started = 0;
  int lost = 0;
  LeaderElection election;
};

struct LeaderTest : ::testing::Test {
  ManualClock clock;
  sim::World world{clock, 1};
  Replica a{world, clock, "a"};
  Replica b{world, clock, "b"};
  bool a_is_stopped = false;

  void run(Duration time) {
    const TimePoint end = clock.now() + time;
    while (clock.now() < end) {
      clock.advance(milliseconds(10));
      world.chance.timers.run_due();
      if (!a_is_stopped) a.timers.run_due();
      b.timers.run_due();
    }
  }
  void begin() {
    a.election.start();
    run(seconds(1));
    b.election.start();
    run(seconds(60));
  }
};

TEST_F(LeaderTest, OneLeadsAsLongAsItRenews) {
  begin();
  EXPECT_TRUE(a.leads());
  EXPECT_EQ(a.started, 1);
  EXPECT_EQ(b.started, 0);
}

TEST_F(LeaderTest, AReplicaSaysWhyItKnowsNothingOfTheLease) {
  EXPECT_EQ(b.election.trouble(), "the lease was not read yet");
  b.wire.is_refusing = true;
  b.election.start();
  run(seconds(3));
  const std::string why = "could not read the lease default/lockstep-controller: Timeout: refused";
  EXPECT_EQ(b.election.trouble(), why);
  b.wire.is_refusing = false;
  run(seconds(3));
  EXPECT_EQ(b.election.trouble(), "");
  EXPECT_TRUE(b.leads());
  a.election.start();
  run(seconds(3));
  EXPECT_EQ(a.election.trouble(), "") << "a standby is well";
  a.wire.is_refusing = true;
  run(seconds(8));
  EXPECT_EQ(a.election.trouble(), "") << "trouble that may pass";
  run(seconds(8));
  EXPECT_EQ(a.election.trouble(), why);
}

TEST_F(LeaderTest, AReleasedLeaseIsTakenAtOnce) {
  begin();
  bool done = false;
  a.election.release([&] { done = true; });
  run(seconds(3));
  EXPECT_TRUE(done);
  EXPECT_TRUE(b.leads());
  EXPECT_EQ(a.lost, 0);
}

TEST_F(LeaderTest, AStoppedLeaderIsFollowedAfterTheLeaseAndKnowsWhenItWakes) {
  begin();
  a_is_stopped = true;
  run(seconds(12));
  EXPECT_FALSE(b.leads());
  run(seconds(8));
  EXPECT_TRUE(b.leads());
  a_is_stopped = false;
  run(seconds(1));
  EXPECT_FALSE(a.leads());
  EXPECT_EQ(a.lost, 1);
  EXPECT_TRUE(b.leads());
}

TEST_F(LeaderTest, ALeaderThatStoodStillSendsNothingMoreWhateverItHearsFirst) {
  begin();
  LeaderGuardedClient fence(a.connection, a.timers, [this] { return a.election.is_certain(); });
  EXPECT_TRUE(a.election.is_certain());
  std::vector<ApiOutcome> answers;
  const auto send = [&](ApiVerb verb) {
    ApiRequest request{.verb = verb, .type = kSecrets, .namespace_ = "default", .name = "s"};
    request.body = {{"metadata", {{"namespace", "default"}, {"name", "s"}}}};
    fence.send(std::move(request),
               [&](const ApiReply& reply) { answers.push_back(reply.outcome); });
  };
  run(seconds(2) - milliseconds(5));
  a.connection.stall(clock.now() + seconds(20));  // perhaps while a renewal's reply is on its way
  a_is_stopped = true;
  run(seconds(21));
  ASSERT_TRUE(b.leads());
  EXPECT_TRUE(a.leads());  // it does not know yet
  EXPECT_FALSE(a.election.is_certain());
  send(ApiVerb::kCreate);
  send(ApiVerb::kGet);
  EXPECT_TRUE(answers.empty());
  a.timers.run_due();
  EXPECT_EQ(answers, std::vector{ApiOutcome::kUnavailable});
  run(seconds(1));
  EXPECT_EQ(answers, (std::vector{ApiOutcome::kUnavailable, ApiOutcome::kNotFound}));
}

TEST(LeaderElection, AKilledLeaderIsFollowedWithinSeventeenSecondsWheneverItDied) {
  struct Scene : LeaderTest {
    void TestBody() override {}
  };
  for (int after_ms = 0; after_ms < 2000; after_ms += 90) {
    Scene scene;
    scene.begin();
    scene.run(milliseconds(after_ms));
    scene.a_is_stopped = true;
    const TimePoint killed = scene.clock.now();
    while (!scene.b.leads()) scene.run(milliseconds(10));
    EXPECT_LE(scene.clock.now() - killed, seconds(17)) << after_ms;
    EXPECT_GE(scene.clock.now() - killed, seconds(13)) << after_ms;
  }
}

TEST_F(LeaderTest, ALeaderThatCannotReachTheServerStopsBeforeItsLeaseRunsOut) {
  begin();
  world.chance.rate(sim::Fault::kLostRequest) = 1;
  run(seconds(14));
  EXPECT_FALSE(a.leads());
  EXPECT_EQ(a.lost, 1);
}

TEST_F(LeaderTest, ALeaderWhoseRenewalWasStoredButNotAnsweredStays) {
  begin();
  for (int lost = 1; lost <= 3; ++lost) {
    a.wire.answers_lost = lost;
    run(seconds(30));
    EXPECT_TRUE(a.leads());
    EXPECT_TRUE(a.election.is_certain());
  }
  EXPECT_EQ(a.lost, 0);
  EXPECT_EQ(a.started, 1);
  EXPECT_FALSE(b.leads());
}

TEST_F(LeaderTest, WhoWritesOnTheLeaseOrRemovesItTakesNoLeadershipAway) {
  begin();
  const std::string key = "default/lockstep-controller";
  world.store.update(kLeases, key,
                     [](Json& lease) { lease["metadata"]["annotations"]["note"] = "hello"; });
  run(seconds(5));
  EXPECT_TRUE(a.election.is_certain());
  world.store.remove(kLeases, key);
  run(seconds(5));
  EXPECT_TRUE(a.leads() != b.leads());
  EXPECT_EQ(a.lost, b.leads() ? 1 : 0);
  ASSERT_NE(world.store.find(kLeases, key), nullptr);
}

TEST_F(LeaderTest, TheLastWordsOfWhoGivesUpItsLeaseComeBeforeThat) {
  begin();
  LeaderGuardedClient fence(a.connection, a.timers, [] { return true; });
  ApiRequest request{.verb = ApiVerb::kCreate, .type = kSecrets, .namespace_ = "default"};
  request.body = {{"metadata", {{"namespace", "default"}, {"name", "s"}}}};
  bool is_written = false;
  bool is_quiet = false;
  fence.send(std::move(request), [&](const ApiReply&) { is_written = true; });
  fence.when_writes_done([&] { is_quiet = true; });
  EXPECT_FALSE(is_quiet);
  run(seconds(1));
  EXPECT_TRUE(is_written);
  EXPECT_TRUE(is_quiet);
  is_quiet = false;
  fence.when_writes_done([&] { is_quiet = true; });
  EXPECT_TRUE(is_quiet);
}

TEST_F(LeaderTest, ALeaseThatAnotherHoldsIsLostAtTheNextRenewal) {
  begin();
  world.store.update(kLeases, "default/lockstep-controller",
                     [](Json& lease) { lease["spec"]["holderIdentity"] = "c"; });
  run(seconds(3));
  EXPECT_FALSE(a.leads());
  EXPECT_EQ(a.lost, 1);
}

TEST_F(LeaderTest, ALeaseIsReleasedThoughARenewalIsOnItsWay) {
  begin();
  const size_t before = a.wire.verbs.size();
  while (a.wire.verbs.size() == before) run(milliseconds(10));  // until a renewal has been sent
  bool done = false;
  a.election.release([&] { done = true; });
  run(seconds(3));
  EXPECT_TRUE(done);
  EXPECT_TRUE(b.leads());
}

TEST_F(LeaderTest, ALeaseIsReleasedThoughSomebodyChangedIt) {
  begin();
  a.wire.before_write = [this] {
    world.store.update(kLeases, "default/lockstep-controller",
                       [](Json& lease) { lease["metadata"]["annotations"]["note"] = "hello"; });
  };
  bool done = false;
  a.election.release([&] { done = true; });
  run(seconds(3));
  EXPECT_TRUE(done);
  EXPECT_TRUE(b.leads());
}

}  // namespace
}  // namespace lockstep::loop
