// Images from .npy, IDX and CIFAR-10's files, as samples.
#include "agent/train/data/image_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "agent/train/data/idx_header.h"
#include "common/base/random.h"
#include "tests/agent/train/temporary_folder.h"
#include "tests/support/npy_bytes.h"

namespace lockstep::train {
namespace {

// 2 x 3 pixels of one channel.
const ConvnetConfig kSmall{
    .kind = ConvnetKind::kResnet20, .height = 2, .width = 3, .channels = 1, .classes = 10};
constexpr int kImages = 20;

std::string big_endian(uint32_t value) {
  std::string text;
  for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(value >> shift & 0xFF);
  return text;
}

std::string idx_bytes(const std::vector<uint32_t>& dims, const std::string& values) {
  std::string text{'\0', '\0', '\x08', static_cast<char>(dims.size())};
  for (const uint32_t dim : dims) text += big_endian(dim);
  return text + values;
}

// Pixel p of image i is 6 i + p.
std::string pixels() {
  std::string bytes;
  for (int i = 0; i < 6 * kImages; ++i) bytes += static_cast<char>(i);
  return bytes;
}
std::string classes() {
  std::string bytes;
  for (int i = 0; i < kImages; ++i) bytes += static_cast<char>(i % 10);
  return bytes;
}

class ImageSamplesTest : public testing::Test {
 protected:
  DataSpec idx_data() {
    DataSpec data;
    data.features = folder_.write("images", idx_bytes({kImages, 2, 3}, pixels()));
    data.targets = folder_.write("classes", idx_bytes({kImages}, classes()));
    return data;
  }
  std::unique_ptr<ImageSamples> samples(ImageSamplesOptions options) {
    options.model = kSmall;
    return ImageSamples::create(open_image_source(idx_data(), kSmall).value(), std::move(options))
        .value();
  }
  std::string error_of(const DataSpec& data, const ConvnetConfig& model = kSmall) {
    const auto opened = open_image_source(data, model);
    return opened.ok() ? "no error" : opened.error().message;
  }

  TemporaryFolder folder_;
};

std::vector<float> image_of(const SampleBatch& batch, int64_t row = 0) {
  const std::span<const float> all = batch.values<float>(0);
  return {all.begin() + row * 6, all.begin() + row * 6 + 6};
}

TEST_F(ImageSamplesTest, AreTheSameFromIdxAndNpyFiles) {
  DataSpec npy;
  npy.features = folder_.write("x.npy", npy_bytes(npy_dict("|u1", "(20, 2, 3, 1)"), pixels()));
  npy.targets = folder_.write("y.npy", npy_bytes(npy_dict("|u1", "(20,)"), classes()));
  const auto a = open_image_source(idx_data(), kSmall).value();
  const auto b = open_image_source(npy, kSmall).value();
  ASSERT_EQ(a->count(), kImages);
  ASSERT_EQ(b->count(), kImages);
  for (int64_t i = 0; i < kImages; ++i) {
    std::vector<float> one(6), other(6);
    ASSERT_TRUE(a->read_image(i, one).ok());
    ASSERT_TRUE(b->read_image(i, other).ok());
    EXPECT_EQ(one, other);
    EXPECT_EQ(one[1], static_cast<float>(6 * i + 1) / 255.0f);
    EXPECT_EQ(a->read_class(i).value(), i % 10);
    EXPECT_EQ(b->read_class(i).value(), i % 10);
  }
}

TEST_F(ImageSamplesTest, OfCifarComeFromAllFilesOfAFolder) {
  const ConvnetConfig model = convnet_preset("resnet20")->config;
  const auto record = [](char label, char first) {
    std::string bytes(3073, '\0');
    bytes[0] = label;
    bytes[1] = first;              // red of the first pixel
    bytes[1 + 1024 + 1] = '\x33';  // green of the second one
    return bytes;
  };
  TemporaryFolder files;
  files.write("b.bin", record(3, 1) + record(9, 2));
  files.write("a.bin", record(7, 0));
  files.write("readme.html", "not data");
  const auto images = open_cifar(files.path(), model).value();
  ASSERT_EQ(images->count(), 3);
  std::vector<float> image(3072);
  for (const auto& [index, label, red] :
       {std::tuple(0, 7, 0.0f), std::tuple(1, 3, 1.0f), std::tuple(2, 9, 2.0f)}) {
    EXPECT_EQ(images->read_class(index).value(), label);
    ASSERT_TRUE(images->read_image(index, image).ok());
    EXPECT_EQ(image[0], red / 255.0f);
    EXPECT_EQ(image[4], 0x33 / 255.0f);
  }
  const std::string late = files.write("c.bin", record(10, 0));
  EXPECT_EQ(open_cifar(files.path(), model).value()->read_class(3).error().message,
            "[data] " + late + ": offset 0: found class 10, expected 0 to 9");
  files.write("c.bin", record(1, 0) + "xyz");
  EXPECT_EQ(open_cifar(files.path(), model).error().message,
            "[data] " + late +
                ": offset 3073: found 3 bytes before the end of the file, expected records of 3073 "
                "bytes");
  EXPECT_NE(open_cifar(files.path(), kSmall).error().message.find("images of 32 x 32 x 3"),
            std::string::npos);
}

TEST_F(ImageSamplesTest, OfBrokenFilesAreNamedWithTheReason) {
  DataSpec data = idx_data();
  EXPECT_EQ(error_of(data), "no error");
  ConvnetConfig wide = kSmall;
  wide.width = 4;
  EXPECT_EQ(
      error_of(data, wide),
      "[data] " + data.features +
          ": found images of 2 x 3 x 1, expected the model's height x width x channels, 2 x 4 "
          "x 1");
  DataSpec fewer = data;
  fewer.targets = folder_.write("fewer", idx_bytes({3}, "abc"));
  EXPECT_EQ(error_of(fewer), "[data] " + fewer.targets + ": found 3 rows, expected as many as in " +
                                 data.features + ": 20");
  const auto header = [](const std::string& bytes) {
    return parse_idx_header(bytes, bytes.size()).error().message;
  };
  const std::string whole = idx_bytes({3}, "abc");
  EXPECT_EQ(header(whole + "d"),
            "offset 12: found the end of the file, expected 11 bytes, as its header says");
  EXPECT_EQ(header(whole.substr(0, 6)),
            "offset 6: found the end of the file, expected a header of 8 bytes");
  EXPECT_EQ(header(std::string("\0\0\x0d\x01", 4)),
            "offset 2: found type 13, expected 8 (unsigned bytes) or 9 (signed bytes)");
  EXPECT_EQ(header(std::string("\0\0\x08\0", 4)), "offset 3: found 0 dims, expected 1 to 8");
  EXPECT_EQ(header(idx_bytes({4, 0}, "")),
            "offset 8: found a dim of 0, expected dims above 0 with at most 2^48 values together");
}

// Any bytes are refused with words or described exactly.
TEST_F(ImageSamplesTest, OfAnyBytesAreReadOrRefused) {
  Random random(5);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = idx_bytes({2, 3}, "abcdef");
    for (uint64_t changes = random.below(3); changes > 0; --changes) {
      bytes[random.below(bytes.size())] = static_cast<char>(random.next_u32());
    }
    bytes.resize(random.below(bytes.size() + 3));
    const Result<NpyHeader> header = parse_idx_header(bytes, bytes.size());
    if (!header.ok()) {
      EXPECT_FALSE(header.error().message.empty());
      continue;
    }
    EXPECT_EQ(header->data_begin + static_cast<uint64_t>(header->rows() * header->columns()),
              bytes.size());
  }
}

TEST_F(ImageSamplesTest, ThatValidateAreDrawnByTheSeedAndNeverTrain) {
  std::set<std::set<int64_t>> drawn;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const auto all = samples({.validation_fraction = 0.25, .seed = seed});
    ASSERT_EQ(all->validation_samples(), 5);
    std::set<int64_t> held, trained;
    for (int64_t place = 15; place < kImages; ++place) held.insert(all->image_at(place));
    EXPECT_EQ(held.size(), 5u);
    SampleBatch batch;
    batch.reset(all->design(), 1);
    for (int64_t index = 0; index < 15; ++index) {
      ASSERT_TRUE(all->read_training({.index = index, .seed = seed}, 0, batch).ok());
      trained.insert(std::lround(image_of(batch)[0] * 255) / 6);
    }
    EXPECT_EQ(trained.size(), 15u) << "an epoch has each image once";
    for (const int64_t image : held) EXPECT_FALSE(trained.contains(image));
    drawn.insert(held);
  }
  EXPECT_GT(drawn.size(), 3u);
}

