#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "agent/train/data/batch_loader.h"
#include "agent/train/data/data_check.h"
#include "agent/train/data/device_feed.h"
#include "agent/train/data/token_source.h"
#include "agent/train/data/token_windows.h"
#include "agent/train/data/windows.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep::train {
namespace {

std::string counting_text(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i % 251);
  return text;
}

template <class T>
std::string token_bytes(const std::vector<T>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(T)};
}

Result<TokenSource> open_bytes(const std::string& path, int64_t vocabulary = 256) {
  return TokenSource::open({path, TokenWidth::kByte, vocabulary});
}

TEST(TokenSource, ReadsATextAsBytes) {
  TemporaryFolder folder;
  const auto source = open_bytes(folder.write("text", "Abc\xff"));
  ASSERT_TRUE(source.ok());
  std::vector<int32_t> tokens(4);
  ASSERT_TRUE(source->read(0, tokens).ok());
  EXPECT_EQ(tokens, (std::vector<int32_t>{65, 98, 99, 255}));
}

TEST(TokenSource, ReadsTokenIdsOfTwoAndFourBytes) {
  TemporaryFolder folder;
  folder.write("u16", token_bytes<uint16_t>({1, 50256, 3}));
  folder.write("u32", token_bytes<uint32_t>({70000, 2}));
  std::vector<int32_t> tokens(2);
  const auto u16 = TokenSource::open({folder.file("u16"), TokenWidth::kU16, 50257});
  ASSERT_TRUE(u16.ok());
  EXPECT_EQ(u16->count(), 3);
  ASSERT_TRUE(u16->read(1, tokens).ok());
  EXPECT_EQ(tokens, (std::vector<int32_t>{50256, 3}));
  const auto u32 = TokenSource::open({folder.file("u32"), TokenWidth::kU32, 100000});
  ASSERT_TRUE(u32.ok());
  ASSERT_TRUE(u32->read(0, tokens).ok());
  EXPECT_EQ(tokens, (std::vector<int32_t>{70000, 2}));
}

TEST(TokenSource, JoinsTheFilesOfAFolderInTheOrderOfTheirNames) {
  TemporaryFolder folder;
  folder.write("b", "cd");
  folder.write("a", "ab");
  folder.write("c", "");
  folder.write("d", "e");
  std::filesystem::create_directory(folder.file("aa"));
  const auto source = open_bytes(folder.path());
  ASSERT_TRUE(source.ok());
  ASSERT_EQ(source->count(), 5);
  std::vector<int32_t> tokens(4);
  ASSERT_TRUE(source->read(1, tokens).ok());
  EXPECT_EQ(tokens, (std::vector<int32_t>{'b', 'c', 'd', 'e'}));
}

TEST(TokenSource, NamesThePathOfWhatItCannotOpen) {
  TemporaryFolder folder;
  const auto missing = open_bytes(folder.file("missing"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_EQ(missing.error().blame, Blame::kData);
  EXPECT_NE(missing.error().message.find(folder.file("missing")), std::string::npos);

  const auto empty = open_bytes(folder.path());
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.error().code, Code::kInvalid);
  EXPECT_EQ(empty.error().blame, Blame::kData);

  const auto odd = TokenSource::open({folder.write("odd", "abc"), TokenWidth::kU16, 9});
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().blame, Blame::kData);
  EXPECT_NE(odd.error().message.find("odd: 3 bytes"), std::string::npos) << odd.error().message;

  EXPECT_FALSE(open_bytes("/dev/null").ok());
}

TEST(TokenSource, RefusesATokenOutsideTheVocabularyWithFileAndOffset) {
  TemporaryFolder folder;
  folder.write("a", token_bytes<uint16_t>({1, 2}));
  folder.write("b", token_bytes<uint16_t>({3, 9}));
  const auto source = TokenSource::open({folder.path(), TokenWidth::kU16, 9});
  ASSERT_TRUE(source.ok());
  std::vector<int32_t> tokens(4);
  const Status status = source->read(0, tokens);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kInvalid);
  EXPECT_EQ(status.error().blame, Blame::kData);
  EXPECT_NE(status.error().message.find(folder.file("b") + ": the token at byte 2"),
            std::string::npos)
      << status.error().message;
}

