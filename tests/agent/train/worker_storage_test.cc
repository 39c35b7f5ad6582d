// Whole workers whose storage fills up or gets another owner, and kills while they save and load.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "tests/agent/train/small_worker.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

// A small file system in memory at a path, gone with this object.
class SmallDisk {
 public:
  explicit SmallDisk(std::string path) : path_(std::move(path)) {
    fs::create_directories(path_);
    is_mounted_ = mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=3m") == 0;
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (is_mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool is_mounted() const { return is_mounted_; }

 private:
  std::string path_;
  bool is_mounted_ = false;
};

StorageNotes notes_of(const WorkerWorld& world) {
  return world.storage_notes(0);
}

TEST(Worker, TrainsOnWhileTheDiskIsFullAndSavesWhenThereIsRoomAgain) {
  WorkerWorld::Options options = small_world(2);
  options.train.steps = 400;
  options.train.validation = {};
  options.checkpoint_every = 10;
  options.checkpoint_keep = 1;
  WorkerWorld world(options);
  const SmallDisk disk(world.checkpoints());
  if (!disk.is_mounted()) GTEST_SKIP() << "this process may not mount a file system";
  ASSERT_NO_FATAL_FAILURE(world.start());
  world.wait_until(0, [](const ProgressNumbers& numbers) { return numbers.checkpoint_step >= 10; });
  const std::string hog = world.checkpoints() + "/hog";
  std::ofstream(hog, std::ios::binary) << std::string(4 << 20, 'x');  // as much as there is room
  world.wait_until(0, [&](const ProgressNumbers&) { return notes_of(world).failed >= 2; });
  const StorageNotes full = notes_of(world);
  EXPECT_GE(full.failed, 2);
  EXPECT_NE(full.failure.text().find("No space left on device"), std::string::npos)
      << full.failure.text();
  const ProgressNumbers then = world.progress(0);
  EXPECT_EQ(then.phase, WorkerPhase::kTraining);
  fs::remove(hog);
  EXPECT_EQ(world.wait(), (std::vector<int>{0, 0})) << world.log(0);
  EXPECT_EQ(world.progress(0).checkpoint_step, 400);
  const StorageNotes ended = notes_of(world);
  EXPECT_EQ(ended.failed_step, -1);
  EXPECT_GT(ended.saved, full.saved);
  EXPECT_FALSE(world.checkpoint_bytes(400, "model").empty());
}

TEST(Worker, EndsForGoodWhenAnotherJobTakesItsFolder) {
  WorkerWorld::Options options = small_world(2);
  options.train.steps = 100'000;
  options.train.validation = {};
  options.checkpoint_every = 5;
  WorkerWorld first(options);
  ASSERT_NO_FATAL_FAILURE(first.start());
  first.wait_until(0, [](const ProgressNumbers& numbers) { return numbers.checkpoint_step >= 5; });
  WorkerWorld::Options intruder = small_world(1);
  intruder.change = [&](WorkerConfig& config) {
    config.job_name = "intruder";
    config.checkpoint.path = first.checkpoints();
  };
  intruder.train.data.path = first.folder().file("text");
  intruder.train.steps = 1;
  WorkerWorld second(intruder);
  ASSERT_NO_FATAL_FAILURE(second.start());
  EXPECT_EQ(first.wait(), (std::vector<int>{kExitFenced, kExitPeerLost})) << first.log(0);
  EXPECT_NE(first.log(0).find("now belongs to round 1 of job intruder"), std::string::npos)
      << first.log(0);
  second.wait();
}

// A moment of saving or loading, as seen from outside.
struct Moment {
  const char* name;
  std::function<bool(const WorkerWorld&, const ProgressNumbers&)> has_come;
};

// Whether the folder of checkpoints has a name that begins so, with this file in it ("": any).
bool is_there(const WorkerWorld& world, const std::string& begin, const std::string& file) {
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(world.checkpoints(), gone)) {
    if (!entry.path().filename().string().starts_with(begin)) continue;
    if (file.empty() || fs::exists(entry.path() / file, gone)) return true;
  }
  return false;
}

Moment when_there_is(const char* name, const std::string& begin, const std::string& file) {
  return {name, [=](const WorkerWorld& world, const ProgressNumbers& numbers) {
            return numbers.step >= 20 && is_there(world, begin, file);
          }};
}

Moment when_in(const char* name, WorkerPhase phase) {
  return {name, [=](const WorkerWorld&, const ProgressNumbers& numbers) {
            return numbers.phase >= phase;
          }};
}

const Moment kMoments[] = {
    when_there_is("the folder was made", ".unfinished-", ""),
    when_there_is("rank 0 writes parameters", ".unfinished-", "model-00000-of-00002.safetensors"),
    when_there_is("rank 1 writes states", ".unfinished-", "optimizer-00001-of-00002.safetensors"),
    when_there_is("the manifest is written", ".unfinished-", "manifest.json"),
    when_there_is("it has its name", "step-00000030", ""),
    when_there_is("an old one is removed", ".removing-", ""),
    when_in("loading", WorkerPhase::kLoading),
    when_in("reading", WorkerPhase::kBroadcasting),
    when_in("the end", WorkerPhase::kFinishing),
};

// LOCKSTEP_KILLS: how many; 9 in a usual run, once each.
size_t kills_wanted() {
  const char* wanted = std::getenv("LOCKSTEP_KILLS");
  return wanted == nullptr ? std::size(kMoments) : static_cast<size_t>(std::atoi(wanted));
}

struct Kills {
  size_t done = 0;
  size_t tried = 0;  // a moment can be shorter than one look
};

// One job that is killed again and again until it ends by itself.
void kill_until_the_end(WorkerWorld& world, Random& random, Kills& kills, size_t wanted) {
  while (true) {
    const Moment& moment = kMoments[kills.tried % std::size(kMoments)];
    ASSERT_NO_FATAL_FAILURE(world.start());
    const auto victim = static_cast<int64_t>(random.below(2));
    if (kills.done < wanted) {
      ++kills.tried;
      world.wait_until(
          0, [&](const ProgressNumbers& numbers) { return moment.has_come(world, numbers); });
      for (uint64_t spin = random.below(200'000); spin > 0; --spin) asm volatile("");
      if (world.runs(victim)) {
        world.kill(victim, SIGKILL);
        ++kills.done;
      }
      // The agent ends a rank whose peer never came.
      if (world.progress(1 - victim).phase <= WorkerPhase::kForming) {
        world.kill(1 - victim, SIGKILL);
      }
    }
    const std::vector<int> codes = world.wait();
    if (codes == std::vector<int>{0, 0}) return;
  }
}

TEST(Worker, KillsWhileItSavesAndLoadsLeaveTheSameBits) {
  WorkerWorld::Options options = small_world(2);
  options.checkpoint_every = 10;
  options.checkpoint_keep = 2;
  WorkerWorld calm(options);
  ASSERT_NO_FATAL_FAILURE(calm.run());
  constexpr uint64_t kSeed = 23;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Random random(kSeed);
  Kills kills;
  const size_t wanted = kills_wanted();
  while (kills.done < wanted) {
    ASSERT_LT(kills.tried, 4 * wanted) << kills.done;
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(kill_until_the_end(world, random, kills, wanted));
    expect_same_end(calm, world);
  }
  RecordProperty("kills", static_cast<int>(kills.done));
}

}  // namespace
}  // namespace lockstep::train
