#include <gtest/gtest.h>

#include "agent/train/checkpoint/folder_storage.h"
#include "agent/train/checkpoint/shard_writer.h"
#include "tests/agent/model/allocation_count.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep::train {
namespace {

// One chunk is written and one is read back at a time, whatever the size of the tensors.
TEST(CheckpointMemory, OfAWriterIsTwoChunks) {
  const std::vector<float> large(static_cast<size_t>(8 * kChunkBytes) / sizeof(float), 0.5f);
  const StateTable table{
      .parameters = {{.name = "large", .dims = {std::ssize(large), 1}, .rank = 1}}, .states = {}};
  const parallel::StateShare share{
      .pieces = {{.id = 0, .runs = {{.local = 0, .global = 0, .count = std::ssize(large)}}}},
      .shard_begin = 0,
      .kinds = {large}};
  TemporaryFolder folder;
  FolderStorage storage(folder.path(), real_file_system());
  const int64_t before = test::allocated_bytes();
  const auto written = write_shard(storage, ".", {}, table, share);
  const int64_t bytes = test::allocated_bytes() - before;
  ASSERT_TRUE(written.ok()) << written.error().message;
  ASSERT_EQ(written->size(), 1u);
  EXPECT_GE(written->front().bytes, 8 * kChunkBytes);
  EXPECT_LT(bytes, static_cast<int64_t>(2 * kChunkBytes + (64 << 10)));
  EXPECT_GT(bytes, static_cast<int64_t>(kChunkBytes)) << "it counts";
}

}  // namespace
}  // namespace lockstep::train
