#pragma once

#include "agent/model/gpt.h"
#include "agent/model/grad_sink.h"
#include "agent/model/param_store.h"
#include "common/base/result.h"

namespace lockstep {

// All blocks of the model's stage in turn, each between the store's get and release, the next one
// prefetched meanwhile.
Status forward_pass(Gpt& model, ParamStore& store, MicroBatch& batch);

// And back; ends with the sink's end_micro_batch().
Status backward_pass(Gpt& model, ParamStore& store, MicroBatch& batch, GradSink& sink);

// The sum of the losses of the micro-batch, in nats, added in double in the order of the tokens.
// Waits for the stream. Divide by the tokens that count for a mean.
Result<double> loss_sum(const Gpt& model, const MicroBatch& batch);

}  // namespace lockstep
