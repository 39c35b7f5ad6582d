#pragma once

#include <cstdint>
#include <optional>

#include "agent/train/data/open_data.h"
#include "common/base/result.h"

namespace lockstep::train {

// Returns how many bytes of text the tokens that are held back stand for; nothing if that is
// unknown, if there are no such tokens, or if the samples predict only some of them. Reads all of
// them. Errors blame the data.
Result<std::optional<int64_t>> validation_bytes(const OpenedData& data);

}  // namespace lockstep::train
