// Ranks that compute for longer than their peers, and what agents report of that.
#include <algorithm>

#include "tests/controller/sim/nodes.h"

namespace lockstep::sim {
namespace {

constexpr Duration kStep = std::chrono::seconds(2);
constexpr double kBusySeconds = 1;  // of a rank in a step
constexpr double kNoise = 0.05;     // a rank's steps differ by this part of the time, both ways
constexpr double kNewest = 0.25;    // weight of the newest step in what is reported
constexpr int64_t kStepsFirst = 3;  // until a round reports

// docs/trainingjob.md, "Slow ranks".
constexpr double kSlow = 1.5;
constexpr double kSlowNoMore = 1.25;
constexpr double kShareOfStep = 0.1;

WorkerSpeed speed_of(double busy_seconds, double step_seconds) {
  return {.step_seconds = step_seconds,
          .data_seconds = 0.1 * busy_seconds,
          .forward_seconds = 0.3 * busy_seconds,
          .backward_seconds = 0.5 * busy_seconds,
          .update_seconds = 0.1 * busy_seconds};
}

// Returns the time of the median rank, of two in the middle that of the faster one.
double usual_seconds(const std::vector<Node*>& round) {
  std::vector<double> busy;
  for (const Node* node : round) busy.push_back(node->slow.busy_seconds);
  std::ranges::sort(busy);
  return busy[(busy.size() - 1) / 2];
}

void note_since(bool is_so, TimePoint now, std::optional<TimePoint>& since) {
  if (is_so && !since) since = now;
  if (!is_so) since.reset();
}

// Servers have no steps.
bool is_server(const Node& node) {
  const WorldAssignment& world = node.assignment.world;
  const int64_t workers = world.world_size() - static_cast<int64_t>(server_count(world));
  return node.state.workers.front().rank >= workers;
}

double factor_of(const Node& node, TimePoint now) {
  return now < node.slow.until ? node.slow.factor : 1;
}

}  // namespace

// All ranks wait for the slowest one.
Duration Nodes::seconds_of_step(const std::string& job_uid) const {
  double factor = 1;
  for (const auto& [uid, node] : nodes_) {
    if (node->job_uid != job_uid || !node->trains() || is_server(*node)) continue;
    factor = std::max(factor, factor_of(*node, chance_.clock.now()));
  }
  return std::chrono::duration_cast<Duration>(kStep * factor);
}

void Nodes::note_speeds(const Round& all) {
  const TimePoint now = chance_.clock.now();
  Round round = all;
  std::erase_if(round, [](const Node* node) { return is_server(*node); });
  const double step_seconds = to_seconds(seconds_of_step(all.front()->job_uid));
  for (Node* node : round) {
    Slowness& slow = node->slow;
    const double noise = 1 + kNoise * (2 * static_cast<double>(chance_.random.uniform()) - 1);
    const double busy = kBusySeconds * factor_of(*node, now) * noise;
    slow.busy_seconds += (slow.steps == 0 ? 1 : kNewest) * (busy - slow.busy_seconds);
    slow.was_slow = slow.was_slow || factor_of(*node, now) > 1;
    ++slow.steps;
  }
  const double usual = usual_seconds(round);
  for (Node* node : round) {
    Slowness& slow = node->slow;
    if (slow.steps < kStepsFirst) continue;
    node->state.workers.front().speed = speed_of(slow.busy_seconds, step_seconds);
    const double ratio = slow.busy_seconds / usual;
    const bool delays = slow.busy_seconds - usual >= kShareOfStep * step_seconds;
    note_since(ratio >= kSlow && delays, now, slow.slow_since);
    note_since(ratio < kSlowNoMore || !delays, now, slow.fast_since);
  }
}

}  // namespace lockstep::sim
