// For tests of workers that meet bad losses.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/api/storage_notes.h"
#include "common/api/worker_config.h"

namespace lockstep::train {

// Returns the step that rank 0 names: "step 7: loss ...". 0 if it names none.
inline int64_t step_of(const StorageNotes& notes) {
  const std::string text(notes.skip.text());
  return text.starts_with("step ") ? std::strtoll(text.c_str() + 5, nullptr, 10) : 0;
}

// Some rank ends with the code; others may notice first that it has left.
inline void expect_ends(const std::vector<int>& codes, int expected) {
  EXPECT_TRUE(std::ranges::find(codes, expected) != codes.end());
  for (const int code : codes) EXPECT_TRUE(code == expected || code == kExitPeerLost) << code;
}

}  // namespace lockstep::train
