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
  Rank(MuonRank rank, const OptimizerOptions& options)
      : optimizer_(
            Optimizer::create(
                kModel, arena(),
                {.parameters = parameters.data(), .gradients = gradients.data(), .muon_rank = rank},
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
      EXPECT_EQ(matrices[0].offset, entry.offset);
      EXPECT_EQ(matrices[1].offset, entry.offset + 64);
      EXPECT_EQ(matrices[2].offset, entry.offset + 128);
      qkv = &entry;
    }
  }
  EXPECT_NE(qkv, nullptr);
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

// Copies [begin, end) of the matrix from the gradients of one rank to those of another.
void copy(const Rank& from, Rank& to, int64_t begin, int64_t end) {
  std::copy(from.gradients.begin() + begin, from.gradients.begin() + end,
            to.gradients.begin() + begin);
}

TEST(Muon, GivesRanksThatDivideTheMatricesTheBitsOfOneAlone) {
  Rank alone({}, muon());
  Rank first({.rank = 0, .ranks = 2}, muon());
  Rank second({.rank = 1, .ranks = 2}, muon());
  for (int64_t step = 1; step <= 3; ++step) {
    alone.draw(step);
    alone.optimizer().step(alone.stream, at(step));
    for (Rank* rank : {&first, &second}) {
      rank->draw(step);
      rank->optimizer().make_directions(rank->stream, at(step));
      rank->optimizer().orthogonalise(rank->stream, at(step));
    }
    for (const MuonMatrix& matrix : first.optimizer().matrices()) {
      const int64_t end = matrix.offset + matrix.shape.count();
      const bool is_firsts = matrix.owner == 0;
      copy(is_firsts ? first : second, is_firsts ? second : first, matrix.offset, end);
    }
    for (Rank* rank : {&first, &second}) rank->optimizer().apply(rank->stream, at(step));
  }
  for (const Rank* rank : {&first, &second}) {
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
  for (const MuonMatrix& matrix : large.optimizer().matrices()) {
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
  for (const MuonMatrix& matrix : rank.optimizer().matrices()) {
    for (int64_t i = matrix.offset; i < matrix.offset + matrix.shape.count(); ++i) {
      const auto place = static_cast<size_t>(i);
      EXPECT_NEAR(average[place], 0.75f * expected[place] + 0.25f * rank.parameters[place], 1e-6);
    }
  }
}

TEST(Muon, IsRefusedWithoutWholeMatrices) {
  std::vector<float> values(static_cast<size_t>(arena().count));
  const auto created = Optimizer::create(kModel, arena(),
                                         {.parameters = values.data(),
                                          .gradients = values.data(),
                                          .slices = {{.count = 16}},
                                          .gradients_layout = ArrayLayout::kShard},
                                         muon(), {}, kernels::cpu_ops());
  ASSERT_FALSE(created.ok());
  EXPECT_EQ(created.error().code, Code::kInvalid);
}

}  // namespace
}  // namespace lockstep::optim
