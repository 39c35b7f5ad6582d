// Stored checkpoints: tests/golden/checkpoint was written by an earlier version. This version can
// read it, and writes the same bytes for the same state.
#include <gtest/gtest.h>

#include <vector>

#include "agent/train/checkpoint/checkpoint_folder.h"
#include "tests/agent/train/temporary_folder.h"
#include "tests/agent/train/whole_state.h"

namespace lockstep::train {
namespace {

constexpr int64_t kStep = 7;
constexpr char kStored[] = LOCKSTEP_SOURCE_DIR "/tests/golden/checkpoint";
const ModelConfig kConfig{1, 8, 2, 4, 12};

// The model's three arenas, with a different value in each element.
struct State {
  ParameterArena arena = parameter_arena(kConfig, whole_model(kConfig), {});
  std::vector<float> values = std::vector<float>(static_cast<size_t>(3 * arena.count));

  WholeState whole(parallel::HostTransfer& transfer) {
    return {kConfig,
            {values.data(), values.data() + arena.count, values.data() + 2 * arena.count},
            transfer};
  }
  void fill() {
    for (int64_t part = 0; part < 3; ++part) {
      for (const ArenaEntry& entry : arena.entries) {
        for (int64_t i = 0; i < entry.count; ++i) {
          const auto number = static_cast<float>(10000 * part + 2000 * (entry.id % 5) + i);
          values[static_cast<size_t>(part * arena.count + entry.offset + i)] = number / 512 - 3;
        }
      }
    }
  }
};

Manifest manifest() {
  return {.position = {.step = kStep, .samples = 56, .weights_seed = 3, .data_seed = 4},
          .loss = 1.75,
          .round = 2,
          .files = {}};
}

TEST(StoredCheckpoint, OfAnEarlierVersionIsRead) {
  const auto newest = CheckpointFolder(kStored, 1).newest();
  ASSERT_TRUE(newest.ok() && newest->has_value());
  EXPECT_EQ((*newest)->manifest.position, manifest().position);
  EXPECT_EQ((*newest)->manifest.loss, 1.75);
  EXPECT_EQ((*newest)->manifest.round, 2);
  State expected;
  expected.fill();
  State found;
  parallel::HostTransfer host;
  const Status loaded = found.whole(host).load_checkpoint((*newest)->path);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(found.values, expected.values);
}

TEST(StoredCheckpoint, HasTheSameBytesToday) {
  State state;
  state.fill();
  TemporaryFolder place;
  CheckpointFolder folder(place.path(), 1);
  parallel::HostTransfer host;
  ASSERT_TRUE(state.whole(host).save(folder, manifest()).ok());
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "manifest.json"}) {
    const std::string name = std::string("/step-00000007/") + file;
    EXPECT_TRUE(read_file(place.path() + name) == read_file(kStored + name)) << file;
  }
}

}  // namespace
}  // namespace lockstep::train
