// A save in which any one system call fails, or whose process dies at any of them, with or without
// a crash of the machine that forgets what was not synced.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/log.h"
#include "tests/agent/train/saved_checkpoints.h"

namespace lockstep::train {
namespace {

using Does = PlannedFailure::Does;

constexpr int64_t kKeep = 2;

struct Crash {
  bool happens = false;
  Survivors survivors = Survivors::kNone;
  uint64_t seed = 0;
};
constexpr Crash kCrashes[] = {
    {}, {true, Survivors::kNone}, {true, Survivors::kAll}, {true, Survivors::kSome, 1}};

void happen(const Crash& crash, MemoryFileSystem& files) {
  files.plan({});
  if (crash.happens) files.crash(crash.survivors, crash.seed);
}

// Returns what a round before left: checkpoints 10 and 20, and what it had begun when it was
// killed.
Files of_a_round_before() {
  MemoryFileSystem files;
  RoundOfJob job(files, 1, kKeep);
  EXPECT_TRUE(job.prepare().ok());
  for (const int64_t step : {5, 10, 20}) EXPECT_TRUE(job.save(step).ok());
  const std::string root = kRoot;
  files.put(root + "/.unfinished-step-00000025-r1-boot1-4/model-00000-of-00002.safetensors", "x");
  files.put(root + "/.removing-step-00000005/manifest.json", "x");
  return files.files();
}

Status prepare_and_save(RoundOfJob& job, int64_t step) {
  TRY(job.prepare());
  return job.save(step);
}

bool is_known(const std::string& name) {
  for (const char* prefix : {"step-", ".unfinished-step-", ".removing-", "owner-"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

// Every checkpoint loads with the bits of the round that wrote it. Returns the steps.
std::vector<int64_t> expect_all_load(MemoryFileSystem& files) {
  FolderStorage storage(kRoot, files);
  const auto steps = checkpoint_steps(storage);
  if (!steps.ok()) return {};  // there is no folder yet
  for (const int64_t step : *steps) {
    const Result<int64_t> round = load(storage, step);
    EXPECT_TRUE(round.ok()) << round.error().message;
    if (round.ok()) {
      EXPECT_EQ(*round, step <= 20 ? 1 : step <= 35 ? 2 : 3);
    }
  }
  for (const std::string& name : names_in(files)) EXPECT_TRUE(is_known(name)) << name;
  return *steps;
}

// A next owner begins and saves; its checkpoint outlasts any crash.
void expect_next_owner_works(MemoryFileSystem& files, size_t checkpoints) {
  RoundOfJob next(files, 3, kKeep);
  const Status prepared = next.prepare();
  ASSERT_TRUE(prepared.ok()) << prepared.error().message;
  EXPECT_EQ(names_in(files).size(), checkpoints) << "nothing unfinished is left";
  const Status saved = next.save(40);
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  files.crash(Survivors::kNone);
  const std::vector<int64_t> steps = expect_all_load(files);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps[0], 40);
  EXPECT_EQ(steps.size(), std::min<size_t>(kKeep, checkpoints + 1));
}

// Returns the calls of the round; those from failure.first on did not happen if it is smaller.
int64_t run(const Files& before, const PlannedFailure& failure, const Crash& crash) {
  MemoryFileSystem files(before);
  RoundOfJob job(files, 2, kKeep);
  files.plan(failure);
  const Status saved = prepare_and_save(job, 30);
  const int64_t calls = files.calls();
  if (!saved.ok()) {
    EXPECT_EQ(saved.error().code, Code::kUnavailable) << saved.error().message;
  }
  happen(crash, files);
  const std::vector<int64_t> steps = expect_all_load(files);
  const size_t kept_before = before.empty() ? 0 : kKeep;
  EXPECT_GE(steps.size(), kept_before);
  if (saved.ok()) {
    EXPECT_FALSE(steps.empty());
    if (!steps.empty()) {
      EXPECT_EQ(steps[0], 30) << "what is reported as saved is durable";
    }
  }
  expect_next_owner_works(files, steps.size());
  return calls;
}

// A process that goes on after the failure saves the next step.
void run_on(const Files& before, const PlannedFailure& failure) {
  MemoryFileSystem files(before);
  RoundOfJob job(files, 2, kKeep);
  files.plan(failure);
  if (!job.prepare().ok()) return;
  (void)job.save(30);
  files.plan({});
  const Status saved = job.save(35);
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  files.crash(Survivors::kNone);
  const std::vector<int64_t> steps = expect_all_load(files);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps[0], 35);
  EXPECT_GE(steps.size(), before.empty() ? 1u : kKeep);
}

void expect_no_failure_harms(const Files& before) {
  const int64_t calls = run(before, {}, {});
  EXPECT_GT(calls, 50);
  for (int64_t call = 0; call < calls; ++call) {
    for (const Does does : {Does::kHalf, Does::kAll}) {
      SCOPED_TRACE("call " + std::to_string(call) + ", which does " +
                   std::to_string(static_cast<int>(does)));
      for (const Crash& crash : kCrashes) {
        run(before, {.first = call, .count = 1, .does = does}, crash);
        run(before, {.first = call, .count = kAllCalls, .does = does}, crash);
      }
      run_on(before, {.first = call, .count = 1, .does = does});
      if (testing::Test::HasFailure()) return;  // one is enough to read
    }
  }
}

class CheckpointFaults : public testing::Test {
 protected:
  void SetUp() override { set_log_options({.minimum = LogLevel::kError}); }
};

TEST_F(CheckpointFaults, OfAnyCallLeaveACompleteCheckpoint) {
  expect_no_failure_harms(of_a_round_before());
}

TEST_F(CheckpointFaults, OfTheFirstSaveLeaveAFolderThatWorks) {
  expect_no_failure_harms({});
}

// A save also sets aside another checkpoint of its step, here of a former owner's.
TEST_F(CheckpointFaults, WhileACheckpointIsReplacedLeaveOneOfThem) {
  MemoryFileSystem first(of_a_round_before());
  RoundOfJob former(first, 1, kKeep);
  ASSERT_TRUE(prepare_and_save(former, 30).ok());
  const auto before = first.files();
  int64_t calls = 1;
  for (int64_t call = 0; call < calls; ++call) {
    for (const Crash& crash : kCrashes) {
      SCOPED_TRACE("call " + std::to_string(call));
      MemoryFileSystem files(before);
      RoundOfJob job(files, 2, kKeep);
      files.plan({.first = call, .count = kAllCalls});
      const Status saved = prepare_and_save(job, 30);
      if (!saved.ok()) calls = call + 2;
      happen(crash, files);
      const std::vector<int64_t> steps = checkpoint_steps(job.storage()).value();
      ASSERT_FALSE(steps.empty());
      for (const int64_t step : steps) ASSERT_TRUE(load(job.storage(), step).ok());
      if (saved.ok()) {
        EXPECT_EQ(load(job.storage(), 30).value(), 2);
      }
      for (const std::string& name : names_in(files)) {
        if (!name.starts_with("set-aside-")) continue;
        EXPECT_EQ(load_folder(job.storage(), name, 30).value(), 1) << "set aside as it was";
      }
    }
  }
  EXPECT_GT(calls, 50);
}

}  // namespace
}  // namespace lockstep::train
