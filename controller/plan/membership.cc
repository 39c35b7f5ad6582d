#include <algorithm>

#include "controller/plan/members.h"
#include "controller/plan/pass.h"
#include "controller/plan/round_nodes.h"
#include "controller/plan/servers.h"

namespace lockstep::plan {
namespace {

// Returns an incarnation above that of every existing pod of the index, and of a server there that
// has left the round. A pod from before the job was made smaller may still be ending, and is not
// the new member's.
int64_t new_incarnation(const Pass& pass, size_t index) {
  int64_t highest = incarnation_that_left(pass, static_cast<int64_t>(index));
  for (const PodView& pod : pass.seen.pods) {
    if (pod.node_index == static_cast<int64_t>(index)) highest = std::max(highest, pod.incarnation);
  }
  return highest + 1;
}

}  // namespace

// Records the incarnation of each node index in status before its pod is created. A change of
// spec.nodes keeps the members that stay. It also keeps the round if all of its members stay: the
// round continues until every joining member runs, however long that takes. A server that is to
// leave a round with places stays a member until it has.
Verdict membership(Pass& pass) {
  const auto wanted = static_cast<size_t>(pod_count(pass.spec()));
  const size_t nodes = std::max(wanted, members_to_keep(pass));
  if (pass.members.size() == nodes) return Verdict::kNext;
  const bool is_first = pass.members.empty();
  pass.plan.why = is_first ? "the job is new" : "the number of nodes or servers changed";
  if (!is_first) {
    pass.event(
        false, "Resizing",
        "from " + std::to_string(pass.members.size()) + " nodes to " + std::to_string(nodes));
  }
  if (nodes < pass.members.size()) pass.members.resize(nodes);
  while (pass.members.size() < nodes) {
    pass.members.push_back(new_incarnation(pass, pass.members.size()));
  }
  pass.current.resize(nodes, nullptr);
  pass.status.members = members_to_text(pass.members);
  if (members_to_keep(pass) > 0) pass.round_nodes = nodes_of_view(pass);
  const bool stay = pass.status.rendezvous && !pass.round_nodes.empty() &&
                    pass.round_nodes.back() < static_cast<int64_t>(nodes);
  if (!stay) {
    pass.status.worldHash.clear();
    pass.status.rendezvous.reset();
    pass.round_nodes = wanted_nodes(pass);
  }
  if (pass.status.startTime.empty()) pass.status.startTime = rfc3339(pass.seen.wall_now);
  return Verdict::kDecided;
}

}  // namespace lockstep::plan
