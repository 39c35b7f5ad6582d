#include "tests/controller/sim/chance.h"

namespace lockstep::sim {

// FNV-1a.
void Chance::note(std::string_view what, std::string_view whom) {
  ++counts.events;
  const auto mix = [this](std::string_view text) {
    for (const char c : text) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 1099511628211u;
  };
  const int64_t now = clock.now().time_since_epoch().count();
  mix(what);
  mix(whom);
  mix({reinterpret_cast<const char*>(&now), sizeof now});
}

void Chance::count(Fault fault, std::string_view whom) {
  ++counts.faults[static_cast<size_t>(fault)];
  note(fault_name(fault), whom);
}

void Chance::count(Transition transition, std::string_view whom) {
  ++counts.transitions[static_cast<size_t>(transition)];
  note(transition_name(transition), whom);
}

bool Chance::happens(Fault fault, std::string_view whom) {
  const auto at = static_cast<size_t>(fault);
  const bool is_planned = ++opportunities_[at] == planned_[at];
  const double rate = rates[at];
  if (!is_planned && (is_quiet || rate <= 0 || !flip(rate))) return false;
  count(fault, whom);
  return true;
}

void Chance::violate(std::string_view invariant, std::string_view what) {
  violations.push_back(std::string(invariant) + ": " + std::string(what));
  note("violation", violations.back());
}

bool Chance::flip(double probability) {
  return static_cast<double>(random.uniform()) < probability;
}

Duration Chance::between(Duration least, Duration most) {
  return least + Duration(random.below(static_cast<uint64_t>((most - least).count()) + 1));
}

}  // namespace lockstep::sim
