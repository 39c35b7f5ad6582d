// Stored checkpoints: tests/golden/checkpoint was written by an earlier version in format 1, and
// tests/golden/checkpoint_2 by two ranks in format 2. This version can read both, and writes the
// same bytes for the same state.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "agent/train/checkpoint/checkpoint_folder.h"
#include "tests/agent/train/saved_checkpoints.h"
#include "tests/agent/train/temporary_folder.h"
#include "tests/agent/train/whole_state.h"

namespace lockstep::train {
namespace {

constexpr char kFormat1[] = LOCKSTEP_SOURCE_DIR "/tests/golden/checkpoint/step-00000007";
constexpr char kFormat2[] = LOCKSTEP_SOURCE_DIR "/tests/golden/checkpoint_2/step-00000010";
const ModelConfig kGpt{1, 8, 2, 4, 12};

// Returns the model's three arenas, with a different value in each element.
std::vector<float> state_in_format_1(const ParameterArena& arena) {
  std::vector<float> values(static_cast<size_t>(3 * arena.count));
  for (int64_t part = 0; part < 3; ++part) {
    for (const ArenaEntry& entry : arena.entries) {
      for (int64_t i = 0; i < entry.count; ++i) {
        const auto number = static_cast<float>(10000 * part + 2000 * (entry.id % 5) + i);
        values[static_cast<size_t>(part * arena.count + entry.offset + i)] = number / 512 - 3;
      }
    }
  }
  return values;
}

TEST(StoredCheckpoint, OfFormatOneIsRead) {
  FolderStorage storage(kFormat1, real_file_system());
  const auto stored = read_manifest(storage, ".");
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  EXPECT_EQ(stored->manifest.position, (TrainingPosition{7, 56, 3, 4}));
  EXPECT_EQ(stored->manifest.loss, 1.75);
  EXPECT_EQ(stored->manifest.round, 2);
  EXPECT_EQ(stored->manifest.mesh, Mesh{});
  const ParameterArena arena = parameter_arena(kGpt, whole_model(kGpt), {});
  std::vector<float> found(static_cast<size_t>(3 * arena.count));
  float* const data = found.data();
  parallel::HostTransfer host;
  const Status loaded = WholeState(kGpt, {data, data + arena.count, data + 2 * arena.count}, host)
                            .load_checkpoint(kFormat1);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(found, state_in_format_1(arena));
}

// Every byte of format 1 counts too, though its files have one checksum each.
TEST(StoredCheckpoint, OfFormatOneIsRefusedIfAFileIsDamaged) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    TemporaryFolder folder;
    for (const char* file : {"manifest.json", "model.safetensors", "optimizer.safetensors"}) {
      folder.write(file, read_file(std::string(kFormat1) + "/" + file));
    }
    FolderStorage storage(folder.path(), real_file_system());
    ASSERT_TRUE(read_manifest(storage, ".").ok());
    std::string bytes = read_file(folder.file(name));
    bytes[bytes.size() - 1] ^= 1;
    folder.write(name, bytes);
    const auto stored = read_manifest(storage, ".");
    ASSERT_FALSE(stored.ok()) << name;
    EXPECT_EQ(stored.error().code, Code::kCorrupt);
    EXPECT_NE(stored.error().message.find(name), std::string::npos) << stored.error().message;
  }
}

TEST(StoredCheckpoint, OfFormatTwoIsRead) {
  FolderStorage storage(kFormat2, real_file_system());
  const auto round = load_folder(storage, ".", 10);
  ASSERT_TRUE(round.ok()) << round.error().message;
  EXPECT_EQ(*round, 1);
}

// With LOCKSTEP_WRITE_GOLDEN it stores what this version writes, for a format that is new.
TEST(StoredCheckpoint, OfFormatTwoHasTheSameBytesToday) {
  MemoryFileSystem files;
  RoundOfJob job(files, 1, 1);
  ASSERT_TRUE(job.prepare().ok());
  ASSERT_TRUE(job.save(10).ok());
  const std::string folder = std::string(kRoot) + "/step-00000010/";
  int compared = 0;
  for (const auto& [path, bytes] : files.files()) {
    if (!path.starts_with(folder) || path == folder) continue;
    const std::string stored = std::string(kFormat2) + "/" + path.substr(folder.size());
    if (std::getenv("LOCKSTEP_WRITE_GOLDEN") != nullptr) {
      std::ofstream(stored, std::ios::binary) << bytes;
    }
    EXPECT_TRUE(read_file(stored) == bytes) << stored;
    ++compared;
  }
  EXPECT_EQ(compared, 5);
}

}  // namespace
}  // namespace lockstep::train
