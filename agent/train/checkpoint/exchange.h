#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/comm/communicator.h"
#include "common/base/result.h"

// How the ranks that save or load a checkpoint together tell each other what came of it. All ranks
// of the world call these.
namespace lockstep::train {

// Returns, the same on all ranks, whether all succeeded. Otherwise the error of the lowest rank
// that failed, whose message begins with `rank R: `; the middle of a message of more than 240 bytes
// is left out.
Result<Status> common_outcome(comm::Communicator& world, const Status& mine);

// Returns rank 0's text on all ranks.
Result<std::string> share_text(comm::Communicator& world, std::string_view mine);
// Returns the texts of all ranks on rank 0, and nothing elsewhere.
Result<std::vector<std::string>> gather_texts(comm::Communicator& world, std::string_view mine);

}  // namespace lockstep::train
