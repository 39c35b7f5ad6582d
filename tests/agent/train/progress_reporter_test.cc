#include "agent/train/progress_reporter.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "agent/train/exit_code.h"
#include "common/api/worker_config.h"

namespace lockstep::train {
namespace {

TEST(ProgressReporter, PublishesTheNotesOfTheStorageWhenItIsTold) {
  auto page = ProgressPage::create();
  ASSERT_TRUE(page.ok());
  auto attached = ProgressPage::attach(dup(page->fd()));
  ASSERT_TRUE(attached.ok());
  ProgressReporter reporter(std::move(attached).value(), 3);
  reporter.storage().failed = 1;
  reporter.storage().failed_step = 500;
  reporter.storage().failure.assign("no space left on device");
  StorageNotes read;
  ASSERT_TRUE(page->storage().read(read));
  EXPECT_EQ(read, StorageNotes{}) << "not yet";
  reporter.publish_storage();
  ASSERT_TRUE(page->storage().read(read));
  EXPECT_EQ(read, reporter.storage());
  EXPECT_EQ(read.failed_step, 500);
}

TEST(ProgressReporter, TellsNothingOfTheRoundBefore) {
  auto page = ProgressPage::create();
  ASSERT_TRUE(page.ok());
  auto attached = ProgressPage::attach(dup(page->fd()));
  ASSERT_TRUE(attached.ok());
  ProgressReporter reporter(std::move(attached).value(), 3);
  reporter.numbers().step = 12;
  reporter.numbers().suspect_rank = 1;
  reporter.storage().saved = 2;
  reporter.publish_storage();
  reporter.publish();
  reporter.begin_round(4);
  StorageNotes notes;
  ProgressNumbers numbers;
  ASSERT_TRUE(page->storage().read(notes) && page->read(numbers));
  EXPECT_EQ(notes, StorageNotes{});
  EXPECT_EQ(numbers.round, 3u) << "nothing is said of the new round before it is published";
  reporter.enter(WorkerPhase::kForming);
  ASSERT_TRUE(page->read(numbers));
  EXPECT_EQ(numbers.round, 4u);
  EXPECT_EQ(numbers.step, 0);
  EXPECT_EQ(numbers.suspect_rank, -1);
}

TEST(ProgressReporter, DoesNothingWithoutAPage) {
  ProgressReporter reporter(std::nullopt, 3);
  reporter.storage().saved = 1;
  reporter.publish_storage();
  EXPECT_EQ(reporter.storage().saved, 1);
}

TEST(ExitCode, SaysThatTheFolderIsAnothers) {
  EXPECT_EQ(exit_code_of(conflict("job uid-2 owns it", Blame::kFenced)), kExitFenced);
  EXPECT_EQ(exit_code_of(conflict("job uid-2 owns it")), kExitOwnError);
}

}  // namespace
}  // namespace lockstep::train
