#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/safetensors.h"
#include "agent/train/checkpoint/tensor_file.h"
#include "common/base/random.h"
#include "tests/agent/model/allocation_count.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

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

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : first_(6), second_(4) {
    std::iota(first_.begin(), first_.end(), 0.5f);
    std::iota(second_.begin(), second_.end(), 100.0f);
  }

  // Hands the tensors `w` and `b`, and their only state, to the sink in pieces.
  Status collect(parallel::StateSink& sink) {
    for (const size_t kind : {0, 1}) {
      const std::span<const float> w(first_);
      TRY(sink.write({table_[0], kind}, 0, w.first(2)));
      TRY(sink.write({table_[0], kind}, 2, w.subspan(2)));
      TRY(sink.write({table_[1], kind}, 0, second_));
    }
    return {};
  }

  static Manifest at_step(int64_t step) {
    return {.position = {.step = step, .samples = step * 8, .weights_seed = 3, .data_seed = 4},
            .round = 2,
            .files = {}};
  }

  Status try_save(CheckpointFolder& folder, int64_t step) {
    return folder.save(at_step(step), state_files(table_, {"exp_avg"}),
                       [this](parallel::StateSink& sink) { return collect(sink); });
  }
  void save(CheckpointFolder& folder, int64_t step) {
    const Status saved = try_save(folder, step);
    ASSERT_TRUE(saved.ok()) << saved.error().message;
  }

  static int64_t newest_step(const CheckpointFolder& folder) {
    const auto newest = folder.newest();
    EXPECT_TRUE(newest.ok());
    return newest->has_value() ? (*newest)->manifest.position.step : -1;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  TemporaryFolder folder_;
  const std::vector<Parameter> table_ = {
      {.id = 0, .name = "w", .dims = {2, 3}, .rank = 2},
      {.id = 1, .name = "b", .dims = {4, 1}, .rank = 1},
  };
  std::vector<float> first_;
  std::vector<float> second_;
};

TEST_F(CheckpointTest, GivesBackWhatWasSaved) {
  CheckpointFolder folder(folder_.file("a/b"), 3);
  ASSERT_TRUE(folder.prepare().ok());
  EXPECT_EQ(newest_step(folder), -1);
  save(folder, 7);
  const auto newest = folder.newest();
  ASSERT_TRUE(newest.ok() && newest->has_value());
  EXPECT_EQ((*newest)->manifest.position, at_step(7).position);
  EXPECT_EQ((*newest)->manifest.round, 2);

  const auto file = TensorFile::open((*newest)->path + "/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.error().message;
  std::vector<float> w(6);
  const TensorPiece pieces[] = {{w.data(), 3, 3}, {w.data() + 3, 0, 3}};
  ASSERT_TRUE(file->read("w", {2, 3}, pieces).ok());
  EXPECT_EQ(w, (std::vector<float>{3.5f, 4.5f, 5.5f, 0.5f, 1.5f, 2.5f}));
}

// The memory does not depend on the size of the tensors.
TEST_F(CheckpointTest, IsWrittenWithinAMegabyteOfMemory) {
  std::vector<float> large(4 << 20, 0.5f);
  const Parameter parameter{.name = "large", .dims = {std::ssize(large), 1}, .rank = 1};
  CheckpointFolder folder(folder_.path(), 3);
  const int64_t before = test::allocated_bytes();
  const auto collect = [&](parallel::StateSink& sink) {
    return sink.write({parameter, 0}, 0, large);
  };
  ASSERT_TRUE(folder.save(at_step(1), state_files({&parameter, 1}, {}), collect).ok());
  EXPECT_LT(test::allocated_bytes() - before, 1 << 20);
  EXPECT_GT(test::allocated_bytes(), before) << "it counts";
  EXPECT_EQ(newest_step(folder), 1);
}

TEST_F(CheckpointTest, NamesTheTensorThatAnotherModelHas) {
  CheckpointFolder folder(folder_.path(), 3);
  save(folder, 7);
  const auto file = TensorFile::open(folder_.path() + "/step-00000007/model.safetensors");
  ASSERT_TRUE(file.ok());
  for (const auto& [name, shape] :
       std::vector<std::pair<std::string, std::vector<int64_t>>>{{"w", {3, 2}}, {"missing", {1}}}) {
    const Status status = file->read(name, shape, {});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kInvalid);
    EXPECT_EQ(status.error().blame, Blame::kConfig);
    EXPECT_NE(status.error().message.find("expected " + name), std::string::npos);
  }
}

TEST_F(CheckpointTest, KeepsTheNewestOnes) {
  CheckpointFolder folder(folder_.path(), 2);
  for (const int64_t step : {5, 10, 20, 100}) save(folder, step);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000020", "step-00000100"}));
  EXPECT_EQ(newest_step(folder), 100);
}

TEST_F(CheckpointTest, ReplacesOneOfTheSameStep) {
  CheckpointFolder folder(folder_.path(), 2);
  save(folder, 5);
  first_[0] = 42.0f;
  save(folder, 5);
  EXPECT_EQ(names(), std::vector<std::string>{"step-00000005"});
  const auto file = TensorFile::open(folder_.path() + "/step-00000005/model.safetensors");
  ASSERT_TRUE(file.ok());
  float value = 0;
  const TensorPiece piece{&value, 0, 1};
  ASSERT_TRUE(file->read("w", {2, 3}, {&piece, 1}).ok());
  EXPECT_EQ(value, 42.0f);
}

