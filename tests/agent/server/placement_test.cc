// Placing parameters on servers.
#include "agent/server/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "agent/server/routing.h"
#include "common/api/server_places.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "tests/agent/server/servers.h"

namespace lockstep::server {
namespace {

Catalog catalog() {
  return {.tensors = {{.name = "wte", .count = 1'000'003}, {.name = "bias", .count = 7}},
          .tables = {{.name = "user", .dim = 4}}};
}

View placed(const std::vector<uint32_t>& servers, const PlacementOptions& options) {
  auto view = place(catalog(), {.round = 7, .workers = {0, 1}, .servers = servers}, options);
  CHECK(view.ok());
  return *std::move(view);
}

std::shared_ptr<const View> shared(View view) {
  return std::make_shared<const View>(std::move(view));
}

TEST(Placement, CutsTensorsIntoNearlyEqualRangesOnTheLeastLoadedServers) {
  const View view = placed({2, 3, 5}, {.range_elements_max = 100'000});
  ASSERT_EQ(view.ranges.size(), 12u);
  std::map<uint32_t, uint64_t> loads;
  for (const DenseRange& range : view.ranges) {
    if (range.tensor == 0) {
      EXPECT_NEAR(static_cast<double>(range.end - range.begin), 90'909, 1);
    }
    loads[range.chain.front()] += range.end - range.begin;
  }
  ASSERT_EQ(loads.size(), 3u);
  for (const auto& [server, load] : loads) EXPECT_LE(load, 4u * 90'910) << server;
  EXPECT_EQ(view, placed({2, 3, 5}, {.range_elements_max = 100'000}));
}

TEST(Placement, GivesEachRangeAndSlotAChainOfDifferentServers) {
  const View view = placed({2, 3, 5, 6}, {.copies = 2});
  for (const DenseRange& range : view.ranges) EXPECT_EQ(range.chain.size(), 3u);
  std::set<uint32_t> primaries;
  for (const Holders& slot : view.slots) {
    EXPECT_EQ(std::set<uint32_t>(slot.chain.begin(), slot.chain.end()).size(), 3u);
    primaries.insert(slot.chain.front());
  }
  EXPECT_EQ(primaries.size(), 4u);
}

// With v virtual nodes the share of a server deviates by about 1 / sqrt(v).
TEST(Placement, SpreadsRowsEvenly) {
  const Routing routing(shared(placed({2, 3, 5, 6}, {.virtual_nodes = 256})));
  std::map<uint32_t, double> rows;
  constexpr int kKeys = 40'000;
  for (uint64_t key = 0; key < kKeys; ++key) ++rows[test::primary_of(routing, key)];
  for (const auto& [server, count] : rows) {
    EXPECT_NEAR(count * 4 / kKeys, 1.0, 4.0 / std::sqrt(256.0)) << server;
  }
}

TEST(Placement, MovesOnlyTheRowsThatANewServerGets) {
  const Routing before(shared(placed({2, 3, 5}, {})));
  const Routing after(shared(placed({2, 3, 4, 5}, {})));
  int moved = 0;
  constexpr int kKeys = 20'000;
  for (uint64_t key = 0; key < kKeys; ++key) {
    if (test::primary_of(before, key) == test::primary_of(after, key)) continue;
    EXPECT_EQ(test::primary_of(after, key), 4u);
    ++moved;
  }
  EXPECT_NEAR(static_cast<double>(moved) / kKeys, 0.25, 0.1);
}

TEST(Placement, RefusesMoreCopiesThanServers) {
  const auto refused = place(catalog(), {.workers = {0}, .servers = {2, 3}}, {.copies = 2});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_NE(refused.error().message.find("expected 3 to 1024 servers for 2 copies, got 2"),
            std::string::npos)
      << refused.error().message;
}

ServersView standing(const std::string& text) {
  const auto view = servers_view_from_text(text);
  CHECK(view.ok());
  return *view;
}

// Returns the chain of the slot whose first primary is rank 2, in this view.
Holders slot_of(const View& first, const std::string& text) {
  const auto view = view_of(first, 2, standing(text));
  CHECK(view.ok());
  EXPECT_EQ(view->number, static_cast<uint64_t>(standing(text).number));
  return view->slots.front();
}

TEST(Views, OrderAChainByHowLongItsServersAreWhole) {
  const View first = placed({2, 3, 4, 5}, {.copies = 2});
  EXPECT_EQ(slot_of(first, "1:1,1,1,1"), (Holders{{2, 3, 4}}));
  EXPECT_EQ(slot_of(first, "2:-2,1,1,1"), (Holders{{3, 4}}));
  EXPECT_EQ(slot_of(first, "3:+3,1,1,1"), (Holders{{3, 4}, 2}));
  EXPECT_EQ(slot_of(first, "4:4,1,1,1"), (Holders{{3, 4, 2}}));
  EXPECT_EQ(slot_of(first, "7:4,7,1,1"), (Holders{{4, 2, 3}}));
  EXPECT_EQ(slot_of(first, "5:1,1,1,+5"), (Holders{{2, 3, 4}})) << "it is not in the chain";
}

TEST(Views, NeedAServerOfEachChain) {
  const View first = placed({2, 3, 4}, {.copies = 1});
  EXPECT_TRUE(view_of(first, 2, standing("2:-2,1,1")).ok());
  for (const char* text : {"3:-2,-3,1", "4:-2,+4,1"}) {
    const auto refused = view_of(first, 2, standing(text));
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_EQ(refused.error().code, Code::kConflict);
    EXPECT_NE(refused.error().message.find("all servers of a chain are gone"), std::string::npos);
  }
  const auto other = view_of(first, 2, standing("2:-2,1"));
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, Code::kInvalid);
}

std::vector<Holders> holders_of_all(const View& view) {
  std::vector<Holders> all = view.slots;
  for (const DenseRange& range : view.ranges) all.push_back({range.chain, range.joining});
  return all;
}

// A server's process, as far as views concern it.
struct Follower {
  View view;
  ServersView seen;
};

// Random lives of servers: each living one follows some of the views, as a controller guarantees.
void live(uint64_t seed, uint32_t copies) {
  const std::vector<uint32_t> ranks = {2, 3, 4, 5, 6};
  const View first = placed(ranks, {.copies = copies});
  Random random(seed);
  ServersView now = first_servers_view(ranks.size());
  std::vector<Follower> followers(ranks.size(), {first, now});
  const auto follow = [&](size_t server) {
    const auto next = view_of(first, 2, now);
    ASSERT_TRUE(next.ok());
    ASSERT_TRUE(check_view(*next, catalog()).ok());
    Follower& follower = followers[server];
    const auto before = holders_of_all(follower.view);
    const auto after = holders_of_all(*next);
    const auto rank = ranks[server];
    for (size_t i = 0; i < before.size(); ++i) {
      const auto& chain = after[i].chain;
      if (std::ranges::find(chain, rank) == chain.end()) continue;
      EXPECT_TRUE(may_become(before[i], after[i])) << "seed " << seed << ", " << text_of(now);
    }
    follower = {*next, now};
  };
  for (int event = 0; event < 60; ++event) {
    const size_t server = random.below(ranks.size());
    const ServerStanding standing = now.servers[server];
    const bool all_know = std::ranges::all_of(followers, [&](const Follower& follower) {
      return follower.seen.number >= standing.since;
    });
    ServersView next = now;
    if (standing.state == ServerState::kGone) {
      if (joining_server(now) == ranks.size() && all_know) {
        next = next_view(now, server, ServerState::kJoining);
      }
    } else if (standing.state == ServerState::kJoining && random.below(2) == 0) {
      // It is filled once all follow the newest view.
      for (size_t other = 0; other < ranks.size(); ++other) follow(other);
      next = next_view(now, server, ServerState::kWhole);
    } else {
      next = next_view(now, server, ServerState::kGone);
      if (!holds_everything(next, copies)) continue;
    }
    if (next == now) continue;
    now = next;
    const auto view = view_of(first, 2, now);
    ASSERT_TRUE(view.ok());
    for (const Holders& holders : holders_of_all(*view)) {
      EXPECT_EQ(now.servers[holders.chain.front() - 2].state, ServerState::kWhole);
    }
    // The new process of a server that is gone begins in that view.
    if (now.servers[server].state == ServerState::kGone) followers[server] = {*view, now};
    for (size_t other = 0; other < ranks.size(); ++other) {
      if (random.below(2) == 0 && followers[other].seen.number < now.number) follow(other);
    }
  }
}

TEST(Views, CanBeFollowedByLivingServersThatSkipSome) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    for (const uint32_t copies : {1u, 2u}) ASSERT_NO_FATAL_FAILURE(live(seed, copies));
  }
}

TEST(Routing, SplitsKeysBySlotAndKeepsTheirPlaces) {
  const Routing routing(shared(placed({2, 3, 5}, {})));
  Random random(11);
  std::set<uint64_t> drawn;
  while (drawn.size() < 1000) drawn.insert(random.next_u64());
  const std::vector<uint64_t> keys(drawn.begin(), drawn.end());
  size_t count = 0;
  for (const RoutedKeys& list : routing.split(keys)) {
    ASSERT_EQ(list.keys.size(), list.places.size());
    for (size_t i = 0; i < list.keys.size(); ++i) {
      EXPECT_EQ(list.keys[i], keys[list.places[i]]);
      EXPECT_EQ(routing.slot_of(list.keys[i]), list.slot);
      if (i > 0) {
        EXPECT_GT(list.keys[i], list.keys[i - 1]);
      }
    }
    count += list.keys.size();
  }
  EXPECT_EQ(count, keys.size());
}

// Arcs of any number, some of them close together. The last one reaches around.
TEST(Routing, FindsTheArcOfEveryPosition) {
  Random random(3);
  for (const size_t servers : {1u, 2u, 7u, 64u}) {
    std::vector<uint32_t> ranks(servers);
    std::iota(ranks.begin(), ranks.end(), 2u);
    View view = placed(ranks, {});
    for (Arc& arc : view.arcs) {
      if (random.below(3) == 0) arc.first = 10 + random.below(1000);
    }
    std::ranges::sort(view.arcs, {}, &Arc::first);
    const auto repeated = std::ranges::unique(view.arcs, {}, &Arc::first);
    view.arcs.erase(repeated.begin(), repeated.end());
    const size_t count = view.arcs.size();
    const Routing routing(shared(view));
    EXPECT_EQ(routing.arc_of(0), count - 1);
    EXPECT_EQ(routing.arc_of(std::numeric_limits<uint64_t>::max()), count - 1);
    for (size_t i = 0; i < count; ++i) {
      const uint64_t first = view.arcs[i].first;
      ASSERT_EQ(routing.arc_of(first), i);
      ASSERT_EQ(routing.arc_of(first - 1), (i + count - 1) % count);
    }
  }
}

TEST(Routing, HasAListForEverySlot) {
  const Routing routing(shared(placed({2, 3, 5}, {})));
  const std::vector<RoutedKeys> lists = routing.split({});
  ASSERT_EQ(lists.size(), 3u);
  for (const RoutedKeys& list : lists) EXPECT_TRUE(list.keys.empty());
  EXPECT_EQ(routing.servers(), (std::vector<uint32_t>{2, 3, 5}));
}

TEST(Routing, KnowsTheRangesOfATensor) {
  const Routing routing(shared(placed({2, 3}, {.range_elements_max = 400'000})));
  EXPECT_EQ(routing.ranges_of(0), (std::pair<size_t, size_t>{0, 3}));
  EXPECT_EQ(routing.ranges_of(1), (std::pair<size_t, size_t>{3, 4}));
}

}  // namespace
}  // namespace lockstep::server
