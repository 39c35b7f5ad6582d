#pragma once

#include "agent/comm/communicator.h"
#include "agent/optim/muon.h"
#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// Makes updates of the directions of all matrices. Ranks send their shards to the owners, and get
// those of the updates, in rounds: a rank works on one matrix while the others work on theirs. With
// n ranks and S bytes of matrices, all together send (n-1) S in a step, and if each updates 1/n of
// them 2 (n-1)/n S; t tensor-parallel ranks without sharding send (t-1)/t S more.
//
// `group` has the ranks of muon_ranks, which all call it; null: this rank is alone. Errors are the
// communicator's. One thread; on CPUs.
Status orthogonalise(const optim::Muon& muon, comm::Communicator* group,
                     const kernels::OpTable& ops, kernels::Stream& stream);

}  // namespace lockstep::parallel
