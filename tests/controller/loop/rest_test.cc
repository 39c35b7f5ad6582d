// A job whose plans take long is planned less often, so that the others find the thread free.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "controller/loop/controller.h"
#include "tests/controller/sim/fake_store.h"
#include "tests/controller/support/fake_api.h"
#include "tests/controller/support/no_agents.h"

namespace lockstep::loop {
namespace {

using std::chrono::milliseconds;

// Two jobs that want to be planned every 10 ms. Plans of "large" take `cost` of the thread's time.
struct RestTest : ::testing::Test {
  ManualClock clock;
  Timers timers{clock};
  Random random{1};
  plan::FakeApi api;
  plan::NoAgents agents;
  sim::FakeStore store;
  Duration worked{};
  Duration cost{};
  std::map<std::string, int> plans;
  Controller controller{api, agents, timers, random, options(), [] {}};

  ControllerOptions options() {
    ControllerOptions options{.key = "k"};
    options.worked = [this] { return worked; };
    options.plan = [this](const plan::Observed& seen, TimePoint now, const plan::Limits&) {
      const std::string& name = seen.job.metadata.name;
      ++plans[name];
      if (name == "large") worked += cost;
      return plan::Plan{.requeue_at = now + milliseconds(10)};
    };
    return options;
  }
  void run(Duration time) {
    for (const char* name : {"large", "small"}) {
      store.create(kTrainingJobs,
                   {{"apiVersion", "lockstep.dev/v1alpha1"},
                    {"kind", "TrainingJob"},
                    {"metadata", {{"name", name}, {"namespace", "ns"}}},
                    {"spec", {{"nodes", 1}, {"image", "i"}, {"command", {"train"}}}}},
                   timers.wall_now());
    }
    controller.start();
    for (Duration passed{}; passed < time; passed += milliseconds(1)) {
      while (!api.asked.empty()) {
        plan::FakeApi::Asked asked = std::move(api.asked.front());
        api.asked.pop_front();
        asked.done(store.serve(asked.request, timers.wall_now(), "controller"));
      }
      clock.advance(milliseconds(1));
      timers.run_due();
    }
  }
};

TEST_F(RestTest, AJobOfLongPlansIsPlannedForATwentiethOfTheTime) {
  cost = milliseconds(20);
  run(std::chrono::seconds(4));
  EXPECT_NEAR(plans["large"], 11, 1);  // every 20 x 19 ms, and one of the credit
  EXPECT_GT(plans["small"], 300);
}

TEST_F(RestTest, AJobThatIsNewIsPlannedAFewTimesWithoutARest) {
  cost = milliseconds(6);
  run(milliseconds(45));
  EXPECT_EQ(plans["large"], 5);  // 4 x 6 ms are less than the credit
  EXPECT_EQ(plans["small"], plans["large"]);
}

TEST_F(RestTest, NoJobRestsForMoreThanASecond) {
  cost = std::chrono::seconds(5);
  run(std::chrono::seconds(10));
  EXPECT_NEAR(plans["large"], 10, 1);
}

TEST_F(RestTest, ShortPlansDoNotRest) {
  cost = milliseconds(1);
  run(std::chrono::seconds(4));
  EXPECT_EQ(plans["large"], plans["small"]);
}

TEST(ThreadShareTest, ProgressWaitsLongerThanOtherWork) {
  ThreadShare share({});
  const auto charge = [&](Duration cost) { return share.charge("job", cost, TimePoint{}); };
  EXPECT_EQ(charge(std::chrono::microseconds(499)).progress, Duration::zero());
  EXPECT_EQ(charge(milliseconds(1)).progress, milliseconds(199));
  EXPECT_EQ(charge(milliseconds(1)).routine, Duration::zero());
  const ThreadShare::Rests rests = charge(std::chrono::seconds(1));
  EXPECT_GT(rests.routine, milliseconds(999));
  EXPECT_LE(rests.routine, std::chrono::seconds(1));
  EXPECT_EQ(rests.progress, std::chrono::seconds(2));
}

}  // namespace
}  // namespace lockstep::loop
