#include "agent/parallel/matrix_exchange.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::parallel {
namespace {

enum class Way : uint8_t { kToOwner, kFromOwner };

// Adds this rank's part in the way of a run, or copies it if it stays here.
void move(const optim::Muon& muon, const optim::MuonRun& run, int owner, Way way,
          std::vector<comm::Call>& calls) {
  float* gradients = muon.gradients() + run.place;
  float* shards = muon.shards() + run.at;
  const bool is_owner = muon.rank() == owner;
  const bool has_run = muon.rank() == run.rank;
  if (is_owner && has_run) {
    std::copy_n(way == Way::kToOwner ? gradients : shards, run.count,
                way == Way::kToOwner ? shards : gradients);
  } else if (is_owner || has_run) {
    const bool sends = is_owner == (way == Way::kFromOwner);
    calls.push_back({.kind = sends ? comm::Collective::kSend : comm::Collective::kReceive,
                     .buffer = {.data = is_owner ? shards : gradients, .count = run.count},
                     .rank = is_owner ? run.rank : owner});
  }
}

Status move(const optim::Muon& muon, const MatrixGroup& group,
            std::span<const optim::MuonMatrix> round, Way way) {
  std::vector<comm::Call> calls;
  for (const optim::MuonMatrix& matrix : round) {
    const std::vector<optim::MuonRun> runs =
        way == Way::kToOwner ? muon.collected(matrix) : muon.spread(matrix);
    for (const optim::MuonRun& run : runs) move(muon, run, matrix.owner, way, calls);
  }
  if (calls.empty()) return {};
  if (group.observe_waits) group.observe_waits(true);
  const Status moved = group.ranks->run(calls);
  if (group.observe_waits) group.observe_waits(false);
  return moved;
}

}  // namespace

Status orthogonalise(const optim::Muon& muon, const MatrixGroup& group, const kernels::OpTable& ops,
                     kernels::Stream& stream) {
  if (group.ranks == nullptr) {
    muon.orthogonalise_all(ops, stream);
    return {};
  }
  std::span<const optim::MuonMatrix> rest = muon.matrices();
  while (!rest.empty()) {
    const auto next = std::ranges::find_if(
        rest, [&](const optim::MuonMatrix& matrix) { return matrix.round != rest[0].round; });
    const auto round = rest.first(static_cast<size_t>(next - rest.begin()));
    TRY(move(muon, group, round, Way::kToOwner));
    for (const optim::MuonMatrix& matrix : round) {
      if (matrix.owner == muon.rank()) muon.orthogonalise(ops, stream, matrix);
    }
    TRY(move(muon, group, round, Way::kFromOwner));
    rest = rest.subspan(round.size());
  }
  return {};
}

}  // namespace lockstep::parallel
