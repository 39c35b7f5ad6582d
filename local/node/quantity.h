#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

// Thousandths of a Kubernetes quantity ("250m" is 250, "1Gi" is 1024^3 * 1000), rounded up; what
// is too large for the type is its largest value. kInvalid for what is none.
// Source: Kubernetes, "Quantity".
Result<int64_t> milli_quantity(std::string_view text);

// Thousandths by resource name.
using Resources = std::map<std::string, int64_t>;

// A map of quantities, as in a container's requests or a node's allocatable; entries that are no
// quantities are left out.
Resources resources_from_json(const Json& quantities);

// What a scheduler counts for a pod: the sum of its containers, or its largest init container
// where that is more; a limit counts as a request where there is none.
Resources pod_requests(const Json& pod);

}  // namespace lockstep::local
