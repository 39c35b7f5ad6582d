#include "common/api/progress_page.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace lockstep {
namespace {

// Sets all fields to the same number, so that a torn read is noticed.
ProgressNumbers numbers_of(int64_t n) {
  ProgressNumbers numbers;
  numbers.round = static_cast<uint64_t>(n);
  numbers.step = n;
  numbers.loss = static_cast<double>(n);
  numbers.checkpoint_step = n;
  numbers.first_step_unix_seconds = static_cast<double>(n);
  return numbers;
}

bool is_whole(const ProgressNumbers& numbers) {
  const int64_t n = numbers.step.value();
  return numbers.round == static_cast<uint64_t>(n) && numbers.loss == static_cast<double>(n) &&
         numbers.checkpoint_step == n && numbers.first_step_unix_seconds == static_cast<double>(n);
}

TEST(ProgressPage, AReaderSeesTheLastWriteOfAnotherMapping) {
  Result<ProgressPage> agent = ProgressPage::create();
  ASSERT_TRUE(agent.ok()) << agent.error().message;
  Result<ProgressPage> worker = ProgressPage::attach(dup(agent->fd()));
  ASSERT_TRUE(worker.ok()) << worker.error().message;
  ProgressNumbers read;
  ASSERT_TRUE(agent->read(read));
  EXPECT_FALSE(read.step) << "nothing is known yet";
  worker->write(numbers_of(7));
  worker->write(numbers_of(8));
  ASSERT_TRUE(agent->read(read));
  EXPECT_EQ(read.step, 8);
  EXPECT_TRUE(is_whole(read));
}

TEST(ProgressPage, ReadersNeverSeeHalfAWrite) {
  Result<ProgressPage> page = ProgressPage::create();
  ASSERT_TRUE(page.ok());
  Result<ProgressPage> reader = ProgressPage::attach(dup(page->fd()));
  ASSERT_TRUE(reader.ok());
  constexpr int64_t kWrites = 20'000;
  std::atomic<int64_t> torn = 0;
  page->write(numbers_of(0));  // a page that nobody has written holds no step
  std::jthread reading([&] {
    ProgressNumbers seen;
    int64_t newest = 0;
    while (newest < kWrites) {
      if (!reader->read(seen)) continue;
      if (!is_whole(seen) || seen.step < newest) ++torn;
      newest = *seen.step;
    }
  });
  for (int64_t i = 1; i <= kWrites; ++i) page->write(numbers_of(i));
  reading.join();
  EXPECT_EQ(torn, 0);
}

TEST(ProgressPage, AWriterKilledInMidWriteNeitherBlocksReadersNorItsSuccessor) {
  Result<ProgressPage> page = ProgressPage::create();
  ASSERT_TRUE(page.ok());
  page->write(numbers_of(1));
  // As if the writer was killed between its two changes of the sequence (the page's second word).
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, page->fd(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  ++static_cast<uint64_t*>(memory)[1];
  ProgressNumbers read = numbers_of(42);
  EXPECT_FALSE(page->read(read));
  EXPECT_EQ(read.step, 42) << "unchanged";
  Result<ProgressPage> successor = ProgressPage::attach(dup(page->fd()));
  ASSERT_TRUE(successor.ok());
  successor->write(numbers_of(2));
  ASSERT_TRUE(page->read(read));
  EXPECT_EQ(read.step, 2);
  munmap(memory, 4096);
}

TEST(ProgressPage, WhatAWorkerWroteOutlivesItsKill) {
  Result<ProgressPage> page = ProgressPage::create();
  ASSERT_TRUE(page.ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Result<ProgressPage> worker = ProgressPage::attach(page->fd());
    worker->write(numbers_of(5));
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  ProgressNumbers read;
  ASSERT_TRUE(page->read(read));
  EXPECT_EQ(read.step, 5);
}

TEST(ProgressPage, RefusesDescriptorsThatAreNoSuchPage) {
  EXPECT_FALSE(ProgressPage::attach(-1).ok());
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  EXPECT_FALSE(ProgressPage::attach(pipe_ends[0]).ok());
  const int unsealed = memfd_create("other", MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(unsealed, 4096), 0);
  EXPECT_FALSE(ProgressPage::attach(unsealed).ok());
  ASSERT_EQ(fcntl(unsealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  const Result<ProgressPage> zeroes = ProgressPage::attach(unsealed);
  ASSERT_FALSE(zeroes.ok());
  EXPECT_EQ(zeroes.error().code, Code::kInvalid);
  for (const int fd : {pipe_ends[0], pipe_ends[1], unsealed}) close(fd);
}

TEST(ProgressPage, CannotBeShrunkUnderTheAgentsFeet) {
  Result<ProgressPage> page = ProgressPage::create();
  ASSERT_TRUE(page.ok());
  EXPECT_NE(ftruncate(page->fd(), 0), 0);
}

}  // namespace
}  // namespace lockstep
