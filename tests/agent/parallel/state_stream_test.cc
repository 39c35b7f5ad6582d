#include "agent/parallel/state_stream.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/comm/make_communicator.h"

namespace lockstep::parallel {
namespace {

constexpr size_t kKinds = 3;
constexpr float kPadding = -1;
// Cuts rows, and tensors of more than one piece.
constexpr int64_t kPieceValues = 77;

// A tied embedding, biases, and a vocabulary that no number of shards divides.
constexpr ModelConfig kGpt2{
    .layers = 4, .width = 16, .heads = 8, .context = 8, .vocabulary = 29, .family = Family::kGpt2};
// Packed parameters, and a head of its own.
constexpr ModelConfig kLlama{.layers = 4,
                             .width = 32,
                             .heads = 8,
                             .context = 8,
                             .vocabulary = 29,
                             .family = Family::kLlama,
                             .hidden = 24,
                             .tied = false,
                             .kv_heads = 4};

float value_of(const StateTensor& tensor, int64_t element) {
  return static_cast<float>(1 + tensor.kind + kKinds * static_cast<size_t>(tensor.parameter.id)) +
         static_cast<float>(element) / 4096;
}

class Values final : public StateSource {
 public:
  explicit Values(int fails_at_call = -1) : fails_at_call_(fails_at_call) {}
  Status read(const StateTensor& tensor, int64_t first, std::span<float> to) override {
    if (calls_++ == fails_at_call_) return corrupt("[test] a bad file");
    for (size_t i = 0; i < to.size(); ++i) {
      to[i] = value_of(tensor, first + static_cast<int64_t>(i));
    }
    return {};
  }

 private:
  int fails_at_call_;
  int calls_ = 0;
};

// Counts the elements of each tensor, and those that are out of order or wrong.
class Checks final : public StateSink {
 public:
  Status write(const StateTensor& tensor, int64_t first, std::span<const float> values) override {
    int64_t& done = done_[{tensor.kind, tensor.parameter.id}];
    if (first != done) ++wrong_;
    for (const float value : values) {
      if (value != value_of(tensor, done++)) ++wrong_;
    }
    return {};
  }
  int64_t wrong() const { return wrong_; }
  // Whether every element of every tensor came once.
  bool is_complete(const StateLayout& layout) const {
    for (size_t kind = 0; kind < kKinds; ++kind) {
      for (const Parameter& parameter : layout.table()) {
        const auto found = done_.find({kind, parameter.id});
        if (found == done_.end() || found->second != parameter.count()) return false;
      }
    }
    return true;
  }

 private:
  std::map<std::pair<size_t, int64_t>, int64_t> done_;
  int64_t wrong_ = 0;
};

// One rank's memory of a mesh.
struct Holder {
  ParameterArena arena;
  std::vector<std::vector<float>> memory;
  HostTransfer transfer;

