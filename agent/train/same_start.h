#pragma once

#include <cstdint>

#include "agent/comm/communicator.h"
#include "common/base/result.h"
#include "common/base/sha256.h"
#include "common/layout/model_design.h"

namespace lockstep::train {

// Returns a digest of what this program draws as the model's initial parameters, whichever of them
// this rank keeps: of each parameter the shape and at most nine short runs, evenly spaced, 0.8 MB
// of a GPT-2 124M. Draws on the host.
Digest draws_digest(const ModelDesign& design, uint64_t seed);

// Compares the digests of all ranks, which all call it. If some are not equal, every rank gets the
// same error, which names the ranks whose digest is not the most frequent one (between equally
// frequent ones, the lowest rank's counts). On the other ranks it blames a peer.
Status expect_same_draws(comm::Communicator& world, const Digest& mine);

}  // namespace lockstep::train
