#include "tests/agent/server/chaos_check.h"

#include <algorithm>
#include <limits>
#include <map>

#include "tests/agent/server/chaos_processes.h"
#include "tests/agent/server/event_file.h"

namespace lockstep::test {
namespace {

using server::ClientEvent;
using server::ConsistencyKind;
using server::HistoryEvent;
using server::UnitId;

std::string name_of(const UnitId& id) {
  return "unit " + std::to_string(static_cast<int>(id.kind)) + "/" + std::to_string(id.index) +
         "/" + std::to_string(id.slot);
}

bool is_same(const KeptEvent& a, const KeptEvent& b) {
  const auto same_gradient = [](const auto& x, const auto& y) {
    return x.keys == y.keys && x.values == y.values;
  };
  return a.event.kind == b.event.kind && a.event.now == b.event.now && a.keys == b.keys &&
         a.workers == b.workers && a.event.learning_rate == b.event.learning_rate &&
         std::ranges::equal(a.gradients, b.gradients, same_gradient);
}

class Check {
 public:
  Check(const ChaosSetup& setup, const ChaosOutcome& outcome, ChaosReport& report)
      : setup_(setup), outcome_(outcome), report_(report) {}

  void run() {
    read_logs();
    for (const uint32_t worker : outcome_.workers) {
      for (ToldEvent& told : read_told(ChaosProcesses::worker_file(outcome_.folder, worker))) {
        told_[told.unit].emplace_back(worker, std::move(told));
      }
    }
    for (const UnitId& unit : units_of(outcome_.last, chaos_catalog())) check_unit(unit);
    for (const ChaosKill& kill : outcome_.kills) add_pause(kill);
  }

 private:
  void problem(const UnitId& unit, const std::string& what) {
    report_.problems.push_back(name_of(unit) + ": " + what);
  }

  // The log has the entries that the last primary has. An entry is what the latest view says: one
  // that a dead server passed on to nobody has another one in its place.
  void read_logs() {
    for (const uint32_t server : outcome_.servers) {
      for (KeptEvent& kept : read_history(ChaosProcesses::server_file(outcome_.folder, server))) {
        const UnitId unit = kept.event.unit;
        if (kept.event.kind == HistoryEvent::Kind::kPull) continue;
        if (holders_of(outcome_.last, unit).chain.front() == server) {
          last_[unit] = std::max(last_[unit], kept.event.sequence);
        }
        auto& log = logs_[unit];
        const auto [at, is_new] = log.try_emplace(kept.event.sequence, kept);
        if (is_new) continue;
        if (at->second.event.view == kept.event.view && !is_same(at->second, kept)) {
          problem(unit, "servers disagree about entry " + std::to_string(kept.event.sequence));
        }
        if (at->second.event.view < kept.event.view) at->second = std::move(kept);
      }
    }
  }

  // The unit's entries, and what workers pulled, in one order.
  std::vector<KeptEvent> sequence_of(const UnitId& unit) {
    std::vector<KeptEvent> events;
    for (const auto& [sequence, kept] : logs_[unit]) {
      if (sequence <= last_[unit]) events.push_back(kept);
    }
    for (const auto& [worker, told] : told_[unit]) {
      if (told.kind != ClientEvent::Kind::kPull) continue;
      if (told.reply.sequence > last_[unit]) {
        problem(unit, "a pull shows entry " + std::to_string(told.reply.sequence));
      }
      KeptEvent pull;
      pull.event = {.kind = HistoryEvent::Kind::kPull,
                    .unit = unit,
                    .sequence = told.reply.sequence,
                    .now = told.reply.now,
                    .worker = worker,
                    .clock = told.clock,
                    .slowest = told.reply.slowest};
      pull.keys = told.keys;
      pull.values = told.values;
      events.push_back(std::move(pull));
    }
    std::ranges::stable_sort(events, {}, [](const KeptEvent& kept) { return kept.event.sequence; });
    return events;
  }

  void check_unit(const UnitId& unit) {
    const std::vector<KeptEvent> events = sequence_of(unit);
    Replay replay(chaos_catalog(), outcome_.last, kChaosSeed);
    const Replay::Outcome replayed = replay.run(events);
    if (!replayed.mismatch.empty()) problem(unit, replayed.mismatch);
    report_.pulls += replayed.pulls;
    report_.updates += replayed.updates;
    check_clocks(unit, events);
  }

