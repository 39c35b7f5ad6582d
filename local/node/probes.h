#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "local/node/pod_plan.h"

namespace lockstep::local {

// The probes of one container instance: when to run them, and what their results mean. Holds state
// only; the owner runs the probes. Source: Kubernetes, "Configure Liveness, Readiness and Startup
// Probes".
class Probes {
 public:
  enum class Kind { kStartup, kLiveness, kReadiness };
  // Starts a probe and returns a number that identifies its result.
  using Launch = std::function<uint64_t(const ProbePlan&)>;

  struct Failure {
    Kind kind;
    std::string text;
    bool is_last;  // threshold reached: kill the container (never set for readiness)
    std::optional<int64_t> grace_seconds;
  };

  // The container has been running since `now`.
  void begin(const ContainerPlan& plan, TimePoint now);
  void end() { states_ = {}; }
  void step(TimePoint now, const Launch& launch);
  // Takes a result. Returns nullopt for a success or an unknown (for example outdated) probe.
  std::optional<Failure> on_result(uint64_t number, bool ok, const std::string& text,
                                   TimePoint now);

  bool knows(uint64_t number) const;
  bool has_started() const { return !state(Kind::kStartup) || state(Kind::kStartup)->healthy; }
  bool is_ready() const;
  TimePoint next_deadline() const;

 private:
  struct State {
    ProbePlan plan;
    TimePoint next{};
    uint64_t in_flight = 0;  // 0: none
    int64_t successes = 0;
    int64_t failures = 0;
    bool healthy = false;
  };
  const std::optional<State>& state(Kind kind) const { return states_[static_cast<size_t>(kind)]; }
  // Other probes start only after the startup probe has succeeded, which then is over.
  bool is_due(Kind kind) const { return (kind == Kind::kStartup) != has_started(); }

  std::array<std::optional<State>, 3> states_;
};

std::string_view probe_name(Probes::Kind kind);  // Startup, Liveness, Readiness

}  // namespace lockstep::local
