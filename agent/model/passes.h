#pragma once

#include "agent/model/model.h"
#include "common/base/result.h"

namespace lockstep::model {

// Runs the blocks of the model's stage in order, each between the store's get and release, and
// prefetches the next one meanwhile.
Status forward_pass(const Model& model, ParamStore& store, MicroBatch& batch);

// Runs backward through the blocks; ends with the sink's end_micro_batch(). Reads the version of
// the parameters that forward has read, or the given one.
Status backward_pass(const Model& model, ParamStore& store, MicroBatch& batch, GradSink& sink);
Status backward_pass(const Model& model, ParamStore& store, MicroBatch& batch, GradSink& sink,
                     int64_t version);

// The two parts of backward_pass() if the model splits_backward (ModelOptions). Other passes may be
// in between. The first part reports nothing to the sink.
Status backward_inputs_pass(const Model& model, ParamStore& store, MicroBatch& batch,
                            GradSink& sink);
Status backward_weights_pass(const Model& model, MicroBatch& batch, GradSink& sink);

}  // namespace lockstep::model
