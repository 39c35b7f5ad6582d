#pragma once

#include "tests/controller/search/world.h"

namespace lockstep::search {

// Properties that hold after every move. The names are those of the simulation's invariants
// (tests/controller/sim/invariants.h), stated for a world without clocks that jump, rules or lying
// agents. A broken one is noted in world.violation.

// Called before a request changes a pod; `stored` is nullptr for a new one.
void check_request(World& world, const loop::ApiRequest& request, const Json* stored);
// Called after a write of status was served; `before` may be the same as `after`. `is_stray`: its
// controller is dead.
void check_status(World& world, const Document& before, const Document& after, bool is_stray);
void check_assignment(World& world, const Assignment& assignment);
void check_training(World& world, int64_t round);

}  // namespace lockstep::search
