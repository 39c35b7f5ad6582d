#include "common/api/servers_view.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

ServersView parsed(std::string_view text) {
  const Result<ServersView> view = servers_view_from_text(text);
  EXPECT_TRUE(view.ok()) << text;
  return view.ok() ? *view : ServersView();
}

TEST(ServersView, HasOneText) {
  EXPECT_EQ(text_of(first_servers_view(3)), "1:1,1,1");
  ServersView view = first_servers_view(3);
  view = next_view(view, 1, ServerState::kGone);
  EXPECT_EQ(text_of(view), "2:1,-2,1");
  view = next_view(view, 1, ServerState::kJoining);
  EXPECT_EQ(text_of(view), "3:1,+3,1");
  EXPECT_EQ(joining_server(view), 1u);
  view = next_view(view, 1, ServerState::kWhole);
  EXPECT_EQ(text_of(view), "4:1,4,1");
  EXPECT_EQ(joining_server(view), 3u);
  for (const char* text : {"1:1", "2:1,-2,1", "3:1,+3,1", "17:1,-2,+17,9", "9223372036854775807:1"})
    EXPECT_EQ(text_of(parsed(text)), text);
}

TEST(ServersView, SaysToWhichPodAServerMoved) {
  ServersView view = next_view(first_servers_view(2), 1, ServerState::kGone);
  EXPECT_FALSE(has_moved_server(view));
  view = moved_view(view, {{1, {.from = {1, "10.0.0.3"}, .to = {2, ""}}}});
  EXPECT_EQ(text_of(view), "3:1,-3@1/10.0.0.3>2/");
  EXPECT_EQ(parsed(text_of(view)), view);
  view = moved_view(view, {{1, {.from = {}, .to = {2, "10.0.0.7"}}}});
  EXPECT_EQ(text_of(view), "4:1,-4@1/10.0.0.3>2/10.0.0.7");
  view = next_view(view, 1, ServerState::kJoining);
  EXPECT_EQ(text_of(view), "5:1,+5@1/10.0.0.3>2/10.0.0.7");
  EXPECT_TRUE(has_moved_server(view));
  EXPECT_EQ(parsed(text_of(view)), view);
  view = moved_view(view, {{1, {.from = {2, "10.0.0.7"}, .to = {3, "fe80::1"}}}});
  EXPECT_EQ(text_of(view), "6:1,-6@1/10.0.0.3>3/fe80::1");
  EXPECT_EQ(parsed(text_of(view)), view);
}

TEST(ServersView, SaysWhichWorkersWereStartedAnew) {
  ServersView view = view_with_new_worker(first_servers_view(2), 3);
  EXPECT_EQ(text_of(view), "2:1,1;3@2");
  view = next_view(view, 0, ServerState::kGone);
  view = view_with_new_worker(view, 0);
  EXPECT_EQ(text_of(view), "4:-3,1;0@4,3@2");
  EXPECT_EQ(parsed(text_of(view)), view);
  EXPECT_EQ(servers_changed_in(view), 3);
  view = view_with_new_worker(view, 3);
  EXPECT_EQ(text_of(view), "5:-3,1;0@4,3@5");
  EXPECT_EQ(servers_changed_in(view), 3);
  EXPECT_EQ(worker_since(view, 3), 5);
  EXPECT_EQ(worker_since(view, 1), 1);
  EXPECT_EQ(servers_changed_in(first_servers_view(2)), 1);
  EXPECT_EQ(text_of(parsed("2:1;65535@2")), "2:1;65535@2");
  for (const char* text : {"2:1;", "2:1;0", "2:1;0@", "2:1;0@1", "2:1;0@3", "2:1;00@2", "2:1;-1@2",
                           "2:1;0@2,", "2:1;0@2,0@2", "3:1;1@2,0@3", "2:1;0@2;1@2", "2;0@2",
                           "2:;0@2", "2:1;0@2/", "2:1;65536@2", "2:1;99999999999@2"}) {
    EXPECT_FALSE(servers_view_from_text(text).ok()) << text;
  }
}

