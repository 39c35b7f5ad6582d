#include "agent/model/convnet/convnet_layout.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/layout/bump_allocator.h"
#include "kernels/ops/batchnorm.h"

namespace lockstep::model {
namespace {

// Places for gradients that units use in turn. A place has the size of its largest user.
class TurnPlaces {
 public:
  int64_t take(int64_t values) {
    const auto free = std::ranges::find(places_, false, &Place::is_taken);
    if (free == places_.end()) {
      places_.push_back({values, true});
      return std::ssize(places_) - 1;
    }
    free->is_taken = true;
    free->values = std::max(free->values, values);
    return free - places_.begin();
  }
  void free(int64_t place) {
    if (place >= 0) places_[static_cast<size_t>(place)].is_taken = false;
  }
  std::vector<int64_t> offsets(BumpAllocator& scratch, int64_t samples) const {
    std::vector<int64_t> offsets;
    for (const Place& place : places_) offsets.push_back(scratch.values(samples * place.values));
    return offsets;
  }

 private:
  struct Place {
    int64_t values = 0;  // of a sample
    bool is_taken = false;
  };
  std::vector<Place> places_;
};

UnitPlaces place_unit(const ConvUnit& unit, int64_t samples, bool trains, BumpAllocator& arena) {
  UnitPlaces at;
  at.conv = arena.values(samples * unit.conv_values());
  const bool keeps_both = trains && unit.has_norm();
  at.out = keeps_both ? arena.values(samples * unit.conv_values()) : at.conv;
  if (keeps_both) {
    at.mean = arena.floats(unit.filters);
    at.variance = arena.floats(unit.filters);
  }
  at.pooled = at.out;
  if (unit.pool.kind == UnitPool::Kind::kNone) return at;
  at.pooled = arena.values(samples * unit.out_values());
  if (trains && unit.pool.kind == UnitPool::Kind::kMax) {
    at.places = arena.floats(samples * unit.out_values());
  }
  return at;
}

// Follows backward, and notes which place each gradient has; later those become offsets.
void place_gradients(const std::vector<ConvUnit>& units, int64_t samples, BumpAllocator& scratch,
                     std::vector<UnitPlaces>& at) {
  TurnPlaces places;
  const auto contribute = [&](int64_t index) {
    UnitPlaces& to = at[static_cast<size_t>(index)];
    const bool exists = to.gradient >= 0;
    if (!exists) to.gradient = places.take(units[static_cast<size_t>(index)].out_values());
    return exists;
  };
  for (size_t i = units.size(); i-- > 0;) {
    const ConvUnit& unit = units[i];
    const bool is_pooled = unit.pool.kind != UnitPool::Kind::kNone;
    at[i].out_gradient = is_pooled ? places.take(unit.conv_values()) : at[i].gradient;
    if (unit.shortcut >= 0) at[i].adds_to_shortcut = contribute(unit.shortcut);
    if (unit.input >= 0) at[i].adds_to_input = contribute(unit.input);
    places.free(at[i].gradient);
    places.free(at[i].out_gradient);
  }
  const std::vector<int64_t> offsets = places.offsets(scratch, samples);
  for (UnitPlaces& unit : at) {
    for (int64_t* place : {&unit.gradient, &unit.out_gradient}) {
      if (*place >= 0) *place = offsets[static_cast<size_t>(*place)];
    }
  }
}

}  // namespace

ConvnetLayout convnet_layout(const ConvnetConfig& config, const ActivationShape& shape,
                             int64_t value_bytes) {
  CHECK(shape.sequence == 1);
  const int64_t samples = shape.batch;
  const bool trains = shape.mode == PassMode::kTrain;
  const std::vector<ConvUnit> units = convnet_units(config);
  ConvnetLayout layout;
  BumpAllocator arena(value_bytes);
  if (value_bytes != static_cast<int64_t>(sizeof(float))) {
    layout.images = arena.values(samples * config.height * config.width * config.channels);
  }
  for (const ConvUnit& unit : units) {
    layout.units.push_back(place_unit(unit, samples, trains, arena));
  }
  layout.losses = arena.floats(samples);
  if (!trains) {
    layout.hits = arena.floats(samples);
    layout.top_hits = arena.floats(samples);
  }
  layout.bytes = arena.bytes();
  if (!trains) return layout;
  BumpAllocator scratch(value_bytes);
  place_gradients(units, samples, scratch, layout.units);
  const int64_t filters = std::ranges::max(units, {}, &ConvUnit::filters).filters;
  layout.sums = scratch.floats(2 * kernels::batchnorm_sums_count(filters));
  layout.scratch_bytes = scratch.bytes();
  return layout;
}

}  // namespace lockstep::model
