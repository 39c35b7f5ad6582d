#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/loop/executor.h"
#include "tests/controller/search/process.h"
#include "tests/controller/sim/simulation.h"

namespace lockstep::search {

struct CarriedOut {
  std::vector<std::pair<size_t, RequestPtr>> sent{};  // with their numbers in the plan
  std::optional<loop::Execution> done{};
};

// Has the real executor carry out the plan up to the last of these answers. Returns what follows
// from that answer alone: the requests that it leads to, and whether the plan is done. `news`
// receives what the answer reveals, and nothing of the answers before it. An executor can't be
// copied, but it does the same each time, so running it again takes the place of a copy.
// Events are sent to nobody.
CarriedOut carry_out(const Order& order, const std::vector<Answer>& answers,
                     loop::CacheUpdater& news, const sim::Mutation& mutation);

// Returns the digest of the plan's actions, without points in time and numbers of UIDs.
uint64_t digest_of(const std::vector<plan::Action>& actions);
// Returns the UIDs of pods in the plan's actions.
std::vector<std::string> uids_in(const std::vector<plan::Action>& actions);
// Returns the digest of a status without points in time and spans of time.
uint64_t digest_of(const TrainingJobStatus& status);
// Likewise, without what no later plan reads, nor a property once the status is stored: messages,
// why the job does not run, and who failed how. Plans read that of failures only for avoidNodes,
// which the job has not set, for where a new pod had better not run, and for jobs that end as
// NeverStarted, which no failure here leads to.
uint64_t digest_of_stored(const TrainingJobStatus& status);

}  // namespace lockstep::search
