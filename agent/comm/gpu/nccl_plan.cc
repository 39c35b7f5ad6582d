#include "agent/comm/gpu/nccl_plan.h"

#include <string>

namespace lockstep::comm {
namespace {

struct Planner {
  const DeviceCall& call;
  int rank;
  int size;
  NcclPlan plan{};

  int64_t count() const { return call.call.buffer.count; }
  DataType type() const { return call.call.buffer.type; }
  size_t element() const { return data_type_bytes(type()); }
  size_t block() const { return static_cast<size_t>(count()) * element(); }
  bool is_root() const { return rank == call.call.rank; }

  NcclStep step(NcclStep::Kind kind, NcclPlace from, NcclPlace to) const {
    return {.kind = kind, .from = from, .to = to, .count = count(), .type = type()};
  }
  void local(std::vector<LocalStep>& into, LocalStep::Kind kind, NcclPlace from, NcclPlace to,
             int64_t elements) const {
    if (elements > 0) into.push_back({kind, from, to, elements, type()});
  }
  void send(NcclPlace from, int64_t elements, int peer) {
    if (elements == 0) return;
    plan.steps.push_back({.kind = NcclStep::Kind::kSend,
                          .from = from,
                          .count = elements,
                          .type = type(),
                          .peer = peer});
  }
  void receive(NcclPlace to, int64_t elements, int peer) {
    if (elements == 0) return;
    plan.steps.push_back({.kind = NcclStep::Kind::kReceive,
                          .to = to,
                          .count = elements,
                          .type = type(),
                          .peer = peer});
  }

  void barrier() {
    plan.scratch_bytes = 1;
    const NcclPlace byte{NcclArea::kScratch, 0};
    plan.steps.push_back({.kind = NcclStep::Kind::kAllReduce,
                          .from = byte,
                          .to = byte,
                          .count = 1,
                          .type = DataType::kU8,
                          .op = ReduceOp::kMax});
  }

  // The three reductions. LOR first makes values 0 or 1; AVG divides afterwards.
  void reduction(NcclStep::Kind kind) {
    const ReduceOp op = call.call.op;
    const bool gives = kind != NcclStep::Kind::kReduce || is_root();
    const int64_t inputs = kind == NcclStep::Kind::kReduceScatter ? count() * size : count();
    NcclPlace from{NcclArea::kInput, 0};
    if (op == ReduceOp::kLor) {
      const bool fits = kind == NcclStep::Kind::kAllReduce;
      const NcclPlace values{fits ? NcclArea::kOutput : NcclArea::kScratch, 0};
      if (!fits) plan.scratch_bytes = static_cast<size_t>(inputs) * element();
      local(plan.before, LocalStep::Kind::kToBoolean, from, values, inputs);
      from = values;
    }
    NcclStep one = step(kind, from, gives ? NcclPlace{NcclArea::kOutput, 0} : from);
    one.op = op == ReduceOp::kLor ? ReduceOp::kMax : op == ReduceOp::kAvg ? ReduceOp::kSum : op;
    one.peer = kind == NcclStep::Kind::kReduce ? call.call.rank : 0;
    if (count() > 0) plan.steps.push_back(one);
    if (op == ReduceOp::kAvg && gives) local(plan.after, LocalStep::Kind::kDivide, {}, {}, count());
  }

  void broadcast() {
    const NcclPlace output{NcclArea::kOutput, 0};
    NcclStep one = step(NcclStep::Kind::kBroadcast,
                        is_root() ? NcclPlace{NcclArea::kInput, 0} : output, output);
    one.peer = call.call.rank;
    if (count() > 0) plan.steps.push_back(one);
  }

  void all_gather() {
    if (count() == 0) return;
    plan.steps.push_back(step(NcclStep::Kind::kAllGather, {NcclArea::kInput, 0}, {}));
  }

  void gather() {
    if (!is_root()) return send({NcclArea::kInput, 0}, count(), call.call.rank);
    for (int peer = 0; peer < size; ++peer) {
      const NcclPlace place{NcclArea::kOutput, static_cast<size_t>(peer) * block()};
      if (peer != rank) {
        receive(place, count(), peer);
      } else if (!call.memory.in_place) {
        local(plan.before, LocalStep::Kind::kCopy, {NcclArea::kInput, 0}, place, count());
      }
    }
  }

  void scatter() {
    if (!is_root()) return receive({}, count(), call.call.rank);
    for (int peer = 0; peer < size; ++peer) {
      const NcclPlace place{NcclArea::kInput, static_cast<size_t>(peer) * block()};
      if (peer != rank) {
        send(place, count(), peer);
      } else if (!call.memory.in_place) {
        local(plan.before, LocalStep::Kind::kCopy, place, {}, count());
      }
    }
  }