  Holder(const ModelDesign& design, const Mesh& mesh, int rank) {
    const MeshCoordinates at = coordinates(mesh, rank);
    arena = parameter_arena(design, pipeline_stage(design, mesh.pipeline, at.pipeline),
                            {.index = at.tensor, .size = mesh.tensor});
    memory.assign(kKinds, std::vector<float>(static_cast<size_t>(arena.count), kPadding));
  }
  HeldState state() {
    HeldState held{.arena = arena, .kinds = {}, .transfer = transfer};
    for (std::vector<float>& kind : memory) held.kinds.push_back(kind.data());
    return held;
  }
};

void on_ranks(const Mesh& mesh, const std::function<void(comm::Communicator&)>& body) {
  auto world = comm::make_thread_world(static_cast<int>(mesh.size())).value();
  std::vector<std::jthread> ranks;
  for (auto& communicator : world) ranks.emplace_back([&] { body(*communicator); });
}

std::string name_of(const Mesh& mesh) {
  return std::to_string(mesh.pipeline) + " x " + std::to_string(mesh.data) + " x " +
         std::to_string(mesh.tensor);
}

const std::vector<Mesh> kMeshes = {{1, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 1, 4}, {2, 1, 1},
                                   {4, 1, 1}, {2, 1, 2}, {2, 2, 2}, {1, 2, 4}, {4, 1, 2}};

// The number of elements that have the value of their place, and of those that have not.
struct Count {
  int64_t right = 0;
  int64_t wrong = 0;
};
Count count_of(const Holder& holder, const StateLayout& layout, int64_t rank) {
  Count count;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    for (const ArenaEntry& entry : holder.arena.entries) {
      const Parameter& parameter = layout.table()[static_cast<size_t>(entry.id)];
      for (const ShardRun& piece : layout.pieces(parameter, rank)) {
        for (int64_t i = 0; i < piece.count; ++i) {
          const auto at = static_cast<size_t>(entry.offset + piece.local + i);
          const float expected = value_of({parameter, kind}, piece.global + i);
          ++(holder.memory[kind][at] == expected ? count.right : count.wrong);
        }
      }
    }
  }
  return count;
}

TEST(StateStream, GivesEveryHolderItsPiecesAndCollectsThemAgain) {
  for (const ModelConfig& config : {kGpt2, kLlama}) {
    for (const Mesh& mesh : kMeshes) {
      SCOPED_TRACE(name_of(mesh));
      ASSERT_TRUE(validate(config, mesh.tensor).ok());
      const StateLayout layout(config, mesh);
      on_ranks(mesh, [&](comm::Communicator& world) {
        Holder holder(config, mesh, world.rank());
        StateStream stream(world, layout, holder.state(), kPieceValues);
        Values values;
        ASSERT_TRUE(stream.distribute(world.rank() == 0 ? &values : nullptr, kKinds).ok());
        const Count count = count_of(holder, layout, world.rank());
        const bool holds = coordinates(mesh, world.rank()).data == 0;
        EXPECT_EQ(holds ? count.wrong : count.right, 0) << "rank " << world.rank();
        Checks checks;
        ASSERT_TRUE(stream.collect(world.rank() == 0 ? &checks : nullptr).ok());
        EXPECT_EQ(checks.wrong(), 0);
        EXPECT_EQ(checks.is_complete(layout), world.rank() == 0);
      });
    }
  }
}

TEST(StateStream, LeavesPaddingAsItIs) {
  const Mesh mesh{1, 1, 4};
  const StateLayout layout(kGpt2, mesh);
  on_ranks(mesh, [&](comm::Communicator& world) {
    Holder holder(kGpt2, mesh, world.rank());
    StateStream stream(world, layout, holder.state(), kPieceValues);
    Values values;
    ASSERT_TRUE(stream.distribute(world.rank() == 0 ? &values : nullptr, 1).ok());
    if (world.rank() != 3) return;
    // 29 rows are padded to 32: the last shard has 5 of its 8.
    const ArenaEntry& entry = *holder.arena.find(kTokenEmbedding);
    const auto* rows = holder.memory[0].data() + entry.offset;
    EXPECT_NE(rows[5 * kGpt2.width - 1], kPadding);
    for (int64_t i = 5 * kGpt2.width; i < 8 * kGpt2.width; ++i) EXPECT_EQ(rows[i], kPadding);
    for (const float value : holder.memory[1]) EXPECT_EQ(value, kPadding) << "kind 1 not asked for";
  });
}

TEST(StateStream, SendsEachElementOnceToEachHolder) {
  const Mesh mesh{2, 1, 2};
  const StateLayout layout(kGpt2, mesh);
  on_ranks(mesh, [&](comm::Communicator& world) {
    Holder holder(kGpt2, mesh, world.rank());
    StateStream stream(world, layout, holder.state(), kPieceValues);
    Values values;
    const uint64_t before = world.traffic().bytes_received;
    ASSERT_TRUE(stream.distribute(world.rank() == 0 ? &values : nullptr, kKinds).ok());
    const uint64_t received = world.traffic().bytes_received - before;
    const Count count = count_of(holder, layout, world.rank());
    const auto own = static_cast<uint64_t>(count.right) * sizeof(float);
    EXPECT_EQ(received, world.rank() == 0 ? 0 : own);
  });
}

// Ranks that wait for values learn it when the rank that failed leaves.
TEST(StateStream, ReturnsTheErrorsOfSourcesToRankZero) {
  const Mesh mesh{1, 1, 2};
  const StateLayout layout(kGpt2, mesh);
  auto world = comm::make_thread_world(2).value();
  std::jthread other([&] {
    Holder holder(kGpt2, mesh, 1);
    const Status status = StateStream(*world[1], layout, holder.state()).distribute(nullptr, 1);
    EXPECT_EQ(status.error().code, Code::kUnavailable);
  });
  Holder holder(kGpt2, mesh, 0);
  Values values(3);
  const Status status = StateStream(*world[0], layout, holder.state()).distribute(&values, 1);
  EXPECT_EQ(status.error().message, "[test] a bad file");
  world[0].reset();
}

class FullDisk final : public StateSink {
 public:
  Status write(const StateTensor&, int64_t, std::span<const float>) override {
    return ++calls_ < 3 ? Status() : Status(unavailable("[test] no space"));
  }

 private:
  int calls_ = 0;
};

TEST(StateStream, ReturnsTheErrorsOfSinksToRankZero) {
  const Mesh mesh{1, 1, 2};
  const StateLayout layout(kGpt2, mesh);
  auto world = comm::make_thread_world(2).value();
  std::jthread other([&] {
    Holder holder(kGpt2, mesh, 1);
    const Status status =
        StateStream(*world[1], layout, holder.state(), kPieceValues).collect(nullptr);
    // Small pieces may all be on their way before rank 0 leaves.
    EXPECT_TRUE(status.ok() || status.error().code == Code::kUnavailable);
  });
  Holder holder(kGpt2, mesh, 0);
  FullDisk disk;
  const Status status = StateStream(*world[0], layout, holder.state(), kPieceValues).collect(&disk);
  EXPECT_EQ(status.error().message, "[test] no space");
  world[0].reset();
}

TEST(StateStream, CarriesAnMlpOverStages) {
  const MlpConfig config{.inputs = 5, .hidden = {16, 7, 9}, .outputs = 3};
  const Mesh mesh{.pipeline = 4};
  const StateLayout layout(config, mesh);
  on_ranks(mesh, [&](comm::Communicator& world) {
    Holder holder(config, mesh, world.rank());
    StateStream stream(world, layout, holder.state(), kPieceValues);
    Values values;
    ASSERT_TRUE(stream.distribute(world.rank() == 0 ? &values : nullptr, kKinds).ok());
    const Count count = count_of(holder, layout, world.rank());
    EXPECT_EQ(count.wrong, 0);
    EXPECT_GT(count.right, 0);
    Checks checks;
    ASSERT_TRUE(stream.collect(world.rank() == 0 ? &checks : nullptr).ok());
    EXPECT_EQ(checks.wrong(), 0);
    EXPECT_EQ(checks.is_complete(layout), world.rank() == 0);
  });
}

}  // namespace
}  // namespace lockstep::parallel
