#include "agent/train/data/image_source.h"

#include <utility>

#include "agent/train/data/npy_file.h"

namespace lockstep::train {
namespace {

constexpr float kByteMax = 255.0f;

// Arrays of images and of class numbers.
class ArrayImages final : public ImageSource {
 public:
  ArrayImages(NpyFile images, NpyFile classes, const ConvnetConfig& model)
      : images_(std::move(images)), classes_(std::move(classes)), model_(model) {}

  int64_t count() const override { return images_.rows(); }
  int64_t sample_bytes() const override { return images_.row_bytes() + classes_.row_bytes(); }
  Status read_image(int64_t index, std::span<float> out) const override {
    TRY(images_.read(index, out));
    if (images_.header().type != NpyType::kU1) return {};
    for (float& value : out) value /= kByteMax;
    return {};
  }
  Result<int32_t> read_class(int64_t index) const override {
    int32_t found = 0;
    TRY(classes_.read_classes(index, model_.classes, {&found, 1}));
    return found;
  }

 private:
  NpyFile images_;
  NpyFile classes_;
  ConvnetConfig model_;
};

Error bad_file(const NpyFile& file, const std::string& found, const std::string& expected) {
  return invalid("[data] " + file.path() + ": found " + found + ", expected " + expected,
                 Blame::kData);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t dim : shape) text += (text.empty() ? "" : " x ") + std::to_string(dim);
  return text;
}

// The channels' dim may be missing if there is one channel.
Status check_images(const NpyFile& file, const ConvnetConfig& model) {
  const std::vector<int64_t> wanted{model.height, model.width, model.channels};
  std::vector<int64_t> shape(file.header().shape.begin() + 1, file.header().shape.end());
  if (shape.size() == 2 && model.channels == 1) shape.resize(3, 1);
  if (shape == wanted) return {};
  return bad_file(file, "images of " + shape_text(shape),
                  "the model's height x width x channels, " + shape_text(wanted));
}

Status check_classes(const NpyFile& file, const NpyFile& images) {
  if (!is_integer(file.header().type) || file.columns() != 1) {
    return bad_file(file,
                    "dtype " + std::string(npy_type_name(file.header().type)) + " and rows of " +
                        std::to_string(file.columns()) + " values",
                    "one class number per image: save array.astype(\"<i4\")");
  }
  if (file.rows() == images.rows()) return {};
  return bad_file(file, std::to_string(file.rows()) + " rows",
                  "as many as in " + images.path() + ": " + std::to_string(images.rows()));
}

}  // namespace

Result<std::unique_ptr<ImageSource>> open_image_source(const DataSpec& data,
                                                       const ConvnetConfig& model) {
  if (!data.path.empty()) return open_cifar(data.path, model);
  TRY_ASSIGN(NpyFile images, NpyFile::open(data.features));
  TRY(check_images(images, model));
  TRY_ASSIGN(NpyFile classes, NpyFile::open(data.targets));
  TRY(check_classes(classes, images));
  return std::unique_ptr<ImageSource>(
      std::make_unique<ArrayImages>(std::move(images), std::move(classes), model));
}

}  // namespace lockstep::train
