#include "agent/parallel/matrix_exchange.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::parallel {
namespace {

enum class Way : uint8_t { kToOwner, kFromOwner };

// The messages and copies of one call of orthogonalise().
class MatrixMoves {
 public:
  MatrixMoves(const optim::Muon& muon, const MatrixGroup& group, const kernels::OpTable& ops,
              kernels::Stream& stream, std::vector<comm::Work>& pending)
      : muon_(muon), group_(group), ops_(ops), stream_(stream), pending_(pending) {}

  // Moves the shards of a round's matrices. The stream's next work finds them there.
  Status move(std::span<const optim::MuonMatrix> round, Way way) {
    std::vector<comm::Call> calls;
    for (const optim::MuonMatrix& matrix : round) {
      const std::vector<optim::MuonRun> runs =
          way == Way::kToOwner ? muon_.collected(matrix) : muon_.spread(matrix);
      for (const optim::MuonRun& run : runs) move(run, matrix.owner, way, calls);
    }
    return calls.empty() ? Status() : issue(calls);
  }

 private:
  // Adds this rank's part in the way of a run, or copies it if it stays here.
  void move(const optim::MuonRun& run, int owner, Way way, std::vector<comm::Call>& calls) {
    float* gradients = muon_.gradients() + run.place;
    float* shards = muon_.shards() + run.at;
    const bool is_owner = muon_.rank() == owner;
    const bool has_run = muon_.rank() == run.rank;
    if (is_owner && has_run) {
      ops_.cast(stream_, {.x = way == Way::kToOwner ? gradients : shards,
                          .out = way == Way::kToOwner ? shards : gradients,
                          .count = run.count});
    } else if (is_owner || has_run) {
      const bool sends = is_owner == (way == Way::kFromOwner);
      calls.push_back({.kind = sends ? comm::Collective::kSend : comm::Collective::kReceive,
                       .buffer = {.data = is_owner ? shards : gradients,
                                  .count = run.count,
                                  .device = stream_.device(),
                                  .stream = stream_.handle()},
                       .rank = is_owner ? run.rank : owner});
    }
  }

  Status issue(std::span<const comm::Call> calls) {
    if (group_.ranks->device_traits().is_stream_ordered) {
      pending_.push_back(group_.ranks->start(calls));
      return {};
    }
    if (group_.observe_waits) group_.observe_waits(true);
    const Status moved = group_.ranks->run(calls);
    if (group_.observe_waits) group_.observe_waits(false);
    return moved;
  }

  const optim::Muon& muon_;
  const MatrixGroup& group_;
  const kernels::OpTable& ops_;
  kernels::Stream& stream_;
  std::vector<comm::Work>& pending_;
};

}  // namespace

Status orthogonalise(const optim::Muon& muon, const MatrixGroup& group, const kernels::OpTable& ops,
                     kernels::Stream& stream, std::vector<comm::Work>& pending) {
  if (group.ranks == nullptr) {
    muon.orthogonalise_all(ops, stream);
    return {};
  }
  MatrixMoves moves(muon, group, ops, stream, pending);
  std::span<const optim::MuonMatrix> rest = muon.matrices();
  while (!rest.empty()) {
    const auto next = std::ranges::find_if(
        rest, [&](const optim::MuonMatrix& matrix) { return matrix.round != rest[0].round; });
    const auto round = rest.first(static_cast<size_t>(next - rest.begin()));
    TRY(moves.move(round, Way::kToOwner));
    for (const optim::MuonMatrix& matrix : round) {
      if (matrix.owner == muon.rank()) muon.orthogonalise(ops, stream, matrix);
    }
    TRY(moves.move(round, Way::kFromOwner));
    rest = rest.subspan(round.size());
  }
  return {};
}

}  // namespace lockstep::parallel
