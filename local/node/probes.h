#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "local/node/pod_plan.h"

namespace lockstep::local {

// The probes of one instance of a container: when to carry them out, and what follows from what
// they say. State alone; the owner carries them out. Source: Kubernetes, "Configure Liveness,
// Readiness and Startup Probes".
class Probes {
 public:
  enum class Kind { kStartup, kLiveness, kReadiness };
  // Begins to carry out a probe and returns a number by which its result is told.
  using Launch = std::function<uint64_t(const ProbePlan&)>;

  struct Failure {
    Kind kind;
    std::string text;
    bool is_last;  // the threshold is reached: the container is to be killed (not: readiness)
    std::optional<int64_t> grace_seconds;
  };

  // The container runs since `now`.
  void begin(const ContainerPlan& plan, TimePoint now);
  void end() { states_ = {}; }
  void step(TimePoint now, const Launch& launch);
  // A result; nullopt: a success, or a probe that is not known (any more).
  std::optional<Failure> told(uint64_t number, bool ok, const std::string& text, TimePoint now);

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
  // Until the startup probe has succeeded there is no other, and afterwards it is over.
  bool is_due(Kind kind) const { return (kind == Kind::kStartup) != has_started(); }

  std::array<std::optional<State>, 3> states_;
};

std::string_view probe_name(Probes::Kind kind);  // Startup, Liveness, Readiness

}  // namespace lockstep::local
