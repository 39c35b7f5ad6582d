#include "agent/train/checkpoint/checkpoint_folder.h"

#include <gtest/gtest.h>

#include "tests/agent/train/saved_checkpoints.h"

namespace lockstep::train {
namespace {

using Names = std::vector<std::string>;

class CheckpointFolderTest : public testing::Test {
 protected:
  static void save(RoundOfJob& job, int64_t step) {
    const Status saved = job.save(step);
    ASSERT_TRUE(saved.ok()) << saved.error().message;
  }
  // A round that has begun.
  std::unique_ptr<RoundOfJob> begun(int64_t round, int64_t keep = 2) {
    auto job = std::make_unique<RoundOfJob>(files_, round, keep);
    const Status prepared = job->prepare();
    EXPECT_TRUE(prepared.ok()) << prepared.error().message;
    return job;
  }

  MemoryFileSystem files_;
};

TEST_F(CheckpointFolderTest, GivesBackWhatWasSaved) {
  const auto job = begun(1);
  EXPECT_TRUE(checkpoint_steps(job->storage()).value().empty());
  save(*job, 10);
  EXPECT_EQ(checkpoint_steps(job->storage()).value(), std::vector<int64_t>{10});
  EXPECT_EQ(load(job->storage(), 10).value(), 1);
  Manifest manifest = read_manifest(job->storage(), checkpoint_name(10)).value().manifest;
  EXPECT_EQ(manifest.files.size(), 4u) << "two files of two ranks";
  manifest.files.clear();
  EXPECT_EQ(manifest, manifest_at(1, 10));
}

TEST_F(CheckpointFolderTest, KeepsTheNewestOnes) {
  const auto job = begun(1, /*keep=*/2);
  for (const int64_t step : {5, 10, 20, 100}) save(*job, step);
  EXPECT_EQ(names_in(files_), (Names{"step-00000020", "step-00000100"}));
  const auto next = begun(2, /*keep=*/0);
  save(*next, 105);
  EXPECT_EQ(names_in(files_), Names{"step-00000105"}) << "at least one is kept";
}

TEST_F(CheckpointFolderTest, SetsOneOfTheSameStepAside) {
  for (const int64_t round : {1, 2, 3}) save(*begun(round), 5);
  EXPECT_EQ(names_in(files_),
            (Names{"set-aside-step-00000005-2", "set-aside-step-00000005-3", "step-00000005"}));
  const auto job = begun(3);
  EXPECT_EQ(load(job->storage(), 5).value(), 3);
  EXPECT_EQ(load_folder(job->storage(), "set-aside-step-00000005-2", 5).value(), 1);
  EXPECT_EQ(load_folder(job->storage(), "set-aside-step-00000005-3", 5).value(), 2);
}

TEST_F(CheckpointFolderTest, SetsAsideWhateverHasTheNameOfACheckpoint) {
  const auto job = begun(1);
  const std::string step = std::string(kRoot) + "/step-00000005";
  files_.put(step + "/x", "x");
  const SetAside first = job->folder().set_aside(5, "why").value();
  EXPECT_EQ(first.step, 5);
  EXPECT_EQ(first.name, "set-aside-step-00000005-1");
  EXPECT_EQ(first.reason, "why");
  files_.put(step, "a file");
  EXPECT_EQ(job->folder().set_aside(5, "").value().name, first.name + ".2");
  files_.put(step + "/", "");
  EXPECT_EQ(job->folder().set_aside(5, "").value().name, first.name + ".3");
  EXPECT_EQ(files_.files().at(std::string(kRoot) + "/" + first.name + "/x"), "x");
  EXPECT_EQ(files_.files().at(std::string(kRoot) + "/" + first.name + ".2"), "a file");
  EXPECT_EQ(job->folder().set_aside(5, "").error().code, Code::kNotFound);
  save(*job, 5);
  EXPECT_EQ(names_in(files_).size(), 4u);
}

// A former owner that was cut off has published later steps.
TEST_F(CheckpointFolderTest, NeitherCountsNorRemovesLaterOnes) {
  const auto job = begun(1, /*keep=*/2);
  for (const int64_t step : {90, 95, 100}) save(*job, step);
  const auto next = begun(2, /*keep=*/1);
  for (const int64_t step : {5, 10}) save(*next, step);
  EXPECT_EQ(names_in(files_), (Names{"step-00000010", "step-00000095", "step-00000100"}));
}

TEST_F(CheckpointFolderTest, RemovesWhatACrashLeftHalfDone) {
  save(*begun(1), 5);
  const std::string root = kRoot;
  files_.put(root + "/.unfinished-step-00000010-r1-boot1-1/model.safetensors", "x");
  files_.put(root + "/.unfinished-new-2/", "");
  files_.put(root + "/.removing-step-00000001/manifest.json", "x");
  files_.put(root + "/metrics.jsonl", "{}");
  files_.put(root + "/set-aside-step-00000002-1/x", "x");
  const auto job = begun(2);
  EXPECT_EQ(names_in(files_),
            (Names{"metrics.jsonl", "set-aside-step-00000002-1", "step-00000005"}));
}

TEST_F(CheckpointFolderTest, TrainsOnNextToWhatItCannotRemove) {
  files_.put(std::string(kRoot) + "/.unfinished-odd/folder/file", "x");
  save(*begun(1), 5);
  EXPECT_EQ(load(begun(2)->storage(), 5).value(), 1);
}

TEST_F(CheckpointFolderTest, OfAFormerOwnerChangesNothing) {
  const auto former = begun(1, /*keep=*/1);
  save(*former, 5);
  const auto owner = begun(2, /*keep=*/1);
  const auto before = files_.files();
  for (const Status& refused : {former->save(5), former->save(10), former->prepare(),
                                Status(former->folder().set_aside(5, "").error())}) {
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kConflict);
    EXPECT_EQ(refused.error().blame, Blame::kFenced);
  }
  EXPECT_EQ(files_.files(), before);
  save(*owner, 10);
  EXPECT_EQ(names_in(files_), Names{"step-00000010"});
}

TEST_F(CheckpointFolderTest, HasAnUnfinishedFolderOfItsOwnForEachSave) {
  EXPECT_EQ(CheckpointFolder::unfinished_folder(owner_of_round(3), 500, 2),
            ".unfinished-step-00000500-r3-boot3-2");
}

TEST_F(CheckpointFolderTest, IsNotMadeWhereAFileIs) {
  files_.put(kRoot, "a file");
  EXPECT_EQ(RoundOfJob(files_, 1, 1).prepare().error().code, Code::kNotFound);
  MemoryFileSystem below(Files{{"/data", "a file"}});
  EXPECT_EQ(RoundOfJob(below, 1, 1).prepare().error().code, Code::kNotFound);
}

}  // namespace
}  // namespace lockstep::train
