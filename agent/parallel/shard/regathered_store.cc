#include "agent/parallel/shard/regathered_store.h"

#include <utility>

#include "agent/parallel/works.h"

namespace lockstep::parallel {

RegatheredStore::RegatheredStore(const Options& options, comm::Communicator& group,
                                 const Streams& streams)
    : options_(options),
      replica_(options.replica),
      group_(group),
      streams_(streams),
      units_of_block_(static_cast<size_t>(block_count(options.replica.design))),
      gathering_(options.layout.units().size()) {
  for (const int64_t block : options.replica.blocks) {
    std::vector<size_t>& units = units_of_block_[static_cast<size_t>(block)];
    for (const int64_t id : block_parameters(options.replica.design, block)) {
      units.push_back(options.layout.unit_of(id));
    }
  }
}

Result<RegatheredStore> RegatheredStore::create(const Options& options, comm::Communicator& group,
                                                const Streams& streams) {
  RegatheredStore store(options, group, streams);
  TRY_ASSIGN(store.updated_, kernels::Event::create(streams.compute.device()));
  TRY_ASSIGN(store.gathered_, kernels::Event::create(streams.compute.device()));
  return store;
}

Status RegatheredStore::updated(int64_t step) {
  TRY(settle_units());
  step_ = step;
  TRY(updated_.record(streams_.compute.handle()));
  TRY(updated_.make_stream_wait(streams_.communication.handle()));
  for (size_t unit = 0; unit < gathering_.size(); ++unit) {
    const ShardUnit& place = options_.layout.units()[unit];
    comm::Work work;
    if (group_.size() > 1) {
      work = group_.start_all_gather({.data = options_.replica.parameters + place.offset,
                                      .count = place.piece,
                                      .type = comm::DataType::kF32,
                                      .device = streams_.communication.device(),
                                      .stream = streams_.communication.handle()});
    }
    gathering_[unit] = std::move(work);
  }
  return {};
}

// A block first waits in a forward pass.
Status RegatheredStore::await(comm::Work& work) {
  if (!observer_) return work.wait();
  observer_(model::Pass::kForward, true);
  Status waited = work.wait();
  observer_(model::Pass::kForward, false);
  return waited;
}

// The order of a stream makes the first event pass only after all units; that is what a GPU waits
// for once, when the next forward begins.
Status RegatheredStore::settle_unit(size_t unit) {
  if (!gathering_[unit]) return {};
  comm::Work work = *std::exchange(gathering_[unit], std::nullopt);
  if (group_.device_traits().is_stream_ordered) {
    works_.push_back(std::move(work));
  } else {
    TRY(await(work));
  }
  TRY(gathered_.record(streams_.communication.handle()));
  TRY(gathered_.make_stream_wait(streams_.compute.handle()));
  if (options_.casts == nullptr) return {};
  const int64_t offset = options_.layout.units()[unit].offset;
  options_.casts->make_copies(streams_.compute, unit, options_.replica.parameters + offset,
                              options_.replica.copies + offset, step_);
  return {};
}

Status RegatheredStore::wait() {
  return wait_for(works_);
}

Status RegatheredStore::settle_units() {
  for (size_t unit = 0; unit < gathering_.size(); ++unit) TRY(settle_unit(unit));
  return {};
}

Status RegatheredStore::settle() {
  TRY(settle_units());
  return wait();
}

Result<std::span<const model::ParamView>> RegatheredStore::get(const model::BlockUse& use) {
  for (const size_t unit : units_of_block_[static_cast<size_t>(use.block)]) TRY(settle_unit(unit));
  return replica_.get(use);
}

}  // namespace lockstep::parallel
