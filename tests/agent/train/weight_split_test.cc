#include "agent/train/weights/weight_split.h"

#include <gtest/gtest.h>

#include "agent/train/weights/weight_index.h"
#include "tests/agent/train/small_weights.h"

namespace lockstep::train {
namespace {

using Counts = std::vector<size_t>;

constexpr uint64_t kKib = 1024;

std::vector<WeightTensor> tensors_of_kib(std::initializer_list<int64_t> sizes) {
  std::vector<WeightTensor> tensors;
  for (const int64_t size : sizes) {
    tensors.push_back({"tensor" + std::to_string(tensors.size()), {size, 256}});
  }
  return tensors;
}

TEST(WeightSplit, FillsFilesInOrderAndLeavesRoomForTheHeader) {
  const std::vector<WeightTensor> tensors = tensors_of_kib({2, 2, 2, 2, 5, 1});
  const auto split = [&](uint64_t bytes) {
    return split_tensors(tensors, kernels::DType::kF32, bytes);
  };
  EXPECT_EQ(split(0), Counts({6}));
  EXPECT_EQ(split(16 * kKib), Counts({6}));
  EXPECT_EQ(split(14 * kKib), Counts({5, 1})) << "the data alone would fit";
  EXPECT_EQ(split(7 * kKib), Counts({3, 1, 2}));
  EXPECT_EQ(split(5 * kKib), Counts({2, 2, 1, 1})) << "the fifth is larger";
  EXPECT_EQ(split(1), Counts({1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(split_tensors(tensors, kernels::DType::kBf16, 9 * kKib), Counts({6}));
}

TEST(WeightSplit, CountsFilesAsHuggingFaceDoes) {
  EXPECT_EQ(weight_file_name(2, 5), "model-00002-of-00005.safetensors");
  EXPECT_EQ(weight_file_name(1, 1000), "model-00001-of-01000.safetensors");
}

TEST(WeightSplit, IndicesAreReadAsTheyAreWritten) {
  const WeightIndex index = {{"a.safetensors", {"x", "y"}}, {"b.safetensors", {"z"}}};
  const std::string text = format_weight_index(index, 123);
  EXPECT_EQ(parse_weight_index(text).value(), index);
  EXPECT_NE(text.find("\"total_size\": 123"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep::train
