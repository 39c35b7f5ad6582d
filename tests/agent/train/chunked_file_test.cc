#include "agent/train/checkpoint/chunked_file.h"

#include <gtest/gtest.h>

#include "agent/train/checkpoint/folder_storage.h"
#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "tests/agent/train/memory_file_system.h"

namespace lockstep::train {
namespace {

std::string random_bytes(size_t count) {
  Random random(count);
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; i += 1 + random.below(500)) {
    bytes[i] = static_cast<char>(random.below(256));
  }
  return bytes;
}

class ChunkedFileTest : public testing::Test {
 protected:
  ChunkedFileTest() : files_(Files{{"/s/f/", ""}}) {}

  // Writes in pieces of at most that many bytes.
  ManifestFile write(std::string_view bytes, size_t piece) {
    ChunkedWriter writer(storage_.create("f/file").value());
    for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
      EXPECT_TRUE(writer.write(bytes.substr(0, piece)).ok());
    }
    return writer.finish("file").value();
  }
  Result<ChunkedReader> open(const ManifestFile& file) {
    return ChunkedReader::open(storage_, "f", file);
  }

  MemoryFileSystem files_;
  FolderStorage storage_{"/s", files_};
};

TEST_F(ChunkedFileTest, HasAChecksumForEachChunkHoweverItIsWritten) {
  for (const size_t count : {size_t{0}, size_t{1}, kChunkBytes - 1, kChunkBytes, kChunkBytes + 1,
                             2 * kChunkBytes, 2 * kChunkBytes + 4097}) {
    const std::string bytes = random_bytes(count);
    ManifestFile expected{.name = "file", .bytes = count};
    for (size_t at = 0; at < count; at += kChunkBytes) {
      expected.chunks.push_back(
          crc32c(bytes.data() + at, std::min<size_t>(kChunkBytes, count - at)));
    }
    for (const size_t piece : {size_t{1} << 16, kChunkBytes - 1, kChunkBytes, 3 * kChunkBytes}) {
      files_ = MemoryFileSystem(Files{{"/s/f/", ""}});
      EXPECT_EQ(write(bytes, piece), expected) << count << " in pieces of " << piece;
      EXPECT_TRUE(files_.files().at("/s/f/file") == bytes);
    }
    auto reader = open(expected);
    ASSERT_TRUE(reader.ok());
    EXPECT_TRUE(reader->verify().ok());
  }
}

TEST_F(ChunkedFileTest, IsReadFromAnywhere) {
  const std::string bytes = random_bytes(2 * kChunkBytes + 999);
  const ManifestFile file = write(bytes, bytes.size());
  ChunkedReader reader = open(file).value();
  Random random(1);
  for (int i = 0; i < 100; ++i) {
    const size_t near = random.below(3) * kChunkBytes;  // and so over the seams
    const size_t begin = std::min(near - std::min<size_t>(near, random.below(5)), bytes.size());
    const size_t count = random.below(std::min<size_t>(bytes.size() - begin, 50) + 1);
    std::string text(count, '\0');
    ASSERT_TRUE(reader.read(begin, text).ok());
    ASSERT_TRUE(text == bytes.substr(begin, count)) << begin << " " << count;
  }
  std::string all(bytes.size(), '\0');
  ASSERT_TRUE(reader.read(0, all).ok());
  EXPECT_TRUE(all == bytes);
}

TEST_F(ChunkedFileTest, RefusesTheChunkThatIsDamagedAndNoOther) {
  std::string bytes = random_bytes(2 * kChunkBytes + 10);
  const ManifestFile file = write(bytes, bytes.size());
  bytes[kChunkBytes + 5] ^= 1;
  files_.put("/s/f/file", bytes);
  ChunkedReader reader = open(file).value();
  std::string text(10, '\0');
  EXPECT_TRUE(reader.read(0, text).ok());
  EXPECT_TRUE(reader.read(2 * kChunkBytes, text).ok());
  for (int i = 0; i < 2; ++i) {
    const Status read = reader.read(2 * kChunkBytes - 1, text);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, Code::kCorrupt);
    EXPECT_EQ(read.error().message,
              "[checkpoint] /s/f/file: bytes 4194304 to 8388608 do not match their checksum");
  }
  EXPECT_EQ(reader.verify().error().code, Code::kCorrupt);
  EXPECT_TRUE(reader.read(0, text).ok()) << "after the error";
}

TEST_F(ChunkedFileTest, OfAnotherSizeOrNoneIsCorrupt) {
  ManifestFile file = write("abc", 3);
  file.bytes = 4;
  EXPECT_EQ(open(file).error().code, Code::kCorrupt);
  file.name = "other";
  EXPECT_EQ(open(file).error().code, Code::kCorrupt);
}

TEST_F(ChunkedFileTest, KeepsErrorsOfTheStorageAsTheyAre) {
  const ManifestFile file = write("abc", 3);
  std::string text(3, '\0');
  for (int64_t call = 0; call < 3; ++call) {
    files_.plan({.first = call, .count = 1});
    Status status;
    if (auto reader = open(file); !reader.ok()) {
      status = reader.error();
    } else {
      status = reader->read(0, text);
      EXPECT_TRUE(reader->read(0, text).ok()) << "the next try";
    }
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kUnavailable);
  }
}

TEST_F(ChunkedFileTest, OfFormatOneIsVerifiedByItsDigest) {
  const std::string bytes = random_bytes(kChunkBytes + 10);
  files_.put("/s/f/file", bytes);
  ManifestFile file{.name = "file", .bytes = bytes.size(), .sha256 = sha256(bytes)};
  EXPECT_TRUE(open(file)->verify().ok());
  (*file.sha256)[0] ^= 1;
  EXPECT_EQ(open(file)->verify().error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace lockstep::train
