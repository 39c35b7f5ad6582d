#pragma once

#include <optional>
#include <string>

#include "tests/conformance/support/server.h"

namespace lockstep::conformance {

// Returns what to tell the user if a Lockstep controller works on this server for all namespaces:
// it would run the suites' jobs too. Found by its Lease, if that is renewed while this watches, for
// at most the Lease's duration. nullopt: none is seen, or leases can't be listed.
std::optional<std::string> active_controller(const Server& server);

}  // namespace lockstep::conformance
