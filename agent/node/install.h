#pragma once

#include <string>

#include "common/base/result.h"

namespace lockstep::node {

// Copies the bundle that contains the agent `binary` (FOLDER/bin/lockstep-agent, with FOLDER/lib)
// to the existing folder `target`, replacing the result of an earlier attempt. A container that
// mounts `target` at the bundle's path has the agent, whatever its image. File modes are kept, so
// that every user may run it. kInvalid if the binary is not in a bundle; kUnavailable names the
// file that cannot be copied.
Status install_bundle(const std::string& binary, const std::string& target);

}  // namespace lockstep::node
