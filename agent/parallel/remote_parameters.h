#pragma once

#include <cstdint>
#include <span>

#include "common/base/result.h"

namespace lockstep::parallel {

// The parameters of a model that parameter servers hold and update. A rank computes on its own copy
// of them. With clock c, the number of steps that it has completed, it pulls with clock c and
// pushes with clock c. A parameter is named by its id in the parameter table, and its floats are
// those of the arena of a whole model. Spans are memory of the host, and stay as they are until the
// transfer has been waited for. One thread.
class RemoteParameters {
 public:
  virtual ~RemoteParameters() = default;

  // Sets the initial values, before the first push of any rank. Blocks.
  virtual Status put(int64_t id, std::span<const float> values) = 0;
  // Begins to fetch the values. No pull or push of the parameter is under way.
  virtual void pull(int64_t id, int64_t clock, std::span<float> into) = 0;
  // Blocks until the parameter is here. Succeeds at once if no pull of it is under way.
  virtual Status finish_pull(int64_t id) = 0;

  struct Push {
    int64_t id = 0;
    int64_t clock = 0;
    double learning_rate = 0;
    std::span<const float> gradient;
  };
  // Begins to send a gradient. Every parameter is pushed once with each clock.
  virtual void push(const Push& push) = 0;
  // Blocks until the servers have all pushes. Returns the first error.
  virtual Status finish_pushes() = 0;
};

}  // namespace lockstep::parallel
