#include "common/base/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "common/base/crc32c_update.h"
#include "common/base/random.h"

namespace lockstep {
namespace {

using Bytes = std::vector<uint8_t>;

uint32_t crc_of(const Bytes& bytes) {
  return crc32c(bytes.data(), bytes.size());
}

Bytes random_bytes(size_t count) {
  Random random(7);
  Bytes bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.below(256));
  return bytes;
}

TEST(Crc32c, AgreesWithTheStandardsExamples) {  // RFC 3720, B.4
  Bytes ascending(32);
  std::iota(ascending.begin(), ascending.end(), uint8_t{0});
  const Bytes read_command = {0x01, 0xC0, 0, 0, 0, 0, 0,    0, 0, 0, 0, 0,    0, 0, 0, 0,
                              0x14, 0,    0, 0, 0, 0, 0x04, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
                              0x28, 0,    0, 0, 0, 0, 0,    0, 2, 0, 0, 0,    0, 0, 0, 0};
  EXPECT_EQ(crc_of(Bytes(32, 0)), 0x8A9136AAu);
  EXPECT_EQ(crc_of(Bytes(32, 0xFF)), 0x62A8AB43u);
  EXPECT_EQ(crc_of(ascending), 0x46DD794Eu);
  EXPECT_EQ(crc_of({ascending.rbegin(), ascending.rend()}), 0x113FDB5Cu);
  EXPECT_EQ(crc_of(read_command), 0xD9963A56u);
  EXPECT_EQ(crc_of({}), 0u);
}

TEST(Crc32c, OfTheMachinesOwnInstructionsHasTheSameBits) {
  const Crc32cUpdate native = crc32c_update_native();
  if (native == nullptr) GTEST_SKIP() << "this machine has none";
  const Bytes bytes = random_bytes(4096);
  Random random(8);
  for (int i = 0; i < 3000; ++i) {
    const size_t begin = random.below(64);
    const size_t count = random.below(i < 2000 ? 40 : bytes.size() - begin);
    const uint32_t before = random.next_u32();
    ASSERT_EQ(native(before, bytes.data() + begin, count),
              crc32c_update_portable(before, bytes.data() + begin, count))
        << count << " bytes from " << begin;
  }
}

TEST(Crc32c, IsTheSameHoweverTheDataIsCut) {
  const Bytes bytes = random_bytes(100);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const uint32_t before = crc32c(bytes.data(), cut);
    EXPECT_EQ(crc32c(bytes.data() + cut, bytes.size() - cut, before), crc_of(bytes)) << cut;
  }
}

TEST(Crc32c, FindsAnyChangedByte) {
  Bytes bytes = random_bytes(300);
  const uint32_t good = crc_of(bytes);
  for (uint8_t& byte : bytes) {
    const uint8_t before = byte;
    for (const int change : {0x01, 0x80, 0xFF}) {
      byte = static_cast<uint8_t>(before ^ change);
      EXPECT_NE(crc_of(bytes), good);
    }
    byte = before;
  }
}

}  // namespace
}  // namespace lockstep
