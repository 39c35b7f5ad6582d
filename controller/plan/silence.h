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

// Since when the pod's agent is silent. If this process has only asked it in vain, another one may
// have heard it before: then it is silent for as long as other ranks of the round have waited for
// its ranks, or have lost them. The pod has an agent (Pass::agent()).
TimePoint silent_since(const Pass& pass, const PodView& pod);

// When the agent will have been silent for `limit`, if it is not heard until then.
TimePoint silent_at(const Pass& pass, const PodView& pod, Duration limit);

// Returns whether the pod has an agent that was not heard for longer than a healthy one.
bool is_unheard(const Pass& pass, const PodView& pod);

}  // namespace lockstep::plan
