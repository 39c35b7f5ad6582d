#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/layout/parameters.h"

namespace lockstep {

// The convolutional networks, in the order of the names in convnet_presets().
enum class ConvnetKind : uint8_t { kLenet5, kVgg11, kVgg16, kResnet20, kResnet18, kResnet50 };
// Over which samples batch normalisation takes the statistics that training normalises with.
enum class BatchNormScope : uint8_t {
  kSynchronized,  // a micro-batch of all data-parallel ranks
  kLocal,         // a micro-batch of one rank
};

inline constexpr int64_t kImageEdgeMax = 4096;
inline constexpr int64_t kImageChannelsMax = 1024;
inline constexpr int64_t kClassesMax = 1 << 18;
inline constexpr int64_t kTopAnswers = 5;  // of the top-5 accuracy

// A convolutional network for the classification of images, channels-last.
// - lenet5: LeCun et al., 1998, with ReLU and max-pooling, and 2 pixels of padding.
// - vgg11, vgg16: the convolutions of Simonyan and Zisserman's A and D (2015), each with batch
//   normalisation, and one linear layer over what the last pooling leaves.
// - resnet20: He et al., 2016, section 4.2 (CIFAR-10), with projection shortcuts.
// - resnet18, resnet50: He et al., 2016, table 1; the strides of resnet50 are those of torchvision.
struct ConvnetConfig {
  ConvnetKind kind = ConvnetKind::kResnet20;
  int64_t height = 0;  // pixels of an image
  int64_t width = 0;
  int64_t channels = 0;
  int64_t classes = 0;
  BatchNormScope batch_norm = BatchNormScope::kSynchronized;

  bool operator==(const ConvnetConfig&) const = default;
};

// A preset with the sizes of the data set that it is known for. `edge_min`: of the smallest images.
struct ConvnetPreset {
  std::string_view name;
  ConvnetConfig config;
  int64_t edge_min = 1;
};
const std::vector<ConvnetPreset>& convnet_presets();
// Returns null for a name that is none of theirs.
const ConvnetPreset* convnet_preset(std::string_view name);

// Returns whether networks of this kind have batch normalisation.
bool has_batch_norm(ConvnetKind kind);

// "synchronized", "local"; kNotFound for any other name.
std::string_view batch_norm_scope_name(BatchNormScope scope);
Result<BatchNormScope> batch_norm_scope_from_name(std::string_view name);

// A pooling after a unit.
struct UnitPool {
  enum class Kind : uint8_t { kNone, kMax, kAverage };
  Kind kind = Kind::kNone;
  int64_t height = 1;  // of the window
  int64_t width = 1;
  int64_t stride = 1;
  int64_t padding = 0;

  bool operator==(const UnitPool&) const = default;
};

// A convolution and what follows it: y = pool(relu(norm(conv(x)) + shortcut)). A linear layer is a
// convolution with a filter of the image's size. A unit without norm has a bias, and no shortcut.
struct ConvUnit {
  std::string conv;       // name of the convolution: "layer1.0.conv1"
  std::string norm;       // of the batch normalisation; empty: none
  int64_t input = -1;     // the unit whose output it reads; -1: the image
  int64_t shortcut = -1;  // the unit whose output is added; -1: none
  int64_t height = 0;     // of its input
  int64_t width = 0;
  int64_t channels = 0;
  int64_t filters = 0;
  int64_t filter_height = 1;
  int64_t filter_width = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  bool relu = true;
  UnitPool pool = {};

  bool has_norm() const { return !norm.empty(); }
  // Sizes of the convolution's output, and of the unit's.
  int64_t conv_height() const { return (height + 2 * padding - filter_height) / stride + 1; }
  int64_t conv_width() const { return (width + 2 * padding - filter_width) / stride + 1; }
  int64_t out_height() const {
    return (conv_height() + 2 * pool.padding - pool.height) / pool.stride + 1;
  }
  int64_t out_width() const {
    return (conv_width() + 2 * pool.padding - pool.width) / pool.stride + 1;
  }
  int64_t conv_values() const { return conv_height() * conv_width() * filters; }
  int64_t out_values() const { return out_height() * out_width() * filters; }
  int64_t filter_count() const { return filter_height * filter_width * channels; }
};

// Returns the units in the order of forward; each reads earlier ones. The last one's output are the
// logits of the classes. Each unit is a block.
std::vector<ConvUnit> convnet_units(const ConvnetConfig& config);

// Returns the units by the runs between which a pipeline may cut: single layers and whole residual
// blocks. A run reads nothing of earlier ones but the output of the unit before it.
std::vector<Stage> convnet_pieces(const ConvnetConfig& config);

// Returns the parameters of the whole model, named as torchvision names them: the filters of a
// convolution [filters, filter height x filter width x channels], then its bias, or the weight,
// bias, running_mean and running_var of the norm.
std::vector<Parameter> parameter_table(const ConvnetConfig& config);
std::vector<int64_t> block_parameters(const ConvnetConfig& config, int64_t block);

// Returns every mistake as `path.field: what was found, what would be right`; empty if the model
// can be built. The bounds are such that no size overflows 64 bits.
std::vector<std::string> convnet_problems(const ConvnetConfig& config, std::string_view path);

}  // namespace lockstep