Status checked_u16(const std::string& path, const DataCheckLimits& limits) {
  const auto source = TokenSource::open({path, TokenWidth::kU16, 100});
  return source.ok() ? check_tokens(*source, limits) : Status(source.error());
}

TEST(CheckTokens, FindsAnIdOutsideTheVocabularyWhereverItIs) {
  TemporaryFolder folder;
  for (const size_t bad : {0u, 500'000u, 999'999u}) {
    std::vector<uint16_t> tokens(1'000'000, 99);
    const std::string file = folder.write("ids", token_bytes(tokens));
    EXPECT_TRUE(checked_u16(file, {}).ok());
    tokens[bad] = 100;
    folder.write("ids", token_bytes(tokens));
    const Status status = checked_u16(file, {});
    ASSERT_FALSE(status.ok()) << bad;
    EXPECT_EQ(status.error().code, Code::kInvalid);
    EXPECT_TRUE(status.error().message.ends_with("ids: the token at byte " +
                                                 std::to_string(2 * bad) +
                                                 " is not below the model's vocabulary of 100"))
        << status.error().message;
  }
}

TEST(CheckTokens, ReadsASampleOfLongDataFromItsBeginningToItsEnd) {
  TemporaryFolder folder;
  const DataCheckLimits limits{.bytes_max = 1 << 20, .blocks = 4};  // 2^17 tokens each
  constexpr size_t kTokens = 4'000'000;
  const struct {
    size_t bad;
    bool is_found;
  } cases[] = {{0, true}, {(1 << 17) - 1, true}, {1 << 17, false}, {kTokens - 1, true}};
  for (const auto& [bad, is_found] : cases) {
    std::vector<uint16_t> tokens(kTokens, 99);
    tokens[bad] = 100;
    const Status status = checked_u16(folder.write("ids", token_bytes(tokens)), limits);
    EXPECT_EQ(status.ok(), !is_found) << bad;
    if (status.ok()) continue;
    EXPECT_TRUE(status.error().message.ends_with("(in a sample of 1 MiB of the 7 MiB)"))
        << status.error().message;
  }
}

TEST(CheckTokens, HasNothingToFindWhereEveryIdIsInTheVocabulary) {
  TemporaryFolder folder;
  const std::string file = folder.write("text", counting_text(1000));
  EXPECT_TRUE(check_tokens(open_bytes(file).value()).ok());
  EXPECT_FALSE(check_tokens(open_bytes(file, 250).value()).ok());
}

TEST(SplitData, TakesTheLastPartForValidation) {
  const auto split = split_data({.tokens = 1000, .context = 10, .validation_fraction = 0.05}, "x");
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->train_tokens, 950);
  EXPECT_EQ(split->validation_tokens(), 50);
  EXPECT_EQ(split->train_windows(), 94);
  EXPECT_EQ(split->validation_windows(), 5);
}

TEST(SplitData, RefusesATextThatIsTooShortForTheContext) {
  EXPECT_TRUE(split_data({.tokens = 11, .context = 10}, "x").ok());
  const auto split = split_data({.tokens = 10, .context = 10}, "/data/short");
  ASSERT_FALSE(split.ok());
  EXPECT_EQ(split.error().blame, Blame::kData);
  EXPECT_NE(split.error().message.find("/data/short: 10 training tokens"), std::string::npos);
}

TEST(SplitData, RefusesAFractionThatHoldsNoTokenBack) {
  EXPECT_TRUE(split_data({.tokens = 50, .context = 10, .validation_fraction = 0.01}, "x").ok());
  const auto split = split_data({.tokens = 49, .context = 10, .validation_fraction = 0.01}, "x");
  ASSERT_FALSE(split.ok());
  EXPECT_EQ(split.error().code, Code::kInvalid);
  EXPECT_EQ(split.error().blame, Blame::kData);
  EXPECT_NE(split.error().message.find("x: 49 tokens are too few to hold back"), std::string::npos)
      << split.error().message;
}

