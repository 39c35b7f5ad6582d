#pragma once

namespace lockstep {

// Raises the soft limit of open descriptors to the hard limit. The default soft limit is 1,024 on
// many machines, and a process that talks to thousands of peers needs one or two descriptors for
// each. On failure, logs a warning and keeps the old limit. Call once, at startup.
void raise_descriptor_limit();

}  // namespace lockstep
