#pragma once

#include <string>

#include "common/base/result.h"

namespace lockstep {

// Copies the bundle that the agent `binary` is part of (FOLDER/bin/lockstep-agent, with FOLDER/lib)
// to the folder `target`, which exists; what an earlier attempt left there is replaced. A container
// that mounts `target` where the bundle is has the agent, whatever its image. Modes are kept, so
// that every user may run it. kInvalid where the binary is in no bundle; kUnavailable names what
// can't be copied.
Status install_bundle(const std::string& binary, const std::string& target);

}  // namespace lockstep
