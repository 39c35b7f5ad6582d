#pragma once

#include "common/base/clock.h"
#include "controller/plan/pass.h"

namespace lockstep::plan {

// A healthy agent is heard at least this often.
Duration healthy_silence_limit(const Pass& pass);

// How long an agent may be silent before its pod is given up. base_silence_limit() assumes that the
// controller's own network works; current_silence_limit() applies now, and is longer while the
// controller suspects its own network.
Duration base_silence_limit(const Pass& pass);
Duration current_silence_limit(const Pass& pass);

}  // namespace lockstep::plan
