#include "agent/train/checkpoint/checkpoint_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "agent/train/checkpoint/folder_storage.h"
#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "tests/agent/train/memory_file_system.h"
#include "tests/agent/train/saved_checkpoints.h"

namespace lockstep::train {
namespace {

// A tensor of a file; its values count from `first` on.
struct Stored {
  std::string name;
  std::vector<int64_t> shape;
  float first = 0;
  std::string dtype = "F32";
};

class CheckpointReaderTest : public testing::Test {
 protected:
  CheckpointReaderTest() : files_(Files{{"/s/f/", ""}}) {}

  // Puts a file with these tensors, as somebody else may have written it.
  void put(const std::string& name, const std::vector<Stored>& tensors) {
    SafetensorsHeader header;
    std::string data;
    for (const Stored& tensor : tensors) {
      const int64_t count = element_count(tensor.shape).value();
      std::vector<float> values(static_cast<size_t>(count));
      std::iota(values.begin(), values.end(), tensor.first);
      const uint64_t begin = data.size();
      data.append(reinterpret_cast<const char*>(values.data()),
                  values.size() * (tensor.dtype == "F32" ? 4 : 2));
      header.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, begin, data.size()});
    }
    put_bytes(name, format_safetensors_header(header) + data);
  }
  // Adds it to the manifest, with the checksums of these bytes.
  void put_bytes(const std::string& name, const std::string& bytes) {
    files_.put("/s/f/" + name, bytes);
    manifest_.files.push_back(
        {.name = name,
         .bytes = bytes.size(),
         .chunks = bytes.empty() ? std::vector<uint32_t>{}
                                 : std::vector<uint32_t>{crc32c(bytes.data(), bytes.size())}});
  }
  Result<CheckpointReader> open() { return CheckpointReader::open(storage_, "f", manifest_); }
  void expect_corrupt(const std::vector<Stored>& tensors, const std::string& words) {
    manifest_.files.clear();
    put("a", tensors);
    const auto reader = open();
    ASSERT_FALSE(reader.ok()) << words;
    EXPECT_EQ(reader.error().code, Code::kCorrupt) << reader.error().message;
    EXPECT_EQ(reader.error().blame, Blame::kStorage);
    EXPECT_NE(reader.error().message.find(words), std::string::npos) << reader.error().message;
  }

  MemoryFileSystem files_;
  FolderStorage storage_{"/s", files_};
  Manifest manifest_;
};

TEST_F(CheckpointReaderTest, PutsTensorsTogetherFromTheirSlices) {
  put("a", {{"w[0:1,0:4]", {1, 4}, 0}, {"w[1:3,2:4]", {2, 2}, 10}, {"b[2:5]", {3}, 52}});
  put("b", {{"b[0:2]", {2}, 50}, {"w[1:3,0:2]", {2, 2}, 20}});
  auto reader = open();
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_EQ(reader->shapes(),
            (std::map<std::string, std::vector<int64_t>>{{"b", {5}}, {"w", {3, 4}}}));
  const std::vector<float> w{0, 1, 2, 3, 20, 21, 10, 11, 22, 23, 12, 13};
  for (size_t first = 0; first <= w.size(); ++first) {
    for (size_t count = 0; first + count <= w.size(); ++count) {
      std::vector<float> found(count, -1.0f);
      ASSERT_TRUE(reader->read("w", static_cast<int64_t>(first), found).ok());
      EXPECT_EQ(found, std::vector<float>(w.begin() + static_cast<ptrdiff_t>(first),
                                          w.begin() + static_cast<ptrdiff_t>(first + count)));
    }
  }
  std::vector<float> b(5);
  ASSERT_TRUE(reader->read("b", 0, b).ok());
  EXPECT_EQ(b, (std::vector<float>{50, 51, 52, 53, 54}));
  EXPECT_TRUE(reader->verify().ok());
}

TEST_F(CheckpointReaderTest, RefusesTensorsThatAreNotThereExactlyOnce) {
  const std::string once = "the slices of w do not cover it exactly once";
  expect_corrupt({{"w[1:3]", {2}}}, once);
  expect_corrupt({{"w[0:2]", {2}}, {"w[3:4]", {1}}}, once);
  expect_corrupt({{"w[0:2]", {2}}, {"w[1:4]", {3}}}, once);
  expect_corrupt({{"w[0:2]", {2}}, {"w", {2}}}, once);
  expect_corrupt({{"w[0:2,0:3]", {2, 3}}, {"w[2:4,0:2]", {2, 2}}}, once);
  expect_corrupt({{"w[0:2,0:2]", {2, 2}}, {"w[1:3,1:3]", {2, 2}}}, once);
  expect_corrupt({{"w", {0}}}, once);
  expect_corrupt({{"w[0:4]", {4}}, {"w[0:2,0:2]", {2, 2}}}, once);
}