TEST(ServersView, RefusesMovesThatCannotBe) {
  for (const char* text :
       {"2:2@", "2:2@1/10.0.0.3", "2:2@1/10.0.0.3>", "2:2@1/10.0.0.3>2", "2:2@1/10.0.0.3>2/",
        "2:-2@1/>2/10.0.0.7", "2:+2@1/10.0.0.3>2/", "2:2@1/10.0.0.3>1/10.0.0.7",
        "2:2@2/10.0.0.3>1/10.0.0.7", "1:1@1/10.0.0.3>2/10.0.0.7", "2:2@0/10.0.0.3>2/10.0.0.7",
        "2:2@1/Host>2/10.0.0.7", "2:2@1/10.0.0.3>2/10.0.0.7>3/1.1",
        "2:2@1/10.0.0.3>2/0123456789012345678901234567890123456789012345"}) {
    EXPECT_FALSE(servers_view_from_text(text).ok()) << text;
  }
}

TEST(ServersView, RefusesEveryOtherText) {
  for (const char* text : {"",
                           "1",
                           "1:",
                           "0:1",
                           "1:0",
                           "01:1",
                           "1:01",
                           "1: 1",
                           "1:1,",
                           "1:1,,1",
                           "1,1",
                           "-1:1",
                           "1:--1",
                           "1:+-1",
                           "1:1;1",
                           "1:1:1",
                           "9223372036854775808:1",
                           "1:x",
                           "2:3",
                           "1:-1",
                           "1:+1",
                           "2:-2",
                           "2:+2,-2",
                           "4:1,+2,+3"}) {
    const Result<ServersView> view = servers_view_from_text(text);
    ASSERT_FALSE(view.ok()) << text;
    EXPECT_EQ(view.error().code, Code::kInvalid);
  }
  EXPECT_FALSE(servers_view_from_text("1:1" + std::string(kServersViewBytesMax, ' ')).ok());
  EXPECT_FALSE(servers_view_from_text(text_of(first_servers_view(kServersInViewMax + 1))).ok());
  EXPECT_TRUE(servers_view_from_text(text_of(first_servers_view(kServersInViewMax))).ok());
}

TEST(ServersView, TheLongestFits) {
  ServersView view = first_servers_view(kServersInViewMax);
  view.number = INT64_MAX;
  for (ServerStanding& server : view.servers) server.since = INT64_MAX;
  EXPECT_LE(text_of(view).size(), kServersViewBytesMax);
  EXPECT_EQ(parsed(text_of(view)), view);
}

TEST(ServersView, NoTextIsTheFirstView) {
  EXPECT_EQ(*servers_view_from_text("", 2), first_servers_view(2));
  EXPECT_EQ(*servers_view_from_text("2:1,-2", 2), parsed("2:1,-2"));
  EXPECT_EQ(servers_view_from_text("2:1,-2", 3).error().message,
            "[servers view] expected 3 servers, got 2");
}

TEST(ServersView, SaysWhetherEverythingIsHeld) {
  struct Case {
    const char* view;
    int64_t copies;
    bool expected;
  };
  for (const Case& test : std::initializer_list<Case>{{"1:1,1,1", 0, true},
                                                      {"2:1,-2,1", 0, false},
                                                      {"2:1,-2,1", 1, true},
                                                      {"3:1,-2,-3", 1, false},
                                                      {"3:-3,-2,1", 1, false},
                                                      {"3:1,-2,-3", 2, true},
                                                      {"3:1,-2,1,-3", 1, true},
                                                      {"3:-2,1,1,-3", 1, false},
                                                      {"4:1,+4,-3", 1, false},
                                                      {"3:1,-2", 1, true}})
    EXPECT_EQ(holds_everything(parsed(test.view), test.copies), test.expected) << test.view;
}

}  // namespace
}  // namespace lockstep
