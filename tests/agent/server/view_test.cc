// The text of a view, its order, and fencing.
#include "agent/server/view.h"

#include <gtest/gtest.h>

#include <functional>

#include "agent/server/placement.h"

namespace lockstep::server {
namespace {

Catalog small_catalog() {
  return {.tensors = {{.name = "w", .count = 100}, {.name = "b", .count = 3}},
          .tables = {{.name = "user", .dim = 4}}};
}

View small() {
  return {.round = 7,
          .number = 3,
          .catalog = digest_of(small_catalog()),
          .workers = {0, 1},
          .ranges = {{0, 0, 60, {2, 3}}, {0, 60, 100, {3}, 2}, {1, 0, 3, {2, 3}}},
          .slots = {{{2, 3}}, {{3}, 2}},
          .arcs = {{0x10, 0}, {0xff00000000000000, 1}}};
}

TEST(View, HasOneText) {
  const std::string text = text_of(small());
  EXPECT_EQ(text, "lockstep-view 1\nround 7\nnumber 3\ncatalog " + hex(small().catalog) +
                      "\nworkers 0 1\nrange 0 0 60 2 3\nrange 0 60 100 3 +2\nrange 1 0 3 2 3\n"
                      "slot 2 3\nslot 3 +2\narc 0000000000000010 0\narc ff00000000000000 1\n");
  const auto parsed = parse_view(text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(*parsed, small());
}

TEST(View, OfManyServersSurvivesItsText) {
  const auto view = place(small_catalog(), {.round = 1, .workers = {0}, .servers = {1, 2, 3, 4}},
                          {.copies = 1, .range_elements_max = 7});
  ASSERT_TRUE(view.ok());
  const auto parsed = parse_view(text_of(*view));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(*parsed, *view);
}

// Whatever a byte is changed to: another view, or refused.
TEST(View, HasNoOtherText) {
  const std::string text = text_of(small());
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char c : {' ', '0', 'z', '\n', '-', 'F'}) {
      if (text[i] == c) continue;
      std::string changed = text;
      changed[i] = c;
      const auto parsed = parse_view(changed);
      if (!parsed.ok()) {
        EXPECT_EQ(parsed.error().code, Code::kInvalid);
        continue;
      }
      EXPECT_NE(*parsed, small()) << changed;
      EXPECT_EQ(text_of(*parsed), changed);
    }
    EXPECT_FALSE(parse_view(text.substr(0, i)).ok() && i + 1 == text.size());
  }
}

TEST(View, NamesTheLineThatIsWrong) {
  const auto refused = parse_view("lockstep-view 1\nround 7\nnumber x\n");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "[server] view, line 3: expected number and a number");
}

TEST(View, IsCheckedAgainstTheCatalog) {
  const struct {
    std::function<void(View&)> change;
    std::string says;
  } cases[] = {
      {[](View& v) { v.number = 0; }, "a number from 1 on"},
      {[](View& v) { v.catalog[0] ^= 1; }, "another catalog"},
      {[](View& v) { v.workers = {}; }, "1 to 65536 workers, got 0"},
      {[](View& v) {
         v.workers = {1, 1};
       },
       "ascending order"},
      {[](View& v) { v.ranges[0].chain = {}; }, "range 0: expected 1 to 8 servers, got 0"},
      {[](View& v) {
         v.ranges[0].chain = {2, 2};
       },
       "range 0: a server is named twice"},
      {[](View& v) { v.ranges[1].begin = 61; }, "range 1: expected tensor 0 from 60"},
      {[](View& v) { v.ranges[1].end = 101; }, "range 1: expected an end in the tensor"},
      {[](View& v) { v.ranges[1].end = 60; }, "range 1: expected an end in the tensor"},
      {[](View& v) { v.ranges[1].tensor = 9; }, "got tensor 9"},
      {[](View& v) { v.ranges.pop_back(); }, "end before the last tensor"},
      {[](View& v) {
         v.ranges.push_back({2, 0, 1, {2}});
       },
       "range 3: expected tensor 2"},
      {[](View& v) { v.ranges.clear(); }, "end before the last tensor"},
      {[](View& v) { v.arcs.clear(); }, "arcs exactly if there are tables"},
      {[](View& v) { v.slots.clear(); }, "arcs exactly if there are tables"},
      {[](View& v) { v.arcs[1].first = 0x10; }, "arc 1: expected a position above"},
      {[](View& v) { v.arcs[1].slot = 2; }, "arc 1: expected a slot below 2, got 2"},
      {[](View& v) { v.slots[1].chain = {}; }, "slot 1: expected 1 to 8 servers"},
      {[](View& v) { v.slots[1].joining = 3; }, "slot 1: a server that joins is in the chain"},
  };
  EXPECT_TRUE(check_view(small(), small_catalog()).ok());
  for (const auto& each : cases) {
    View changed = small();
    each.change(changed);
    const Status checked = check_view(changed, small_catalog());
    ASSERT_FALSE(checked.ok()) << each.says;
    EXPECT_EQ(checked.error().code, Code::kInvalid);
    EXPECT_NE(checked.error().message.find(each.says), std::string::npos)
        << checked.error().message;
  }
}

