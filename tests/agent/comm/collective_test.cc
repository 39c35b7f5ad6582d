#include "agent/comm/collective.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::comm {
namespace {

// As in the table of communicator.h.
TEST(CollectiveTraits, AreThoseOfTheOperationsTable) {
  struct Row {
    Collective kind;
    const char* name;
    const char* has;  // a reduction, a root, blocks, another side: "R", "o", "b", "m"
  };
  const Row rows[] = {
      {Collective::kForm, "forming", ""},
      {Collective::kBarrier, "barrier", ""},
      {Collective::kBroadcast, "broadcast", "o"},
      {Collective::kAllReduce, "all_reduce", "R"},
      {Collective::kAllGather, "all_gather", "b"},
      {Collective::kReduce, "reduce", "Ro"},
      {Collective::kReduceScatter, "reduce_scatter", "Rb"},
      {Collective::kScatter, "scatter", "ob"},
      {Collective::kGather, "gather", "ob"},
      {Collective::kAllToAll, "all_to_all", "b"},
      {Collective::kSend, "send", "m"},
      {Collective::kReceive, "receive", "m"},
  };
  ASSERT_EQ(std::size(rows), static_cast<size_t>(kCollectives));
  for (const Row& row : rows) {
    const CollectiveTraits& what = traits(row.kind);
    EXPECT_STREQ(name_of(row.kind), row.name);
    const std::string has = std::string(what.reduces ? "R" : "") + (what.has_root ? "o" : "") +
                            (what.has_blocks ? "b" : "") + (what.is_message ? "m" : "");
    EXPECT_EQ(has, row.has) << row.name;
  }
}

// A frame may contain any byte.
TEST(CollectiveTraits, OfAByteThatIsNoOperationAreNone) {
  for (const int byte : {0, kCollectives + 1, 255}) {
    const CollectiveTraits& what = traits(static_cast<Collective>(byte));
    EXPECT_STREQ(what.name, "an unknown operation");
    EXPECT_FALSE(what.reduces || what.has_root || what.has_blocks || what.is_message);
  }
}

TEST(Algorithms, HaveNamesOfTheirOwn) {
  for (int i = 0; i < kAlgorithms; ++i) {
    for (int other = 0; other < i; ++other) {
      EXPECT_STRNE(name_of(static_cast<Algorithm>(i)), name_of(static_cast<Algorithm>(other)));
    }
  }
  EXPECT_STREQ(name_of(static_cast<Algorithm>(kAlgorithms)), "an unknown algorithm");
}

}  // namespace
}  // namespace lockstep::comm
