#include "local/node/probes.h"

#include <algorithm>

namespace lockstep::local {
namespace {

constexpr std::array kKinds = {Probes::Kind::kStartup, Probes::Kind::kLiveness,
                               Probes::Kind::kReadiness};

}  // namespace

std::string_view probe_name(Probes::Kind kind) {
  constexpr std::array<std::string_view, 3> kNames = {"Startup", "Liveness", "Readiness"};
  return kNames[static_cast<size_t>(kind)];
}

void Probes::begin(const ContainerPlan& plan, TimePoint now) {
  const std::array plans = {&plan.startup, &plan.liveness, &plan.readiness};
  for (size_t i = 0; i < plans.size(); ++i) {
    states_[i].reset();
    if (!*plans[i]) continue;
    // A container is live until a liveness probe fails; the other probes must succeed first.
    states_[i] = State{.plan = **plans[i],
                       .next = now + (*plans[i])->initial_delay,
                       .healthy = kKinds[i] == Kind::kLiveness};
  }
}

void Probes::step(TimePoint now, const Launch& launch) {
  for (Kind kind : kKinds) {
    std::optional<State>& state = states_[static_cast<size_t>(kind)];
    if (!state || state->in_flight != 0 || now < state->next || !is_due(kind)) continue;
    state->next = now + state->plan.period;
    state->in_flight = launch(state->plan);
  }
}

bool Probes::knows(uint64_t number) const {
  return std::any_of(states_.begin(), states_.end(), [&](const std::optional<State>& state) {
    return state && state->in_flight == number;
  });
}

std::optional<Probes::Failure> Probes::on_result(uint64_t number, bool ok, const std::string& text,
                                                 TimePoint now) {
  for (Kind kind : kKinds) {
    std::optional<State>& state = states_[static_cast<size_t>(kind)];
    if (!state || state->in_flight != number) continue;
    state->in_flight = 0;
    state->successes = ok ? state->successes + 1 : 0;
    state->failures = ok ? 0 : state->failures + 1;
    if (ok) {
      if (state->successes < state->plan.success_threshold) return std::nullopt;
      bool starts = kind == Kind::kStartup && !state->healthy;
      state->healthy = true;
      // The other probes start now, after their own delays.
      for (Kind other : {Kind::kLiveness, Kind::kReadiness}) {
        std::optional<State>& waiting = states_[static_cast<size_t>(other)];
        if (starts && waiting) waiting->next = std::max(waiting->next, now);
      }
      return std::nullopt;
    }
    bool is_last = state->failures >= state->plan.failure_threshold;
    if (is_last) state->healthy = false;
    return Failure{kind, text, is_last && kind != Kind::kReadiness, state->plan.grace_seconds};
  }
  return std::nullopt;
}

bool Probes::is_ready() const {
  return has_started() && (!state(Kind::kReadiness) || state(Kind::kReadiness)->healthy);
}

TimePoint Probes::next_deadline() const {
  TimePoint next = TimePoint::max();
  for (Kind kind : kKinds) {
    const std::optional<State>& known = state(kind);
    if (known && known->in_flight == 0 && is_due(kind)) next = std::min(next, known->next);
  }
  return next;
}

}  // namespace lockstep::local