TEST_F(CheckpointTest, DoesNotCountBrokenLaterOnesAmongTheKept) {
  CheckpointFolder folder(folder_.path(), 1);
  save(folder, 10);
  fs::resize_file(folder_.path() + "/step-00000010/model.safetensors", 9);
  save(folder, 5);
  EXPECT_EQ(newest_step(folder), 5);
  save(folder, 10);
  EXPECT_EQ(newest_step(folder), 10);
  EXPECT_EQ(names(), std::vector<std::string>{"step-00000010"});
}

TEST_F(CheckpointTest, FallsBackToTheOneBeforeWhateverIsBroken) {
  const auto flip = [](const std::string& path) {
    std::string bytes = read_file(path);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    std::ofstream(path, std::ios::binary) << bytes;
  };
  const std::vector<std::pair<const char*, std::function<void(const std::string&)>>> cases = {
      {"a flipped weight", [&](const std::string& at) { flip(at + "/model.safetensors"); }},
      {"a flipped moment", [&](const std::string& at) { flip(at + "/optimizer.safetensors"); }},
      {"a truncated file",
       [](const std::string& at) {
         fs::resize_file(at + "/model.safetensors", fs::file_size(at + "/model.safetensors") - 1);
       }},
      {"an empty file",
       [](const std::string& at) { fs::resize_file(at + "/model.safetensors", 0); }},
      {"a missing file", [](const std::string& at) { fs::remove(at + "/optimizer.safetensors"); }},
      {"no manifest", [](const std::string& at) { fs::remove(at + "/manifest.json"); }},
      {"half a manifest",
       [](const std::string& at) {
         fs::resize_file(at + "/manifest.json", fs::file_size(at + "/manifest.json") / 2);
       }},
      {"a huge manifest",
       [](const std::string& at) { fs::resize_file(at + "/manifest.json", 2 << 20); }},
      {"a manifest of another step",
       [](const std::string& at) {
         fs::copy_file(fs::path(at).parent_path() / "step-00000001/manifest.json",
                       at + "/manifest.json", fs::copy_options::overwrite_existing);
       }},
      {"a folder instead of a file",
       [](const std::string& at) {
         fs::remove(at + "/model.safetensors");
         fs::create_directory(at + "/model.safetensors");
       }},
      {"an empty folder",
       [](const std::string& at) {
         fs::remove_all(at);
         fs::create_directory(at);
       }},
      {"a file instead of a folder",
       [](const std::string& at) {
         fs::remove_all(at);
         std::ofstream(at) << "x";
       }},
  };
  for (const auto& [what, damage] : cases) {
    TemporaryFolder place;
    CheckpointFolder folder(place.path(), 3);
    save(folder, 1);
    save(folder, 2);
    ASSERT_EQ(newest_step(folder), 2);
    damage(place.path() + "/step-00000002");
    EXPECT_EQ(newest_step(folder), 1) << what;
  }
}

TEST_F(CheckpointTest, RemovesWhatACrashLeftHalfDone) {
  CheckpointFolder folder(folder_.path(), 3);
  save(folder, 1);
  fs::create_directory(folder_.file(".unfinished-new-2"));
  folder_.write(".unfinished-new-2/model.safetensors", "x");
  EXPECT_EQ(newest_step(folder), 1);
  ASSERT_TRUE(folder.prepare().ok());
  EXPECT_EQ(names(), std::vector<std::string>{"step-00000001"});
}

TEST_F(CheckpointTest, ReportsAFolderThatCannotBeWritten) {
  folder_.write("file", "x");
  CheckpointFolder folder(folder_.file("file/below"), 3);
  EXPECT_FALSE(folder.prepare().ok());
  EXPECT_FALSE(try_save(folder, 1).ok());
}

TEST(Manifest, SurvivesARoundTripAndRefusesWhatIsNotOne) {
  Manifest manifest{.position = {.step = 500, .samples = 16000, .weights_seed = UINT64_MAX},
                    .loss = 1.75,
                    .round = 3,
                    .files = {{"model.safetensors", {12, sha256("x")}}}};
  const std::string text = format_manifest(manifest);
  const auto back = parse_manifest(text);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, manifest);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"checkpoint/1", "checkpoint/2"},
           {"\"step\": 500", "\"step\": -500"},
           {"\"step\": 500", "\"step\": 1e3"},
           {"\"samples\": 16000", "\"samples\": 18446744073709551615"},
           {"model.safetensors", "../model.safetensors"},
           {"model.safetensors", ".hidden"},
           {"\"bytes\": 12", "\"bytes\": \"12\""},
           {hex(sha256("x")), "00"},
           {hex(sha256("x")), std::string(64, 'G')},
           {"\"loss\": 1.75", "\"loss\": \"1.75\""},
           {"\"files\"", "\"other\""}}) {
    std::string broken = text;
    const size_t at = broken.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    broken.replace(at, from.size(), to);
    const auto parsed = parse_manifest(broken);
    ASSERT_FALSE(parsed.ok()) << to;
    EXPECT_EQ(parsed.error().code, Code::kCorrupt);
  }
}

}  // namespace
}  // namespace lockstep::train
