// docs/formats.md describes the messages, files and shared memory of common/api as they are.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <variant>

#include "common/api/message_fields.h"
#include "common/api/progress_page.h"
#include "common/api/step_number_table.h"
#include "common/api/worker_config.h"
#include "tests/common/api/every_number.h"
#include "tests/support/format_tables.h"

namespace lockstep {
namespace {

using test::raw;
using Names = std::set<std::string>;

template <class Message>
Names members_of() {
  Names names;
  Schema<Message>::visit([&](const Field& field, auto) { names.insert(std::string(field.name)); });
  return names;
}

Names members_of(const Json& object) {
  Names names;
  for (const auto& [name, value] : object.items()) names.insert(name);
  return names;
}

TEST(Formats, NameEveryMemberOfTheAgentsMessages) {
  EXPECT_EQ(test::format_members("Assignment"), members_of<Assignment>());
  EXPECT_EQ(test::format_members("State of an agent"), members_of<AgentState>());
  EXPECT_EQ(test::format_members("Worker in the state"), members_of<WorkerState>());
  const auto versions = test::format_table("Versions");
  EXPECT_EQ(versions.front().at(0), std::to_string(kProtocolOldest));
  EXPECT_EQ(versions.back().at(0), std::to_string(kProtocolNewest));
}

TEST(Formats, NameEveryMemberOfAWorkersConfiguration) {
  WorkerConfig config{.job_name = "job",
                      .world = {},
                      .hash = "hash",
                      .train = {},
                      .checkpoint = {},
                      .token_file = "token"};
  config.world.members.push_back({.host = "10.0.0.1", .port = 29500});
  config.parameter_servers.emplace();
  config.servers_view = "1:1";
  EXPECT_EQ(test::format_members("Worker's configuration"), members_of(to_json(config)));
}

TEST(Formats, ShowAWorldWithItsHash) {
  std::ifstream in(LOCKSTEP_SOURCE_DIR "/docs/formats.md");
  std::string world;
  std::string after;
  while (std::getline(in, after) && after.find("has the hash") == std::string::npos) {
    if (after.starts_with("{\"groups\"")) world = after;
  }
  const Result<Json> document = parse_json(world);
  ASSERT_TRUE(document.ok()) << world;
  const Result<WorldAssignment> read = world_from_json(*document);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(dump_json(to_json(*read)), world);
  EXPECT_NE(after.find("`" + world_hash(*read) + "`"), std::string::npos) << after;
  WorldAssignment all = *read;
  all.members.push_back({.index = 1, .host = "10.0.0.2", .port = 1, .role = MemberRole::kServer});
  all.pipeline = 2;
  all.layout.sharding = "optimizer";
  all.is_encrypted = true;
  EXPECT_EQ(test::format_members("World"), members_of(to_json(all)));
  EXPECT_EQ(test::format_members("Layout of a world"), members_of<WorldLayout>());
}

TEST(Formats, ListTheNumbersOfAStepInTheirOrder) {
  const StepNumbers numbers = every_number();
  const std::string memory = raw(numbers);
  const auto rows = test::format_table("Numbers of a step");
  ASSERT_EQ(rows.size() * 16, memory.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at(0), std::to_string(i));
    const std::string value = memory.substr(16 * i, 8);
    const auto known = std::find_if(
        step_number_table().begin(), step_number_table().end(), [&](const StepNumber& number) {
          const double found = *value_of(number, numbers);
          const bool is_count = std::holds_alternative<StepNumber::Count>(number.member);
          return value == (is_count ? raw(static_cast<int64_t>(found)) : raw(found));
        });
    ASSERT_NE(known, step_number_table().end()) << rows[i].at(2);
    const bool is_count = std::holds_alternative<StepNumber::Count>(known->member);
    EXPECT_EQ(rows[i].at(1), is_count ? "i64" : "f64") << rows[i].at(2);
    EXPECT_EQ(rows[i].at(3), known->file.empty() ? "-" : std::string(known->file));
    if (!known->status.name.empty() && known->file.empty()) {
      EXPECT_EQ(rows[i].at(2), known->status.name);
    }
    EXPECT_EQ(memory.substr(16 * i + 8, 1), std::string(1, '\1')) << "whether it is known";
  }
}

ProgressNumbers some_numbers() {
  ProgressNumbers numbers;
  numbers.step = 12;
  numbers.step_seconds = 0.5;
  numbers.round = 3;
  numbers.phase = WorkerPhase::kSaving;
  numbers.precision = PrecisionInUse::kBf16;
  numbers.lacks_bf16 = 1;
  numbers.checkpoint_step = 10;
  numbers.suspect_rank = 7;
  numbers.first_step_unix_seconds = 1.5;
  numbers.holdings = {.parameters_bytes = 11,
                      .gradients_bytes = 12,
                      .optimizer_bytes = 13,
                      .gathered_bytes = 14,
                      .activations_bytes = 15,
                      .offloaded_bytes = 16,
                      .sharding_ranks = 8};
  numbers.micro_batch = 17;
  numbers.servers_view = 18;
  numbers.is_filling = 1;
  return numbers;
}

GpuNumbers some_gpu() {
  GpuNumbers gpu{.samples = 4,
                 .busy_ratio = 0.25,
                 .memory_used_bytes = 2,
                 .memory_size_bytes = 3,
                 .power_watts = 400};
  std::memcpy(gpu.name.data(), "GPU", 3);
  std::memcpy(gpu.bus.data(), "0000:41:00.0", 12);
  gpu.uuid.fill(0xab);
  gpu.xids[0] = {.number = 79, .count = 2};
  return gpu;
}

TEST(Formats, GiveTheOffsetsOfTheProgressPage) {
  Result<ProgressPage> page = ProgressPage::create();
  ASSERT_TRUE(page.ok());
  void* mapped = mmap(nullptr, 8192, PROT_READ, MAP_SHARED, page->fd(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::string_view memory(static_cast<const char*>(mapped), 8192);
  const ProgressNumbers numbers = some_numbers();
  page->write(numbers);
  page->write(numbers);
  const GpuNumbers gpu = some_gpu();
  page->gpu().write(gpu);
  StorageNotes notes{.saved = 6,
                     .failed = 1,
                     .failed_step = 40,
                     .save_seconds = 0.75,
                     .blocked_seconds = 0.125,
                     .set_aside = 2,
                     .set_aside_step = 30,
                     .resumed_step = 20};
  notes.from_memory = 1;
  notes.skips = 3;
  notes.skip.assign("step 9");
  notes.kept_step = 41;
  notes.kept_bytes = 5000;
  notes.kept_blocked_seconds = 0.375;
  notes.failure.assign("no space");
  notes.set_aside_reason.assign("a byte changed");
  page->storage().write(notes);
  CollectiveBoard board = page->board();
  board.beat();
  RankWait wait{.operation = "all_reduce", .number = 17, .group = 9, .size = 2, .ranks = "0, 5"};
  wait.waits_for.add(5);
  wait.since_nanoseconds = 123;
  board.set_wait(wait);
  board.add({.group = 1, .size = 1, .ranks = "0"});
  const GroupActivity group{
      .group = 9, .size = 2, .ranks = "0, 5", .operation = "barrier", .entered = 8, .completed = 6};
  board.add(group);

  std::string waits_for = raw(int64_t{5});
  for (int i = 1; i < 8; ++i) waits_for += raw(int64_t{-1});
  const std::string groups(memory.substr(1824, 2304));
  test::expect_format("Progress page", memory,
                      {{"magic", raw(uint64_t{0x4c4b5350524f470c})},
                       {"sequence", raw(uint64_t{4})},
                       {"numbers", raw<StepNumbers>(numbers)},
                       {"round", raw(uint64_t{3})},
                       {"phase", raw(uint32_t{5})},
                       {"precision", raw(uint16_t{2})},
                       {"lacksBf16", raw(uint16_t{1})},
                       {"checkpointStep", raw(int64_t{10})},
                       {"suspectRank", raw(int64_t{7})},
                       {"firstStepUnixSeconds", raw(1.5)},
                       {"parametersBytes", raw(uint64_t{11})},
                       {"gradientsBytes", raw(uint64_t{12})},
                       {"optimizerBytes", raw(uint64_t{13})},
                       {"gatheredBytes", raw(uint64_t{14})},
                       {"activationsBytes", raw(uint64_t{15})},
                       {"offloadedBytes", raw(uint64_t{16})},
                       {"shardingRanks", raw(int64_t{8})},
                       {"microBatch", raw(int64_t{17})},
                       {"serversView", raw(int64_t{18})},
                       {"filling", raw(uint64_t{1})},
                       {"gpuSequence", raw(uint64_t{2})},
                       {"gpuSamples", raw(uint64_t{4})},
                       {"busyRatio", raw(0.25)},
                       {"memoryUsedBytes", raw(2.0)},
                       {"memorySizeBytes", raw(3.0)},
                       {"powerWatts", raw(400.0)},
                       {"name", "GPU"},
                       {"bus", "0000:41:00.0"},
                       {"uuid", std::string(16, '\xab')},
                       {"xids", raw(uint32_t{79}) + raw(uint32_t{2}) + std::string(56, '\0')},
                       {"storageSequence", raw(uint64_t{4})},
                       {"saved", raw(int64_t{6})},
                       {"failed", raw(int64_t{1})},
                       {"failedStep", raw(int64_t{40})},
                       {"saveSeconds", raw(0.75)},
                       {"blockedSeconds", raw(0.125)},
                       {"setAside", raw(int64_t{2})},
                       {"setAsideStep", raw(int64_t{30})},
                       {"resumedStep", raw(int64_t{20})},
                       {"failure", "no space"},
                       {"setAsideReason", "a byte changed"},
                       {"fromMemory", raw(int64_t{1})},
                       {"skips", raw(int64_t{3})},
                       {"skip", "step 9"},
                       {"keptStep", raw(int64_t{41})},
                       {"keptBytes", raw(int64_t{5000})},
                       {"keptBlockedSeconds", raw(0.375)},
                       {"beats", raw(uint64_t{1})},
                       {"waitSequence", raw(uint64_t{2})},
                       {"waits", raw(uint64_t{1})},
                       {"waitNumber", raw(uint64_t{17})},
                       {"waitGroup", raw(uint64_t{9})},
                       {"waitSize", raw(uint64_t{2})},
                       {"waitsFor", waits_for},
                       {"waitSince", raw(int64_t{123})},
                       {"waitRanks", "0, 5"},
                       {"waitOperation", "all_reduce"},
                       {"groups", groups}});
  test::expect_format("Group of the progress page", std::string_view(groups).substr(96, 96),
                      {{"sequence", raw(uint64_t{2})},
                       {"group", raw(uint64_t{9})},
                       {"size", raw(uint64_t{2})},
                       {"ranks", "0, 5"},
                       {"entered", raw(uint64_t{8})},
                       {"completed", raw(uint64_t{6})},
                       {"operation", "barrier"}});
  munmap(mapped, 8192);
}

}  // namespace
}  // namespace lockstep
