#include "cli/tokenize/text_sample.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

class TextSampleTest : public testing::Test {
 protected:
  TextSampleTest() : folder_(testing::TempDir() + "sample-" + std::to_string(getpid())) {
    fs::create_directories(folder_);
  }
  ~TextSampleTest() override { fs::remove_all(folder_); }

  std::vector<std::string> sentences(const std::vector<std::string>& texts, uint64_t bytes_max,
                                     size_t block_bytes) {
    std::vector<TextFile> files;
    for (size_t i = 0; i < texts.size(); ++i) {
      files.push_back({folder_ + "/" + std::to_string(i), texts[i].size()});
      std::ofstream(files.back().path, std::ios::binary) << texts[i];
    }
    TextSample sample({.files = files, .bytes_max = bytes_max, .block_bytes = block_bytes});
    std::vector<std::string> found;
    for (std::string sentence;;) {
      const Result<bool> more = sample.next(sentence);
      EXPECT_TRUE(more.ok());
      if (!more.ok() || !*more) return found;
      found.push_back(sentence);
    }
  }

  std::string folder_;
};

using Sentences = std::vector<std::string>;

TEST_F(TextSampleTest, LinesAreSentences) {
  EXPECT_EQ(sentences({"one\ntwo\n\nthree", "four\n"}, 1000, 1000),
            (Sentences{"one", "two", "three", "four"}));
  EXPECT_EQ(sentences({""}, 1000, 1000), Sentences());
}

TEST_F(TextSampleTest, ASentenceHasOnlyWhatSentencepieceTakes) {
  EXPECT_EQ(sentences({std::string("a\xFF"
                                   "b\0c\xE2\x96\x81 d\xC3\xA9",
                                   12)},
                      1000, 1000),
            (Sentences{"a", "b", "c", " d\xC3\xA9"}));
}

TEST_F(TextSampleTest, LongSentencesEndAtASpace) {
  const std::string word(3000, 'x');
  const Sentences found = sentences({word + " " + word + " end"}, 100'000, 100'000);
  EXPECT_EQ(found, (Sentences{word, " " + word + " end"}));
  const std::string run(SentenceSource::kSentenceBytesMax, 'y');
  EXPECT_EQ(sentences({run + run + "y"}, 100'000, 100'000), (Sentences{run, run, "y"}));
}

TEST_F(TextSampleTest, LongTextIsSampledAtEqualDistances) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += std::to_string(100 + i) + "\n";  // 400 bytes
  EXPECT_EQ(sentences({text}, 12, 4), (Sentences{"100", "9", "15", "199"}));
  EXPECT_EQ(sentences({text}, 400, 4).size(), 100u);
}

}  // namespace
}  // namespace lockstep::cli
