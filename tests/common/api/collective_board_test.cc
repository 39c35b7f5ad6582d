#include "common/api/collective_board.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "common/base/random.h"

namespace lockstep {
namespace {

struct Page {
  alignas(8) std::array<unsigned char, CollectiveBoard::kBytes> bytes{};
};

RankWait a_wait(uint64_t number) {
  RankWait wait{.operation = "all_reduce",
                .number = number,
                .group = 7,
                .size = 4,
                .ranks = "0, 2, 4, 6",
                .waits_for = {},
                .since_nanoseconds = static_cast<int64_t>(number) * 1000};
  wait.waits_for.add(4);
  wait.waits_for.add(6);
  return wait;
}

TEST(CollectiveBoard, IsEmptyAtFirst) {
  Page page;
  const CollectiveBoard board(page.bytes.data());
  EXPECT_TRUE(board.groups().empty());
  EXPECT_EQ(board.wait(), std::nullopt);
  EXPECT_EQ(board.beats(), 0u);
}

TEST(CollectiveBoard, AnotherReadsWhatIsWritten) {
  Page page;
  CollectiveBoard board(page.bytes.data());
  const CollectiveBoard reader(page.bytes.data());
  const int place = board.add({.group = 7, .size = 4, .ranks = "0, 2, 4, 6"});
  board.enter(place, "all_reduce", 17);
  board.complete(place, 16);
  const GroupActivity expected{.group = 7,
                               .size = 4,
                               .ranks = "0, 2, 4, 6",
                               .operation = "all_reduce",
                               .entered = 17,
                               .completed = 16};
  EXPECT_EQ(reader.groups(), std::vector<GroupActivity>{expected});
  board.set_wait(a_wait(17));
  EXPECT_EQ(reader.wait(), a_wait(17));
  board.clear_wait();
  EXPECT_EQ(reader.wait(), std::nullopt);
  board.beat();
  board.beat();
  EXPECT_EQ(reader.beats(), 2u);
}

TEST(CollectiveBoard, HasRoomForSoManyGroupsAndGivesAPlaceThatIsFreeAgain) {
  Page page;
  CollectiveBoard board(page.bytes.data());
  std::vector<int> places;
  for (int i = 0; i < CollectiveBoard::kGroups; ++i) {
    places.push_back(board.add({.group = static_cast<uint64_t>(i), .size = 2, .ranks = "0-1"}));
  }
  EXPECT_EQ(board.add({.group = 99, .size = 2}), CollectiveBoard::kNowhere);
  board.enter(CollectiveBoard::kNowhere, "barrier", 1);  // a no-op, like the next two calls
  board.complete(CollectiveBoard::kNowhere, 1);
  board.remove(CollectiveBoard::kNowhere);
  EXPECT_EQ(board.groups().size(), places.size());
  board.remove(places[5]);
  EXPECT_EQ(board.groups().size(), places.size() - 1);
  EXPECT_EQ(board.add({.group = 99, .size = 2}), places[5]);
}

TEST(CollectiveBoard, CutsLongTexts) {
  Page page;
  CollectiveBoard board(page.bytes.data());
  board.add({.group = 1, .size = 300, .ranks = std::string(1000, '1')});
  const std::string ranks = board.groups().at(0).ranks;
  EXPECT_LT(ranks.size(), 64u);
  EXPECT_TRUE(ranks.ends_with("1...")) << ranks;
}

// The memory belongs to another process, which may have been killed in mid-write or be hostile.
TEST(CollectiveBoard, WhateverIsInTheMemoryIsReadToPrintableTextsWithinTheirBounds) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Random random(kSeed);
  const auto is_printable = [](const std::string& text) {
    return text.size() < 64 &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  };
  for (int i = 0; i < 300; ++i) {
    Page page;
    for (unsigned char& byte : page.bytes) byte = static_cast<unsigned char>(random.next_u64());
    const CollectiveBoard board(page.bytes.data());
    for (const GroupActivity& group : board.groups()) {
      EXPECT_GT(group.size, 0);
      EXPECT_TRUE(is_printable(group.ranks) && is_printable(group.operation));
    }
    if (const auto wait = board.wait()) {
      EXPECT_TRUE(is_printable(wait->ranks) && is_printable(wait->operation));
    }
  }
}

TEST(CollectiveBoard, WhatIsBeingRewrittenForEverIsLeftOut) {
  Page page;
  std::memset(page.bytes.data(), 0xff, page.bytes.size());  // every record is in mid-write
  const CollectiveBoard board(page.bytes.data());
  EXPECT_TRUE(board.groups().empty());
  EXPECT_EQ(board.wait(), std::nullopt);
}

TEST(CollectiveBoard, AReaderNeverSeesPartsOfTwoWaits) {
  constexpr uint64_t kWaits = 200'000;
  Page page;
  CollectiveBoard board(page.bytes.data());
  board.set_wait(a_wait(1));
  std::jthread writer([&](const std::stop_token& stop) {
    for (uint64_t i = 2; i < kWaits && !stop.stop_requested(); ++i) board.set_wait(a_wait(i));
  });
  uint64_t last = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::optional<RankWait> wait = board.wait();
    if (!wait) continue;  // rewritten during each attempt to read it
    ASSERT_EQ(*wait, a_wait(wait->number));
    ASSERT_GE(wait->number, last);
    last = wait->number;
  }
}

}  // namespace
}  // namespace lockstep
