#include "agent/optim/muon.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "agent/optim/optimizer.h"

namespace lockstep::optim {
namespace {

constexpr ModelConfig kModel{.layers = 2, .width = 8, .heads = 2, .context = 4, .vocabulary = 11};

ParameterArena arena() {
  return parameter_arena(kModel, whole_model(kModel));
}

// Returns a value that depends on the place and the turn.
float drawn(int64_t turn, size_t i) {
  const auto mixed = static_cast<uint32_t>(turn + 1) * 2654435761U * static_cast<uint32_t>(i + 7);
  return static_cast<float>(mixed % 10007) / 5003.0f - 1.0f;
}

// One of the ranks that have the same gradients.
class Rank {
 public:
  Rank(const MuonRanks& ranks, const OptimizerOptions& options)
      : optimizer_(Optimizer::create(kModel, arena(),
                                     {.parameters = parameters.data(),
                                      .gradients = gradients.data(),
                                      .muon_ranks = ranks},
                                     options, {}, kernels::cpu_ops())
                       .value()) {
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i] = drawn(-1, i);
  }

  void draw(int64_t step) {
    for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = drawn(step, i);
  }
  Optimizer& optimizer() { return optimizer_; }
  std::vector<float> state(size_t kind) const {
    const float* values = optimizer_.states()[kind].values;
    return {values, values + parameters.size()};
  }

  std::vector<float> parameters = std::vector<float>(static_cast<size_t>(arena().count));
  std::vector<float> gradients = std::vector<float>(parameters.size());
  kernels::Stream stream;

 private:
  Optimizer optimizer_;
};

OptimizerOptions muon() {
  return {.kind = OptimizerKind::kMuon, .muon = {.rate = 5}};
}

OptimizerStep at(int64_t step) {
  return {.learning_rate = 0.01, .step = step};
}

double work_of(const std::vector<MuonMatrix>& matrices, int rank) {
  double work = 0;
  for (const MuonMatrix& matrix : matrices) {
    if (matrix.owner == rank) work += newton_schulz_flops(matrix.shape);
  }
  return work;
}

TEST(MuonMatrices, AreThePartsOfHiddenMatricesAndNothingElse) {
  const std::vector<MuonMatrix> matrices = muon_matrices(kModel, arena(), 1);
  ASSERT_EQ(matrices.size(), 12u);  // of each layer: query, key, value, projection, two of the MLP
  const std::vector<Parameter> table = parameter_table(kModel);
  int64_t count = 0;
  for (const MuonMatrix& matrix : matrices) count += matrix.shape.count();
  EXPECT_EQ(count, 2 * 12 * 8 * 8);
  const ArenaEntry* qkv = nullptr;
  for (const ArenaEntry& entry : arena().entries) {
    if (table[static_cast<size_t>(entry.id)].name == "transformer.h.0.attn.c_attn.weight") {
      for (const int64_t part : {0, 1, 2}) {
        EXPECT_EQ(std::ranges::count(matrices, entry.offset + part * 64, &MuonMatrix::offset), 1);
      }
      qkv = &entry;
    }
  }
  EXPECT_NE(qkv, nullptr);
}

TEST(MuonMatrices, AreDealtInRoundsOfOneForEachRank) {
  const std::vector<MuonMatrix> matrices = muon_matrices(kModel, arena(), 5);
  for (size_t i = 0; i < matrices.size(); ++i) {
    EXPECT_EQ(matrices[i].round, static_cast<int>(i) / 5);
    EXPECT_EQ(matrices[i].owner, static_cast<int>(i) % 5);
    if (i > 0) {
      EXPECT_LE(newton_schulz_flops(matrices[i].shape), newton_schulz_flops(matrices[i - 1].shape));
    }
  }
}

TEST(MuonMatrices, AreDealtSoThatNoRankHasMuchMoreWork) {
  for (const int ranks : {1, 2, 3, 4}) {
    const std::vector<MuonMatrix> matrices = muon_matrices(kModel, arena(), ranks);
    double most = 0, all = 0, largest = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      most = std::max(most, work_of(matrices, rank));
      all += work_of(matrices, rank);
    }
    for (const MuonMatrix& matrix : matrices) {
      largest = std::max(largest, newton_schulz_flops(matrix.shape));
    }
    EXPECT_LE(most, all / ranks + largest) << ranks << " ranks";
  }
}

TEST(MuonMatrices, AreDealtToSomeOfTheRanksWhereThereAreMoreOfThem) {
  const std::vector<MuonMatrix> matrices = muon_matrices(kModel, arena(), 100);
  std::vector<int> owners;
  for (const MuonMatrix& matrix : matrices) owners.push_back(matrix.owner);
  std::ranges::sort(owners);
  std::vector<int> expected(12);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(owners, expected);
}

