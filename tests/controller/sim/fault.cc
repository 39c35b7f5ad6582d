#include "tests/controller/sim/fault.h"

#include <algorithm>
#include <numeric>

namespace lockstep::sim {
namespace {

constexpr std::array<std::string_view, kFaults> kFaultNames = {
    "lost request",     "lost reply",    "server error",    "throttled",     "quota",
    "webhook",          "pod refused",   "storm",           "server away",   "conflict",
    "watch cut",        "watch expired", "watch too large", "lagging watch", "repeated events",
    "coalesced events", "label lost",    "crash",           "stall",         "terminated",
    "skewed clock",     "rate limited",  "old report",      "other hash",    "later round",
    "other job",        "wild numbers",  "false end",       "partition",     "staggered partition",
    "worker killed",    "worker OOM",    "pod deleted",     "pod removed",   "pod evicted",
    "container exit",   "worker exit",   "worker hung",     "rank slow",     "loss not finite",
    "loss spike",       "bad machine",   "unschedulable",   "image pull",    "node lost",
    "clock jump",       "suspend",       "resume",          "scale",         "scale servers",
    "rules edited",     "illegal edit",  "correction",      "job replaced",  "job deleted",
    "job held"};

constexpr std::array<std::string_view, kTransitions> kTransitionNames = {
    "pod created",     "pod removed",     "round formed",     "restart in place",
    "hang reported",   "recreate pod",    "recovered",        "drained",
    "complete",        "failed",          "suspended",        "resumed",
    "spec invalid",    "valid again",     "resized",          "deadline exceeded",
    "failed by rule",  "ignored by rule", "recreate by rule", "node avoided",
    "slow rank named", "slow no more",    "slow replaced",    "batch skipped",
    "failed by loss",  "servers view",    "server moved",     "server added",
    "server removed",  "worker returned", "pending given up", "complete by rank 0",
    "expired",         "leader changed",  "released"};

static_assert(!kFaultNames.back().empty() && !kTransitionNames.back().empty());

}  // namespace

std::string_view fault_name(Fault fault) {
  return kFaultNames[static_cast<size_t>(fault)];
}

std::string_view transition_name(Transition transition) {
  return kTransitionNames[static_cast<size_t>(transition)];
}

int64_t Counts::all_faults() const {
  return std::accumulate(faults.begin(), faults.end(), int64_t{0});
}

bool Counts::controllers_are_well() const {
  return std::all_of(faults.begin(), faults.begin() + static_cast<size_t>(Fault::kWorkerKilled),
                     [](int64_t count) { return count == 0; });
}

Counts& Counts::operator+=(const Counts& other) {
  for (size_t i = 0; i < kFaults; ++i) faults[i] += other.faults[i];
  for (size_t i = 0; i < kTransitions; ++i) transitions[i] += other.transitions[i];
  seeds += other.seeds;
  jobs += other.jobs;
  events += other.events;
  left_out += other.left_out;
  came_back += other.came_back;
  simulated_seconds += other.simulated_seconds;
  return *this;
}

}  // namespace lockstep::sim
