// Exporting weights in several files and in bf16, and exports that fail.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "agent/train/weights/float_decode.h"
#include "agent/train/weights/weight_file_writer.h"
#include "agent/train/weights/weight_index.h"
#include "tests/agent/train/small_weights.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr char kIndex[] = "/model.safetensors.index.json";

class ExportTest : public WeightsTest {
 protected:
  // Exports, and returns the path to import, or an empty one after a failure.
  std::string exported(const std::string& checkpoint, const ExportOptions& options) {
    const std::string to = folder_.file("exported-" + std::to_string(exports_++));
    const Result<ExportedWeights> done = export_weights(checkpoint, to, options);
    EXPECT_TRUE(done.ok()) << done.error().message;
    if (!done.ok()) return "";
    files_ = done->files;
    EXPECT_EQ(fs::is_directory(to), files_ > 1);
    EXPECT_FALSE(fs::exists(to + ".unfinished"));
    return files_ > 1 ? to + kIndex : to;
  }
  // Expects the file to be of at most that size, unless it has one tensor.
  static void expect_small(const fs::path& path, uint64_t bytes_max) {
    const TensorFile file = TensorFile::open(path).value();
    EXPECT_TRUE(file.header().tensors.size() == 1 || fs::file_size(path) <= bytes_max) << path;
  }

  int exports_ = 0;
  int64_t files_ = 0;  // of the last export
};

// Rounds by comparing distances to the two neighbours, in double precision.
float nearest_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value) & 0xffff0000u;
  const auto below = std::bit_cast<float>(bits);  // in magnitude
  const auto above = std::bit_cast<float>(bits + 0x10000u);
  const double low = std::abs(double{value} - double{below});
  const double high = std::abs(double{above} - double{value});
  if (low != high) return low < high ? below : above;
  return (bits >> 16 & 1) == 0 ? below : above;
}

TEST_F(ExportTest, InSeveralFilesKeepsEveryBit) {
  for (const ModelConfig& config : {kSmall, kSmallLlama, kSmallBert, untied(kSmallBert)}) {
    const std::string checkpoint = save_checkpoint(config);
    int64_t files_before = std::numeric_limits<int64_t>::max();
    for (const uint64_t bytes_max : {1, 1000, 2000, 5000, 100'000}) {
      const std::string path = exported(checkpoint, {.file_bytes_max = bytes_max});
      EXPECT_LE(files_, files_before) << bytes_max;
      files_before = files_;
      const Result<std::vector<float>> back = imported(path, config);
      ASSERT_TRUE(back.ok()) << back.error().message;
      EXPECT_EQ(std::memcmp(back->data(), parameters_.data(), 4 * parameters_.size()), 0);
      if (files_ == 1) continue;
      for (const auto& entry : fs::directory_iterator(fs::path(path).parent_path())) {
        if (entry.path().extension() == ".safetensors") expect_small(entry.path(), bytes_max);
      }
    }
    EXPECT_EQ(files_, 1);
  }
}

TEST_F(ExportTest, InBf16RoundsEveryValueToTheNearest) {
  for (const uint64_t bytes_max : {0, 1000}) {
    const std::string path = exported(
        save_checkpoint(kSmall), {.dtype = kernels::DType::kBf16, .file_bytes_max = bytes_max});
    const Result<std::vector<float>> back = imported(path, kSmall);
    ASSERT_TRUE(back.ok()) << back.error().message;
    size_t rounded = 0;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      ASSERT_EQ((*back)[i], nearest_bf16(parameters_[i])) << parameters_[i];
      rounded += (*back)[i] == parameters_[i] ? 0 : 1;
    }
    EXPECT_GT(rounded, 1000u);
  }
}