  void all_to_all() {
    NcclArea from = NcclArea::kInput;
    if (call.memory.in_place) {
      from = NcclArea::kScratch;
      plan.scratch_bytes = static_cast<size_t>(size) * block();
      local(plan.before, LocalStep::Kind::kCopy, {NcclArea::kInput, 0}, {from, 0}, count() * size);
    }
    const bool by_counts = !call.call.send_counts.empty();
    size_t sent = 0;
    size_t received = 0;
    for (int peer = 0; peer < size; ++peer) {
      const auto at = static_cast<size_t>(peer);
      const int64_t out = by_counts ? call.call.send_counts[at] : count();
      const int64_t in = by_counts ? call.call.receive_counts[at] : count();
      if (peer != rank) {
        send({from, sent}, out, peer);
        receive({NcclArea::kOutput, received}, in, peer);
      } else if (!call.memory.in_place) {
        local(plan.before, LocalStep::Kind::kCopy, {from, sent}, {NcclArea::kOutput, received}, in);
      }
      sent += static_cast<size_t>(out) * element();
      received += static_cast<size_t>(in) * element();
    }
  }
};

std::string describe(const CallHeader& header) {
  std::string text = std::string(name_of(header.kind)) + " #" + std::to_string(header.number) +
                     " (" + std::to_string(header.count) + " x " + name_of(header.type);
  if (traits(header.kind).reduces) text += std::string(" ") + name_of(header.op);
  if (traits(header.kind).has_root) text += ", root " + std::to_string(header.root);
  return text + ")";
}

}  // namespace

Result<NcclPlan> plan_nccl(const DeviceCall& call, int rank, int size) {
  if (call.call.algorithm != Algorithm::kAuto) {
    return invalid(std::string("[comm] ") + name_of(call.call.kind) +
                   ": NCCL chooses the algorithm itself, so it cannot be '" +
                   name_of(call.call.algorithm) + "'");
  }
  Planner planner{.call = call, .rank = rank, .size = size};
  switch (call.call.kind) {
    case Collective::kForm:
    case Collective::kBarrier:
      planner.barrier();
      break;
    case Collective::kBroadcast:
      planner.broadcast();
      break;
    case Collective::kAllReduce:
      planner.reduction(NcclStep::Kind::kAllReduce);
      break;
    case Collective::kReduce:
      planner.reduction(NcclStep::Kind::kReduce);
      break;
    case Collective::kReduceScatter:
      planner.reduction(NcclStep::Kind::kReduceScatter);
      break;
    case Collective::kAllGather:
      planner.all_gather();
      break;
    case Collective::kScatter:
      planner.scatter();
      break;
    case Collective::kGather:
      planner.gather();
      break;
    case Collective::kAllToAll:
      planner.all_to_all();
      break;
    case Collective::kSend:
      planner.send({NcclArea::kInput, 0}, planner.count(), call.call.rank);
      break;
    case Collective::kReceive:
      planner.receive({}, planner.count(), call.call.rank);
      break;
  }
  return std::move(planner.plan);
}

Traffic traffic_of(const NcclStep& step, const HostMap& hosts, int rank) {
  using Kind = NcclStep::Kind;
  const int n = static_cast<int>(hosts.host.size());
  const uint64_t block = static_cast<uint64_t>(step.count) * data_type_bytes(step.type);
  int to = (rank + 1) % n;
  bool gives = n > 1;
  bool takes = n > 1;
  uint64_t bytes = block;
  switch (step.kind) {
    case Kind::kAllReduce:
      bytes = 2 * (block - block / static_cast<uint64_t>(n));
      break;
    case Kind::kAllGather:
    case Kind::kReduceScatter:
      bytes = static_cast<uint64_t>(n - 1) * block;
      break;
    case Kind::kBroadcast:  // from the root, around the ring
      gives = gives && to != step.peer;
      takes = takes && rank != step.peer;
      break;
    case Kind::kReduce:  // towards the root, around the ring
      gives = gives && rank != step.peer;
      takes = takes && rank != (step.peer + 1) % n;
      break;
    case Kind::kSend:
      to = step.peer;
      takes = false;
      break;
    case Kind::kReceive:
      gives = false;
      break;
  }
  const bool leaves = hosts.host[static_cast<size_t>(to)] != hosts.host[static_cast<size_t>(rank)];
  return {.bytes_sent = gives ? bytes : 0,
          .bytes_received = takes ? bytes : 0,
          .bytes_sent_to_other_hosts = gives && leaves ? bytes : 0};
}

int nccl_type(DataType type) {
  switch (type) {
    case DataType::kU8:
      return 1;
    case DataType::kI32:
      return 2;
    case DataType::kI64:
      return 4;
    case DataType::kF16:
      return 6;
    case DataType::kF32:
      return 7;
    case DataType::kF64:
      return 8;
    case DataType::kBf16:
      return 9;
  }
  CHECK(false);
}

int nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return 0;
    case ReduceOp::kProd:
      return 1;
    case ReduceOp::kMax:
      return 2;
    case ReduceOp::kMin:
      return 3;
    case ReduceOp::kAvg:
    case ReduceOp::kLor:
      break;
  }
  CHECK(false);  // plan_nccl gives none of these
}

std::string nccl_version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

CallHeader header_of(const Call& call, uint64_t number) {
  return {.number = number,
          .kind = call.kind,
          .type = call.buffer.type,
          .op = traits(call.kind).reduces ? call.op : ReduceOp::kSum,
          .root = traits(call.kind).has_root ? call.rank : 0,
          .count = call.buffer.count};
}

Status compare_headers(std::span<const CallHeader> headers) {
  for (size_t rank = 1; rank < headers.size(); ++rank) {
    if (headers[rank] == headers[0]) continue;
    return conflict("ranks differ: rank 0 in " + describe(headers[0]) + ", rank " +
                    std::to_string(rank) + " in " + describe(headers[rank]));
  }
  return {};
}

}  // namespace lockstep::comm
