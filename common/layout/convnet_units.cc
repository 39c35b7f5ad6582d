// The networks, unit by unit.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/layout/convnet_config.h"

namespace lockstep {
namespace {

constexpr UnitPool kHalve{.kind = UnitPool::Kind::kMax, .height = 2, .width = 2, .stride = 2};

struct Filter {
  int64_t filters = 0;
  int64_t edge = 1;
  int64_t stride = 1;
  int64_t padding = 0;
};

class Builder {
 public:
  explicit Builder(const ConvnetConfig& config) : config_(config) {}

  // Adds a unit that reads the output of `input`, and returns its index.
  int64_t add(std::string conv, std::string norm, int64_t input, const Filter& filter) {
    ConvUnit unit{.conv = std::move(conv),
                  .norm = std::move(norm),
                  .input = input,
                  .height = config_.height,
                  .width = config_.width,
                  .channels = config_.channels,
                  .filters = filter.filters,
                  .filter_height = filter.edge,
                  .filter_width = filter.edge,
                  .stride = filter.stride,
                  .padding = filter.padding};
    if (input >= 0) {
      const ConvUnit& before = units_[static_cast<size_t>(input)];
      unit.height = before.out_height();
      unit.width = before.out_width();
      unit.channels = before.filters;
    }
    units_.push_back(std::move(unit));
    return last();
  }
  // A linear layer that reads all values of the last unit.
  int64_t linear(std::string name, int64_t outputs) {
    add(std::move(name), "", last(), {.filters = outputs});
    ConvUnit& unit = at_last();
    unit.filter_height = unit.height;
    unit.filter_width = unit.width;
    return last();
  }
  void average_all() {
    ConvUnit& unit = at_last();
    unit.pool = {
        .kind = UnitPool::Kind::kAverage, .height = unit.conv_height(), .width = unit.conv_width()};
  }
  // The last layer, whose outputs are the logits.
  std::vector<ConvUnit> finish(std::string name) {
    linear(std::move(name), config_.classes);
    at_last().relu = false;
    return std::move(units_);
  }
  int64_t last() const { return std::ssize(units_) - 1; }
  ConvUnit& at_last() { return units_.back(); }
  int64_t filters_of(int64_t unit) const { return units_[static_cast<size_t>(unit)].filters; }

