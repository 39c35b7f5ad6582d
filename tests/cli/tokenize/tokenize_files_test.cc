#include "cli/tokenize/tokenize_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/tokenize/gpt2_tokenizer.h"
#include "cli/tokenize/new_file.h"
#include "common/base/random.h"
#include "tests/cli/tokenize/small_gpt2.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<uint32_t>;

class TokenizeFiles : public testing::Test {
 protected:
  TokenizeFiles() : folder_(testing::TempDir() + "tokenize-" + std::to_string(getpid())) {
    fs::create_directories(folder_);
    const SmallGpt2 small =
        small_gpt2({{"t", "h"}, {"th", "e"}, {" ", "the"}, {"\xC3", "\xA9"}, {"l", "l"}});
    tokenizer_ = *make_gpt2_tokenizer({small.vocabulary.dump(), small.merges});
  }
  ~TokenizeFiles() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
    return folder_ + "/" + name;
  }

  Result<TokenizedCounts> run(TokenizeOptions options, Ids& ids) {
    return tokenize_files(
        *tokenizer_, options,
        [&](std::span<const uint32_t> more) -> Status {
          ids.insert(ids.end(), more.begin(), more.end());
          return {};
        },
        [](const TokenizedCounts&) -> Status { return {}; });
  }

  std::string folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

std::string some_text(size_t bytes) {
  const std::string words[] = {"the",   " the", " all'll ", "\xC3\xA9t\xC3\xA9", "\n\n", "123",
                               " \xFF", ", ",   "   "};
  Random random(3);
  std::string text;
  while (text.size() < bytes) text += words[random.below(std::size(words))];
  return text;
}

TEST_F(TokenizeFiles, NeitherThreadsNorChunksChangeTheTokens) {
  const std::string text = some_text(20'000);
  const std::vector<TextFile> files = {{write("a", text), text.size()},
                                       {write("b", "the end"), 7},
                                       {write("empty", ""), 0},
                                       {write("c", "the"), 3}};
  Ids expected;
  for (const std::string& each :
       {text, std::string("the end"), std::string(), std::string("the")}) {
    ASSERT_TRUE(tokenizer_->encoder()->encode({each}, expected).ok());
    expected.push_back(300);
  }
  for (const size_t threads : {1u, 2u, 5u}) {
    for (const size_t chunk : {64u, 1000u, 4096u, 1u << 20}) {
      Ids ids;
      const Result<TokenizedCounts> counts =
          run({.files = files, .end = 300, .threads = threads, .chunk_bytes = chunk}, ids);
      ASSERT_TRUE(counts.ok()) << counts.error().message;
      EXPECT_EQ(ids, expected) << threads << " threads, chunks of " << chunk;
      EXPECT_EQ(counts->bytes, text.size() + 10);
      EXPECT_EQ(counts->tokens, expected.size());
    }
  }
}

TEST_F(TokenizeFiles, ATextWithoutAPlaceToCutIsCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\xC3\xA9";
  const std::vector<TextFile> files = {{write("a", text), text.size()}};
  Ids ids;
  ASSERT_TRUE(run({.files = files, .chunk_bytes = 17}, ids).ok());
  EXPECT_EQ(ids, Ids(1000, 259));
}

TEST_F(TokenizeFiles, AnErrorOfTheSinkOrTheProgressEndsTheWork) {
  const std::string text = some_text(20'000);
  const std::vector<TextFile> files = {{write("a", text), text.size()}};
  int calls = 0;
  const TokenizeOptions options{.files = files, .threads = 2, .chunk_bytes = 64};
  const Result<TokenizedCounts> sunk = tokenize_files(
      *tokenizer_, options, [](std::span<const uint32_t>) -> Status { return unavailable("full"); },
      [&](const TokenizedCounts&) -> Status {
        ++calls;
        return {};
      });
  ASSERT_FALSE(sunk.ok());
  EXPECT_EQ(sunk.error().message, "full");
  EXPECT_EQ(calls, 0);
  const Result<TokenizedCounts> stopped = tokenize_files(
      *tokenizer_, options, [](std::span<const uint32_t>) -> Status { return {}; },
      [&](const TokenizedCounts&) -> Status {
        return ++calls < 3 ? Status() : unavailable("interrupted");
      });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(calls, 3);
}

TEST_F(TokenizeFiles, AMissingFileIsNamed) {
  const std::vector<TextFile> files = {{folder_ + "/none", 5}};
  Ids ids;
  const Result<TokenizedCounts> counts = run({.files = files}, ids);
  ASSERT_FALSE(counts.ok());
  EXPECT_EQ(counts.error().code, Code::kNotFound);
  EXPECT_NE(counts.error().message.find(folder_ + "/none"), std::string::npos);
}

TEST_F(TokenizeFiles, FoldersAreTheirFilesInTheOrderOfNames) {
  fs::create_directories(folder_ + "/texts/deeper");
  write("texts/b", "12");
  write("texts/a", "1");
  write("texts/deeper/c", "123");
  const std::string last = write("z", "1234");
  const std::string paths[] = {folder_ + "/texts", last};
  const Result<std::vector<TextFile>> files = find_text_files(paths);
  ASSERT_TRUE(files.ok()) << files.error().message;
  ASSERT_EQ(files->size(), 3u);
  EXPECT_EQ((*files)[0].path, folder_ + "/texts/a");
  EXPECT_EQ((*files)[1].bytes, 2u);
  EXPECT_EQ((*files)[2].path, last);
  EXPECT_EQ(bytes_of(*files), 7u);
  const std::string none[] = {folder_ + "/none"};
  EXPECT_EQ(find_text_files(none).error().code, Code::kNotFound);
  fs::create_directories(folder_ + "/no-files");
  const std::string empty[] = {folder_ + "/no-files"};
  EXPECT_EQ(find_text_files(empty).error().code, Code::kInvalid);
}

TEST_F(TokenizeFiles, ANewFileAppearsWholeOrNotAtAll) {
  const std::string path = folder_ + "/new";
  {
    Result<NewFile> file = NewFile::create(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_TRUE(file->write("abc", 3).ok());
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  {
    Result<NewFile> file = NewFile::create(path);
    ASSERT_TRUE(file->write("abc", 3).ok());
    ASSERT_TRUE(file->publish().ok());
  }
  EXPECT_EQ(fs::file_size(path), 3u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
  const Result<NewFile> taken = NewFile::create(path);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, Code::kConflict);
}

TEST_F(TokenizeFiles, AFileThatAppearedMeanwhileStays) {
  const std::string path = folder_ + "/new";
  Result<NewFile> file = NewFile::create(path);
  ASSERT_TRUE(file.ok());
  write("new", "theirs");
  const Status published = file->publish();
  ASSERT_FALSE(published.ok());
  EXPECT_EQ(published.error().code, Code::kConflict);
  EXPECT_EQ(*read_whole_file(path, 100), "theirs");
}

}  // namespace
}  // namespace lockstep::cli
