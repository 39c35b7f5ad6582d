#include "agent/parallel/state_stream.h"

#include <gtest/gtest.h>

#include <functional>
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
    HeldState held{.slices = {{.count = arena.count}}, .kinds = {}, .transfer = transfer};
    for (std::vector<float>& kind : memory) held.kinds.push_back({.values = kind.data()});
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
          const auto at = static_cast<size_t>(piece.local + i);
          const float expected = value_of({parameter, kind}, piece.global + i);
          ++(holder.memory[kind][at] == expected ? count.right : count.wrong);
        }
      }
    }
  }
  return count;
}

// Each holder gets its pieces.
void expect_distribution(const ModelDesign& design, const Mesh& mesh) {
  SCOPED_TRACE(name_of(mesh));
  const StateLayout layout(design, mesh);
  on_ranks(mesh, [&](comm::Communicator& world) {
    const bool is_root = world.rank() == 0;
    Holder holder(design, mesh, world.rank());
    StateStream stream(world, layout, holder.state(), kPieceValues);
    Values values;
    ASSERT_TRUE(stream.distribute(is_root ? &values : nullptr, kKinds).ok());
    const Count count = count_of(holder, layout, world.rank());
    const bool holds = coordinates(mesh, world.rank()).data == 0;
    EXPECT_EQ(holds ? count.wrong : count.right, 0) << "rank " << world.rank();
    EXPECT_GT(holds ? count.right : count.wrong, 0) << "rank " << world.rank();
  });
}

TEST(StateStream, GivesEveryHolderItsPieces) {
  ModelConfig few_keys = kLlama;
  few_keys.kv_heads = 2;
  for (const ModelConfig& config : {kGpt2, kLlama, few_keys}) {
    for (const Mesh& mesh : kMeshes) {
      ASSERT_TRUE(validate(config, mesh.tensor).ok());
      expect_distribution(config, mesh);
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

TEST(StateStream, CarriesAnMlpOverStages) {
  expect_distribution(MlpConfig{.inputs = 5, .hidden = {16, 7, 9}, .outputs = 3}, {.pipeline = 4});
}

}  // namespace
}  // namespace lockstep::parallel
