#pragma once

#include <cstdint>
#include <memory>
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

// common_outcome() and, if all succeeded, the texts of all ranks on rank 0, without waiting in
// between. All ranks make one, in the same order among those of the group, which nothing else uses:
// ranks whose steps overlap come to it at different steps. Other operations of the group must not
// begin before it is over. One thread.
class OutcomeExchange {
 public:
  struct Result {
    Status all;                      // common_outcome()
    std::vector<std::string> texts;  // by rank, on rank 0 if all succeeded
  };
  // Starts. The group outlives it.
  OutcomeExchange(comm::Communicator& group, const Status& mine, std::string text);
  ~OutcomeExchange();

  // Goes on as far as it can without waiting. Returns whether finish() would not wait.
  bool advance();
  // Waits for the end. Errors are the communicator's. Call it once.
  lockstep::Result<Result> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns rank 0's text on all ranks.
Result<std::string> share_text(comm::Communicator& world, std::string_view mine);

}  // namespace lockstep::train
