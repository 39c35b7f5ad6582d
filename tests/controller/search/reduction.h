#pragma once

#include <vector>

#include "tests/controller/search/moves.h"
#include "tests/controller/search/world.h"

namespace lockstep::search {

// Partial-order reduction: returns those of `all`, the moves of the world (moves_of()), that a
// search has to try now. They keep their order, and the first one is that of some fair cluster.
//
// 1. A plan that changes nothing is made at once. Afterwards the world behaves as before, because
//    what queues the job again queues it in both worlds, and time does not pass while it is queued.
// 2. The watch delivers at once what is no news and never will be (process.h). If it loses its
// place
//    before that, the list that follows brings what the other events would.
// 3. Once its job is deleted and the process knows, nothing that it does has an effect: it takes
//    its news at once, and has no faults.
// 4. Otherwise the result is a persistent set: no sequence of other moves contains one that does
//    not commute with one of these. So each sequence can be put in an order that begins with one of
//    these, and that has the same end. Whether two kinds commute follows from what they touch.
//    `search_test` tries pairs of them in both orders.
//
// The properties use more than that table shows: causes, ends and failures of ranks, and the health
// of pods. All of these excuse what a plan does. A plan that was made before them needs no such
// excuse, and the order that is left is the one in which it has none.
//
// Source: Godefroid, "Partial-Order Methods for the Verification of Concurrent Systems", 1996.
std::vector<Move> needed_moves(const World& world, std::vector<Move> all);

}  // namespace lockstep::search