TEST(ValidationWindows, ScoreEveryValidationTokenOnce) {
  for (const int64_t tokens : {120, 121, 129, 139, 140}) {
    const DataSplit split{tokens, 100, 10};
    std::multiset<int64_t> targets;
    for (int64_t i = 0; i < split.validation_windows(); ++i) {
      const Window window = validation_window(split, i);
      for (int64_t t = 0; t < window.count; ++t) targets.insert(window.begin + t + 1);
    }
    ASSERT_EQ(static_cast<int64_t>(targets.size()), tokens - 100);
    EXPECT_EQ(*targets.begin(), 100);
    EXPECT_EQ(std::set<int64_t>(targets.begin(), targets.end()).size(), targets.size());
  }
}

TEST(TrainWindows, VisitEveryWindowOnceAnEpochAndStayInTheTrainingPart) {
  const DataSplit split{1007, 957, 10};
  const int64_t windows = split.train_windows();
  std::vector<std::vector<int64_t>> epochs(3);
  for (int64_t sample = 0; sample < 3 * windows; ++sample) {
    epochs[static_cast<size_t>(sample / windows)].push_back(train_window_begin(split, sample, 7));
  }
  for (const std::vector<int64_t>& epoch : epochs) {
    const std::set<int64_t> begins(epoch.begin(), epoch.end());
    ASSERT_EQ(static_cast<int64_t>(begins.size()), windows);
    EXPECT_GE(*begins.begin(), 0);
    EXPECT_LE(*begins.rbegin() + 10 + 1, split.train_tokens);
    std::set<int64_t> remainders;
    for (const int64_t begin : epoch) remainders.insert(begin % 10);
    EXPECT_EQ(remainders.size(), 1u);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(train_window_begin(split, 0, 7) / 10 * windows + train_window_begin(split, 1, 7) / 10,
            train_window_begin(split, 0, 8) / 10 * windows + train_window_begin(split, 1, 8) / 10);
}

TEST(GlobalSample, IsTheSameSetOfSamplesForEveryWorldSize) {
  for (const BatchShape& shape : {BatchShape{12, 1, 1}, BatchShape{3, 4, 1}, BatchShape{3, 2, 2},
                                  BatchShape{3, 1, 4}, BatchShape{1, 3, 4}}) {
    std::set<int64_t> samples;
    for (int64_t rank = 0; rank < shape.data_size; ++rank) {
      for (int64_t micro = 0; micro < shape.accumulation; ++micro) {
        for (int64_t row = 0; row < shape.micro; ++row) {
          samples.insert(global_sample(shape, {24, micro, rank, row}));
        }
      }
    }
    ASSERT_EQ(samples.size(), 12u);
    EXPECT_EQ(*samples.begin(), 24);
    EXPECT_EQ(*samples.rbegin(), 35);
  }
}

std::span<const int32_t> tokens_of(const SampleBatch& batch) {
  return batch.values<int32_t>(TokenWindows::kTokens);
}
std::span<const int32_t> targets_of(const SampleBatch& batch) {
  return batch.values<int32_t>(TokenWindows::kTargets);
}

class BatchLoaderTest : public testing::Test {
 protected:
  void SetUp() override {
    auto source = open_bytes(folder_.write("text", counting_text(5000)));
    ASSERT_TRUE(source.ok());
    source_ = std::make_unique<TokenSource>(std::move(*source));
    split_ = DataSplit{5000, 5000, 16};
    windows_ = std::make_unique<TokenWindows>(*source_, split_);
  }

  TemporaryFolder folder_;
  std::unique_ptr<TokenSource> source_;
  DataSplit split_;
  std::unique_ptr<TokenWindows> windows_;
};

TEST_F(BatchLoaderTest, GivesTheMicroBatchesOfItsRankInOrder) {
  const BatchShape shape{.micro = 2, .accumulation = 3, .data_size = 2};
  BatchLoader loader(*windows_, {.shape = shape, .data_rank = 1, .seed = 5, .position = 120});
  for (int64_t index = 0; index < 30; ++index) {
    const auto batch = loader.next();
    ASSERT_TRUE(batch.ok());
    ASSERT_EQ((*batch)->rows(), 2);
    EXPECT_EQ((*batch)->counted(), 32);
    for (int64_t row = 0; row < 2; ++row) {
      const int64_t sample = global_sample(shape, {120 + index / 3 * 12, index % 3, 1, row});
      const int64_t begin = train_window_begin(split_, sample, 5);
      for (int64_t t = 0; t < 16; ++t) {
        const auto at = static_cast<size_t>(row * 16 + t);
        ASSERT_EQ(tokens_of(**batch)[at], (begin + t) % 251);
        ASSERT_EQ(targets_of(**batch)[at], (begin + t + 1) % 251);
      }
    }
  }
}

TEST_F(BatchLoaderTest, GoesOnFromAPositionAsIfItHadNotStopped) {
  const BatchLoaderOptions options{.shape = {.micro = 4}, .seed = 5};
  BatchLoader whole(*windows_, options);
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(whole.next().ok());
  BatchLoaderOptions later = options;
  later.position = 28;
  BatchLoader rest(*windows_, later);
  for (int i = 0; i < 5; ++i) {
    const auto a = whole.next();
    const auto b = rest.next();
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_TRUE(std::ranges::equal(tokens_of(**a), tokens_of(**b)));
  }
}

TEST_F(BatchLoaderTest, ReportsABadTokenInItsTurn) {
  std::string text(1600, '\1');
  text[100] = '\x7f';
  const auto source = open_bytes(folder_.write("bad", text), 100);
  ASSERT_TRUE(source.ok());
  const DataSplit split{1600, 1600, 16};
  const TokenWindows windows(*source, split);
  BatchLoader loader(windows, {.shape = {.micro = 1}});
  int good = 0;
  for (auto batch = loader.next(); batch.ok(); batch = loader.next()) ASSERT_LT(++good, 99);
  const auto again = loader.next();
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("byte 100"), std::string::npos) << again.error().message;
}

