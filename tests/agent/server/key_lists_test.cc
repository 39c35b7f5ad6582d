// Key lists by signature: what is remembered, and for how long.
#include "agent/server/key_lists.h"

#include <gtest/gtest.h>

#include "agent/server/limits.h"

namespace lockstep::server {
namespace {

KeyList list_of(size_t keys, uint64_t first = 0) {
  std::vector<uint64_t> list(keys);
  for (size_t i = 0; i < keys; ++i) list[i] = first + i;
  return std::make_shared<const std::vector<uint64_t>>(std::move(list));
}

TEST(KeyLists, FindsAListByItsSignatureAndSize) {
  KeyLists lists;
  ASSERT_TRUE(lists.add(7, list_of(3)).ok());
  ASSERT_NE(lists.find(7, 3), nullptr);
  EXPECT_EQ(*lists.find(7, 3), *list_of(3));
  EXPECT_EQ(lists.find(7, 4), nullptr);
  EXPECT_EQ(lists.find(8, 3), nullptr);
}

TEST(KeyLists, ForgetsTheListThatWasNotUsedForLongest) {
  KeyLists lists;
  for (uint64_t i = 0; i < kKeyListsMax; ++i) ASSERT_TRUE(lists.add(i, list_of(1)).ok());
  EXPECT_NE(lists.find(0, 1), nullptr);
  ASSERT_TRUE(lists.add(1000, list_of(1)).ok());
  EXPECT_NE(lists.find(0, 1), nullptr);
  EXPECT_EQ(lists.find(1, 1), nullptr);
  EXPECT_NE(lists.find(1000, 1), nullptr);
}

TEST(KeyLists, AreBoundedByTheirKeys) {
  KeyLists lists;
  ASSERT_TRUE(lists.add(1, list_of(kListedKeysMax / 2)).ok());
  ASSERT_TRUE(lists.add(2, list_of(kListedKeysMax / 2)).ok());
  EXPECT_NE(lists.find(1, kListedKeysMax / 2), nullptr);
  ASSERT_TRUE(lists.add(3, list_of(1)).ok());
  EXPECT_EQ(lists.find(2, kListedKeysMax / 2), nullptr);
  EXPECT_NE(lists.find(1, kListedKeysMax / 2), nullptr);
  EXPECT_NE(lists.find(3, 1), nullptr);
}

// A worker with calls that wait for ever, each with another list.
TEST(KeyLists, AreBoundedByTheirKeysAlsoWhereCallsKeepThem) {
  KeyLists lists;
  std::vector<KeyList> kept;
  uint64_t keys = 0;
  while (true) {
    const KeyList next = list_of(kListedKeysMax / 4);
    const Status added = lists.add(kept.size(), next);
    if (!added.ok()) {
      EXPECT_EQ(added.error().code, Code::kUnavailable);
      break;
    }
    kept.push_back(next);
    keys += next->size();
    ASSERT_LE(keys, 3 * kListedKeysMax);
  }
  EXPECT_GE(keys, 2 * kListedKeysMax);
  kept.clear();
  EXPECT_TRUE(lists.add(1000, list_of(1)).ok());
}

TEST(KeyLists, TakeAListAgain) {
  KeyLists lists;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(lists.add(1, list_of(kListedKeysMax)).ok());
  ASSERT_TRUE(lists.add(1, list_of(2, 50)).ok());
  EXPECT_EQ(*lists.find(1, 2), *list_of(2, 50));
}

TEST(Signature, DependsOnEveryKey) {
  const std::vector<uint64_t> keys = {1, 2, 3}, fewer = {1, 2}, other = {1, 2, 4};
  EXPECT_EQ(signature_of(keys), signature_of(keys));
  EXPECT_NE(signature_of(keys), signature_of(fewer));
  EXPECT_NE(signature_of(keys), signature_of(other));
}

}  // namespace
}  // namespace lockstep::server
