#include "agent/parallel/shard/gathered_store.h"

#include <utility>

#include "agent/parallel/works.h"

namespace lockstep::parallel {

GatheredStore::GatheredStore(const Options& options, comm::Communicator& group,
                             const kernels::OpTable& ops, const Streams& streams)
    : options_(options),
      group_(group),
      ops_(ops),
      streams_(streams),
      places_(parameter_places(options.design, options.blocks, options.layout,
                               options.sharding.reshard_after_forward)),
      state_(places_.places.size()),
      views_(places_.of_block.size()) {
  make_views();
}

Result<GatheredStore> GatheredStore::create(const Options& options, comm::Communicator& group,
                                            const kernels::OpTable& ops, const Streams& streams) {
  GatheredStore store(options, group, ops, streams);
  TRY_ASSIGN(store.released_, kernels::Event::create(streams.compute.device()));
  TRY_ASSIGN(store.gathered_, kernels::Event::create(streams.compute.device()));
  return store;
}

void GatheredStore::make_views() {
  for (const int64_t block : options_.blocks) {
    const std::vector<size_t>& here = places_.of_block[static_cast<size_t>(block)];
    std::vector<model::ParamView>& views = views_[static_cast<size_t>(block)];
    for (const int64_t id : block_parameters(options_.design, block)) {
      const size_t unit = options_.layout.unit_of(id);
      for (const size_t place : here) {
        if (places_.places[place].unit != unit) continue;
        const int64_t at = places_.places[place].offset + options_.layout.arena().find(id)->offset -
                           options_.layout.units()[unit].offset;
        const float* value = options_.gathered + at;
        views.push_back({value, options_.casts != nullptr ? kernels::ConstView(options_.copies + at)
                                                          : kernels::ConstView(value)});
      }
    }
  }
}

const std::vector<size_t>& GatheredStore::places_of(const model::BlockUse& use) const {
  const std::vector<size_t>& places = places_.of_block[static_cast<size_t>(use.block)];
  CHECK(use.version == model::kLatestVersion && !places.empty());
  return places;
}

bool GatheredStore::reads(const model::BlockUse& use) const {
  return use.pass != model::Pass::kBackward || backward_reads(options_.design, use.block);
}

// Whether a block's parameters stay when a pass has used them.
bool GatheredStore::keeps(const model::BlockUse& use) const {
  if (use.pass != model::Pass::kForward) return false;
  return !options_.sharding.reshard_after_forward || use.block == options_.blocks.back();
}

void GatheredStore::prefetch(const model::BlockUse& use) {
  if (!options_.sharding.prefetch || !reads(use)) return;
  for (const size_t place : places_of(use)) {
    if (failed_.ok() && state_[place].state == State::kFree) failed_ = start(place);
  }
}

// A block that was kept for its backward gives way if another one comes first.
void GatheredStore::displace(const UnitPlace& by) {
  const auto end = [&](const UnitPlace& where) {
    return where.offset + options_.layout.count(options_.layout.units()[where.unit]);
  };
  for (size_t i = 0; i < state_.size(); ++i) {
    const UnitPlace& other = places_.places[i];
    const bool overlaps = other.offset < end(by) && by.offset < end(other);
    if (overlaps && state_[i].state == State::kPresent) state_[i].state = State::kFree;
  }
}

Status GatheredStore::start(size_t place) {
  const UnitPlace& where = places_.places[place];
  const ShardUnit& unit = options_.layout.units()[where.unit];
  displace(where);
  TRY(released_.make_stream_wait(streams_.communication.handle()));
  comm::CommBuffer buffer{.data = options_.gathered + where.offset,
                          .count = unit.piece,
                          .type = comm::DataType::kF32,
                          .device = streams_.communication.device(),
                          .input = options_.shard + unit.local,
                          .stream = streams_.communication.handle()};
  if (options_.sharding.gathers_bf16) {
    buffer.data = options_.copies + where.offset;
    buffer.type = comm::DataType::kBf16;
    buffer.input = options_.shard_copies + unit.local;
  }
  if (options_.far_shard != nullptr && !options_.sharding.gathers_bf16) {
    TRY(fetch(where, unit));
    buffer.input = nullptr;
  }
  if (group_.size() > 1) {
    state_[place].work = group_.start_all_gather(buffer);
  } else if (buffer.input != nullptr) {
    const size_t bytes = static_cast<size_t>(unit.piece) * comm::data_type_bytes(buffer.type);
    TRY(kernels::copy_bytes(streams_.communication,
                            {.to = buffer.data, .from = buffer.input, .bytes = bytes}));
  }
  state_[place].state = State::kGathering;
  return {};
}

// Brings this rank's piece of a unit from far memory to its slot.
Status GatheredStore::fetch(const UnitPlace& where, const ShardUnit& unit) {
  float* slot = options_.gathered + where.offset + group_.rank() * unit.piece;
  if (streams_.communication.device().type == kernels::DeviceType::kCpu) {
    options_.far_shard->read(unit.local, {slot, static_cast<size_t>(unit.piece)});
    return {};
  }
  return kernels::copy_bytes(streams_.communication,
                             {.to = slot,
                              .from = options_.far_shard->data() + unit.local,
                              .bytes = static_cast<size_t>(unit.piece) * sizeof(float)});
}

void GatheredStore::await(comm::Work& work, model::Pass pass) {
  if (!observer_) {
    failed_ = work.wait();
    return;
  }
  observer_(pass, true);
  failed_ = work.wait();
  observer_(pass, false);
}

Status GatheredStore::finish(size_t place, model::Pass pass) {
  const UnitPlace& where = places_.places[place];
  const int64_t count = options_.layout.count(options_.layout.units()[where.unit]);
  if (group_.device_traits().is_stream_ordered) {
    works_.push_back(std::exchange(state_[place].work, {}));
  } else {
    await(state_[place].work, pass);
    TRY(failed_);
    state_[place].work = {};
  }
  state_[place].state = State::kPresent;
  TRY(gathered_.record(streams_.communication.handle()));
  TRY(gathered_.make_stream_wait(streams_.compute.handle()));
  float* values = options_.gathered + where.offset;
  if (options_.sharding.gathers_bf16) {
    ops_.cast(streams_.compute, {.x = kernels::ConstView(options_.copies + where.offset),
                                 .out = kernels::View(values),
                                 .count = count});
  } else if (options_.casts != nullptr) {
    options_.casts->make_copies(streams_.compute, where.unit, values,
                                options_.copies + where.offset, step_);
  }
  return {};
}

Result<std::span<const model::ParamView>> GatheredStore::get(const model::BlockUse& use) {
  TRY(failed_);
  if (reads(use)) {
    for (const size_t place : places_of(use)) {
      if (state_[place].state == State::kFree) TRY(start(place));
      if (state_[place].state == State::kGathering) TRY(finish(place, use.pass));
    }
  }
  return std::span<const model::ParamView>(views_[static_cast<size_t>(use.block)]);
}

// A block that is kept may be displaced before its next use, so its use counts as well.
void GatheredStore::release(const model::BlockUse& use) {
  for (const size_t place : places_of(use)) {
    if (state_[place].state == State::kPresent && !keeps(use)) state_[place].state = State::kFree;
  }
  if (failed_.ok()) failed_ = released_.record(streams_.compute.handle());
}

// Blocks that were gathered before are of an earlier step.
Status GatheredStore::updated(int64_t step) {
  TRY(free_all());
  step_ = step;
  return {};
}

Status GatheredStore::wait() {
  return wait_for(works_);
}

// A gather that a stream orders comes before the next one to its place.
Status GatheredStore::free_all() {
  for (Place& place : state_) {
    if (place.state == State::kGathering) {
      if (group_.device_traits().is_stream_ordered) {
        works_.push_back(std::move(place.work));
      } else {
        failed_ = place.work.wait();
      }
    }
    place = {};
    TRY(failed_);
  }
  return released_.record(streams_.compute.handle());
}

Status GatheredStore::settle() {
  TRY(free_all());
  return wait();
}

}  // namespace lockstep::parallel
