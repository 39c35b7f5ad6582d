#include "agent/train/checkpoint/tensor_slice.h"

#include <gtest/gtest.h>

#include "agent/train/checkpoint/numbered_name.h"

namespace lockstep::train {
namespace {

TEST(TensorSlice, HasANameThatTellsWhatItIs) {
  const struct {
    TensorSlice slice;
    std::vector<int64_t> whole;
    std::string name;
  } cases[] = {
      {{"w", 2, {0, 3, 0, 4}}, {3, 4}, "w"},
      {{"w", 2, {1, 3, 0, 4}}, {3, 4}, "w[1:3,0:4]"},
      {{"w", 2, {0, 3, 2, 3}}, {3, 4}, "w[0:3,2:3]"},
      {{"b", 1, {0, 5, 0, 1}}, {5}, "b"},
      {{"b", 1, {4, 5, 0, 1}}, {5}, "b[4:5]"},
      {{"column", 2, {0, 5, 0, 1}}, {5, 1}, "column"},
      {{"column", 2, {1, 5, 0, 1}}, {5, 1}, "column[1:5,0:1]"},
      {{"a[0:1]", 1, {0, 5, 0, 1}}, {6}, "a[0:1][0:5]"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(slice_name(c.slice, c.whole), c.name);
    const auto parsed = parse_slice(c.name, c.slice.shape());
    ASSERT_TRUE(parsed.has_value()) << c.name;
    EXPECT_EQ(*parsed, c.slice) << c.name;
  }
}

TEST(TensorSlice, IsNotReadFromWhatDoesNotMatch) {
  const struct {
    std::string name;
    std::vector<int64_t> shape;
  } cases[] = {
      {"scalar", {}},
      {"cube", {1, 2, 3}},
      {"w]", {1}},
      {"[0:1]", {1}},
      {"w[]", {1}},
      {"w[0]", {1}},
      {"w[0:]", {1}},
      {"w[:1]", {1}},
      {"w[1:1]", {0}},
      {"w[2:1]", {-1}},
      {"w[-1:1]", {2}},
      {"w[+0:1]", {1}},
      {"w[0:1 ]", {1}},
      {"w[0:1x]", {1}},
      {"w[0:2]", {1}},
      {"w[0:2]", {2, 1}},
      {"w[0:2,]", {2}},
      {"w[0:2,0:1]", {2}},
      {"w[0:2,0:1,0:1]", {2, 1}},
      {"w[0:2,0:1]", {1, 2}},
      {"w[0:1099511627777]", {1099511627777}},
      {"w[0:9223372036854775808]", {1}},
  };
  for (const auto& c : cases) EXPECT_FALSE(parse_slice(c.name, c.shape).has_value()) << c.name;
}

TEST(NumberedName, IsReadBackAndSortsAsItsNumber) {
  const NumberedName name{"owner-", ".json"};
  EXPECT_EQ(name.of(7), "owner-00000007.json");
  EXPECT_EQ(NumberedName{"step-"}.of(123456789), "step-123456789");
  for (const int64_t number : {int64_t{0}, int64_t{99999999}, int64_t{100000000}, INT64_MAX}) {
    EXPECT_EQ(name.number_of(name.of(number)), number);
  }
  EXPECT_LT(name.of(9), name.of(10));
  for (const char* other :
       {"", "owner-", "owner-.json", "owner-7.json", "owner-00000007", "owner-000000007.json",
        "owner-0000000x.json", "owner--0000007.json", "owner-00000007.json2",
        "xowner-00000007.json", "owner-99999999999999999999.json", "owner-+0000007.json"}) {
    EXPECT_EQ(name.number_of(other), -1) << other;
  }
}

}  // namespace
}  // namespace lockstep::train
