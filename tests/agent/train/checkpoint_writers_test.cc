// Two rounds of a job that write to one folder at the same time: in every order of their steps with
// two switches between them, and in random orders with more. A step is a system call that sees or
// changes a name that the other round can see.
#include <gtest/gtest.h>

#include "common/base/log.h"
#include "common/base/random.h"
#include "tests/agent/train/saved_checkpoints.h"
#include "tests/agent/train/turns.h"

namespace lockstep::train {
namespace {

constexpr int64_t kKept = 2;
constexpr int64_t kOlder = 1;  // rounds
constexpr int64_t kNewer = 2;

// Changes of names that a former owner makes when it has a successor.
struct LateChanges {
  bool has_successor = false;
  int64_t count = 0;
};

// The files as one of two threads sees them. Thread 1 is the newer round.
class FilesInTurns final : public FileSystem {
 public:
  FilesInTurns(MemoryFileSystem& files, Turns& turns, LateChanges& late, int thread)
      : files_(files), turns_(turns), late_(late), thread_(thread) {}

  Result<std::unique_ptr<OpenFile>> create(const std::string& path) override {
    if (is_seen(path)) turns_.wait(thread_);
    auto file = files_.create(path);
    if (thread_ == 1 && file.ok() && path.find("/owner-") != std::string::npos) {
      late_.has_successor = true;
    }
    return file;
  }
  Result<std::unique_ptr<OpenFile>> open(const std::string& path) override {
    if (is_seen(path)) turns_.wait(thread_);
    return files_.open(path);
  }
  Result<std::vector<std::string>> list(const std::string& folder) override {
    turns_.wait(thread_);
    return files_.list(folder);
  }
  Status make_folder(const std::string& path) override {
    turns_.wait(thread_);
    return files_.make_folder(path);
  }
  Status rename_folder(const std::string& from, const std::string& to) override {
    turns_.wait(thread_);
    const Status renamed = files_.rename_folder(from, to);
    if (thread_ == 0 && renamed.ok() && late_.has_successor) ++late_.count;
    return renamed;
  }
  Status remove_file(const std::string& path) override {
    if (is_seen(path)) turns_.wait(thread_);
    return files_.remove_file(path);
  }
  Status remove_folder(const std::string& path) override {
    turns_.wait(thread_);
    return files_.remove_folder(path);
  }
  Status sync_folder(const std::string& path) override { return files_.sync_folder(path); }

 private:
  // Manifests and owners, and of the other files one between the first and the last.
  static bool is_seen(const std::string& path) {
    return path.ends_with(".json") || path.find("/model-00001") != std::string::npos;
  }

  MemoryFileSystem& files_;
  Turns& turns_;
  LateChanges& late_;
  int thread_;
};

// A round that begins, loads the newest checkpoint and saves another one.
struct Writer {
  int64_t loaded = 0;  // step
  Status prepared = {};
  Result<int64_t> load_result = 0;
  Status saved = {};

  int64_t step() const { return loaded + 10; }
  void run(FileSystem& files, RoundOfJob& job) {
    prepared = job.prepare();
    if (!prepared.ok()) return;
    FolderStorage storage(kRoot, files);
    loaded = checkpoint_steps(storage).value()[0];
    load_result = load(storage, loaded);
    saved = job.save(step());
  }
};

bool is_fenced(const Status& status) {
  return !status.ok() && status.error().code == Code::kConflict &&
         status.error().blame == Blame::kFenced;
}

class CheckpointWriters : public testing::Test {
 protected:
  CheckpointWriters() {
    set_log_options({.minimum = LogLevel::kError});
    MemoryFileSystem files;
    RoundOfJob job(files, 0, kKept);
    EXPECT_TRUE(job.prepare().ok());
    EXPECT_TRUE(job.save(10).ok());
    EXPECT_TRUE(job.save(20).ok());
    const std::string left = std::string(kRoot) + "/.unfinished-step-00000025-r0-boot0-3/";
    files.put(left + "model.safetensors", "x");
    before_ = files.files();
  }

