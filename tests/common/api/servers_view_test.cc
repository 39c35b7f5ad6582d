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
        "2:-2@1/>2/10.0.0.7", "2:+2@1/10.0.0.3>2/", "2:2@2/10.0.0.3>1/10.0.0.7",
        "1:1@1/10.0.0.3>2/10.0.0.7", "2:2@0/10.0.0.3>2/10.0.0.7", "2:2@1/Host>2/10.0.0.7",
        "2:2@1/10.0.0.3>2/10.0.0.7>3/1.1",
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

TEST(ServersView, SaysWhichServersComeAndGo) {
  ServersView view = first_servers_view(2, 8);
  EXPECT_EQ(text_of(view), "1:1,1#8");
  view = view_with_new_server(view, {1, "10.0.0.9"});
  EXPECT_EQ(text_of(view), "2:1,1,*-2@>1/10.0.0.9#8");
  EXPECT_EQ(counted_servers(view), 2u);
  view = next_view(view, 2, ServerState::kJoining);
  EXPECT_EQ(text_of(view), "3:1,1,*+3@>1/10.0.0.9#8");
  view = moved_view(view, {{2, {.from = {}, .to = {2, ""}}}});
  EXPECT_EQ(text_of(view), "4:1,1,*-4@>2/#8");
  EXPECT_EQ(parsed(text_of(view)), view);
  view = moved_view(view, {{2, {.from = {}, .to = {2, "10.0.0.7"}}}});
  view = next_view(next_view(view, 2, ServerState::kJoining), 2, ServerState::kWhole);
  EXPECT_EQ(text_of(view), "7:1,1,7@>2/10.0.0.7#8");
  EXPECT_EQ(counted_servers(view), 3u);
  EXPECT_EQ(first_servers(view), 2u);
  view = view_with_leaving_server(view);
  EXPECT_EQ(text_of(view), "8:1,1,7~8@>2/10.0.0.7#8");
  EXPECT_EQ(servers_changed_in(view), 8);
  EXPECT_EQ(text_of(next_view(view, 2, ServerState::kGone)), "9:1,1,-9@>2/10.0.0.7#8");
  view = view_without_last_server(view, {}, 3);
  EXPECT_EQ(text_of(view), "9:1,1,!9@>3/#8");
  view = view_without_last_server(view_with_leaving_server(view), {1, "10.0.0.3"}, 2);
  EXPECT_EQ(text_of(view), "11:1,!11@1/10.0.0.3>2/,!9@>3/#8");
  EXPECT_EQ(first_servers(view), 2u);
  EXPECT_EQ(counted_servers(view), 1u);
  view = view_with_new_server(view, {2, "10.0.0.4"});
  EXPECT_EQ(text_of(view), "12:1,*11-12@1/10.0.0.3>2/10.0.0.4,!9@>3/#8");
  EXPECT_EQ(parsed(text_of(view)), view);
  EXPECT_EQ(text_of(next_view(view, 1, ServerState::kWhole)),
            "13:1,13@1/10.0.0.3>2/10.0.0.4,!9@>3/#8");
}

TEST(ServersView, SaysWhichWorkersAreInOtherPods) {
  ServersView view = view_with_new_worker(first_servers_view(2, 8), 1);
  view = moved_view(view, {}, {{0, {.from = {1, "10.0.0.2"}, .to = {2, ""}}}});
  EXPECT_EQ(text_of(view), "3:1,1#8;0@3@1/10.0.0.2>2/,1@2");
  EXPECT_EQ(parsed(text_of(view)), view);
  EXPECT_EQ(servers_changed_in(view), 1);
  EXPECT_EQ(worker_since(view, 0), 3);
  view = moved_view(view, {}, {{0, {.from = {2, "10.0.0.9"}, .to = {3, ""}}}});
  EXPECT_EQ(text_of(view), "4:1,1#8;0@4@1/10.0.0.2>3/,1@2");
  EXPECT_EQ(text_of(view_with_new_worker(view, 0)), "5:1,1#8;0@5@1/10.0.0.2>3/,1@2");
  for (const char* text : {"2:1;0@2@1/1.1>2/", "2:1#8;0@2@", "2:1#8;0@2@1/1.1", "2:1#8;0@2@1/1.1>2",
                           "2:1#8;0@2@1/>2/", "2:1#8;0@2@2/1.1>2/"}) {
    EXPECT_FALSE(servers_view_from_text(text).ok()) << text;
  }
}

TEST(ServersView, RefusesServersThatCannotComeOrGo) {
  for (const char* text : {"1:1,1#",
                           "1:1,1#0",
                           "1:1,1#08",
                           "1:1,1#1",
                           "1:1,1#1025",
                           "1:1#8#8",
                           "1:1;0@2#8",
                           "2:1,*-2@>1/10.0.0.9",
                           "2:1~2",
                           "2:1,!2@1/10.0.0.3>2/",
                           "2:1,*2@>1/1.1#8",
                           "2:1,*-2#8",
                           "3:1,*3-3@>1/1.1#8",
                           "3:1,*1-3@>1/1.1#8",
                           "2:1,-2@>1/1.1,1#8",
                           "2:1~1#8",
                           "3:1,1~4#8",
                           "3:1~3,1#8",
                           "3:!3@1/1.1>2/,1#8",
                           "3:!3@1/1.1>2/#8",
                           "2:!2#8",
                           "4:1~3,*-4@>1/1.1#8",
                           "4:1,*-3@>1/1.1,*-4@>1/1.2#8",
                           "3:1,!2@>2/,*-3@>1/1.1#8",
                           "2:-2~2,1#8",
                           "2:1,*+2@>1/#8",
                           "2:1,2@>0/1.1#8"}) {
    EXPECT_FALSE(servers_view_from_text(text).ok()) << text;
  }
  EXPECT_EQ(servers_view_from_text("2:1,1,*-2@>1/1.1#8", 3).error().message,
            "[servers view] expected 3 servers, got 2");
}

}  // namespace
}  // namespace lockstep
