#include "agent/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace lockstep::optim {
namespace {

constexpr size_t kAlign = 64;  // bytes

size_t float_bytes(int64_t count) {
  return (static_cast<size_t>(count) * sizeof(float) + kAlign - 1) / kAlign * kAlign;
}

void add_matrices(const Parameter& parameter, const ArenaEntry& entry,
                  std::vector<MuonMatrix>& matrices) {
  const int64_t columns = entry.dims[1];
  int64_t offset = entry.offset;
  const auto add = [&](int64_t rows) {
    matrices.push_back({.offset = offset, .shape = {rows, columns}});
    offset += rows * columns;
  };
  if (parameter.parts.empty()) add(entry.dims[0]);
  for (const ParameterPart& part : parameter.parts) add(part.rows);
}

void deal(int ranks, std::vector<MuonMatrix>& matrices) {
  std::vector<size_t> order(matrices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto cost = [&](size_t i) { return newton_schulz_flops(matrices[i].shape); };
  std::ranges::stable_sort(order, std::ranges::greater(), cost);
  std::vector<double> work(static_cast<size_t>(ranks));
  for (const size_t i : order) {
    const auto least = std::ranges::min_element(work);
    matrices[i].owner = static_cast<int>(least - work.begin());
    *least += cost(i);
  }
}

// The memory of the largest matrix of each kind.
struct Sizes {
  size_t matrix = 0;
  size_t square = 0;
  size_t workspace = 0;
};

Sizes sizes_of(std::span<const MuonMatrix> matrices, const MuonOptions& options) {
  Sizes sizes;
  for (const MuonMatrix& matrix : matrices) {
    const int64_t side = matrix.shape.shorter();
    sizes.matrix = std::max(sizes.matrix, float_bytes(matrix.shape.count()));
    sizes.square = std::max(sizes.square, float_bytes(side * side));
    sizes.workspace =
        std::max(sizes.workspace, newton_schulz_workspace(matrix.shape, options.precision));
  }
  return sizes;
}

}  // namespace

std::vector<MuonMatrix> muon_matrices(const ModelDesign& design, const ParameterArena& arena,
                                      int ranks) {
  CHECK(arena.shard.size == 1);
  const std::vector<Parameter> table = parameter_table(design);
  std::vector<MuonMatrix> matrices;
  for (const ArenaEntry& entry : arena.entries) {
    const Parameter& parameter = table[static_cast<size_t>(entry.id)];
    if (parameter.is_hidden_matrix) add_matrices(parameter, entry, matrices);
  }
  deal(ranks, matrices);
  return matrices;
}

size_t muon_bytes(std::span<const MuonMatrix> matrices, const MuonOptions& options) {
  const Sizes sizes = sizes_of(matrices, options);
  return sizes.matrix + 2 * sizes.square + sizes.workspace;
}

Muon::Muon(Setup setup) : setup_(std::move(setup)) {
  const Sizes sizes = sizes_of(setup_.matrices, setup_.options);
  CHECK(setup_.memory.bytes >= muon_bytes(setup_.matrices, setup_.options));
  char* next = static_cast<char*>(setup_.memory.data);
  const auto take = [&next](size_t bytes) { return std::exchange(next, next + bytes); };
  memory_.precision = setup_.options.precision;
  memory_.x = reinterpret_cast<float*>(take(sizes.matrix));
  memory_.gram = reinterpret_cast<float*>(take(sizes.square));
  memory_.polynomial = reinterpret_cast<float*>(take(sizes.square));
  memory_.workspace = {take(sizes.workspace), sizes.workspace};
}

// From zero and with the rate -1, SGD's step is its direction.
void Muon::make_directions(const kernels::OpTable& ops, kernels::Stream& stream,
                           float gradient_scale) const {
  for (const MuonPart& part : setup_.parts) {
    float* gradient = setup_.gradients + part.offset;
    ops.fill(stream, {.out = memory_.x, .count = part.count, .value = 0});
    const kernels::UpdatedTensor tensor{.parameter = memory_.x,
                                        .gradient = gradient,
                                        .states = {setup_.buffers + part.buffer},
                                        .count = part.count};
    ops.sgd(stream, {.tensors = {&tensor, 1},
                     .learning_rate = -1,
                     .momentum = static_cast<float>(setup_.options.momentum),
                     .nesterov = true,
                     .gradient_scale = gradient_scale});
    ops.cast(stream, {.x = memory_.x, .out = gradient, .count = part.count});
  }
}

void Muon::orthogonalise(const kernels::OpTable& ops, kernels::Stream& stream) const {
  for (const MuonMatrix& matrix : setup_.matrices) {
    if (matrix.owner != setup_.rank) continue;
    const int64_t count = matrix.shape.count();
    float* update = setup_.gradients + matrix.offset;
    ops.cast(stream, {.x = update, .out = memory_.x, .count = count});
    NewtonSchulz args = memory_;
    args.out = update;
    args.shape = matrix.shape;
    newton_schulz(ops, stream, args);
    const auto [rows, columns] = matrix.shape;
    const double ratio = static_cast<double>(rows) / static_cast<double>(columns);
    const auto factor = static_cast<float>(std::sqrt(std::max(1.0, ratio)));
    ops.scale(stream, {.x = update, .out = update, .count = count, .factor = factor});
  }
}

}  // namespace lockstep::optim
