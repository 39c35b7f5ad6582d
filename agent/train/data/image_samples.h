#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/train/data/image_source.h"
#include "agent/train/data/sample_source.h"
#include "common/layout/convnet_config.h"

namespace lockstep::train {

struct ImageSamplesOptions {
  ConvnetConfig model;
  double validation_fraction = 0;
  uint64_t seed = 1;              // draws the images that validate
  bool flip = false;              // training images, with probability 1/2
  int64_t crop_padding = 0;       // pixels that training images are shifted at most
  std::vector<double> mean = {};  // one, or one a channel; empty: not normalised
  std::vector<double> deviation = {};
};

// Images as samples: `images` and `labels`. The images that validate are drawn by the seed; every
// epoch trains on all others once, in an order that depends on the seed and the epoch. Flips and
// shifts are a function of the seed and the sample's index over all ranks and epochs, so they
// depend neither on the number of ranks nor on what was read before.
class ImageSamples final : public SampleSource {
 public:
  // Holds back the fraction of the images, rounded to the nearest. kInvalid if no image is left to
  // train on, or none is held back by a fraction above 0.
  static Result<std::unique_ptr<ImageSamples>> create(std::unique_ptr<ImageSource> images,
                                                      ImageSamplesOptions options);

  const BatchDesign& design() const override { return design_; }
  std::string size() const override { return std::to_string(images_->count()) + " images"; }
  int64_t validation_samples() const override { return images_->count() - training_images_; }
  Status check() const override;
  Status read_training(const TrainingSample& sample, int64_t row,
                       SampleBatch& batch) const override;
  // Has fewer rows at the end.
  Status read_validation(int64_t first, int64_t rows, SampleBatch& batch) const override;

  // Returns the image in place `place` of the order that the seed draws: first those that train.
  int64_t image_at(int64_t place) const;

 private:
  ImageSamples(std::unique_ptr<ImageSource> images, ImageSamplesOptions options,
               int64_t training_images);
  Status read(int64_t place, int64_t row, SampleBatch& batch) const;
  void normalise(std::span<float> image) const;

  const std::unique_ptr<ImageSource> images_;
  const ImageSamplesOptions options_;
  const int64_t training_images_;
  const BatchDesign design_;
  std::vector<float> mean_;    // of each channel
  std::vector<float> factor_;  // 1 / deviation
};

// A change of an image [height, width, channels]: first mirrored, then moved.
struct ImageChange {
  bool flips = false;
  int64_t down = 0;   // pixels; below 0: up
  int64_t right = 0;  // below 0: left

  bool operator==(const ImageChange&) const = default;
};
// Returns the change of a training sample.
ImageChange drawn_change(const SampleSource::TrainingSample& sample,
                         const ImageSamplesOptions& options);
// Pixels from outside of the image are 0.
void change_image(const ConvnetConfig& model, const ImageChange& change, std::span<float> image);

}  // namespace lockstep::train
