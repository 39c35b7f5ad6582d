#include "agent/train/checkpoint/retrying_storage.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "agent/train/checkpoint/folder_storage.h"
#include "tests/agent/train/memory_file_system.h"

namespace lockstep::train {
namespace {

constexpr int64_t kTries = 4;

class RetryingStorageTest : public testing::Test {
 protected:
  RetryingStorageTest() : files_(Files{{"/s/a/x", "abc"}, {"/s/b", "b"}}) {}

  // Makes a call whose first `failures` system calls fail.
  Status call(int64_t failures, const std::function<Status()>& call) {
    pauses_.clear();
    files_.plan({.first = 0, .count = failures});
    return call();
  }

  MemoryFileSystem files_;
  FolderStorage folder_{"/s", files_};
  std::vector<Duration> pauses_;
  RetryingStorage storage_{folder_, [this](Duration pause) { pauses_.push_back(pause); }};
};

template <class T>
Status status_of(const Result<T>& result) {
  return result.ok() ? Status() : Status(result.error());
}

TEST_F(RetryingStorageTest, TriesReadsAndRemovalsAgainWithPauses) {
  const auto opened = storage_.open("a/x");
  ASSERT_TRUE(opened.ok());
  std::string text(3, '\0');
  const std::pair<const char*, std::function<Status()>> calls[] = {
      {"list", [&] { return status_of(storage_.list("a")); }},
      {"open", [&] { return status_of(storage_.open("a/x")); }},
      {"size", [&] { return status_of((*opened)->size()); }},
      {"read", [&] { return (*opened)->read_at(0, text); }},
      {"remove an object", [&] { return storage_.remove_object("b"); }},
      {"remove a folder", [&] { return storage_.remove_folder("a"); }},
  };
  for (const auto& [what, each] : calls) {
    EXPECT_EQ(status_of(call(kTries, each)).error().code, Code::kUnavailable) << what;
    ASSERT_EQ(pauses_.size(), static_cast<size_t>(kTries - 1)) << what;
    EXPECT_LT(pauses_[0], pauses_[1]);
    EXPECT_LT(to_seconds(std::accumulate(pauses_.begin(), pauses_.end(), Duration())), 7.0);
    EXPECT_EQ(files_.calls(), kTries) << what;
    EXPECT_TRUE(call(kTries - 1, each).ok()) << what;
    EXPECT_EQ(pauses_.size(), static_cast<size_t>(kTries - 1)) << what;
  }
  EXPECT_EQ(text, "abc");
  EXPECT_EQ(files_.files(), (Files{{"/s/", ""}}));
}

TEST_F(RetryingStorageTest, DoesNotTryAgainWhatCreatesAName) {
  const std::pair<const char*, std::function<Status()>> calls[] = {
      {"create", [&] { return status_of(storage_.create("a/y")); }},
      {"make a folder", [&] { return storage_.make_folder("d"); }},
      {"move", [&] { return storage_.move_folder("a", "e"); }},
  };
  for (const auto& [what, each] : calls) {
    EXPECT_EQ(status_of(call(1, each)).error().code, Code::kUnavailable) << what;
    EXPECT_TRUE(pauses_.empty()) << what;
    EXPECT_EQ(files_.calls(), 1) << what;
    EXPECT_TRUE(call(0, each).ok()) << what;
  }
}

TEST_F(RetryingStorageTest, DoesNotTryAgainWhatFailsForGood) {
  EXPECT_EQ(storage_.open("missing").error().code, Code::kNotFound);
  EXPECT_EQ(storage_.list("missing").error().code, Code::kNotFound);
  std::string text(4, '\0');
  const auto opened = storage_.open("b");
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ((*opened)->read_at(0, text).error().code, Code::kCorrupt);
  EXPECT_TRUE(pauses_.empty());
}

TEST_F(RetryingStorageTest, DescribesTheStorageBelow) {
  EXPECT_EQ(storage_.describe("a"), "/s/a");
}

}  // namespace
}  // namespace lockstep::train
