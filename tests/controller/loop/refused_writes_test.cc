// The events and conditions that users see when the server refuses the controller's writes.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/controller/support/one_job.h"

namespace lockstep::loop {
namespace {

using std::chrono::seconds;

struct RefusedWrites : plan::OneJobTest {
  int64_t told(std::string_view reason) const {
    return std::count_if(api.events.begin(), api.events.end(),
                         [reason](const Json& event) { return event["reason"] == reason; });
  }
};

TEST_F(RefusedWrites, APodThatTheServerFailsToMakeIsSaidInTheServersWords) {
  api.next_pod.message =
      "HTTP 500: Internal error occurred: failed calling webhook \"mesh.example\"";
  controller.start();
  pass(seconds(60));
  const Json scheduled = api.condition(kPodsScheduled);
  ASSERT_TRUE(scheduled.is_object());
  EXPECT_EQ(scheduled["status"], "False");
  EXPECT_EQ(scheduled["reason"], "PodCreateFailed");
  EXPECT_EQ(scheduled["message"], api.next_pod.message);
  EXPECT_EQ(told("PodCreateFailed"), 1);
  EXPECT_LT(api.made, 20) << "and is asked for more and more rarely";
}

TEST_F(RefusedWrites, AServerThatIsBusyIsNoTrouble) {
  api.next_pod = {.outcome = ApiOutcome::kThrottled, .retry_after = seconds(1)};
  controller.start();
  pass(seconds(60));
  EXPECT_GT(api.made, 3);
  EXPECT_EQ(told("PodCreateFailed"), 0);
}

TEST_F(RefusedWrites, AStatusThatTheServerNeverTakesIsToldOnce) {
  api.next_status = {.outcome = ApiOutcome::kInvalid,
                     .message = "HTTP 422: TrainingJob is invalid: status.x: Too long"};
  controller.start();
  pass(seconds(300));
  ASSERT_EQ(told("StatusRefused"), 1);
  EXPECT_EQ(api.events[0]["note"], api.next_status.message);
  EXPECT_EQ(api.events[0]["type"], "Warning");
  api.next_status.outcome = ApiOutcome::kOk;
  pass(seconds(60));
  EXPECT_TRUE(api.condition(kValid).is_object()) << "and goes on";
}

}  // namespace
}  // namespace lockstep::loop