// Brings runs of a matrix from one rank's memory to that of another.
void move(const std::vector<MuonRun>& runs, const std::vector<Rank*>& ranks, int owner,
          bool to_owner) {
  float* shards = ranks[static_cast<size_t>(owner)]->optimizer().muon()->shards();
  for (const MuonRun& run : runs) {
    float* gradients = ranks[static_cast<size_t>(run.rank)]->gradients.data() + run.place;
    float* from = to_owner ? gradients : shards + run.at;
    std::copy_n(from, run.count, to_owner ? shards + run.at : gradients);
  }
}

TEST(Muon, GivesRanksThatDivideTheMatricesTheBitsOfOneAlone) {
  Rank alone({}, muon());
  Rank first({.rank = 0, .ranks = 2}, muon());
  Rank second({.rank = 1, .ranks = 2}, muon());
  const std::vector<Rank*> ranks{&first, &second};
  for (int64_t step = 1; step <= 3; ++step) {
    alone.draw(step);
    alone.optimizer().step(alone.stream, at(step));
    for (Rank* rank : ranks) {
      rank->draw(step);
      rank->optimizer().make_directions(rank->stream, at(step));
    }
    for (const MuonMatrix& matrix : first.optimizer().muon()->matrices()) {
      const Muon& owner = *ranks[static_cast<size_t>(matrix.owner)]->optimizer().muon();
      move(owner.collected(matrix), ranks, matrix.owner, true);
      owner.orthogonalise(kernels::cpu_ops(), first.stream, matrix);
      move(owner.spread(matrix), ranks, matrix.owner, false);
    }
    for (Rank* rank : ranks) rank->optimizer().apply(rank->stream, at(step));
  }
  for (const Rank* rank : ranks) {
    EXPECT_EQ(rank->parameters, alone.parameters);
    EXPECT_EQ(rank->state(0), alone.state(0));
    EXPECT_EQ(rank->state(1), alone.state(1));
  }
}

TEST(Muon, ChangesNothingIfTheScaleIsNotFinite) {
  Rank rank({}, muon());
  rank.draw(1);
  rank.optimizer().step(rank.stream, at(1));
  const std::vector<float> parameters = rank.parameters;
  const std::vector<float> moments = rank.state(0);
  const float scale = std::numeric_limits<float>::quiet_NaN();
  OptimizerStep step = at(2);
  step.device_scale = &scale;
  rank.draw(2);
  rank.optimizer().step(rank.stream, step);
  EXPECT_EQ(rank.parameters, parameters);
  EXPECT_EQ(rank.state(0), moments);
}

TEST(Muon, MakesUpdatesThatDoNotDependOnTheSizeOfGradients) {
  Rank large({}, muon());
  Rank small({}, muon());
  OptimizerStep step = at(1);
  const float scale = 0x1p-10f;
  large.draw(1);
  large.optimizer().step(large.stream, step);
  small.draw(1);
  step.device_scale = &scale;
  small.optimizer().step(small.stream, step);
  for (const MuonMatrix& matrix : large.optimizer().muon()->matrices()) {
    for (int64_t i = matrix.offset; i < matrix.offset + matrix.shape.count(); ++i) {
      const auto place = static_cast<size_t>(i);
      EXPECT_NEAR(small.parameters[place], large.parameters[place], 1e-5);
      EXPECT_EQ(small.state(0)[place], scale * large.state(0)[place]);
    }
  }
}

TEST(Muon, MovesTheAverageOfMatricesToo) {
  OptimizerOptions options = muon();
  options.average_decay = 0.75;
  Rank rank({}, options);
  std::vector<float> expected;
  for (int64_t step = 1; step <= 2; ++step) {
    rank.draw(step);
    rank.optimizer().step(rank.stream, at(step));
    if (step == 1) expected = rank.parameters;
  }
  const std::vector<float> average = rank.state(2);
  for (const MuonMatrix& matrix : rank.optimizer().muon()->matrices()) {
    for (int64_t i = matrix.offset; i < matrix.offset + matrix.shape.count(); ++i) {
      const auto place = static_cast<size_t>(i);
      EXPECT_NEAR(average[place], 0.75f * expected[place] + 0.25f * rank.parameters[place], 1e-6);
    }
  }
}

// A matrix of a model of which tensor-parallel ranks have shards, and where the model has it.
struct Sharded {
  std::vector<MuonMatrix> matrices;
  std::vector<MuonMatrix> whole;
};