TEST_F(BatchLoaderTest, FillsPartialValidationWindowsWithTargetsThatDoNotCount) {
  const DataSplit split{5000, 4975, 16};
  const TokenWindows windows(*source_, split);
  SampleBatch batch;
  batch.reset(windows.design(), 3);
  std::ranges::fill(batch.values<int32_t>(TokenWindows::kTokens), 7);
  std::ranges::fill(batch.values<int32_t>(TokenWindows::kTargets), 7);
  ASSERT_TRUE(windows.read_validation(0, 3, batch).ok());
  const std::span<const int32_t> tokens = tokens_of(batch), targets = targets_of(batch);
  EXPECT_EQ(batch.counted(), 25);
  EXPECT_EQ(targets[0], 4975 % 251);
  EXPECT_EQ(tokens[0], 4974 % 251);
  EXPECT_EQ(targets[16 + 8], 4999 % 251);
  for (size_t i = 16 + 9; i < 48; ++i) {
    EXPECT_EQ(tokens[i], 0) << "a token of every vocabulary";
    EXPECT_EQ(targets[i], -1);
  }
}

TEST(DeviceFeed, GivesTheLoadersBatchesInTheirOrderAndTheirMemoryOnTheCpu) {
  TemporaryFolder folder;
  const auto source = open_bytes(folder.write("text", counting_text(4000)));
  ASSERT_TRUE(source.ok());
  const DataSplit split = split_data({.tokens = 4000, .context = 16}, "text").value();
  const BatchLoaderOptions options{.shape = {.micro = 3, .accumulation = 2}, .seed = 7};
  const TokenWindows windows(*source, split);
  BatchLoader loader(windows, options);
  BatchLoader expected(windows, options);
  kernels::Stream stream;
  const std::unique_ptr<DeviceFeed> feed = DeviceFeed::create(loader, stream, {}).value();
  for (int i = 0; i < 10; ++i) {
    const parallel::DeviceBatch found = feed->next().value().value();
    const SampleBatch* batch = expected.next().value();
    EXPECT_EQ(found.rows, 3);
    const std::span<const int32_t> tokens = tokens_of(*batch), targets = targets_of(*batch);
    EXPECT_TRUE(std::ranges::equal(
        tokens, std::span(found.tensor<int32_t>(TokenWindows::kTokens), tokens.size())));
    EXPECT_TRUE(std::ranges::equal(
        targets, std::span(found.tensor<int32_t>(TokenWindows::kTargets), targets.size())));
  }
}

}  // namespace
}  // namespace lockstep::train
