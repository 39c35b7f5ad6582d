#pragma once

#include "controller/plan/pass.h"

namespace lockstep::plan {

// Sets the condition PrecisionReduced and sends its event when the ranks of a job with `precision:
// bf16` compute in fp32, because a rank's CPU can't multiply bf16. Expects status.progress to be up
// to date. The condition appears when it is first true.
void derive_precision(Pass& pass);

}  // namespace lockstep::plan
