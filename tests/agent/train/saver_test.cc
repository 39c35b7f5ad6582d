// Saving and loading by all ranks of a world together, with ranks as threads.
#include "agent/train/checkpoint/saver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/train/checkpoint/folder_storage.h"
#include "agent/train/checkpoint/resume.h"
#include "agent/train/checkpoint/retrying_storage.h"
#include "tests/agent/train/stored_tensors.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep::train {
namespace {

const SystemClock kClock;
constexpr ModelConfig kGpt{2, 16, 2, 8, 29};

// The operating system's files, of which writing or reading fails on demand.
class FlakyFiles final : public FileSystem {
 public:
  std::atomic<bool> is_full = false;
  std::atomic<int> failing_reads = 0;  // that many opens for reading fail

  Result<std::unique_ptr<OpenFile>> create(const std::string& path) override {
    if (is_full) return unavailable("[storage] open of " + path + ": no space", Blame::kStorage);
    return real_file_system().create(path);
  }
  Result<std::unique_ptr<OpenFile>> open(const std::string& path) override {
    if (path.ends_with(".safetensors") && failing_reads.fetch_sub(1) > 0) {
      return unavailable("[storage] open of " + path + ": stale handle", Blame::kStorage);
    }
    return real_file_system().open(path);
  }
  Result<std::vector<std::string>> list(const std::string& folder) override {
    return real_file_system().list(folder);
  }
  Status make_folder(const std::string& path) override {
    return real_file_system().make_folder(path);
  }
  Status rename_folder(const std::string& from, const std::string& to) override {
    return real_file_system().rename_folder(from, to);
  }
  Status remove_file(const std::string& path) override {
    return real_file_system().remove_file(path);
  }
  Status remove_folder(const std::string& path) override {
    return real_file_system().remove_folder(path);
  }
  Status sync_folder(const std::string& path) override {
    return real_file_system().sync_folder(path);
  }
};

// One rank with all that it saves and loads with.
class Rank {
 public:
  Rank(comm::Communicator& world, const ModelDesign& design, const std::string& path)
      : world_(world),
        files_(path, flaky_),
        storage_(files_, [](Duration) {}),
        model_(make_model(world, design)),
        table_{parameter_table(design), model_->optimizer_states()} {}

  FlakyFiles& files() { return flaky_; }
  bool is_root() const { return world_.rank() == 0; }
  CheckpointFolder& folder() { return *folder_; }
  Saver& saver() { return *saver_; }
  ProgressReporter& progress() { return progress_; }
  // The others need not wait for this rank.
  void leave() { world_.abort("this rank leaves"); }

  // Does the same as a worker before it trains. Returns the result of resume().
  Result<std::optional<Manifest>> start(int64_t round = 1, const std::string& uid = "job") {
    const OwnerRecord owner{
        .job_uid = uid, .job_name = uid, .round = round, .boot_id = "boot-" + uid};
    if (is_root()) {
      TRY(files_.make_root());
      folder_.emplace(storage_, owner, 2);
      TRY(folder_->prepare());
    }
    TRY(world_.barrier());
    TRY_ASSIGN(std::optional<Manifest> found,
               resume({.world = world_,
                       .model = *model_,
                       .storage = storage_,
                       .folder = folder_ ? &*folder_ : nullptr,
                       .progress = progress_,
                       .table = table_,
                       .check = [](const Manifest&, const std::string&) { return Status(); }}));
    model_->reserve_snapshot();
    TRY_ASSIGN(outcomes_, world_.twin());
    saver_.emplace(Saver::Parts{.world = world_,
                                .outcomes = *outcomes_,
                                .model = *model_,
                                .storage = storage_,
                                .folder = folder_ ? &*folder_ : nullptr,
                                .progress = progress_,
                                .clock = kClock},
                   table_, owner);
    return found;
  }
  // Gives every element of the state a value of its own, which depends on the seed.
  void fill(int seed) {
    const parallel::DeviceState state = model_->state();
    std::vector<float*> kinds{state.parameters};
    for (const optim::OptimizerState& each : state.optimizer) kinds.push_back(each.values);
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      for (const ArenaEntry& entry : state.arena->entries) {
        for (int64_t i = 0; i < table_.parameters[static_cast<size_t>(entry.id)].count(); ++i) {
          kinds[kind][entry.offset + i] = static_cast<float>(seed) + static_cast<float>(kind) / 8 +
                                          static_cast<float>(entry.id * 10000 + i) / 1024;
        }
      }
    }
  }
  float first_value() const { return model_->state().parameters[0]; }
  float first_moment() const { return model_->state().optimizer[0].values[0]; }
  Manifest at(int64_t step) const {
    return {.position = {.step = step, .samples = 8 * step, .weights_seed = 1, .data_seed = 2},
            .loss = 2.5,
            .round = 1,
            .mesh = {.data = world_.size()},
            .files = {}};
  }
  Result<int64_t> save(int64_t step) {
    TRY(saver_->begin(at(step)));
    return saver_->finish();
  }

