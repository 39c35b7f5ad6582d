#include "agent/train/data/image_samples.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "agent/train/data/data_check.h"
#include "agent/train/data/table_samples.h"
#include "common/base/random.h"

namespace lockstep::train {
namespace {

// Indices of the tensors.
enum Tensor : size_t { kImages, kLabels };

// Streams of the seed; epochs are those below (train_row()).
constexpr uint64_t kSplitStream = uint64_t{1} << 62;
constexpr uint64_t kChangeStream = kSplitStream + 1;
constexpr uint64_t kDrawsOfSample = 4;  // 32-bit draws: a flip and two shifts, 64 bits each at most

std::vector<float> of_channels(const std::vector<double>& values, int64_t channels) {
  std::vector<float> all(static_cast<size_t>(channels));
  for (size_t c = 0; c < all.size(); ++c) {
    all[c] = static_cast<float>(values[values.size() == 1 ? 0 : c]);
  }
  return all;
}

}  // namespace

ImageSamples::ImageSamples(std::unique_ptr<ImageSource> images, ImageSamplesOptions options,
                           int64_t training_images)
    : images_(std::move(images)),
      options_(std::move(options)),
      training_images_(training_images),
      design_(batch_design(options_.model, 1)) {
  if (options_.mean.empty()) return;
  mean_ = of_channels(options_.mean, options_.model.channels);
  factor_ = of_channels(options_.deviation, options_.model.channels);
  for (float& factor : factor_) factor = 1.0f / factor;
}

Result<std::unique_ptr<ImageSamples>> ImageSamples::create(std::unique_ptr<ImageSource> images,
                                                           ImageSamplesOptions options) {
  const int64_t count = images->count();
  const double fraction = options.validation_fraction;
  const auto held_back = static_cast<int64_t>(std::llround(static_cast<double>(count) * fraction));
  if (count - held_back < 1 || (fraction > 0 && held_back == 0)) {
    return invalid("[data] " + std::to_string(count) +
                       " images are too few to train on some and hold back others for validation",
                   Blame::kData);
  }
  return std::unique_ptr<ImageSamples>(
      new ImageSamples(std::move(images), std::move(options), count - held_back));
}

int64_t ImageSamples::image_at(int64_t place) const {
  if (training_images_ == images_->count()) return place;
  const auto size = static_cast<uint64_t>(images_->count());
  Random random(options_.seed, kSplitStream);
  return static_cast<int64_t>(permute(static_cast<uint64_t>(place), size, random.next_u64()));
}

Status ImageSamples::check() const {
  std::vector<float> image(static_cast<size_t>(design_.tensors[kImages].values));
  return check_images(images_->count(), images_->sample_bytes(), [&](int64_t index) -> Status {
    TRY(images_->read_image(index, image));
    TRY_ASSIGN(const int32_t found, images_->read_class(index));
    (void)found;
    return {};
  });
}

void ImageSamples::normalise(std::span<float> image) const {
  if (mean_.empty()) return;
  size_t c = 0;
  for (float& value : image) {
    value = (value - mean_[c]) * factor_[c];
    if (++c == mean_.size()) c = 0;
  }
}

Status ImageSamples::read(int64_t place, int64_t row, SampleBatch& batch) const {
  const int64_t index = image_at(place);
  TRY(images_->read_image(index, batch.row<float>(kImages, row)));
  TRY_ASSIGN(batch.row<int32_t>(kLabels, row)[0], images_->read_class(index));
  batch.count(design_.counted);
  return {};
}

Status ImageSamples::read_training(const TrainingSample& sample, int64_t row,
                                   SampleBatch& batch) const {
  TRY(read(train_row(training_images_, sample), row, batch));
  const std::span<float> image = batch.row<float>(kImages, row);
  change_image(options_.model, drawn_change(sample, options_), image);
  normalise(image);
  return {};
}

Status ImageSamples::read_validation(int64_t first, int64_t rows, SampleBatch& batch) const {
  const int64_t count = std::min(rows, validation_samples() - first);
  batch.reset(design_, count);
  for (int64_t row = 0; row < count; ++row) {
    TRY(read(training_images_ + first + row, row, batch));
    normalise(batch.row<float>(kImages, row));
  }
  return {};
}

ImageChange drawn_change(const SampleSource::TrainingSample& sample,
                         const ImageSamplesOptions& options) {
  ImageChange change;
  Random random(sample.seed, kChangeStream);
  random.seek(static_cast<uint64_t>(sample.index) * kDrawsOfSample);
  if (options.flip) change.flips = (random.next_u32() & 1u) != 0;
  if (options.crop_padding == 0) return change;
  const auto shift = [&] {
    const auto shifts = static_cast<uint64_t>(2 * options.crop_padding + 1);
    // 32 bits scaled to the range: the bias is below 2^-24.
    return static_cast<int64_t>(random.next_u32() * shifts >> 32) - options.crop_padding;
  };
  change.down = shift();
  change.right = shift();
  return change;
}

void change_image(const ConvnetConfig& model, const ImageChange& change, std::span<float> image) {
  if (change == ImageChange{}) return;
  const std::vector<float> from(image.begin(), image.end());
  const int64_t channels = model.channels;
  for (int64_t h = 0; h < model.height; ++h) {
    for (int64_t w = 0; w < model.width; ++w) {
      const int64_t row = h - change.down, moved = w - change.right;
      const bool is_inside = row >= 0 && row < model.height && moved >= 0 && moved < model.width;
      float* to = image.data() + (h * model.width + w) * channels;
      if (!is_inside) {
        std::fill(to, to + channels, 0.0f);
        continue;
      }
      const int64_t column = change.flips ? model.width - 1 - moved : moved;
      std::copy_n(from.data() + (row * model.width + column) * channels, channels, to);
    }
  }
}

}  // namespace lockstep::train
