#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/api/training_job.h"
#include "common/base/result.h"
#include "common/layout/convnet_config.h"

namespace lockstep::train {

// Images and their classes, as files have them. Reading is thread-safe. Errors blame the data and
// name the file.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  virtual int64_t count() const = 0;
  virtual int64_t sample_bytes() const = 0;  // in the files
  // Fills [height, width, channels], bytes divided by 255. kInvalid, with the place, for a value
  // that is not finite.
  virtual Status read_image(int64_t index, std::span<float> out) const = 0;
  // kInvalid, with the place, for a class that the model does not have.
  virtual Result<int32_t> read_class(int64_t index) const = 0;
};

// Opens the files of a convolutional network: data.features and data.targets, or CIFAR-10's at
// data.path. kInvalid if they do not have the model's sizes. Reads no values.
Result<std::unique_ptr<ImageSource>> open_image_source(const DataSpec& data,
                                                       const ConvnetConfig& model);

// CIFAR-10's binary format: records of a byte, the class, and 3 x 32 x 32 bytes of the image,
// channel by channel. A folder's .bin files come in the order of their names. Source: Krizhevsky,
// "Learning multiple layers of features from tiny images", 2009, and the data set's page.
Result<std::unique_ptr<ImageSource>> open_cifar(const std::string& path,
                                                const ConvnetConfig& model);

}  // namespace lockstep::train
