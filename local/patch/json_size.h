#pragma once

#include <cstddef>
#include <string>

#include "common/base/json.h"

namespace lockstep::local {

struct JsonSize {
  size_t bytes = 0;   // of the text that dump_json writes; fractions count as the longest there are
  size_t values = 0;  // of all kinds, containers too
  size_t depth = 0;   // of containers: 0 for a plain value, 1 for {} and []
};

// `value` is nested at most as deep as documents may be.
JsonSize size_of(const Json& value);

// A value as messages of kube-apiserver show it (Go's %v): map[a:1 b:[x y]], at most `length_max`
// characters of it.
std::string go_text(const Json& value, size_t length_max = 256);

}  // namespace lockstep::local