TEST_F(CheckpointReaderTest, RefusesWhatIsNoSlice) {
  expect_corrupt({{"w", {}}}, "tensor \"w\" is not a slice in fp32");
  expect_corrupt({{"w[0:2]", {3}}}, "tensor \"w[0:2]\" is not a slice in fp32");
  expect_corrupt({{"w", {2}, 0, "BF16"}}, "tensor \"w\" is not a slice in fp32");
}

TEST_F(CheckpointReaderTest, RefusesFilesWithoutAHeader) {
  for (const std::string& bytes :
       {std::string(), std::string(7, 'x'), std::string(100, '\xff'), std::string(8, '\0')}) {
    manifest_.files.clear();
    put_bytes("a", bytes);
    const auto reader = open();
    ASSERT_FALSE(reader.ok()) << bytes.size();
    EXPECT_EQ(reader.error().code, Code::kCorrupt) << reader.error().message;
    EXPECT_NE(reader.error().message.find("/s/f/a"), std::string::npos) << reader.error().message;
  }
}

TEST_F(CheckpointReaderTest, NamesTheTensorThatAnotherModelHas) {
  put("a", {{"w", {2, 3}}, {"w.m", {2, 3}}, {"b", {4}}, {"b.m", {4}}});
  const auto reader = open();
  ASSERT_TRUE(reader.ok());
  std::vector<Parameter> table{{.name = "w", .dims = {2, 3}, .rank = 2},
                               {.name = "b", .dims = {4, 1}, .rank = 1}};
  EXPECT_TRUE(reader->expect(table, {"m"}).ok());
  EXPECT_TRUE(reader->expect({table.data(), 1}, {}).ok()) << "what is more does no harm";
  const auto expect_other = [&](const StateNames& states, const std::string& words) {
    const Status status = reader->expect(table, states);
    ASSERT_FALSE(status.ok()) << words;
    EXPECT_EQ(status.error().code, Code::kInvalid);
    EXPECT_EQ(status.error().blame, Blame::kConfig);
    EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
  };
  expect_other({"v"}, "expected w.v as F32 [2, 3], it is missing");
  table[0].dims = {3, 2};
  expect_other({}, "expected w as F32 [3, 2], it is [2, 3]");
  table[0].dims = {2, 3};
  table[1].rank = 2;
  expect_other({}, "expected b as F32 [4, 1], it is [4]");
}

// Reads of a share find what is wrong with its chunks; verify() what is wrong anywhere.
TEST_F(CheckpointReaderTest, VerifiesTheChunksThatItReads) {
  const auto elements = static_cast<int64_t>(3 * kChunkBytes / sizeof(float));
  put("a", {{"w", {elements}}});
  std::string bytes = files_.files().at("/s/f/a");
  for (size_t chunk = 0; chunk < 4; ++chunk) {
    const size_t begin = chunk * kChunkBytes;
    const uint32_t crc =
        crc32c(bytes.data() + begin, std::min<size_t>(kChunkBytes, bytes.size() - begin));
    if (chunk == 0) manifest_.files[0].chunks.clear();
    manifest_.files[0].chunks.push_back(crc);
  }
  bytes[bytes.size() - 1] ^= 1;
  files_.put("/s/f/a", bytes);
  auto reader = open();
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  std::vector<float> first(10);
  EXPECT_TRUE(reader->read("w", 0, first).ok());
  EXPECT_EQ(first[9], 9.0f);
  EXPECT_EQ(reader->read("w", elements - 10, first).error().code, Code::kCorrupt);
  EXPECT_EQ(reader->verify().error().code, Code::kCorrupt);
}

// Errors of the storage pass through, whichever call fails: they are no damage.
TEST_F(CheckpointReaderTest, TakesNoErrorOfTheStorageForDamage) {
  MemoryFileSystem files;
  RoundOfJob job(files, 1, 1);
  ASSERT_TRUE(job.prepare().ok());
  ASSERT_TRUE(job.save(10).ok());
  int64_t failed = 0;
  for (int64_t call = 0;; ++call, ++failed) {
    files.plan({.first = call, .count = 1});
    const Result<int64_t> round = load(job.storage(), 10);
    if (round.ok()) break;
    ASSERT_EQ(round.error().code, Code::kUnavailable) << round.error().message;
  }
  EXPECT_GT(failed, 12);
}

}  // namespace
}  // namespace lockstep::train
