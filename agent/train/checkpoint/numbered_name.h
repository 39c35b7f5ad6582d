#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::train {

// Names of a number between two fixed texts: `step-00000500`. The number has at least 8 digits, so
// names sort as their numbers do.
struct NumberedName {
  std::string_view before;
  std::string_view after = "";

  std::string of(int64_t number) const;
  // The number of a name that `of` gives, -1 for any other text.
  int64_t number_of(std::string_view name) const;
};

}  // namespace lockstep::train
