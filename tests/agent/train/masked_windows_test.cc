#include "agent/train/data/masked_windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "agent/train/data/batch_loader.h"
#include "agent/train/data/open_data.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep::train {
namespace {

constexpr int64_t kContext = 20;
constexpr int64_t kMasked = 3;
constexpr int32_t kMask = 256;
constexpr uint64_t kSeed = 3;

// A row of a batch.
struct Row {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;

  // Returns the tokens before anything was masked.
  std::vector<int32_t> original() const {
    std::vector<int32_t> all = tokens;
    for (size_t i = 0; i < all.size(); ++i) {
      if (targets[i] >= 0) all[i] = targets[i];
    }
    return all;
  }
  int64_t predicted() const {
    return std::ranges::count_if(targets, [](int32_t target) { return target >= 0; });
  }
  bool operator==(const Row&) const = default;
};

// Token i of the text is i % 251.
class MaskedWindowsTest : public testing::Test {
 protected:
  void open(int64_t tokens, double validation_fraction) {
    std::string text(static_cast<size_t>(tokens), '\0');
    for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i % 251);
    source_.emplace(
        TokenSource::open({folder_.write("text", text), TokenWidth::kByte, 257}).value());
    split_ =
        split_data(
            {.tokens = tokens, .context = kContext, .validation_fraction = validation_fraction},
            "text")
            .value();
    windows_.emplace(*source_,
                     MaskedWindowsOptions{.split = split_, .vocabulary = 257, .mask_token = kMask});
  }
  static Row row_of(const SampleBatch& batch, int64_t row) {
    const auto part = [&](size_t tensor) {
      const auto values = batch.values<int32_t>(tensor).subspan(static_cast<size_t>(row * kContext),
                                                                static_cast<size_t>(kContext));
      return std::vector<int32_t>(values.begin(), values.end());
    };
    return {part(MaskedWindows::kTokens), part(MaskedWindows::kTargets)};
  }
  Row training(int64_t index, uint64_t seed = kSeed) {
    SampleBatch batch;
    batch.reset(windows_->design(), 1);
    EXPECT_TRUE(windows_->read_training({.index = index, .seed = seed}, 0, batch).ok());
    EXPECT_EQ(batch.counted(), kMasked);
    return row_of(batch, 0);
  }

  TemporaryFolder folder_;
  std::optional<TokenSource> source_;
  DataSplit split_;
  std::optional<MaskedWindows> windows_;
};

TEST_F(MaskedWindowsTest, PredictTheSameNumberOfTokensInEachSample) {
  open(4000, 0);
  EXPECT_EQ(windows_->design().counted, kMasked);
  for (int64_t index = 0; index < 300; ++index) {
    const Row row = training(index);
    EXPECT_EQ(row.predicted(), kMasked);
    const std::vector<int32_t> original = row.original();
    for (size_t i = 1; i < original.size(); ++i) {
      EXPECT_EQ(original[i], (original[i - 1] + 1) % 251) << "not a run of the text";
    }
  }
}

TEST(MaskedCount, IsFifteenPercentAndAtLeastOne) {
  const std::map<int64_t, int64_t> expected = {{1, 1},  {8, 1},    {10, 2},
                                               {20, 3}, {128, 19}, {512, 77}};
  for (const auto& [positions, count] : expected) EXPECT_EQ(masked_count(positions), count);
}

// Shares of the predicted tokens, with bounds of five standard deviations.
TEST_F(MaskedWindowsTest, MaskEightyPercentDrawTenAndLeaveTen) {
  open(4000, 0);
  constexpr int64_t kSamples = 4000;
  int64_t masked = 0, same = 0;
  std::map<size_t, int64_t> places;
  for (int64_t index = 0; index < kSamples; ++index) {
    const Row row = training(index);
    for (size_t i = 0; i < row.targets.size(); ++i) {
      if (row.targets[i] < 0) continue;
      ++places[i];
      masked += row.tokens[i] == kMask ? 1 : 0;
      same += row.tokens[i] == row.targets[i] ? 1 : 0;
    }
  }
  const double all = kMasked * kSamples;
  EXPECT_NEAR(static_cast<double>(masked) / all, 0.8 + 0.1 / 257, 0.019);
  EXPECT_NEAR(static_cast<double>(same) / all, 0.1 + 0.1 / 257, 0.014);
  ASSERT_EQ(std::ssize(places), kContext);
  for (const auto& [place, count] : places) {
    EXPECT_NEAR(static_cast<double>(count) / kSamples, 0.15, 0.029) << place;
  }
}