TEST(View, LetsChainsLoseServersAndGetTheOneThatJoined) {
  const struct {
    Holders now;
    Holders next;
    bool may;
  } cases[] = {
      {{{2, 3, 4}}, {{2, 3, 4}}, true}, {{{2, 3, 4}}, {{3, 4}}, true},
      {{{2, 3, 4}}, {{2, 4}}, true},    {{{2, 3, 4}}, {{4}}, true},
      {{{2, 3, 4}}, {{4, 3}}, false},   {{{2, 3}}, {{2, 3, 4}}, false},
      {{{2, 3}}, {{2, 3}, 4}, true},    {{{2, 3}, 4}, {{2, 3, 4}}, true},
      {{{2, 3}, 4}, {{3, 4}, 5}, true}, {{{2, 3}, 4}, {{4}}, true},
      {{{2, 3}, 4}, {{4, 2}}, false},   {{{2, 3}, 4}, {{2, 3}}, true},
  };
  for (const auto& each : cases) EXPECT_EQ(may_become(each.now, each.next), each.may);
}

TEST(View, NamesItsUnits) {
  const std::vector<UnitId> units = units_of(small(), small_catalog());
  EXPECT_EQ(units, (std::vector<UnitId>{{UnitKind::kRange, 0},
                                        {UnitKind::kRange, 1},
                                        {UnitKind::kRange, 2},
                                        {UnitKind::kTable, 0, 0},
                                        {UnitKind::kTable, 0, 1}}));
  EXPECT_EQ(holders_of(small(), units[1]), (Holders{{3}, 2}));
  EXPECT_EQ(holders_of(small(), units[3]), (Holders{{2, 3}}));
  View other = small();
  other.slots[0].chain = {5};
  other.ranges[0].joining = 5;
  EXPECT_TRUE(have_same_units(small(), other));
  other.ranges[0].end = 50;
  EXPECT_FALSE(have_same_units(small(), other));
  other = small();
  other.arcs[0].slot = 1;
  EXPECT_FALSE(have_same_units(small(), other));
}

TEST(Fence, TellsTheSenderWhatToDo) {
  const Fence mine = fence_of(small());
  EXPECT_TRUE(check_fence(mine, mine).ok());
  const auto code_of = [&](uint64_t round, uint64_t number, uint64_t hash) {
    const Status checked = check_fence({.round = round, .number = number, .hash = hash}, mine);
    EXPECT_FALSE(checked.ok());
    return checked.ok() ? Code::kInternal : checked.error().code;
  };
  EXPECT_EQ(code_of(6, 9, 0), Code::kConflict);
  EXPECT_EQ(code_of(7, 2, mine.hash), Code::kConflict);
  EXPECT_EQ(code_of(7, 3, mine.hash + 1), Code::kConflict);
  EXPECT_EQ(code_of(7, 4, 0), Code::kUnavailable);
  EXPECT_EQ(code_of(8, 1, 0), Code::kUnavailable);
  EXPECT_EQ(check_fence({.round = 7, .number = 2}, mine).error().message,
            "[server] expected view 3 of round 7, got view 2 of round 7");
}

TEST(Fence, OfAnotherTextIsAnother) {
  View other = small();
  other.ranges[0].chain = {3, 2};
  EXPECT_NE(fence_of(other), fence_of(small()));
}

}  // namespace
}  // namespace lockstep::server