Sharded sharded(const ModelConfig& model, int64_t tensor) {
  const Stage stage = whole_model(model);
  return {.matrices = muon_matrices(model, parameter_arena(model, stage, {.size = tensor}), 1),
          .whole = muon_matrices(model, parameter_arena(model, stage), 1)};
}

TEST(MuonMatrices, HaveTheShapesOfTheModelWhateverTheShards) {
  ModelConfig llama{.layers = 1, .width = 16, .heads = 4, .context = 4, .vocabulary = 11};
  llama.family = Family::kLlama;
  llama.hidden = 24;
  llama.tied = false;
  llama.kv_heads = 2;
  for (const int64_t tensor : {1, 2, 4}) {
    const auto [matrices, whole] = sharded(llama, tensor);
    ASSERT_EQ(matrices.size(), whole.size());
    std::vector<int> shards;
    for (size_t i = 0; i < whole.size(); ++i) {
      const MuonMatrix& matrix = matrices[i];
      EXPECT_EQ(matrix.shape.rows, whole[i].shape.rows);
      EXPECT_EQ(matrix.shape.columns, whole[i].shape.columns);
      EXPECT_EQ(matrix.shard.count() * matrix.shards, matrix.shape.count());
      shards.push_back(matrix.shards);
    }
    const auto few = static_cast<int>(std::min<int64_t>(tensor, 2));  // keys and values: two heads
    EXPECT_EQ(std::ranges::count(shards, few), tensor == few ? 7 : 2) << tensor;
  }
}

// Numbers the elements of a matrix as its owner gets them: the shards one after the other.
TEST(Muon, PutsShardsOfColumnsTogether) {
  const auto [matrices, whole] = sharded(kModel, 2);
  const auto with_columns =
      std::ranges::find_if(matrices, [](const MuonMatrix& matrix) { return matrix.has_columns; });
  ASSERT_NE(with_columns, matrices.end());
  const MuonMatrix& cut = *with_columns;
  MuonMatrix uncut = cut;
  uncut.shard = uncut.shape;
  uncut.shards = 1;
  Rank rank({}, muon());
  const Muon& optimizer = *rank.optimizer().muon();
  const auto [rows, columns] = cut.shape;
  std::vector<float> expected(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < expected.size(); ++i) optimizer.shards()[i] = drawn(1, i);
  optimizer.orthogonalise(kernels::cpu_ops(), rank.stream, uncut);
  std::copy_n(optimizer.shards(), expected.size(), expected.begin());
  const auto place_in_shards = [&](int64_t row, int64_t column) {
    const int64_t width = cut.shard.columns;
    return (column / width * rows + row) * width + column % width;
  };
  for (int64_t i = 0; i < rows * columns; ++i) {
    optimizer.shards()[place_in_shards(i / columns, i % columns)] =
        drawn(1, static_cast<size_t>(i));
  }
  optimizer.orthogonalise(kernels::cpu_ops(), rank.stream, cut);
  for (int64_t i = 0; i < rows * columns; ++i) {
    EXPECT_EQ(optimizer.shards()[place_in_shards(i / columns, i % columns)],
              expected[static_cast<size_t>(i)]);
  }
}

TEST(Muon, CollectsEachElementOnceAndSpreadsItToAllThatHaveIt) {
  for (const int tensor : {1, 2, 4}) {
    const ParameterArena shard =
        parameter_arena(kModel, whole_model(kModel), {.size = int64_t{tensor}});
    std::vector<float> values(static_cast<size_t>(shard.count));
    std::vector<char> memory(1 << 16);
    for (const MuonMatrix& matrix : muon_matrices(kModel, shard, 3 * tensor)) {
      const Muon optimizer({.design = kModel,
                            .arena = shard,
                            .ranks = {.rank = matrix.owner, .ranks = 3 * tensor, .tensor = tensor},
                            .gradients = values.data(),
                            .buffers = values.data(),
                            .memory = {memory.data(), memory.size()}});
      std::vector<int> times(static_cast<size_t>(matrix.shape.count()));
      for (const MuonRun& run : optimizer.collected(matrix)) {
        EXPECT_EQ(run.rank / tensor, matrix.owner / tensor) << "a peer of the owner";
        for (int64_t i = 0; i < run.count; ++i) ++times[static_cast<size_t>(run.at + i)];
      }
      EXPECT_EQ(std::ranges::count(times, 1), matrix.shape.count());
      int64_t spread = 0;
      for (const MuonRun& run : optimizer.spread(matrix)) spread += run.count;
      EXPECT_EQ(spread, 3 * tensor * matrix.shard.count());
    }
  }
}

}  // namespace
}  // namespace lockstep::optim
