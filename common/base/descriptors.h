#pragma once

namespace lockstep {

// Lets this process have as many descriptors as the system allows it: the soft limit is 1,024 on
// many machines, and a process that talks to thousands of others needs one or two for each. Where
// that fails, it is logged, and the limit stays. Once, at the start.
void raise_descriptor_limit();

}  // namespace lockstep
