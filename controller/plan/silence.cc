#include "controller/plan/silence.h"

#include <algorithm>

namespace lockstep::plan {

Duration base_silence_limit(const Pass& pass) {
  return std::max(pass.limits.agent_silence, pass.seen.agent_silence.value_or(Duration{0}));
}

Duration healthy_silence_limit(const Pass& pass) {
  return std::max(pass.limits.agent_healthy_within,
                  pass.seen.agent_silence.value_or(Duration{0}) / 2);
}

Duration current_silence_limit(const Pass& pass) {
  const Duration silence = base_silence_limit(pass);
  return pass.seen.suspect_own_network ? std::max(pass.limits.agent_silence_if_suspect, 4 * silence)
                                       : silence;
}

}  // namespace lockstep::plan