// The tensor is larger than what is rounded at a time.
TEST_F(ExportTest, RoundsTiesToEvenAndKeepsInfinityAndNaN) {
  constexpr int64_t kCount = 600'001;
  constexpr float kMax = std::numeric_limits<float>::max();
  const std::vector<std::pair<uint32_t, uint16_t>> cases = {
      {0x3f808000, 0x3f80},  // ties
      {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81},
      {0xbf817fff, 0xbf81}, {0x80000000, 0x8000},
      {0x00008000, 0x0000},  // subnormal
      {0x00018000, 0x0002}, {0x7f800000, 0x7f80},
      {0xff800000, 0xff80}, {std::bit_cast<uint32_t>(kMax), 0x7f80},
      {0x7f800001, 0x7fc0},  // a NaN whose upper half alone is infinity
  };
  const std::string path = folder_.file("weights");
  const std::vector<WeightTensor> tensors = {{"w", {kCount}}};
  Result<WeightFileWriter> writer = WeightFileWriter::create(path, tensors, kernels::DType::kBf16);
  ASSERT_TRUE(writer.ok());
  std::vector<float> values(kCount);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::bit_cast<float>(cases[i % cases.size()].first);
  }
  ASSERT_TRUE(writer->put(values).ok());
  ASSERT_TRUE(writer->finish().ok());
  const TensorFile file = TensorFile::open(path).value();
  std::vector<uint16_t> words(kCount);
  const std::span<char> bytes(reinterpret_cast<char*>(words.data()), 2 * words.size());
  ASSERT_TRUE(file.read_bytes(*file.find("w"), 0, bytes).ok());
  for (size_t i = 0; i < words.size(); ++i) {
    ASSERT_EQ(words[i], cases[i % cases.size()].second) << i;
  }
}

TEST_F(ExportTest, TakesAFoldersNameWithASlash) {
  const std::string to = folder_.file("out");
  const std::string checkpoint = save_checkpoint(kSmall);
  ASSERT_TRUE(export_weights(checkpoint, to + "//", {.file_bytes_max = 1000}).ok());
  EXPECT_TRUE(imported(to + kIndex, kSmall).ok());
  const Result<ExportedWeights> again =
      export_weights(checkpoint, to + "/", {.file_bytes_max = 1000});
  ASSERT_FALSE(again.ok());
  expect_error(again.error(), Code::kInvalid, to + "/ already exists");
}

TEST_F(ExportTest, RefusesALimitThatMakesTooManyFiles) {
  ModelConfig deep = kSmallLlama;
  deep.layers = 120;
  const std::string checkpoint = save_checkpoint(deep);
  const std::string to = folder_.file("to");
  const Result<ExportedWeights> refused = export_weights(checkpoint, to, {.file_bytes_max = 1});
  ASSERT_FALSE(refused.ok());
  expect_error(refused.error(), Code::kInvalid,
               "--max-file-size: 1 bytes would make 1083 files, expected at most 1000");
  EXPECT_FALSE(fs::exists(to));
  EXPECT_EQ(kWeightFilesMax, 1000u);
}

TEST_F(ExportTest, ReplacesWhatAKilledExportLeft) {
  const std::string checkpoint = save_checkpoint(kSmall);
  for (const uint64_t bytes_max : {0, 1000}) {
    const std::string to = folder_.file("to" + std::to_string(bytes_max));
    fs::create_directory(to + ".unfinished");
    folder_.write("to" + std::to_string(bytes_max) + ".unfinished/model", "half");
    ASSERT_TRUE(export_weights(checkpoint, to, {.file_bytes_max = bytes_max}).ok());
    EXPECT_FALSE(fs::exists(to + ".unfinished"));
    EXPECT_FALSE(fs::exists(to + "/model"));
  }
}

// Files of this process have at most `bytes` bytes while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  sighandler_t handler_;
  rlimit before_{};
};

TEST_F(ExportTest, LeavesNothingIfAFileCannotBeWritten) {
  const std::string checkpoint = save_checkpoint(kSmall);
  const std::string to = folder_.file("to");
  for (const uint64_t bytes_max : {0, 3000}) {
    const FileSizeLimit limit(2000);
    const Result<ExportedWeights> failed =
        export_weights(checkpoint, to, {.file_bytes_max = bytes_max});
    ASSERT_FALSE(failed.ok());
    expect_error(failed.error(), failed.error().code, "File too large");
    EXPECT_EQ(failed.error().blame, Blame::kStorage);
    EXPECT_FALSE(fs::exists(to));
    EXPECT_FALSE(fs::exists(to + ".unfinished"));
  }
  EXPECT_TRUE(export_weights(checkpoint, to, {.file_bytes_max = 3000}).ok());
}

}  // namespace
}  // namespace lockstep::train