TEST_F(MaskedWindowsTest, AreTheSameEachTimeAndOthersWithAnotherSeedOrInAnotherEpoch) {
  open(401, 0);  // an epoch of 20 windows, without a shift
  const int64_t windows = split_.train_windows();
  ASSERT_EQ(windows, 20);
  EXPECT_EQ(training(5), training(5));
  EXPECT_NE(training(5), training(5, kSeed + 1));
  std::map<std::vector<int32_t>, std::set<std::vector<int32_t>>> masks;  // of a window
  for (int64_t index = 0; index < 4 * windows; ++index) {
    const Row row = training(index);
    masks[row.original()].insert(row.targets);
  }
  EXPECT_EQ(std::ssize(masks), windows);
  int64_t different = 0;
  for (const auto& [window, targets] : masks) different += std::ssize(targets);
  EXPECT_GT(different, 3 * windows);
}

// However samples are shared among micro-batches and ranks.
TEST_F(MaskedWindowsTest, DependOnTheNumberOfTheSampleAlone) {
  open(4000, 0);
  const BatchShape shape{.micro = 2, .accumulation = 2, .data_size = 2};
  for (int64_t rank = 0; rank < 2; ++rank) {
    BatchLoader loader(*windows_,
                       {.shape = shape, .data_rank = rank, .seed = kSeed, .position = 16});
    for (int64_t micro = 0; micro < 4; ++micro) {
      const SampleBatch& batch = **loader.next();
      EXPECT_EQ(batch.counted(), 2 * kMasked);
      for (int64_t row = 0; row < 2; ++row) {
        const int64_t sample = global_sample(shape, {.first = 16 + micro / 2 * shape.global(),
                                                     .micro_index = micro % 2,
                                                     .rank = rank,
                                                     .row = row});
        EXPECT_EQ(row_of(batch, row), training(sample));
      }
    }
  }
}

// 50 tokens are held back: two whole windows, and one of 10 tokens that reaches back over 10 that
// were predicted before.
TEST_F(MaskedWindowsTest, ValidateOnWhatIsHeldBackOnceAndAlwaysTheSame) {
  open(500, 0.1);
  ASSERT_EQ(windows_->validation_samples(), 3);
  SampleBatch batch, again;
  ASSERT_TRUE(windows_->read_validation(0, 4, batch).ok());
  ASSERT_TRUE(windows_->read_validation(0, 4, again).ok());
  EXPECT_TRUE(std::ranges::equal(batch.bytes(), again.bytes()));
  EXPECT_EQ(batch.rows(), 4);
  EXPECT_EQ(batch.counted(), 2 * kMasked + 2);
  const int64_t begins[] = {450, 470, 480};
  for (int64_t row = 0; row < 3; ++row) {
    const Row read = row_of(batch, row);
    const std::vector<int32_t> original = read.original();
    for (int64_t i = 0; i < kContext; ++i) {
      EXPECT_EQ(original[static_cast<size_t>(i)], (begins[row] + i) % 251);
    }
  }
  const Row last = row_of(batch, 2);
  EXPECT_EQ(last.predicted(), 2);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(last.targets[i], -1) << "predicted twice";
  EXPECT_EQ(row_of(batch, 3).predicted(), 0) << "past the end";
}

TEST_F(MaskedWindowsTest, AreTheDataOfABert) {
  const DataSpec data{.path = folder_.write("text", std::string(200, 'a')), .maskToken = 7};
  const ModelConfig bert{.layers = 1,
                         .width = 8,
                         .heads = 1,
                         .context = kContext,
                         .vocabulary = 300,
                         .family = Family::kBert};
  for (const auto& [token, expected] : {std::pair<int64_t, int32_t>{7, 7}, {0, 299}}) {
    DataSpec spec = data;
    spec.maskToken = token;
    const Result<OpenedData> opened = open_data(spec, bert);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    std::set<int32_t> found;
    for (int64_t index = 0; index < 20; ++index) {
      SampleBatch batch;
      batch.reset(opened->samples->design(), 1);
      ASSERT_TRUE(opened->samples->read_training({.index = index}, 0, batch).ok());
      for (const int32_t value : batch.values<int32_t>(MaskedWindows::kTokens)) found.insert(value);
    }
    EXPECT_TRUE(found.contains(expected));
  }
}

}  // namespace
}  // namespace lockstep::train
