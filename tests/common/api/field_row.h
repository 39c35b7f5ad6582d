#pragma once

#include <string>

#include "common/api/schema.h"

namespace lockstep {

// Returns the field's row in the tables of docs/trainingjob.md.
inline std::string field_row(const FieldInfo& field) {
  return "| `" + field.path + "` | " + field.type + " | " + field.fallback + " | " + field.meaning +
         " |";
}

}  // namespace lockstep
