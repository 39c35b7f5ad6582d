#include "agent/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "common/base/check.h"

namespace lockstep::optim {
namespace {

constexpr size_t kAlign = 256;  // bytes

size_t aligned(size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

size_t float_bytes(int64_t count) {
  return aligned(static_cast<size_t>(count) * sizeof(float));
}

// Returns how many different shards tensor-parallel ranks have of a part, or of a whole matrix.
int64_t shards_of(const Parameter& parameter, const ParameterPart* part, int64_t ranks) {
  if (parameter.shard_axis < 0) return 1;
  if (part == nullptr || part->pieces_max == 0) return ranks;
  return std::min(ranks, part->pieces_max);
}

void add_matrices(const Parameter& parameter, const ArenaEntry& entry, int64_t ranks,
                  std::vector<MuonMatrix>& matrices) {
  const bool has_columns = parameter.shard_axis == 1;
  int64_t offset = entry.offset;
  const auto add = [&](int64_t rows, const ParameterPart* part) {
    const int64_t shards = shards_of(parameter, part, ranks);
    const int64_t columns = parameter.dims[1];
    const MatrixShape shard =
        has_columns ? MatrixShape{rows, columns / shards} : MatrixShape{rows / shards, columns};
    matrices.push_back({.shape = {rows, columns},
                        .shard = shard,
                        .shards = static_cast<int>(shards),
                        .has_columns = has_columns,
                        .offset = offset});
    offset += shard.count();
  };
  if (parameter.parts.empty()) add(parameter.dims[0], nullptr);
  for (const ParameterPart& part : parameter.parts) add(part.rows, &part);
  CHECK(offset == entry.offset + entry.count);
}

double cost_of(const MuonMatrix& matrix) {
  return newton_schulz_flops(matrix.shape);
}

constexpr int64_t kFactors = 3;  // update_factor(), 1, and that of a norm

// The memory of the largest matrix of each kind.
struct Sizes {
  size_t matrix = 0;
  size_t square = 0;
  size_t workspace = 0;
};

Sizes sizes_of(std::span<const MuonMatrix> matrices, const MuonOptions& options,
               kernels::DeviceType device) {
  Sizes sizes;
  for (const MuonMatrix& matrix : matrices) {
    const int64_t side = matrix.shape.shorter();
    sizes.matrix = std::max(sizes.matrix, float_bytes(matrix.shape.count()));
    sizes.square = std::max(sizes.square, float_bytes(side * side));
    sizes.workspace = std::max(
        sizes.workspace, aligned(newton_schulz_workspace(matrix.shape, options.precision, device)));
  }
  return sizes;
}

size_t bytes_of(const Sizes& sizes) {
  return 2 * sizes.matrix + 2 * sizes.square + sizes.workspace +
         aligned(sizeof(kernels::SquareSum)) + float_bytes(kFactors);
}

// Makes a matrix of its shards of columns, which come one after the other.
void join_columns(const kernels::OpTable& ops, kernels::Stream& stream, const MuonMatrix& matrix,
                  const float* shards, float* whole) {
  const int64_t width = matrix.shard.columns;
  for (int64_t shard = 0; shard < matrix.shards; ++shard) {
    ops.copy_rows(stream, {.from = shards + shard * matrix.shard.count(),
                           .to = whole + shard * width,
                           .rows = matrix.shape.rows,
                           .width = width,
                           .from_stride = width,
                           .to_stride = matrix.shape.columns});
  }
}

// The other way.
void cut_columns(const kernels::OpTable& ops, kernels::Stream& stream, const MuonMatrix& matrix,
                 const float* whole, float* shards) {
  const int64_t width = matrix.shard.columns;
  for (int64_t shard = 0; shard < matrix.shards; ++shard) {
    ops.copy_rows(stream, {.from = whole + shard * width,
                           .to = shards + shard * matrix.shard.count(),
                           .rows = matrix.shape.rows,
                           .width = width,
                           .from_stride = matrix.shape.columns,
                           .to_stride = width});
  }
}

}  // namespace

std::vector<MuonMatrix> muon_matrices(const ModelDesign& design, const ParameterArena& arena,
                                      int ranks) {
  const std::vector<Parameter> table = parameter_table(design);
  std::vector<MuonMatrix> matrices;
  for (const ArenaEntry& entry : arena.entries) {
    const Parameter& parameter = table[static_cast<size_t>(entry.id)];
    if (parameter.is_hidden_matrix) add_matrices(parameter, entry, arena.shard.size, matrices);
  }
  std::ranges::stable_sort(matrices, std::ranges::greater(), cost_of);
  int next = 0;
  for (MuonMatrix& matrix : matrices) {
    matrix.round = next / ranks;
    matrix.owner = next % ranks;
    ++next;
  }
  return matrices;
}

size_t muon_bytes(std::span<const MuonMatrix> matrices, const MuonOptions& options,
                  kernels::DeviceType device) {
  return bytes_of(sizes_of(matrices, options, device));
}

Muon::Muon(Setup setup)
    : setup_(std::move(setup)),
      matrices_(muon_matrices(setup_.design, setup_.arena, setup_.ranks.ranks)) {
  const Sizes sizes = sizes_of(matrices_, setup_.options, setup_.device);
  CHECK(setup_.memory.bytes >= bytes_of(sizes));
  char* next = static_cast<char*>(setup_.memory.data);
  const auto take = [&next](size_t bytes) { return std::exchange(next, next + bytes); };
  shards_ = reinterpret_cast<float*>(take(sizes.matrix));
  memory_.precision = setup_.options.precision;
  memory_.out = shards_;
  memory_.x = reinterpret_cast<float*>(take(sizes.matrix));
  memory_.gram = reinterpret_cast<float*>(take(sizes.square));
  memory_.polynomial = reinterpret_cast<float*>(take(sizes.square));
  memory_.squares =
      reinterpret_cast<kernels::SquareSum*>(take(aligned(sizeof(kernels::SquareSum))));
  factors_ = reinterpret_cast<float*>(take(float_bytes(kFactors)));
  memory_.factor = factors_ + 2;
  memory_.workspace = {take(sizes.workspace), sizes.workspace};
}

std::vector<ShardSlice> Muon::slices_of(int rank, const MuonMatrix& matrix) const {
  const int64_t count = matrix.shard.count();
  const MuonRanks& ranks = setup_.ranks;
  if (ranks.slices.empty())
    return {{.offset = matrix.offset, .local = matrix.offset, .count = count}};
  const size_t index = static_cast<size_t>(rank / ranks.tensor) % ranks.slices.size();
  return offsets_within(ranks.slices[index], matrix.offset, matrix.offset + count);
}

// From zero and with the rate -1, SGD's step is its direction.
void Muon::make_directions(const kernels::OpTable& ops, kernels::Stream& stream,
                           const GradientScale& scale) const {
  for (const MuonMatrix& matrix : matrices_) {
    for (const ShardSlice& slice : slices_of(rank(), matrix)) {
      float* gradient = setup_.gradients + place_of(slice, setup_.gradients_layout);
      ops.fill(stream, {.out = memory_.x, .count = slice.count, .value = 0});
      const kernels::UpdatedTensor tensor{
          .parameter = memory_.x,
          .gradient = gradient,
          .states = {setup_.buffers + place_of(slice, setup_.buffers_layout)},
          .count = slice.count};
      ops.sgd(stream, {.tensors = {&tensor, 1},
                       .learning_rate = -1,
                       .momentum = static_cast<float>(setup_.options.momentum),
                       .nesterov = true,
                       .gradient_scale = scale.factor,
                       .device_scale = scale.device_factor});
      ops.cast(stream, {.x = memory_.x, .out = gradient, .count = slice.count});
    }
  }
}

// Zero times a number is zero only if the number is finite.
const float* Muon::update_factor(const kernels::OpTable& ops, kernels::Stream& stream,
                                 const float* device_factor) const {
  float* one = factors_ + 1;
  ops.fill(stream, {.out = one, .count = 1, .value = 1});
  if (device_factor == nullptr) return one;
  ops.scale(stream, {.x = device_factor, .out = factors_, .count = 1, .factor = 0});
  ops.add(stream, {.a = factors_, .b = one, .out = factors_, .count = 1});
  return factors_;
}

void Muon::orthogonalise(const kernels::OpTable& ops, kernels::Stream& stream,
                         const MuonMatrix& matrix) const {
  const int64_t count = matrix.shape.count();
  const bool is_cut = matrix.has_columns && matrix.shards > 1;
  if (is_cut) {
    join_columns(ops, stream, matrix, shards_, memory_.x);
  } else {
    ops.cast(stream, {.x = shards_, .out = memory_.x, .count = count});
  }
  NewtonSchulz args = memory_;
  args.shape = matrix.shape;
  newton_schulz(ops, stream, args);
  const double ratio =
      static_cast<double>(matrix.shape.rows) / static_cast<double>(matrix.shape.columns);
  const auto factor = static_cast<float>(std::sqrt(std::max(1.0, ratio)));
  float* update = is_cut ? memory_.x : shards_;
  ops.scale(stream, {.x = shards_, .out = update, .count = count, .factor = factor});
  if (is_cut) cut_columns(ops, stream, matrix, update, shards_);
}

void Muon::orthogonalise_all(const kernels::OpTable& ops, kernels::Stream& stream) const {
  CHECK(setup_.ranks.ranks == 1);
  for (const MuonMatrix& matrix : matrices_) {
    for (const MuonRun& run : collected(matrix)) {
      ops.cast(stream, {.x = gradients() + run.place, .out = shards_ + run.at, .count = run.count});
    }
    orthogonalise(ops, stream, matrix);
    for (const MuonRun& run : spread(matrix)) {
      ops.cast(stream, {.x = shards_ + run.at, .out = gradients() + run.place, .count = run.count});
    }
  }
}

void Muon::add_runs(const MuonMatrix& matrix, int rank, std::vector<MuonRun>& runs) const {
  const MuonRanks& ranks = setup_.ranks;
  const int64_t shard = int64_t{rank % ranks.tensor} * matrix.shards / ranks.tensor;
  for (const ShardSlice& slice : slices_of(rank, matrix)) {
    runs.push_back({.rank = rank,
                    .place = place_of(slice, setup_.gradients_layout),
                    .at = shard * matrix.shard.count() + slice.offset - matrix.offset,
                    .count = slice.count});
  }
}

// The ranks of the owner's replica give the parts; of those with the same shard, the first one.
std::vector<MuonRun> Muon::collected(const MuonMatrix& matrix) const {
  const MuonRanks& ranks = setup_.ranks;
  const int same = ranks.tensor / matrix.shards;  // ranks with the same shard
  std::vector<MuonRun> runs;
  const int first = matrix.owner / ranks.replica_size() * ranks.replica_size();
  for (int rank = first; rank < first + ranks.replica_size(); ++rank) {
    const bool gives = rank % ranks.tensor % same == 0;
    if (gives && concerns(matrix, rank)) add_runs(matrix, rank, runs);
  }
  return runs;
}

std::vector<MuonRun> Muon::spread(const MuonMatrix& matrix) const {
  std::vector<MuonRun> runs;
  for (int rank = 0; rank < setup_.ranks.ranks; ++rank) {
    if (concerns(matrix, rank)) add_runs(matrix, rank, runs);
  }
  return runs;
}

}  // namespace lockstep::optim
