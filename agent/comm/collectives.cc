#include "agent/comm/collectives.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "agent/comm/exchange.h"
#include "agent/comm/reduce.h"
#include "common/base/check.h"

namespace lockstep {
namespace {

std::byte* data_of(const CommBuffer& buffer) {
  return static_cast<std::byte*>(buffer.data);
}

// `mine` of every rank at its place of `all`; all of them at once.
Status direct_gather(Exchange& exchange, Bytes mine, std::span<std::byte> all) {
  const auto place = [&](int rank) { return all.data() + static_cast<size_t>(rank) * mine.size(); };
  std::vector<Outgoing> sending;
  std::vector<Incoming> coming;
  for (int i = 1; i < exchange.size(); ++i) {
    // Everyone begins with its neighbour, so that no rank is everyone's first.
    const int to = (exchange.rank() + i) % exchange.size();
    const int from = (exchange.rank() - i + exchange.size()) % exchange.size();
    sending.push_back(exchange.outgoing({.peer = to, .bytes = mine.size()}, mine.data()));
    coming.push_back(
        exchange.incoming({.peer = from, .bytes = mine.size()}, {.into = place(from)}));
  }
  if (!mine.empty()) std::memcpy(place(exchange.rank()), mine.data(), mine.size());
  return exchange.drive([&]() -> Result<bool> {
    bool done = true;
    for (Outgoing& frame : sending) {
      TRY(exchange.send(frame, mine.size()));
      done = done && frame.done();
    }
    for (Incoming& frame : coming) {
      TRY(exchange.receive(frame));
      done = done && frame.done();
    }
    return done;
  });
}

Status direct_all_reduce(Exchange& exchange, const CommBuffer& buffer, ReduceOp op) {
  const auto count = static_cast<size_t>(buffer.count);
  const size_t bytes = count * data_type_bytes(buffer.type);
  // Of the widest type, so that every rank's part is aligned.
  const auto ranks = static_cast<size_t>(exchange.size());
  std::vector<std::max_align_t> scratch(ranks * bytes / sizeof(std::max_align_t) + 1);
  const std::span<std::byte> all = std::as_writable_bytes(std::span(scratch)).first(ranks * bytes);
  TRY(direct_gather(exchange, {data_of(buffer), bytes}, all));
  if (bytes == 0) return {};
  std::memcpy(buffer.data, all.data(), bytes);
  for (size_t rank = 1; rank < ranks; ++rank) {
    reduce(buffer.type, op, {buffer.data, all.data() + rank * bytes, count});
  }
  if (op == ReduceOp::kAvg) scale_average(buffer.type, buffer.data, count, exchange.size());
  return {};
}

// Both phases of the ring are one stream of 2(n-1) frames in and one out: frame s goes out as fast
// as frame s-1 comes in.
class Ring {
 public:
  Ring(Exchange& exchange, const CommBuffer& buffer, ReduceOp op)
      : exchange_(exchange), buffer_(buffer), op_(op), size_(exchange.size()) {}

  Status run() {
    next_incoming();
    next_outgoing();
    return exchange_.drive([this] { return step(); });
  }

 private:
  int steps() const { return 2 * (size_ - 1); }
  // Frame s carries, out of this rank, segment rank - s; the one that comes is one further back.
  int segment_index(int behind) const {
    return ((exchange_.rank() - behind) % size_ + size_) % size_;
  }
  std::byte* at(const Segment& segment) const {
    return data_of(buffer_) + static_cast<size_t>(segment.begin) * data_type_bytes(buffer_.type);
  }
  size_t bytes(const Segment& segment) const {
    return static_cast<size_t>(segment.end - segment.begin) * data_type_bytes(buffer_.type);
  }
  Segment segment(int behind) const {
    return ring_segment(buffer_.count, size_, segment_index(behind));
  }

  void next_incoming() {
    ++coming_step_;
    if (coming_step_ == steps()) return incoming_.reset();
    const Segment target = segment(coming_step_ + 1);
    const bool reduces = coming_step_ < size_ - 1;
    const int previous = (exchange_.rank() - 1 + size_) % size_;
    incoming_ = exchange_.incoming(
        {.peer = previous, .step = static_cast<uint32_t>(coming_step_), .bytes = bytes(target)},
        {.into = at(target), .reduces = reduces, .type = buffer_.type, .op = op_});
  }

