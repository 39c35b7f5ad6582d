#pragma once

#include <cstdint>

#include "agent/model/model.h"
#include "common/base/result.h"

namespace lockstep::model {

// The way of an evaluating micro-batch through the chunks of a pipeline, as one stage sees it. All
// stages call in the same order. One thread.
class StageRelay {
 public:
  virtual ~StageRelay() = default;

  // Fills the input of a micro-batch that has begun, with the output of the chunk before. Not
  // called for the first chunk of the model.
  virtual Status receive(MicroBatch& batch) = 0;
  // Sends the output to the next chunk's stage. Not called for the last chunk of the model.
  virtual Status send(const MicroBatch& batch) = 0;
  // Returns the token of the last stage on every stage.
  virtual Result<int32_t> share(int32_t token) = 0;
};

}  // namespace lockstep::model
