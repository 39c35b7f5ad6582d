#pragma once

#include "agent/comm/communicator.h"
#include "agent/parallel/compose.h"
#include "common/base/result.h"
#include "common/base/sha256.h"
#include "common/layout/mesh.h"

namespace lockstep::train {

// Returns a digest of a sample of this rank's parameters: at most nine short runs of each, evenly
// spaced, 0.8 MB of a GPT-2 124M. Returns the transfer's errors.
Result<Digest> sample_digest(parallel::Composition& model);

// Compares the digests of the ranks of a mesh that differ only in their data coordinate, and so
// hold the same parameters. Called by all ranks. If some are not equal, every rank gets the same
// error, which names the ranks whose digest is not the most frequent one of their group (between
// equally frequent ones, the lowest rank's counts). On the other ranks it blames a peer.
Status expect_same_parameters(comm::Communicator& world, const Mesh& mesh, const Digest& mine);

}  // namespace lockstep::train
