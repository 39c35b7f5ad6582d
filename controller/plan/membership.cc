#include "controller/plan/members.h"
#include "controller/plan/pass.h"

namespace lockstep {

// The incarnation of each node index stands in status before its pod is made. A change of
// spec.nodes keeps the members that stay.
Verdict membership(Pass& pass) {
  const auto nodes = static_cast<size_t>(pass.spec().nodes);
  if (pass.members.size() == nodes) return Verdict::kNext;
  const bool is_first = pass.members.empty();
  pass.plan.why = is_first ? "the job is new" : "spec.nodes changed";
  if (!is_first) {
    pass.event(
        false, "Resizing",
        "from " + std::to_string(pass.members.size()) + " nodes to " + std::to_string(nodes));
  }
  pass.members.resize(nodes, 1);
  pass.current.resize(nodes, nullptr);
  pass.status.members = members_to_text(pass.members);
  pass.status.worldHash.clear();
  pass.status.rendezvous.reset();
  if (pass.status.startTime.empty()) pass.status.startTime = rfc3339(pass.seen.wall_now);
  return Verdict::kDecided;
}

}  // namespace lockstep
