#include "common/api/server_places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/base/random.h"

namespace lockstep {
namespace {

using Places = std::vector<PlaceHolders>;

ServersView view_from(std::string_view text) {
  const Result<ServersView> view = servers_view_from_text(text);
  EXPECT_TRUE(view.ok()) << text;
  return view.ok() ? *view : ServersView();
}

Places holders(const std::string& text, int64_t copies = 0) {
  return holders_of_places(view_from(text), copies);
}

std::map<size_t, size_t> counts(const Places& places) {
  std::map<size_t, size_t> counts;
  for (const PlaceHolders& place : places) {
    for (const size_t server : place.chain) ++counts[server];
  }
  return counts;
}

std::set<size_t> all_of(const PlaceHolders& place) {
  return {place.chain.begin(), place.chain.end()};
}

TEST(ServerPlaces, AreSeveralForEachServerOfASmallRound) {
  EXPECT_EQ(places_for(1), 8);
  EXPECT_EQ(places_for(2), 8);
  EXPECT_EQ(places_for(5), 20);
  EXPECT_EQ(places_for(64), 256);
  EXPECT_EQ(places_for(1000), 1000);
}

TEST(ServerPlaces, BeginAtTheServerOfTheirNumber) {
  EXPECT_EQ(holders("1:1,1,1", 1), (Places{{{0, 1}}, {{1, 2}}, {{2, 0}}}));
  const Places places = holders("1:1,1#4");
  EXPECT_EQ(places, (Places{{{0}}, {{1}}, {{0}}, {{1}}}));
}

TEST(ServerPlaces, FillANewServerBeforeItCounts) {
  const Places before = holders("1:1,1#8");
  EXPECT_EQ(holders("2:1,1,*-2@>1/1.1#8"), before);
  const Places during = holders("3:1,1,*+3@>1/1.1#8");
  const Places after = holders("4:1,1,4@>1/1.1#8");
  EXPECT_EQ(counts(after), (std::map<size_t, size_t>{{0, 3}, {1, 3}, {2, 2}}));
  for (size_t place = 0; place < before.size(); ++place) {
    EXPECT_EQ(during[place].chain, before[place].chain);
    const bool is_taken = after[place].chain != before[place].chain;
    EXPECT_EQ(during[place].joining, is_taken ? std::optional<size_t>(2) : std::nullopt);
  }
}

TEST(ServerPlaces, HandOverWhatAServerThatLeavesHolds) {
  const Places before = holders("1:1,1,1#12", 1);
  const Places during = holders("2:1,1,1~2#12", 1);
  const Places after = holders("3:1,1,!3@1/1.1>2/#12", 1);
  EXPECT_EQ(counts(after), (std::map<size_t, size_t>{{0, 12}, {1, 12}}));
  for (size_t place = 0; place < before.size(); ++place) {
    EXPECT_EQ(during[place].chain, before[place].chain);
    const bool held = all_of(before[place]).contains(2);
    EXPECT_EQ(during[place].joining.has_value(), held);
    if (!held) continue;
    EXPECT_EQ(after[place].chain.back(), *during[place].joining);
  }
  EXPECT_EQ(counts(holders("5:1,1,5@1/1.1>2/1.2#12", 1)), counts(before))
      << "a server that is added again takes its places back";
}

TEST(ServerPlaces, AreFilledForTheirOwnServersFirst) {
  for (const PlaceHolders& place : holders("4:1,+4,1~2#12", 1)) {
    if (place.joining == std::optional<size_t>(1)) continue;
    EXPECT_FALSE(all_of(place).contains(1));
  }
}

// Random lives: every place is always held, chains grow and shrink by one server at a time as
// servers can follow it, and the shares differ by one place.
void live_with_places(uint64_t seed, int64_t copies) {
  Random random(seed);
  const size_t first = static_cast<size_t>(copies) + 1 + random.below(3);
  ServersView view = first_servers_view(first, places_for(first));
  Places before = holders_of_places(view, copies);
  for (int event = 0; event < 40; ++event) {
    const size_t counted = counted_servers(view);
    const bool adds = counted < view.servers.size() && view.servers[counted].is_new;
    const bool leaves = view.servers[counted - 1].state == ServerState::kLeaving;
    if (adds) {
      const bool is_gone = view.servers[counted].state == ServerState::kGone;
      view = next_view(view, counted, is_gone ? ServerState::kJoining : ServerState::kWhole);
    } else if (leaves) {
      view = view_without_last_server(view, {1, "1.1"}, 2);
    } else if (random.below(2) == 0 && counted < 9) {
      view = view_with_new_server(view, {2, "1.2"});
    } else if (counted > static_cast<size_t>(copies) + 1) {
      view = view_with_leaving_server(view);
    }
    ASSERT_EQ(view_from(text_of(view)), view) << seed;
    const Places now = holders_of_places(view, copies);
    ASSERT_TRUE(holds_everything(view, copies)) << text_of(view);
    size_t most = 0;
    size_t least = SIZE_MAX;
    const auto shares = counts(now);
    for (size_t server = 0; server < counted_servers(view); ++server) {
      const auto share = shares.find(server);
      const size_t count = share == shares.end() ? 0 : share->second;
      most = std::max(most, count);
      least = std::min(least, count);
    }
    EXPECT_LE(most - least, 2u) << text_of(view);
    for (size_t place = 0; place < now.size(); ++place) {
      EXPECT_EQ(now[place].chain.size(), static_cast<size_t>(copies) + 1) << text_of(view);
      std::vector<size_t> may_be = before[place].chain;
      if (before[place].joining) may_be.push_back(*before[place].joining);
      auto at = may_be.begin();
      for (const size_t server : now[place].chain) {
        at = std::find(at, may_be.end(), server);
        ASSERT_NE(at, may_be.end()) << text_of(view) << ", place " << place;
        ++at;
      }
    }
    before = now;
  }
}

TEST(ServerPlaces, FollowOneAnotherAsServersCan) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    for (const int64_t copies : {0, 1, 2}) ASSERT_NO_FATAL_FAILURE(live_with_places(seed, copies));
  }
}

TEST(ServerPlaces, SayWhetherEverythingIsHeld) {
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
    EXPECT_EQ(holds_everything(view_from(test.view), test.copies), test.expected) << test.view;
}

}  // namespace
}  // namespace lockstep
