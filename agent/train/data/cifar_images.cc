#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/train/data/image_source.h"
#include "agent/train/data/mapped_file.h"

namespace lockstep::train {
namespace {

constexpr int64_t kEdge = 32;
constexpr int64_t kChannels = 3;
constexpr int64_t kPixels = kEdge * kEdge;
constexpr int64_t kRecordBytes = 1 + kChannels * kPixels;
constexpr float kByteMax = 255.0f;

using File = std::shared_ptr<const MappedFile>;

class CifarImages final : public ImageSource {
 public:
  CifarImages(std::vector<File> files, int64_t classes)
      : files_(std::move(files)), classes_(classes) {
    for (const File& file : files_) {
      firsts_.push_back(count_);
      count_ += std::ssize(file->bytes()) / kRecordBytes;
    }
  }

  int64_t count() const override { return count_; }
  int64_t sample_bytes() const override { return kRecordBytes; }
  Status read_image(int64_t index, std::span<float> out) const override {
    const std::byte* planes = place_of(index).record + 1;
    for (int64_t pixel = 0; pixel < kPixels; ++pixel) {
      for (int64_t c = 0; c < kChannels; ++c) {
        const auto value = static_cast<float>(planes[c * kPixels + pixel]);
        out[static_cast<size_t>(pixel * kChannels + c)] = value / kByteMax;
      }
    }
    return {};
  }
  Result<int32_t> read_class(int64_t index) const override {
    const Place place = place_of(index);
    const auto found = static_cast<int32_t>(*place.record);
    if (found < classes_) return found;
    return invalid("[data] " + place.file.path() + ": offset " +
                       std::to_string(place.record - place.file.bytes().data()) + ": found class " +
                       std::to_string(found) + ", expected 0 to " + std::to_string(classes_ - 1),
                   Blame::kData);
  }

 private:
  struct Place {
    const MappedFile& file;
    const std::byte* record;
  };
  Place place_of(int64_t index) const {
    const auto after = std::ranges::upper_bound(firsts_, index);
    const auto at = static_cast<size_t>(after - firsts_.begin()) - 1;
    return {*files_[at], files_[at]->bytes().data() + (index - firsts_[at]) * kRecordBytes};
  }

  std::vector<File> files_;
  std::vector<int64_t> firsts_;  // index of each file's first image
  int64_t count_ = 0;
  int64_t classes_;
};

Result<std::vector<std::string>> files_at(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_directory(path, failed)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  std::filesystem::directory_iterator at(path, failed), end;
  for (; !failed && at != end; at.increment(failed)) {
    if (at->path().extension() == ".bin") files.push_back(at->path().string());
  }
  if (failed) {
    return invalid("[data] " + path + ": cannot be listed: " + failed.message(), Blame::kData);
  }
  if (files.empty()) {
    return invalid("[data] " + path + ": found no .bin files, expected CIFAR-10's", Blame::kData);
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

Result<std::unique_ptr<ImageSource>> open_cifar(const std::string& path,
                                                const ConvnetConfig& model) {
  if (model.height != kEdge || model.width != kEdge || model.channels != kChannels) {
    return invalid("[data] " + path + ": CIFAR-10 has images of 32 x 32 x 3, but the model's are " +
                       std::to_string(model.height) + " x " + std::to_string(model.width) + " x " +
                       std::to_string(model.channels),
                   Blame::kConfig);
  }
  TRY_ASSIGN(const std::vector<std::string> names, files_at(path));
  std::vector<File> files;
  for (const std::string& name : names) {
    TRY_ASSIGN(File file, MappedFile::open(name));
    const int64_t bytes = std::ssize(file->bytes());
    if (bytes == 0 || bytes % kRecordBytes != 0) {
      return invalid("[data] " + name + ": offset " +
                         std::to_string(bytes / kRecordBytes * kRecordBytes) + ": found " +
                         std::to_string(bytes % kRecordBytes) +
                         " bytes before the end of the file, expected records of " +
                         std::to_string(kRecordBytes) + " bytes",
                     Blame::kData);
    }
    files.push_back(std::move(file));
  }
  return std::unique_ptr<ImageSource>(
      std::make_unique<CifarImages>(std::move(files), model.classes));
}

}  // namespace lockstep::train
