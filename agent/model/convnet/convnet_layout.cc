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

// Sizes of the stage's units, and where it is in the model.
struct StageUnits {
  const std::vector<ConvUnit>& units;  // of the model
  Stage stage;
  int64_t samples = 0;
  bool trains = false;
  bool splits_backward = false;

  bool is_first() const { return stage.begin == 0; }
  bool has_loss() const { return stage.end == std::ssize(units); }
  bool is_last_of_model(int64_t unit) const { return unit + 1 == std::ssize(units); }
  const ConvUnit& at(int64_t unit) const { return units[static_cast<size_t>(unit)]; }
};

// The norm's backward is the last one that reads the convolution's output. The model's last unit
// has its gradient where its output was.
int64_t place_late(const StageUnits& units, int64_t index, const UnitPlaces& at,
                   BumpAllocator& arena) {
  const ConvUnit& unit = units.at(index);
  if (!units.trains || !units.splits_backward) return -1;
  if (units.is_last_of_model(index)) return at.pooled;
  if (unit.has_norm()) return at.conv;
  CHECK(unit.relu);  // whose backward can leave its result anywhere
  return arena.values(units.samples * unit.conv_values());
}

UnitPlaces place_unit(const StageUnits& units, int64_t index, BumpAllocator& arena) {
  const ConvUnit& unit = units.at(index);
  UnitPlaces at;
  at.conv = arena.values(units.samples * unit.conv_values());
  const bool keeps_both = units.trains && unit.has_norm();
  at.out = keeps_both ? arena.values(units.samples * unit.conv_values()) : at.conv;
  if (keeps_both) {
    at.mean = arena.floats(unit.filters);
    at.variance = arena.floats(unit.filters);
  }
  at.pooled = at.out;
  if (unit.pool.kind != UnitPool::Kind::kNone) {
    at.pooled = arena.values(units.samples * unit.out_values());
    if (units.trains && unit.pool.kind == UnitPool::Kind::kMax) {
      at.places = arena.floats(units.samples * unit.out_values());
    }
  }
  at.late = place_late(units, index, at, arena);
  return at;
}

UnitPlaces place_input(const StageUnits& units, int64_t value_bytes, BumpAllocator& arena) {
  UnitPlaces at;
  if (!units.is_first()) {
    at.pooled = arena.values(units.samples * units.at(units.stage.begin - 1).out_values());
  } else if (value_bytes != static_cast<int64_t>(sizeof(float))) {
    const ConvUnit& first = units.at(0);
    at.pooled = arena.values(units.samples * first.height * first.width * first.channels);
  }
  return at;
}

// Follows backward, and notes which place each gradient has; later those become offsets. The
// gradients of the stage's output and input are in their places between messages and backward.
void place_gradients(const StageUnits& units, BumpAllocator& scratch, ConvnetLayout& layout) {
  TurnPlaces places;
  const int64_t begin = units.stage.begin;
  const auto at = [&](int64_t index) -> UnitPlaces& {
    return index < begin ? layout.before : layout.units[static_cast<size_t>(index - begin)];
  };
  const auto contribute = [&](int64_t index) {
    UnitPlaces& to = at(index);
    const bool exists = to.gradient >= 0;
    if (!exists) to.gradient = places.take(units.at(index).out_values());
    return exists;
  };
  if (!units.has_loss()) contribute(units.stage.end - 1);
  for (int64_t i = units.stage.end - 1; i >= begin; --i) {
    const ConvUnit& unit = units.at(i);
    UnitPlaces& here = at(i);
    const bool is_pooled = unit.pool.kind != UnitPool::Kind::kNone;
    here.out_gradient = is_pooled ? places.take(unit.conv_values()) : here.gradient;
    if (unit.shortcut >= 0) here.adds_to_shortcut = contribute(unit.shortcut);
    if (unit.input >= 0) here.adds_to_input = contribute(unit.input);
    places.free(here.gradient);
    places.free(here.out_gradient);
  }
  const std::vector<int64_t> offsets = places.offsets(scratch, units.samples);
  for (int64_t i = begin - 1; i < units.stage.end; ++i) {
    for (int64_t* place : {&at(i).gradient, &at(i).out_gradient}) {
      if (*place >= 0) *place = offsets[static_cast<size_t>(*place)];
    }
  }
}

int64_t most_filters(const StageUnits& units) {
  int64_t filters = 0;
  for (int64_t i = units.stage.begin; i < units.stage.end; ++i) {
    filters = std::max(filters, units.at(i).filters);
  }
  return filters;
}

}  // namespace

ConvnetLayout convnet_layout(const ConvnetConfig& config, const ActivationShape& shape,
                             const ConvnetLayoutOptions& options) {
  CHECK(shape.sequence == 1);
  const std::vector<ConvUnit> all = convnet_units(config);
  const StageUnits units{.units = all,
                         .stage = options.stage,
                         .samples = shape.batch,
                         .trains = shape.mode == PassMode::kTrain,
                         .splits_backward = options.splits_backward};
  ConvnetLayout layout;
  BumpAllocator arena(options.value_bytes);
  layout.before = place_input(units, options.value_bytes, arena);
  for (int64_t i = units.stage.begin; i < units.stage.end; ++i) {
    layout.units.push_back(place_unit(units, i, arena));
  }
  if (units.has_loss()) {
    layout.losses = arena.floats(shape.batch);
    if (!units.trains) {
      layout.hits = arena.floats(shape.batch);
      layout.top_hits = arena.floats(shape.batch);
    }
  }
  layout.bytes = arena.bytes();
  if (!units.trains) return layout;
  BumpAllocator scratch(options.value_bytes);
  place_gradients(units, scratch, layout);
  layout.sums = scratch.floats(2 * kernels::batchnorm_sums_count(most_filters(units)));
  layout.scratch_bytes = scratch.bytes();
  return layout;
}

}  // namespace lockstep::model
