#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "agent/comm/communicator.h"
#include "common/base/clock.h"
#include "common/base/result.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/op_table.h"

namespace lockstep::train {

// Seconds of one forward and one backward.
struct AttentionTimes {
  double own = 0;
  double cudnn = 0;
};
struct AttentionRounds {
  int rounds = 7;  // of which the median counts; own and cuDNN's in turn
  int times = 4;   // in a round
};
// On random numbers in bf16, after dnn::prepare_attention() of the shape, which said
// `cudnn_workspace`. The buffers are gone when it returns. kUnavailable where they can't be had, or
// either fails.
Result<AttentionTimes> time_attention(const kernels::OpTable& ops, kernels::Stream& stream,
                                      const kernels::AttentionShape& shape, size_t cudnn_workspace,
                                      const AttentionRounds& rounds, const Clock& clock);

// spec.train.attention, and what it is to be carried out with.
struct AttentionWish {
  std::string setting;  // own, cudnn, auto
  kernels::AttentionShape shape;
  kernels::Device device;
  kernels::Precision precision = kernels::Precision::kF32;
  // Whether this rank's device has room for all that training takes, with so many bytes of
  // workspace for cuDNN's; empty: it has.
  std::function<Status(size_t cudnn_workspace)> room = {};
  // On rank 0, with auto: the choice of an earlier start of this run; empty: none.
  std::optional<kernels::AttentionBy> kept = {};
};

// Returns the attention implementation that all ranks use. With `auto`: the kept choice, else
// cuDNN's if every rank supports it and has memory for it and rank 0 measures it to be faster, else
// our own. Otherwise: the setting. Rank 0 logs the choice and the reason; each rank logs what it
// lacks. A collective operation unless the setting is own. kInvalid, with the field's path and
// blaming the configuration, for cudnn if a rank does not support it.
Result<kernels::AttentionBy> choose_attention(comm::Communicator& world, const AttentionWish& wish,
                                              const Clock& clock);

// "own", "cudnn": what is kept of a choice, and the setting.
const char* name_of(kernels::AttentionBy by);
// Reverses name_of(); none for any other word.
std::optional<kernels::AttentionBy> attention_named(std::string_view name);

}  // namespace lockstep::train