 private:
  static std::unique_ptr<parallel::Composition> make_model(comm::Communicator& world,
                                                           const ModelDesign& design) {
    const bool is_mlp = transformer_of(design) == nullptr;
    return parallel::Composition::create({.design = design,
                                          .mesh = {.data = world.size()},
                                          .micro_batch = 1,
                                          .sequence = is_mlp ? 1 : 8,
                                          .bucket_bytes = 4096,
                                          .optimizer = {}},
                                         world, kClock)
        .value();
  }

  comm::Communicator& world_;
  FlakyFiles flaky_;
  FolderStorage files_;
  RetryingStorage storage_;
  std::unique_ptr<parallel::Composition> model_;
  StateTable table_;
  ProgressReporter progress_{std::nullopt, 1};
  std::optional<CheckpointFolder> folder_;
  std::unique_ptr<comm::Communicator> outcomes_;
  std::optional<Saver> saver_;
};

void on_ranks(int size, const std::string& path, const std::function<void(Rank&)>& body,
              const ModelDesign& design = kGpt) {
  auto world = comm::make_thread_world(size).value();
  std::vector<std::jthread> threads;
  for (auto& communicator : world) {
    threads.emplace_back([&] {
      Rank rank(*communicator, design, path);
      body(rank);
    });
  }
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names = real_file_system().list(path).value();
  std::erase_if(names, [](const std::string& name) { return name.starts_with("owner-"); });
  std::sort(names.begin(), names.end());
  return names;
}

std::string state_of(const std::string& checkpoint) {
  return stored_bytes(checkpoint, "");
}

TEST(Saver, StoresTheStateAsItWasWhenTheSaveBegan) {
  TemporaryFolder place;
  on_ranks(2, place.file("checkpoints"), [](Rank& rank) {
    ASSERT_FALSE(rank.start().value().has_value());
    rank.fill(1);
    ASSERT_TRUE(rank.saver().begin(rank.at(1)).ok());
    rank.fill(2);  // while the first is being written
    ASSERT_TRUE(rank.saver().begin(rank.at(2)).ok());
    rank.fill(3);
    EXPECT_EQ(rank.saver().finish().value(), 2);
    EXPECT_EQ(rank.progress().storage().saved, rank.is_root() ? 2 : 0);
    EXPECT_EQ(rank.progress().numbers().checkpoint_step, rank.is_root() ? 2 : -1);
  });
  for (const int step : {1, 2}) {
    const auto tensors =
        stored_tensors(place.file("checkpoints/" + checkpoint_name(step)), "model");
    EXPECT_EQ(tensors.at("transformer.wte.weight")[0], static_cast<float>(step));
  }
}

// Replicated worlds; the meshes that are not trained yet are in state_shares_test.cc.
TEST(Saver, WorldsOfAnySizeLoadEachOthersCheckpointsExactly) {
  const MlpConfig mlp{.inputs = 5, .hidden = {7, 3}, .outputs = 2};
  const std::vector<int> sizes = {1, 2, 3, 4, 8};
  for (const ModelDesign& design : {ModelDesign(kGpt), ModelDesign(mlp)}) {
    TemporaryFolder place;
    for (const int size : sizes) {
      on_ranks(
          size, place.file("from-" + std::to_string(size)),
          [](Rank& rank) {
            ASSERT_TRUE(rank.start().ok());
            rank.fill(1);
            ASSERT_EQ(rank.save(5).value(), 5);
          },
          design);
    }
    const std::string expected = state_of(place.file("from-1/step-00000005"));
    for (const int from : sizes) {
      const std::string stored = place.file("from-" + std::to_string(from));
      EXPECT_TRUE(state_of(stored + "/step-00000005") == expected) << from;
      for (const int to : sizes) {
        on_ranks(
            to, stored,
            [&](Rank& rank) {
              const auto found = rank.start(2);
              ASSERT_TRUE(found.ok()) << found.error().message;
              EXPECT_EQ((*found)->position, rank.at(5).position);
              EXPECT_EQ((*found)->mesh.data, from);
              ASSERT_EQ(rank.save(6).value(), 6);
            },
            design);
        EXPECT_TRUE(state_of(stored + "/step-00000006") == expected) << from << " to " << to;
        std::filesystem::remove_all(stored + "/step-00000006");
      }
    }
  }
}

TEST(Saver, ASaveThatFailsOnOneRankIsNotedAndTheNextSucceeds) {
  TemporaryFolder place;
  on_ranks(3, place.file("checkpoints"), [](Rank& rank) {
    ASSERT_TRUE(rank.start().ok());
    rank.fill(1);
    rank.files().is_full = !rank.is_root();
    EXPECT_EQ(rank.save(1).value(), -1);
    const StorageNotes& notes = rank.progress().storage();
    EXPECT_EQ(notes.failed, rank.is_root() ? 1 : 0);
    if (rank.is_root()) {
      EXPECT_EQ(notes.failed_step, 1);
      EXPECT_NE(notes.failure.text().find("rank 1: [storage] open of"), std::string::npos)
          << notes.failure.text();
    }
    rank.files().is_full = false;
    EXPECT_EQ(rank.save(2).value(), 2);
    EXPECT_EQ(notes.failed_step, -1);
  });
  EXPECT_EQ(names_in(place.file("checkpoints")), std::vector<std::string>{"step-00000002"});
}

