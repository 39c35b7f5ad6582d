// Algorithms that work within each host first, then between hosts. The work is divided into lanes,
// one for each rank of the fullest host. On each host one rank owns a lane, and the owners of one
// lane exchange data between hosts.
#include "agent/comm/algorithms.h"

namespace lockstep::comm {
namespace {

using Kind = Move::Kind;
constexpr int kNone = Move::kNone;

// This rank's position among the hosts.
struct Layout {
  explicit Layout(const Task& task_in)
      : task(task_in),
        map(*task_in.hosts),
        host(map.host[static_cast<size_t>(task_in.rank)]),
        here(map.ranks[static_cast<size_t>(host)]) {}

  int owner(int lane) const { return map.owner(host, lane); }
  bool owns(int lane) const { return owner(lane) == task.rank; }
  // Returns the host this many places further around the ring of hosts.
  int host_ahead(int places) const {
    return ((host + places) % map.hosts() + map.hosts()) % map.hosts();
  }
  int lane_of(int rank) const { return map.place[static_cast<size_t>(rank)]; }
  int host_of(int rank) const { return map.host[static_cast<size_t>(rank)]; }
  bool alone() const { return here.size() == 1; }

  const Task& task;
  const HostMap& map;
  int host;
  const std::vector<int>& here;  // ranks of this host
};

bool averages(const Task& task) {
  return task.op == ReduceOp::kAvg;
}

Span lane_span(const Task& task, int lanes, int lane) {
  const Segment found = ring_segment(task.count, lanes, lane);
  return {.at = static_cast<size_t>(found.begin) * element_bytes(task),
          .bytes = static_cast<size_t>(found.end - found.begin) * element_bytes(task)};
}

// Returns the `index`-th of `parts` of a lane.
Span part_of(const Task& task, const Span& lane, int parts, int index) {
  const size_t element = element_bytes(task);
  const Segment part = ring_segment(static_cast<int64_t>(lane.bytes / element), parts, index);
  return {.at = lane.at + static_cast<size_t>(part.begin) * element,
          .bytes = static_cast<size_t>(part.end - part.begin) * element};
}

// Bytes that one rank, the collector, sums for its whole host. The other ranks send theirs to it;
// it adds them to `first`, into `into`. sum_on_host() returns the move that makes the sum, or none
// if there is nothing to add.
struct HostSum {
  int collector = 0;  // rank of the group
  Place first;        // this rank's own values
  Place into;
  size_t bytes = 0;
  bool averages = false;
};
int sum_on_host(const Layout& layout, MovePlan& plan, const HostSum& sum) {
  if (sum.collector != layout.task.rank) {
    plan.add({.kind = Kind::kSend, .peer = sum.collector, .from = sum.first, .bytes = sum.bytes});
    return kNone;
  }
  int last = kNone;
  for (const int other : layout.here) {
    if (other == layout.task.rank) continue;
    last = plan.add({.kind = Kind::kReduce,
                     .peer = other,
                     .from = last == kNone ? sum.first : sum.into,
                     .into = sum.into,
                     .bytes = sum.bytes,
                     .after = last});
  }
  return last;
}

// A ring over the owners of a lane, like ring_all_reduce over all ranks. Final segments go on
// immediately to the other ranks of the host.
void ring_of_owners(const Layout& layout, MovePlan& plan, int lane, int summed) {
  const int hosts = layout.map.hosts();
  const Span whole = lane_span(layout.task, layout.map.lanes, lane);
  const Area mine = layout.alone() ? Area::kInput : Area::kOutput;
  int came = summed;
  for (int step = 0; step < 2 * (hosts - 1); ++step) {
    const Span going = part_of(layout.task, whole, hosts, layout.host_ahead(-step));
    const Span coming = part_of(layout.task, whole, hosts, layout.host_ahead(-step - 1));
    const bool reduces = step < hosts - 1;
    plan.add({.kind = Kind::kSend,
              .peer = layout.map.owner(layout.host_ahead(1), lane),
              .from = {step == 0 ? mine : Area::kOutput, going.at},
              .bytes = going.bytes,
              .after = came});
    came = plan.add({.kind = reduces ? Kind::kReduce : Kind::kReceive,
                     .peer = layout.map.owner(layout.host_ahead(-1), lane),
                     .from = {mine, coming.at},
                     .into = output(coming.at),
                     .bytes = coming.bytes,
                     .after = reduces ? summed : kNone,
                     .averages = averages(layout.task) && step == hosts - 2});
    if (step < hosts - 2) continue;
    for (const int other : layout.here) {
      if (other == layout.task.rank) continue;
      plan.add({.kind = Kind::kSend,
                .peer = other,
                .from = output(coming.at),
                .bytes = coming.bytes,
                .after = came});
    }
  }
}

// Receives what the owner of a lane passes on, in the owner's order.
void take_from_ring(const Layout& layout, MovePlan& plan, int lane) {
  const int hosts = layout.map.hosts();
  const Span whole = lane_span(layout.task, layout.map.lanes, lane);
  for (int step = hosts - 2; step < 2 * (hosts - 1); ++step) {
    const Span coming = part_of(layout.task, whole, hosts, layout.host_ahead(-step - 1));
    plan.add({.kind = Kind::kReceive,
              .peer = layout.owner(lane),
              .into = output(coming.at),
              .bytes = coming.bytes});
  }
}

// The hosts as members, each represented by its owner of a lane.
Members owners(const Layout& layout, int lane, int summed) {
  return {.count = layout.map.hosts(),
          .number = layout.host,
          .rank_of = [&map = layout.map, lane](int host) { return map.owner(host, lane); },
          .whole = lane_span(layout.task, layout.map.lanes, lane),
          .mine = layout.alone() ? Area::kInput : Area::kOutput,
          .after = summed};
}

// Like ring_of_owners, by halving and doubling.
void halving_of_owners(const Layout& layout, MovePlan& plan, int lane, int summed) {
  const auto pass_on = [&](const Span& piece, int came) {
    for (const int other : layout.here) {
      if (other == layout.task.rank) continue;
      plan.add({.kind = Kind::kSend,
                .peer = other,
                .from = output(piece.at),
                .bytes = piece.bytes,
                .after = came});
    }
  };
  sum_among(layout.task, plan, owners(layout, lane, summed), pass_on);
}

void take_from_halving(const Layout& layout, MovePlan& plan, int lane) {
  for (const Span& piece : halving_pieces(layout.task, owners(layout, lane, kNone))) {
    plan.add({.kind = Kind::kReceive,
              .peer = layout.owner(lane),
              .into = output(piece.at),
              .bytes = piece.bytes});
  }
}

// How the owners of a lane sum their hosts' values, and how the other ranks of a host receive the
// sum.
struct Between {
  void (*sum)(const Layout&, MovePlan&, int lane, int summed);
  void (*take)(const Layout&, MovePlan&, int lane);
};

void all_reduce_by_host(const Task& task, MovePlan& plan, const Between& between) {
  const Layout layout(task);
  std::vector<int> summed;
  for (int lane = 0; lane < layout.map.lanes; ++lane) {
    const Span whole = lane_span(task, layout.map.lanes, lane);
    summed.push_back(sum_on_host(layout, plan,
                                 {.collector = layout.owner(lane),
                                  .first = input(whole.at),
                                  .into = output(whole.at),
                                  .bytes = whole.bytes}));
  }
  for (int lane = 0; lane < layout.map.lanes; ++lane) {
    if (layout.owns(lane)) {
      between.sum(layout, plan, lane, summed[static_cast<size_t>(lane)]);
    } else {
      between.take(layout, plan, lane);
    }
  }
}

}  // namespace

void hosts_all_reduce(const Task& task, MovePlan& plan) {
  all_reduce_by_host(task, plan, {.sum = ring_of_owners, .take = take_from_ring});
}

void hosts_halving_all_reduce(const Task& task, MovePlan& plan) {
  all_reduce_by_host(task, plan, {.sum = halving_of_owners, .take = take_from_halving});
}

// On every host the rank that has the receiver's lane sums each block, and sends it to the
// receiver. Blocks of other hosts come first, so that they travel while the host sums its own.
void hosts_reduce_scatter(const Task& task, MovePlan& plan) {
  const Layout layout(task);
  const size_t bytes = block_bytes(task);
  size_t kept = 0;
  int last = kNone;
  for (int ahead = 1; ahead <= layout.map.hosts(); ++ahead) {
    const int there = layout.host_ahead(ahead);
    for (const int receiver : layout.map.ranks[static_cast<size_t>(there)]) {
      const int collector = layout.owner(layout.lane_of(receiver));
      const bool for_others = receiver != task.rank;
      const bool stored = collector == task.rank && for_others && !layout.alone();
      const Place first = input(static_cast<size_t>(receiver) * bytes);
      const Place into = !for_others ? output(0) : stored ? scratch(kept++ * bytes) : first;
      const int made = sum_on_host(
          layout, plan, {.collector = collector, .first = first, .into = into, .bytes = bytes});
      if (!for_others) last = made;
      if (collector != task.rank || there == layout.host) continue;
      plan.add(
          {.kind = Kind::kSend, .peer = receiver, .from = into, .bytes = bytes, .after = made});
    }
  }
  plan.need_scratch(kept * bytes);
  const Place own = input(static_cast<size_t>(task.rank) * bytes);
  for (int ahead = 1; ahead < layout.map.hosts(); ++ahead) {
    last = plan.add({.kind = Kind::kReduce,
                     .peer = layout.map.owner(layout.host_ahead(ahead), layout.lane_of(task.rank)),
                     .from = last == kNone ? own : output(0),
                     .into = output(0),
                     .bytes = bytes,
                     .after = last,
                     .averages = averages(task) && ahead == layout.map.hosts() - 1});
  }
}

// Each block goes to one rank of each other host, and from there to the other ranks of that host.
void hosts_all_gather(const Task& task, MovePlan& plan) {
  const Layout layout(task);
  const size_t bytes = block_bytes(task);
  const int lane = layout.lane_of(task.rank);
  const auto place_of = [bytes](int rank) { return static_cast<size_t>(rank) * bytes; };
  const auto give_to_host = [&](Place from, int after) {
    for (const int other : layout.here) {
      if (other == task.rank) continue;
      plan.add({.kind = Kind::kSend, .peer = other, .from = from, .bytes = bytes, .after = after});
    }
  };
  for (int ahead = 1; ahead < layout.map.hosts(); ++ahead) {
    plan.add({.kind = Kind::kSend,
              .peer = layout.map.owner(layout.host_ahead(ahead), lane),
              .from = input(0),
              .bytes = bytes});
  }
  give_to_host(input(0), kNone);
  for (const int other : layout.here) {
    if (other == task.rank) continue;
    plan.add(
        {.kind = Kind::kReceive, .peer = other, .into = output(place_of(other)), .bytes = bytes});
  }
  for (int behind = 1; behind < layout.map.hosts(); ++behind) {
    for (const int from : layout.map.ranks[static_cast<size_t>(layout.host_ahead(-behind))]) {
      const int owner = layout.owner(layout.lane_of(from));
      const bool mine = owner == task.rank;
      const int came = plan.add({.kind = Kind::kReceive,
                                 .peer = mine ? from : owner,
                                 .into = output(place_of(from)),
                                 .bytes = bytes});
      if (mine) give_to_host(output(place_of(from)), came);
    }
  }
  plan.add(
      {.kind = Kind::kCopy, .from = input(0), .into = output(place_of(task.rank)), .bytes = bytes});
}

namespace {

// This rank's neighbours in two chains. One runs over the hosts' leaders and begins with the root's
// host. The other runs over the ranks of each host and begins with its leader. -1: none.
struct ChainPlace {
  int before = -1;      // towards the root
  int next_host = -1;   // for a leader: the next host's leader
  int next_local = -1;  // on the same host
};

int leader_of(const Layout& layout, int host) {
  const int root = layout.task.root;
  return layout.host_of(root) == host ? root : layout.map.ranks[static_cast<size_t>(host)].front();
}

ChainPlace chain_place(const Layout& layout) {
  const int hosts = layout.map.hosts();
  const int root_host = layout.host_of(layout.task.root);
  const int leader = leader_of(layout, layout.host);
  std::vector<int> row = {leader};
  for (const int rank : layout.here) {
    if (rank != leader) row.push_back(rank);
  }
  ChainPlace found;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] != layout.task.rank) continue;
    if (i > 0) found.before = row[i - 1];
    if (i + 1 < row.size()) found.next_local = row[i + 1];
  }
  if (layout.task.rank != leader) return found;
  if (layout.host != root_host) found.before = leader_of(layout, layout.host_ahead(-1));
  if ((layout.host + 1) % hosts != root_host)
    found.next_host = leader_of(layout, layout.host_ahead(1));
  return found;
}

}  // namespace

