// Tests the events that a node records about its pods, on a manual clock.
#include <gtest/gtest.h>

#include "local/node/embedded_node_api.h"
#include "local/node/event_recorder.h"
#include "tests/local/store/api_fixture.h"

namespace lockstep::local {
namespace {

constexpr char kEvents[] = "/api/v1/namespaces/default/events";

class EventRecorderTest : public ApiTest {
 protected:
  void say(const std::string& uid, const std::string& reason) {
    events_.normal({"kubelet", "m0"},
                   {.kind = "Pod", .namespace_ = "default", .name = "p-" + uid, .uid = uid}, reason,
                   "it is said of " + uid);
  }
  // Returns the count of each event.
  std::vector<int64_t> counts() {
    std::vector<int64_t> counts;
    const ApiResponse events = get(kEvents);
    for (const Json& event : events.body["items"]) counts.push_back(event["count"]);
    return counts;
  }

  EmbeddedNodeApi node_api_{api_};
  ApiCaller caller_{node_api_};
  EventRecorder events_{caller_, clock_, 7, {.remembered_max = 4, .burst = 3}};
};

TEST_F(EventRecorderTest, WhatIsSaidAgainIsCounted) {
  say("a", "Started");
  say("a", "Started");
  say("b", "Started");
  EXPECT_EQ(counts(), (std::vector<int64_t>{2, 1}));
}

TEST_F(EventRecorderTest, HoldsNothingOfAPodThatIsGone) {
  say("a", "Scheduled");
  say("a", "Started");
  say("a1", "Started");
  events_.forget("a");
  events_.forget("a");
  say("a1", "Started");
  for (int i = 0; i < 3; ++i) say("a", "Started");
  EXPECT_EQ(counts(), (std::vector<int64_t>{1, 1, 3, 2}))
      << "of a, as if nothing had been said before; a1 is another pod";
}

TEST_F(EventRecorderTest, RemembersTheNewestOfMany) {
  for (const char* uid : {"a", "b", "c", "d", "e"}) say(uid, "Started");
  events_.forget("b");
  say("f", "Started");
  say("e", "Started");
  say("a", "Started");  // the oldest, no longer remembered
  EXPECT_EQ(counts(), (std::vector<int64_t>{1, 1, 1, 1, 1, 2, 1}));
}

}  // namespace
}  // namespace lockstep::local