// Whatever the length of the path, the report says what is wrong with which file.
TEST(Resume, SetsCorruptCheckpointsAsideAndTakesTheOneBefore) {
  TemporaryFolder place;
  const std::string path = place.file(std::string(200, 'd'));
  on_ranks(2, path, [](Rank& rank) {
    ASSERT_TRUE(rank.start().ok());
    for (const int step : {1, 2}) {
      rank.fill(step);
      ASSERT_EQ(rank.save(step).value(), step);
    }
  });
  // In the share of rank 1 alone.
  const std::string damaged = path + "/step-00000002/optimizer-00001-of-00002.safetensors";
  std::string bytes = read_file(damaged);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(damaged, std::ios::binary) << bytes;
  on_ranks(2, path, [](Rank& rank) {
    const auto found = rank.start(2);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ((*found)->position.step, 1);
    EXPECT_EQ(rank.first_value(), 1.0f);
    const StorageNotes& notes = rank.progress().storage();
    EXPECT_EQ(notes.set_aside, rank.is_root() ? 1 : 0);
    if (!rank.is_root()) return;
    EXPECT_EQ(notes.set_aside_step, 2);
    const std::string reason(notes.set_aside_reason.text());
    EXPECT_TRUE(reason.starts_with("rank 0: [checkpoint] ")) << reason;
    EXPECT_TRUE(reason.find("optimizer-00001-of-00002.safetensors: bytes ") != std::string::npos)
        << reason;
    EXPECT_TRUE(
        reason.ends_with("do not match their checksum (it is now set-aside-step-00000002-2)"))
        << reason;
  });
  EXPECT_EQ(names_in(path),
            (std::vector<std::string>{"set-aside-step-00000002-2", "step-00000001"}));
}

// Half of the last one was read before the damage was found.
TEST(Resume, BeginsFromNothingWhereNoCheckpointIsLeft) {
  TemporaryFolder place;
  const std::string path = place.file("checkpoints");
  on_ranks(2, path, [](Rank& rank) {
    ASSERT_TRUE(rank.start().ok());
    rank.fill(1);
    ASSERT_EQ(rank.save(1).value(), 1);
  });
  const std::string damaged = path + "/step-00000001/optimizer-00001-of-00002.safetensors";
  std::filesystem::resize_file(damaged, std::filesystem::file_size(damaged) - 1);
  on_ranks(2, path, [](Rank& rank) {
    const auto found = rank.start(2);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_FALSE(found->has_value());
    EXPECT_EQ(rank.first_value(), 0.0f);
    EXPECT_EQ(rank.first_moment(), 0.0f);
  });
}

TEST(Resume, TriesAgainWhatMayPassAndThenEndsTheRoundWithoutTouchingTheCheckpoint) {
  TemporaryFolder place;
  const std::string path = place.file("checkpoints");
  on_ranks(1, path, [](Rank& rank) {
    ASSERT_TRUE(rank.start().ok());
    rank.fill(1);
    ASSERT_EQ(rank.save(1).value(), 1);
  });
  on_ranks(2, path, [](Rank& rank) {
    rank.files().failing_reads = 3;
    EXPECT_TRUE(rank.start(2).value().has_value());
  });
  on_ranks(2, path, [](Rank& rank) {
    if (!rank.is_root()) rank.files().failing_reads = 1000;
    const auto found = rank.start(3);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().blame, rank.is_root() ? Blame::kPeer : Blame::kStorage);
    EXPECT_NE(found.error().message.find("stale handle"), std::string::npos);
  });
  EXPECT_EQ(names_in(path), std::vector<std::string>{"step-00000001"});
}

TEST(Saver, StopsWhenTheFolderHasANewOwner) {
  TemporaryFolder place;
  const std::string path = place.file("checkpoints");
  on_ranks(2, path, [&](Rank& rank) {
    ASSERT_TRUE(rank.start(1, "first").ok());
    rank.fill(1);
    ASSERT_EQ(rank.save(1).value(), 1);
    if (rank.is_root()) {
      FolderStorage storage(path, real_file_system());
      CheckpointFolder other(storage, {.job_uid = "2", .job_name = "second", .round = 1}, 1);
      ASSERT_TRUE(other.prepare().ok());
    }
    const Result<int64_t> second = rank.save(2);
    if (!rank.is_root()) return;
    rank.leave();
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().blame, Blame::kFenced);
    EXPECT_NE(second.error().message.find("round 1 of job second"), std::string::npos)
        << second.error().message;
  });
  EXPECT_EQ(names_in(path), std::vector<std::string>{"step-00000001"});
}

}  // namespace
}  // namespace lockstep::train