void hosts_broadcast(const Task& task, MovePlan& plan) {
  const ChainPlace at = chain_place(Layout(task));
  const size_t bytes = block_bytes(task);
  int came = kNone;
  if (at.before >= 0) {
    came = plan.add({.kind = Kind::kReceive, .peer = at.before, .into = output(0), .bytes = bytes});
  }
  for (const int next : {at.next_host, at.next_local}) {
    if (next < 0) continue;
    plan.add({.kind = Kind::kSend,
              .peer = next,
              .from = at.before >= 0 ? output(0) : input(0),
              .bytes = bytes,
              .after = came});
  }
  if (at.before < 0) {
    plan.add({.kind = Kind::kCopy, .from = input(0), .into = output(0), .bytes = bytes});
  }
}

void hosts_reduce(const Task& task, MovePlan& plan) {
  const ChainPlace at = chain_place(Layout(task));
  const size_t bytes = block_bytes(task);
  const bool root = at.before < 0;
  const Place partial = root ? output(0) : scratch(0);
  int last = kNone;
  for (const int next : {at.next_local, at.next_host}) {
    if (next < 0) continue;
    if (!root) plan.need_scratch(bytes);
    const bool final = next == at.next_host || at.next_host < 0;
    last = plan.add({.kind = Kind::kReduce,
                     .peer = next,
                     .from = last == kNone ? input(0) : partial,
                     .into = partial,
                     .bytes = bytes,
                     .after = last,
                     .averages = averages(task) && root && final});
  }
  if (root) return;
  plan.add({.kind = Kind::kSend,
            .peer = at.before,
            .from = last == kNone ? input(0) : partial,
            .bytes = bytes,
            .after = last});
}

}  // namespace lockstep::comm
