#pragma once

#include <cstddef>
#include <string>

#include "common/base/json.h"

namespace lockstep::local {

struct JsonSize {
  size_t bytes = 0;   // of the dump_json text; a fraction counts with its maximum length
  size_t values = 0;  // number of values, containers included
  size_t depth = 0;   // nested containers: 0 for a scalar, 1 for {} and []
};

// Measures `value`, which must be nested no deeper than documents may be.
JsonSize size_of(const Json& value);

// Formats a value as in kube-apiserver's messages (Go's %v): map[a:1 b:[x y]]. Cuts it after
// `length_max` bytes.
std::string go_text(const Json& value, size_t length_max = 256);

}  // namespace lockstep::local