TEST_F(ImageSamplesTest, AreNormalisedByChannel) {
  const auto all = samples({.validation_fraction = 0.25, .mean = {0.25}, .deviation = {0.5}});
  SampleBatch batch;
  ASSERT_TRUE(all->read_validation(0, 2, batch).ok());
  const auto image = static_cast<float>(6 * all->image_at(15));
  EXPECT_FLOAT_EQ(image_of(batch)[2], ((image + 2) / 255 - 0.25f) * 2);
  ASSERT_TRUE(all->read_validation(3, 9, batch).ok());
  EXPECT_EQ(batch.rows(), 2) << "those before the end";
}

TEST_F(ImageSamplesTest, AreChangedAsTheirIndexSays) {
  const ImageSamplesOptions options{.model = kSmall, .flip = true, .crop_padding = 1};
  std::set<std::tuple<bool, int64_t, int64_t>> found;
  for (int64_t index = 0; index < 400; ++index) {
    const ImageChange change = drawn_change({.index = index, .seed = 3}, options);
    EXPECT_EQ(change, drawn_change({.index = index, .seed = 3}, options));
    found.insert({change.flips, change.down, change.right});
  }
  EXPECT_EQ(found.size(), 18u) << "two times three times three";
  EXPECT_EQ(drawn_change({.index = 7, .seed = 3}, {.model = kSmall}), ImageChange{});
}

TEST(ChangeImage, MirrorsThenMoves) {
  const std::vector<float> image{1, 2, 3, 4, 5, 6};
  const auto changed = [&](const ImageChange& change) {
    std::vector<float> copy = image;
    change_image(kSmall, change, copy);
    return copy;
  };
  EXPECT_EQ(changed({}), image);
  EXPECT_EQ(changed({.flips = true}), (std::vector<float>{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(changed({.down = 1}), (std::vector<float>{0, 0, 0, 1, 2, 3}));
  EXPECT_EQ(changed({.down = -1}), (std::vector<float>{4, 5, 6, 0, 0, 0}));
  EXPECT_EQ(changed({.right = 1}), (std::vector<float>{0, 1, 2, 0, 4, 5}));
  EXPECT_EQ(changed({.flips = true, .right = -1}), (std::vector<float>{2, 1, 0, 5, 4, 0}));
}

}  // namespace
}  // namespace lockstep::train
