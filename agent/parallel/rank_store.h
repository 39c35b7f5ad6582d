#pragma once

#include <cstdint>

#include "agent/model/param_store.h"
#include "common/base/result.h"

namespace lockstep::parallel {

// A store whose parameters change from step to step.
class RankStore : public model::ParamStore {
 public:
  // The update of that step is about to change the memory that this rank updates. Work issued on
  // the computing stream before reads the parameters as they are.
  virtual Status updating(int64_t /*step*/) { return {}; }
  // The memory that this rank updates has the parameters of that step (0: before the first one),
  // in the order of the computing stream. All ranks call it.
  virtual Status updated(int64_t step) = 0;
  // Waits for the results of collectives that were issued to a stream. Comes before the host waits
  // for the device, so that one that stands still is reported by name. Returns the first error.
  virtual Status wait() { return {}; }
  // Waits for whatever is under way, so that the memory of this rank holds what it is meant to
  // hold. Returns the first error.
  virtual Status settle() = 0;
};

}  // namespace lockstep::parallel
