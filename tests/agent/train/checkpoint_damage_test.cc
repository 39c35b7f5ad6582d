// Every byte, length and file of a small checkpoint, damaged in turn: it is refused, and never
// taken for a checkpoint of other bits.
#include <gtest/gtest.h>

#include "tests/agent/train/saved_checkpoints.h"

namespace lockstep::train {
namespace {

class CheckpointDamage : public testing::Test {
 protected:
  void SetUp() override {
    MemoryFileSystem files;
    RoundOfJob job(files, 1, 1);
    ASSERT_TRUE(job.prepare().ok());
    ASSERT_TRUE(job.save(10).ok());
    ASSERT_EQ(load(job.storage(), 10).value(), 1);
    const std::string folder = std::string(kRoot) + "/step-00000010/";
    for (const auto& [path, bytes] : files.files()) {
      if (path.starts_with(folder) && path != folder) good_[path] = bytes;
    }
    ASSERT_EQ(good_.size(), 5u) << "a manifest, and two files of each of two ranks";
  }
  void expect_refused(const Files& damaged, const std::string& how) {
    MemoryFileSystem files(damaged);
    FolderStorage storage(kRoot, files);
    const Result<int64_t> round = load(storage, 10);
    ++refused_;
    ASSERT_FALSE(round.ok()) << how << " is taken for one of round " << *round;
    ASSERT_EQ(round.error().code, Code::kCorrupt) << how << ": " << round.error().message;
    ASSERT_EQ(round.error().blame, Blame::kStorage) << how;
  }
  // Refuses the checkpoint in which this file has other bytes.
  void expect_refused_with(const std::string& path, const std::string& bytes,
                           const std::string& how) {
    Files files = good_;
    files[path] = bytes;
    expect_refused(files, path + ": " + how);
  }

  Files good_;
  size_t refused_ = 0;
};

TEST_F(CheckpointDamage, OfAnyByteIsFound) {
  size_t bytes = 0;
  for (const auto& [path, good] : good_) {
    for (size_t at = 0; at < good.size(); ++at) {
      std::string flipped = good;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at + at / 8) % 8));
      expect_refused_with(path, flipped, "a bit of byte " + std::to_string(at));
      if (HasFatalFailure()) return;
    }
    bytes += good.size();
  }
  EXPECT_EQ(refused_, bytes);
  EXPECT_GT(bytes, 2000u);
}

TEST_F(CheckpointDamage, OfAnyLengthIsFound) {
  for (const auto& [path, good] : good_) {
    for (size_t bytes = 0; bytes < good.size(); ++bytes) {
      expect_refused_with(path, good.substr(0, bytes), "only " + std::to_string(bytes) + " bytes");
      if (HasFatalFailure()) return;
    }
    expect_refused_with(path, good + '\0', "a byte more");
  }
}

TEST_F(CheckpointDamage, OfNamesIsFound) {
  for (const auto& [path, good] : good_) {
    auto files = good_;
    files.erase(path);
    expect_refused(files, path + ": missing");
    files[path + "/x"] = good;
    expect_refused(files, path + ": a folder");
    for (const auto& [other, bytes] : good_) {
      if (other != path) expect_refused_with(path, bytes, "the bytes of " + other);
    }
  }
  expect_refused({{std::string(kRoot) + "/step-00000010/", ""}}, "empty folder");
  expect_refused({{std::string(kRoot) + "/step-00000010", "x"}}, "a file");
  expect_refused({{std::string(kRoot) + "/", ""}}, "nothing");
}

// Files of two checkpoints of the same shape, each of which is whole.
TEST_F(CheckpointDamage, ByFilesOfAnotherCheckpointIsFound) {
  MemoryFileSystem files;
  RoundOfJob job(files, 2, 1);
  ASSERT_TRUE(job.prepare().ok());
  ASSERT_TRUE(job.save(10).ok());
  for (const auto& [path, bytes] : files.files()) {
    if (good_.contains(path)) expect_refused_with(path, bytes, "that of another round");
  }
  EXPECT_EQ(refused_, good_.size());
}

}  // namespace
}  // namespace lockstep::train