  // Runs the older and the newer round, and checks all that they promise. Returns the steps taken
  // by both.
  std::pair<int64_t, int64_t> run(const std::vector<int64_t>& schedule) {
    std::string text = "schedule";
    for (const int64_t steps : schedule) text += " " + std::to_string(steps);
    SCOPED_TRACE(text);
    MemoryFileSystem files(before_);
    Turns turns(schedule);
    LateChanges late;
    FilesInTurns older_files(files, turns, late, 0);
    FilesInTurns newer_files(files, turns, late, 1);
    RoundOfJob older_job(older_files, kOlder, kKept);
    RoundOfJob newer_job(newer_files, kNewer, kKept);
    Writer older;
    Writer newer;
    turns.run([&] { older.run(older_files, older_job); },
              [&] { newer.run(newer_files, newer_job); });
    const std::pair<int64_t, int64_t> taken{turns.taken(0), turns.taken(1)};
    EXPECT_LE(late.count, 1) << "it looks before every change";
    ++seen_[late.count == 0 ? "no late change" : "a late change"];
    expect_all_load(files);
    expect_newer_is_unharmed(files, newer);
    expect_older_learns(files, older, newer);
    expect_fence(files, older_job, newer_job);
    return taken;
  }
  Files before_;
  std::map<std::string, int64_t> seen_;  // how the older round ended

 private:
  static void expect_all_load(MemoryFileSystem& files) {
    FolderStorage storage(kRoot, files);
    const std::vector<int64_t> steps = checkpoint_steps(storage).value();
    EXPECT_GE(std::ssize(steps), kKept);
    for (const int64_t step : steps) {
      const Result<int64_t> round = load(storage, step);
      ASSERT_TRUE(round.ok()) << round.error().message;
      EXPECT_GE(*round, 0);
    }
  }
  static void expect_newer_is_unharmed(MemoryFileSystem& files, const Writer& newer) {
    ASSERT_TRUE(newer.prepared.ok()) << newer.prepared.error().message;
    EXPECT_TRUE(newer.load_result.ok()) << newer.load_result.error().message;
    ASSERT_TRUE(newer.saved.ok()) << newer.saved.error().message;
    FolderStorage storage(kRoot, files);
    EXPECT_EQ(load(storage, newer.step()).value(), kNewer);
  }
  // It is refused, or what it saved is complete and was there when the newer round began.
  void expect_older_learns(MemoryFileSystem& files, const Writer& older, const Writer& newer) {
    if (!older.prepared.ok() || !older.saved.ok()) {
      const Error error = older.prepared.ok() ? older.saved.error() : older.prepared.error();
      EXPECT_EQ(error.blame, Blame::kFenced) << error.message;
      ++seen_[older.prepared.ok() ? "fenced" : "refused"];
      return;
    }
    EXPECT_EQ(newer.loaded, older.step());
    FolderStorage storage(kRoot, files);
    EXPECT_EQ(load(storage, older.step()).value(), kOlder);
    ++seen_["saved"];
  }
  void expect_fence(MemoryFileSystem& files, RoundOfJob& older, RoundOfJob& newer) {
    const auto before = files.files();
    const Result<SetAside> set_aside = older.folder().set_aside(20, "");
    EXPECT_TRUE(is_fenced(set_aside.ok() ? Status() : set_aside.error()));
    EXPECT_TRUE(is_fenced(older.prepare()));
    EXPECT_EQ(newer.folder().set_aside(999, "").error().code, Code::kNotFound) << "not refused";
    EXPECT_EQ(files.files(), before);
  }
};

TEST_F(CheckpointWriters, KeepTheirPromisesInEveryOrderOfTheirSteps) {
  const uint64_t seed = 1;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const int64_t older_steps = run({}).first;
  EXPECT_GT(older_steps, 20);
  for (int64_t i = 0; i <= older_steps; ++i) {
    const int64_t newer_steps = run({i}).second;
    for (int64_t j = 1; j < newer_steps && !HasFailure(); ++j) {
      run({i, j});
      if ((i + j) % 4 != 0) continue;
      run({i, j, static_cast<int64_t>(1 + random.below(static_cast<uint64_t>(older_steps)))});
    }
  }
  for (const char* end : {"refused", "fenced", "saved", "no late change", "a late change"}) {
    EXPECT_GT(seen_[end], 0) << end;
  }
}

TEST_F(CheckpointWriters, KeepTheirPromisesWithManySwitches) {
  for (uint64_t seed = 0; seed < 200 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    std::vector<int64_t> schedule(4 + random.below(8));
    for (int64_t& steps : schedule) steps = static_cast<int64_t>(random.below(12));
    run(schedule);
  }
  for (const char* end : {"fenced"}) EXPECT_GT(seen_[end], 0) << end;
}

}  // namespace
}  // namespace lockstep::train