  void check_clocks(const UnitId& unit, const std::vector<KeptEvent>& events) {
    std::map<uint32_t, uint64_t> clocks;  // pushes of each worker that are in the log so far
    for (const KeptEvent& kept : events) {
      const HistoryEvent& event = kept.event;
      if (event.kind == HistoryEvent::Kind::kUpdate) {
        const bool is_sum = setup_.consistency.kind == ConsistencyKind::kSynchronous;
        for (const uint32_t worker : kept.workers) {
          const uint64_t clock = is_sum ? event.now : event.clock;
          if (clock != clocks[worker]) {
            problem(unit, "rank " + std::to_string(worker) + " pushed with clock " +
                              std::to_string(clock) + " after " + std::to_string(clocks[worker]) +
                              " pushes");
          }
          ++clocks[worker];
        }
      } else if (event.kind == HistoryEvent::Kind::kPull) {
        check_pull(unit, event, clocks);
      }
    }
    for (const uint32_t worker : outcome_.finished) {
      if (clocks[worker] != setup_.steps) {
        problem(unit, "rank " + std::to_string(worker) + " has " + std::to_string(clocks[worker]) +
                          " pushes");
      }
    }
    for (const auto& [worker, told] : told_[unit]) {
      if (told.kind != ClientEvent::Kind::kPush) continue;
      ++report_.acknowledged_pushes;
      if (told.clock >= clocks[worker] && std::ranges::count(outcome_.finished, worker) > 0) {
        problem(unit, "the push of rank " + std::to_string(worker) + " with clock " +
                          std::to_string(told.clock) + " is lost");
      }
    }
  }

  void check_pull(const UnitId& unit, const HistoryEvent& event,
                  std::map<uint32_t, uint64_t>& clocks) {
    uint64_t slowest = std::numeric_limits<uint64_t>::max();
    for (const uint32_t worker : outcome_.last.workers) {
      slowest = std::min(slowest, clocks[worker]);
    }
    const uint64_t missed = event.clock - std::min(event.clock, slowest);
    report_.most_stale = std::max(report_.most_stale, missed);
    const uint64_t told = event.clock - std::min(event.clock, event.slowest);
    const server::Consistency& consistency = setup_.consistency;
    const bool is_bounded = consistency.kind != ConsistencyKind::kAsynchronous;
    if (is_bounded && std::max(missed, told) > consistency.staleness) {
      problem(unit, "a pull missed " + std::to_string(missed) + " clocks, and says " +
                        std::to_string(told));
    }
  }

  // Whether the push's entry, or the one after it, is of a later view: the dead server may have
  // sent answers that arrived after its end.
  bool is_later(const UnitId& unit, const ToldEvent& told, uint64_t view) {
    const auto& log = logs_[unit];
    const auto entry = log.lower_bound(told.reply.sequence);
    return entry != log.end() && entry->second.event.view > view;
  }

  void add_pause(const ChaosKill& kill) {
    using Milliseconds = std::chrono::duration<double, std::milli>;
    double least = std::numeric_limits<double>::infinity();
    for (const UnitId& unit : kill.units) {
      for (const auto& [worker, told] : told_[unit]) {
        if (told.kind != ClientEvent::Kind::kPush || told.at < kill.at) continue;
        if (!is_later(unit, told, kill.view)) continue;
        least = std::min(least, Milliseconds(told.at - kill.at).count());
      }
    }
    if (least < std::numeric_limits<double>::infinity()) report_.pauses_ms.push_back(least);
  }

  const ChaosSetup& setup_;
  const ChaosOutcome& outcome_;
  ChaosReport& report_;
  std::map<UnitId, std::map<uint64_t, KeptEvent>> logs_;  // by sequence
  std::map<UnitId, uint64_t> last_;                       // entry
  std::map<UnitId, std::vector<std::pair<uint32_t, ToldEvent>>> told_;
};

}  // namespace

void check_histories(const ChaosSetup& setup, const ChaosOutcome& outcome, ChaosReport& report) {
  Check(setup, outcome, report).run();
}

}  // namespace lockstep::test
