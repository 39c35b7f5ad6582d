#include "agent/train/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "common/base/random.h"

namespace lockstep::train {
namespace {

std::string with_length(const std::string& json) {
  std::string bytes(8, '\0');
  const uint64_t length = json.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + json;
}

Result<SafetensorsHeader> parse(const std::string& json, uint64_t data_bytes) {
  return parse_safetensors_header(json, 8 + json.size() + data_bytes);
}

TEST(SafetensorsHeader, SurvivesARoundTrip) {
  SafetensorsHeader header;
  header.tensors = {
      {"b", "F32", {2, 3}, 0, 24}, {"a", "BF16", {}, 24, 26}, {"z", "I64", {0}, 26, 26}};
  header.metadata = {{"format", "pt"}};
  const std::string bytes = format_safetensors_header(header);
  EXPECT_EQ(bytes.size() % 64, 0u);
  const auto length = safetensors_header_bytes(bytes.substr(0, 8), bytes.size() + 26);
  ASSERT_TRUE(length.ok());
  EXPECT_EQ(*length + 8, bytes.size());
  const auto back = parse_safetensors_header(bytes.substr(8), bytes.size() + 26);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->tensors, header.tensors);
  EXPECT_EQ(back->metadata, header.metadata);
  EXPECT_EQ(back->data_begin, bytes.size());
}

TEST(SafetensorsHeader, ReadsAFileThatAnotherProgramWrote) {
  // As in the format's README: keys in another order, padded with spaces.
  const std::string json =
      R"({"__metadata__":{"k":"v"},"t":{"dtype":"F16","shape":[1,16,256],"data_offsets":[0,8192]}}   )";
  const auto header = parse(json, 8192);
  ASSERT_TRUE(header.ok()) << header.error().message;
  EXPECT_EQ(header->tensors.at(0).shape, (std::vector<int64_t>{1, 16, 256}));
}

TEST(SafetensorsHeader, RefusesWhatDoesNotFit) {
  const struct {
    const char* why;
    std::string json;
    uint64_t data_bytes;
  } cases[] = {
      {"no JSON", "{", 0},
      {"no object", "[]", 0},
      {"an entry is no object", R"({"a":1})", 0},
      {"no dtype", R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4},
      {"an unknown dtype", R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4},
      {"no shape", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4},
      {"a negative dim", R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4},
      {"a fractional dim", R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4},
      {"a shape that overflows",
       R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0},
      {"a dim that overflows",
       R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4},
      {"no offsets", R"({"a":{"dtype":"F32","shape":[1]}})", 4},
      {"one offset", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4},
      {"offsets backwards", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4},
      {"offsets of another size", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4},
      {"a file that is shorter", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3},
      {"a file that is longer", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5},
      {"a gap", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8},
      {"an overlap",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8},
      {"the same tensor twice",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4},
      {"metadata that is no text", R"({"__metadata__":{"a":1}})", 0},
      {"depth", R"({"a":{"dtype":"F32","shape":[[[[1]]]],"data_offsets":[0,4]}})", 4},
  };
  for (const auto& c : cases) {
    const auto header = parse(c.json, c.data_bytes);
    ASSERT_FALSE(header.ok()) << c.why;
    EXPECT_EQ(header.error().code, Code::kCorrupt) << c.why;
  }
}

TEST(SafetensorsHeader, RefusesALengthBeyondTheFileOrTheLimit) {
  EXPECT_FALSE(safetensors_header_bytes("1234567", 100).ok());
  EXPECT_FALSE(safetensors_header_bytes(std::string(8, '\xff'), UINT64_MAX).ok());
  EXPECT_FALSE(safetensors_header_bytes(with_length(std::string(93, ' ')).substr(0, 8), 100).ok());
  EXPECT_TRUE(safetensors_header_bytes(with_length(std::string(92, ' ')).substr(0, 8), 100).ok());
}

TEST(SafetensorsHeader, SurvivesAnyMutation) {
  SafetensorsHeader header;
  header.tensors = {{"b", "F32", {2, 3}, 0, 24}, {"a", "BF16", {}, 24, 26}};
  const std::string good = format_safetensors_header(header).substr(8);
  Random random(1);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string json = good;
    for (uint64_t n = random.below(3) + 1; n-- > 0;) {
      json[random.below(json.size())] = static_cast<char>(random.below(256));
    }
    const auto parsed = parse(json, 26);
    if (!parsed.ok()) continue;
    ++accepted;
    ASSERT_EQ(parsed->tensors.back().end, 26u);
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace lockstep::train