  void next_outgoing() {
    ++going_step_;
    if (going_step_ == steps()) return outgoing_.reset();
    const Segment source = segment(going_step_);
    const int next = (exchange_.rank() + 1) % size_;
    outgoing_ = exchange_.outgoing(
        {.peer = next, .step = static_cast<uint32_t>(going_step_), .bytes = bytes(source)},
        at(source));
  }

  // How much of the outgoing frame is final here.
  size_t ready() const {
    if (going_step_ <= coming_step_) return bytes(segment(going_step_));
    if (going_step_ > coming_step_ + 1) return 0;
    const bool average = op_ == ReduceOp::kAvg && coming_step_ == size_ - 2;
    return average ? averaged_ : incoming_->ready();
  }

  // The last rank that adds to a segment divides it, piece by piece, before it goes around.
  void average() {
    if (op_ != ReduceOp::kAvg || coming_step_ != size_ - 2 || !incoming_) return;
    const size_t element = data_type_bytes(buffer_.type);
    const size_t fresh = incoming_->ready() - averaged_;
    scale_average(buffer_.type, at(segment(coming_step_ + 1)) + averaged_, fresh / element, size_);
    averaged_ += fresh;
  }

  Result<bool> step() {
    if (incoming_) {
      TRY(exchange_.receive(*incoming_));
      average();
      if (incoming_->done()) next_incoming();
    }
    while (outgoing_) {
      TRY(exchange_.send(*outgoing_, ready()));
      if (!outgoing_->done()) break;
      next_outgoing();
    }
    return !incoming_ && !outgoing_;
  }

  Exchange& exchange_;
  const CommBuffer& buffer_;
  ReduceOp op_;
  int size_;
  int coming_step_ = -1;
  int going_step_ = -1;
  std::optional<Incoming> incoming_;
  std::optional<Outgoing> outgoing_;
  size_t averaged_ = 0;
};

// Down the chain root -> root+1 -> ..., every byte as soon as it is there.
Status chain_broadcast(Exchange& exchange, const CommBuffer& buffer, int root) {
  const int size = exchange.size();
  const size_t bytes = static_cast<size_t>(buffer.count) * data_type_bytes(buffer.type);
  const int place = (exchange.rank() - root + size) % size;
  std::optional<Incoming> coming;
  std::optional<Outgoing> going;
  if (place > 0) {
    const int previous = (exchange.rank() - 1 + size) % size;
    coming = exchange.incoming({.peer = previous, .bytes = bytes}, {.into = data_of(buffer)});
  }
  if (place < size - 1) {
    const int next = (exchange.rank() + 1) % size;
    going = exchange.outgoing({.peer = next, .bytes = bytes}, data_of(buffer));
  }
  return exchange.drive([&]() -> Result<bool> {
    if (coming) TRY(exchange.receive(*coming));
    if (going) TRY(exchange.send(*going, coming ? coming->ready() : bytes));
    return (!coming || coming->done()) && (!going || going->done());
  });
}

Status all_reduce(Exchange& exchange, const CommBuffer& buffer, ReduceOp op) {
  const auto others = static_cast<size_t>(exchange.size() - 1);
  const size_t bytes = static_cast<size_t>(buffer.count) * data_type_bytes(buffer.type);
  if (others * bytes <= kDirectBytesMax) return direct_all_reduce(exchange, buffer, op);
  return Ring(exchange, buffer, op).run();
}

}  // namespace

Segment ring_segment(int64_t count, int parts, int index) {
  const int64_t base = count / parts;
  const int64_t longer = count % parts;
  const int64_t begin = base * index + std::min<int64_t>(index, longer);
  return {.begin = begin, .end = begin + base + (index < longer ? 1 : 0)};
}

Status run_collective(Core& core, Operation& operation) {
  Exchange exchange(core, operation);
  switch (operation.header.kind) {
    case CollectiveKind::kForm:
    case CollectiveKind::kBarrier:
    case CollectiveKind::kAllGather:
      return direct_gather(exchange, operation.mine, operation.all);
    case CollectiveKind::kBroadcast:
      if (exchange.size() == 1) return {};
      return chain_broadcast(exchange, operation.buffer, static_cast<int>(operation.header.root));
    case CollectiveKind::kAllReduce:
      if (exchange.size() == 1) return {};
      return all_reduce(exchange, operation.buffer, operation.header.op);
  }
  CHECK(false);
}

}  // namespace lockstep
