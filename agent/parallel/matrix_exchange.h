#pragma once

#include <functional>
#include <vector>

#include "agent/comm/communicator.h"
#include "agent/optim/muon.h"
#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// The ranks that divide the matrices of a Muon.
struct MatrixGroup {
  comm::Communicator* ranks = nullptr;  // those of muon_ranks; null: this rank is alone
  // Called when a wait for them begins, and when it has ended; may be empty.
  std::function<void(bool begins)> observe_waits = {};
};

// Makes updates of the directions of all matrices. Ranks send their shards to the owners, and get
// those of the updates, in rounds: a rank works on one matrix while the others work on theirs. With
// n ranks and S bytes of matrices that are not split, all together send (n-1) S in a step, and if
// each updates 1/n of them 2 (n-1)/n S. Without sharding they send ((n-1) + (t-1)) S/t of matrices
// that t tensor-parallel ranks split.
//
// All ranks of the group call it. If the communicator keeps the order of its stream, it returns
// while messages are under way, which it adds to `pending`; work that is issued later reads the
// updates. Errors are the communicator's. One thread.
Status orthogonalise(const optim::Muon& muon, const MatrixGroup& group, const kernels::OpTable& ops,
                     kernels::Stream& stream, std::vector<comm::Work>& pending);

}  // namespace lockstep::parallel
