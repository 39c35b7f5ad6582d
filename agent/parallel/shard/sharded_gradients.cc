#include "agent/parallel/shard/sharded_gradients.h"

#include <algorithm>
#include <utility>

#include "agent/parallel/works.h"

namespace lockstep::parallel {

ShardedGradients::ShardedGradients(const Options& options, const ShardGroups& groups,
                                   const kernels::OpTable& ops, const Streams& streams)
    : options_(options),
      groups_(groups),
      ops_(ops),
      streams_(streams),
      open_(options.layout.units().size()) {}

Result<ShardedGradients> ShardedGradients::create(const Options& options, const ShardGroups& groups,
                                                  const kernels::OpTable& ops,
                                                  const Streams& streams) {
  ShardedGradients sink(options, groups, ops, streams);
  TRY_ASSIGN(sink.complete_, kernels::Event::create(streams.compute.device()));
  for (Landing& landing : sink.landings_) {
    TRY_ASSIGN(landing.event, kernels::Event::create(streams.compute.device()));
  }
  return sink;
}

void ShardedGradients::begin_step(const kernels::OpTable& ops) {
  CHECK(flights_.empty());
  is_last_ = false;
  failed_ = {};
  const int64_t count = is_whole() ? options_.layout.arena().count : options_.layout.shard_count();
  ops.fill(streams_.compute, {.out = kernels::View(options_.gradients), .count = count});
}

int64_t ShardedGradients::offset(size_t unit) const {
  return is_whole() ? options_.layout.units()[unit].offset : options_.places.offsets[unit];
}

float* ShardedGradients::values(size_t unit) const {
  return (is_whole() ? options_.gradients : options_.buffers) + offset(unit);
}

comm::CommBuffer ShardedGradients::travelling(size_t unit, bool piece_only) const {
  const int64_t piece = options_.layout.units()[unit].piece;
  const int64_t skipped = piece_only ? groups_.shards.rank() * piece : 0;
  comm::CommBuffer buffer{.data = values(unit) + skipped,
                          .count = piece,
                          .type = comm::DataType::kF32,
                          .device = streams_.communication.device(),
                          .stream = streams_.communication.handle()};
  if (options_.travelling != nullptr) {
    buffer.data = options_.travelling + offset(unit) + skipped;
    buffer.type = comm::DataType::kBf16;
  }
  return buffer;
}

float* ShardedGradients::buffer(int64_t id) {
  const ArenaEntry* entry = options_.layout.arena().find(id);
  CHECK(entry != nullptr);
  const size_t unit = options_.layout.unit_of(id);
  if (!is_whole() && !open_[unit]) open(unit);
  return values(unit) + entry->offset - options_.layout.units()[unit].offset;
}

bool ShardedGradients::overlap(size_t a, size_t b) const {
  const auto end = [&](size_t unit) {
    return offset(unit) + options_.layout.count(options_.layout.units()[unit]);
  };
  return offset(a) < end(b) && offset(b) < end(a);
}

bool ShardedGradients::is_taken(size_t unit) const {
  return std::any_of(flights_.begin(), flights_.end(),
                     [&](const Flight& flight) { return overlap(flight.unit, unit); });
}

// Neighbours do not overlap. The first and the last unit may, and they meet between micro-batches.
// The last landing of each place is enough: a unit that overlapped with an earlier one has waited
// for it.
void ShardedGradients::open(size_t unit) {
  open_[unit] = true;
  while (failed_.ok() && is_taken(unit)) failed_ = settle_oldest();
  for (const Landing& landing : landings_) {
    if (!failed_.ok() || !landing.unit || !overlap(*landing.unit, unit)) continue;
    failed_ = landing.event.make_stream_wait(streams_.compute.handle());
  }
  ops_.fill(streams_.compute, {.out = kernels::View(values(unit)),
                               .count = options_.layout.count(options_.layout.units()[unit])});
}

// Ids come in descending order, so a unit is complete when its lowest one is.
Status ShardedGradients::ready(int64_t id) {
  TRY(failed_);
  if (is_whole() && !is_last_) return {};
  const size_t unit = options_.layout.unit_of(id);
  if (id != options_.layout.units()[unit].first_id) return {};
  open_[unit] = false;
  TRY(launch(unit));
  return poll();
}

Status ShardedGradients::launch(size_t unit) {
  TRY(complete_.record(streams_.compute.handle()));
  TRY(complete_.make_stream_wait(streams_.communication.handle()));
  if (options_.travelling != nullptr) {
    ops_.cast(streams_.communication,
              {.x = kernels::ConstView(values(unit)),
               .out = kernels::View(options_.travelling + offset(unit)),
               .count = options_.layout.count(options_.layout.units()[unit])});
  }
  Flight& flight = flights_.emplace_back(Flight{.unit = unit, .is_reduced = false, .work = {}});
  if (groups_.shards.size() > 1) {
    flight.work = groups_.shards.start_reduce_scatter(travelling(unit, /*piece_only=*/false),
                                                      comm::ReduceOp::kSum);
  }
  if (!is_stream_ordered()) return {};
  while (!flights_.empty()) TRY(settle_oldest());
  return {};
}

Result<bool> ShardedGradients::advance(Flight& flight) {
  if (!flight.is_reduced && groups_.replicas.size() > 1) {
    flight.is_reduced = true;
    flight.work = groups_.replicas.start_all_reduce(travelling(flight.unit, /*piece_only=*/true),
                                                    comm::ReduceOp::kSum);
    return false;
  }
  TRY(land(flight.unit));
  return true;
}

Status ShardedGradients::land(size_t unit) {
  const ShardUnit& where = options_.layout.units()[unit];
  float* piece = values(unit) + groups_.shards.rank() * where.piece;
  if (options_.travelling != nullptr) {
    ops_.cast(streams_.communication, {.x = kernels::ConstView(options_.travelling + offset(unit) +
                                                               groups_.shards.rank() * where.piece),
                                       .out = kernels::View(piece),
                                       .count = where.piece});
  }
  if (!is_whole()) {
    const kernels::View sum(options_.gradients + where.local);
    ops_.add(streams_.communication,
             {.a = sum, .b = kernels::View(piece), .out = sum, .count = where.piece});
  }
  Landing& landing = landings_[place(unit)];
  landing.unit = unit;
  return landing.event.record(streams_.communication.handle());
}

// Replicas are added up in the order of the flights, which is the same on every rank.
Status ShardedGradients::poll() {
  for (Flight& flight : flights_) {
    if (flight.is_reduced) continue;
    if (groups_.replicas.size() == 1 || !flight.work.test()) return {};
    TRY(flight.work.wait());
    TRY_ASSIGN(const bool landed, advance(flight));
    CHECK(!landed);
  }
  return {};
}

Status ShardedGradients::settle_oldest() {
  Flight& flight = flights_.front();
  while (true) {
    if (is_stream_ordered()) {
      works_.push_back(std::move(flight.work));
      flight.work = {};
    } else {
      if (observer_) observer_(true);
      const Status waited = flight.work.wait();
      if (observer_) observer_(false);
      TRY(waited);
    }
    TRY_ASSIGN(const bool landed, advance(flight));
    if (landed) break;
  }
  flights_.pop_front();
  return {};
}

Status ShardedGradients::end_micro_batch() {
  is_last_ = false;
  return failed_;
}

Status ShardedGradients::finish() {
  while (!flights_.empty()) TRY(settle_oldest());
  for (const Landing& landing : landings_) {
    TRY(landing.event.make_stream_wait(streams_.compute.handle()));
  }
  return {};
}

Status ShardedGradients::wait() {
  flights_.clear();
  return wait_for(works_);
}

}  // namespace lockstep::parallel
