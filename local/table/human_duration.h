#pragma once

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/json.h"

namespace lockstep::local {

// Formats an age in at most two units, coarser the older it is: "119s", "9m59s", "179m", "7h59m",
// "47h", "7d23h", "729d", "2y5d", "9y". "<invalid>" if it is more than a second in the future.
// Source: the behaviour of HumanDuration in k8s.io/apimachinery/pkg/util/duration.
std::string human_duration(Duration duration);

// Returns the age at `now` of a metav1.Time or metav1.MicroTime; "<unknown>" for anything else.
std::string age(const Json& timestamp, WallTime now);

}  // namespace lockstep::local
