#pragma once

#include <optional>
#include <string_view>

#include "agent/comm/communicator.h"
#include "agent/model/convolution_choice.h"
#include "common/base/result.h"
#include "kernels/ops/conv2d.h"

namespace lockstep::train {

// Returns the convolutions that all ranks use: the kept choice, else cuDNN's, but our own if a rank
// cannot use cuDNN's. `mine` has what this rank prepared, or why it cannot use them. `kept`, on
// rank 0: the choice of an earlier start of this run; empty: none. Rank 0 logs the choice and the
// reason, and warns if cuDNN's were kept but are not used. Each rank logs what it lacks, and which
// passes are its own kernels'. A collective operation.
Result<kernels::Conv2dBy> choose_convolutions(comm::Communicator& world,
                                              const Result<model::ConvolutionChoice>& mine,
                                              std::optional<kernels::Conv2dBy> kept);

// "own", "cudnn": what is kept of a choice.
const char* name_of(kernels::Conv2dBy by);
// Reverses name_of(); none for any other word.
std::optional<kernels::Conv2dBy> convolutions_named(std::string_view name);

}  // namespace lockstep::train