 private:
  const ConvnetConfig& config_;
  std::vector<ConvUnit> units_;
};

std::vector<ConvUnit> lenet5(Builder& builder) {
  builder.add("conv1", "", -1, {.filters = 6, .edge = 5, .padding = 2});
  builder.at_last().pool = kHalve;
  builder.add("conv2", "", 0, {.filters = 16, .edge = 5});
  builder.at_last().pool = kHalve;
  builder.linear("fc1", 120);
  builder.linear("fc2", 84);
  return builder.finish("fc3");
}

// `sizes`: filters of each convolution; 0: a pooling after the one before. Each is named after its
// place in a torchvision nn.Sequential with batch normalisation.
std::vector<ConvUnit> vgg(Builder& builder, const std::vector<int64_t>& sizes) {
  int64_t place = 0;
  for (const int64_t filters : sizes) {
    if (filters == 0) {
      builder.at_last().pool = kHalve;
      ++place;
      continue;
    }
    builder.add("features." + std::to_string(place), "features." + std::to_string(place + 1),
                builder.last(), {.filters = filters, .edge = 3, .padding = 1});
    place += 3;
  }
  return builder.finish("classifier");
}

struct ResidualStage {
  int64_t filters = 0;
  int64_t blocks = 0;
};

// Two convolutions of 3 x 3.
void basic_block(Builder& builder, const std::string& name, int64_t input, const Filter& size,
                 int64_t shortcut) {
  builder.add(name + "conv1", name + "bn1", input,
              {.filters = size.filters, .edge = 3, .stride = size.stride, .padding = 1});
  builder.add(name + "conv2", name + "bn2", builder.last(),
              {.filters = size.filters, .edge = 3, .padding = 1});
  builder.at_last().shortcut = shortcut;
}

// A convolution of 3 x 3 between two of 1 x 1, of which the last one has four times the filters.
void bottleneck_block(Builder& builder, const std::string& name, int64_t input, const Filter& size,
                      int64_t shortcut) {
  builder.add(name + "conv1", name + "bn1", input, {.filters = size.filters});
  builder.add(name + "conv2", name + "bn2", builder.last(),
              {.filters = size.filters, .edge = 3, .stride = size.stride, .padding = 1});
  builder.add(name + "conv3", name + "bn3", builder.last(), {.filters = 4 * size.filters});
  builder.at_last().shortcut = shortcut;
}

// The stages after the first one begin with a stride of 2. Where sizes change, the shortcut is a
// convolution of 1 x 1.
std::vector<ConvUnit> resnet(Builder& builder, const std::vector<ResidualStage>& stages,
                             bool has_bottlenecks) {
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    for (int64_t block = 0; block < stages[stage].blocks; ++block) {
      const std::string name =
          "layer" + std::to_string(stage + 1) + "." + std::to_string(block) + ".";
      const Filter size{.filters = stages[stage].filters,
                        .stride = stage > 0 && block == 0 ? 2 : 1};
      const int64_t input = builder.last();
      const int64_t outputs = has_bottlenecks ? 4 * size.filters : size.filters;
      int64_t shortcut = input;
      if (size.stride != 1 || builder.filters_of(input) != outputs) {
        shortcut = builder.add(name + "downsample.0", name + "downsample.1", input,
                               {.filters = outputs, .stride = size.stride});
        builder.at_last().relu = false;
      }
      has_bottlenecks ? bottleneck_block(builder, name, input, size, shortcut)
                      : basic_block(builder, name, input, size, shortcut);
    }
  }
  builder.average_all();
  return builder.finish("fc");
}

// The beginning of the networks for large images.
void add_large_stem(Builder& builder) {
  builder.add("conv1", "bn1", -1, {.filters = 64, .edge = 7, .stride = 2, .padding = 3});
  builder.at_last().pool = {
      .kind = UnitPool::Kind::kMax, .height = 3, .width = 3, .stride = 2, .padding = 1};
}

}  // namespace

std::vector<ConvUnit> convnet_units(const ConvnetConfig& config) {
  Builder builder(config);
  switch (config.kind) {
    case ConvnetKind::kLenet5:
      return lenet5(builder);
    case ConvnetKind::kVgg11:
      return vgg(builder, {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0});
    case ConvnetKind::kVgg16:
      return vgg(builder,
                 {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0});
    case ConvnetKind::kResnet20:
      builder.add("conv1", "bn1", -1, {.filters = 16, .edge = 3, .padding = 1});
      return resnet(builder, {{16, 3}, {32, 3}, {64, 3}}, false);
    case ConvnetKind::kResnet18:
      add_large_stem(builder);
      return resnet(builder, {{64, 2}, {128, 2}, {256, 2}, {512, 2}}, false);
    case ConvnetKind::kResnet50:
      add_large_stem(builder);
      return resnet(builder, {{64, 3}, {128, 4}, {256, 6}, {512, 3}}, true);
  }
  CHECK(false);
  return {};
}

std::vector<Stage> convnet_pieces(const ConvnetConfig& config) {
  const std::vector<ConvUnit> units = convnet_units(config);
  std::vector<Stage> pieces;
  int64_t end = std::ssize(units);
  int64_t first_read = end - 1;  // the earliest unit whose output the units from `unit` on read
  for (int64_t unit = end - 1; unit >= 0; --unit) {
    const ConvUnit& here = units[static_cast<size_t>(unit)];
    first_read = std::min(first_read, here.input);
    if (here.shortcut >= 0) first_read = std::min(first_read, here.shortcut);
    if (first_read != unit - 1) continue;
    pieces.push_back({.begin = unit, .end = end});
    end = unit;
  }
  std::ranges::reverse(pieces);
  return pieces;
}

}  // namespace lockstep
