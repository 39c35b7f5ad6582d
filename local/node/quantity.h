#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

// Returns a Kubernetes quantity in thousandths ("250m" is 250, "1Gi" is 1024^3 * 1000), rounded up
// and clamped to the type's range. kInvalid if the text is not a quantity. Source: Kubernetes,
// "Quantity".
Result<int64_t> milli_quantity(std::string_view text);

// Thousandths by resource name.
using Resources = std::map<std::string, int64_t>;

// Reads a map of quantities, such as a container's requests or a node's allocatable. Skips entries
// that are not quantities.
Resources resources_from_json(const Json& quantities);

// Returns what a scheduler counts for a pod: per resource, the sum of its containers or its largest
// init container, whichever is more. A limit counts as the request if there is none.
Resources pod_requests(const Json& pod);

}  // namespace lockstep::local
