#include "agent/comm/records.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/hkdf.h"
#include "common/base/sha256.h"
#include "common/crypto/aead.h"
#include "tests/agent/comm/connected.h"

namespace lockstep::comm {
namespace {

using Text = std::vector<std::byte>;

std::string hex_of(Bytes bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<int>(byte) >> 4];
    text += kDigits[std::to_integer<int>(byte) & 15];
  }
  return text;
}

// One direction of a connection, with all of its records in order.
struct Stream {
  explicit Stream(uint64_t records_per_key = kRecordsPerKey)
      : sealer(sha256("secret"), records_per_key), opener(sha256("secret"), records_per_key) {}

  Text seal(const Text& text) {
    Text record(text.size() + kRecordOverheadBytes);
    const std::array<Bytes, 1> parts{text};
    EXPECT_EQ(sealer.seal(parts, record.data()).value(), record.size());
    return record;
  }
  Status open(const Text& record, Text* text = nullptr) {
    Text into(record.size());
    const auto size = RecordOpener::size_of(record);
    if (!size.ok()) return size.error();
    if (*size != record.size()) return corrupt("another length");
    const Status opened = opener.open(record, into.data());
    into.resize(RecordOpener::payload_of(record.size()));
    if (text != nullptr) *text = into;
    return opened;
  }

  RecordSealer sealer;
  RecordOpener opener;
};

// Source: McGrew and Viega, "The Galois/Counter Mode of Operation", test case 2.
TEST(Aead, AgreesWithThePublishedVector) {
  const Text zeros(16);
  Text sealed(32);
  const std::array<Bytes, 1> parts{zeros};
  ASSERT_TRUE(make_sealing_aead({}).value()->seal(0, {}, parts, sealed.data()).ok());
  EXPECT_EQ(hex_of(sealed), "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf");
}

// Source: RFC 5869, test case 1: the pseudorandom key, the info and the first 32 bytes.
TEST(Records, HkdfAgreesWithThePublishedVector) {
  const Digest secret{0x07, 0x77, 0x09, 0x36, 0x2c, 0x2e, 0x32, 0xdf, 0x0d, 0xdc, 0x3f,
                      0x0d, 0xc4, 0x7b, 0xba, 0x63, 0x90, 0xb6, 0xc7, 0x3b, 0xb5, 0x0f,
                      0x9c, 0x31, 0x22, 0xec, 0x84, 0x4a, 0xd7, 0xc2, 0xb3, 0xe5};
  EXPECT_EQ(hex(hkdf_expand(secret, "\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9")),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
}

TEST(Records, OpenToWhatWasSealedAndShowNothingOfIt) {
  Stream stream;
  for (const size_t bytes : {size_t{1}, size_t{15}, size_t{64}, size_t{1000}, kRecordPayloadMax}) {
    const Text text = test::random_bytes(bytes, bytes);
    const Text record = stream.seal(text);
    if (bytes > 8) {
      EXPECT_EQ(std::search(record.begin(), record.end(), text.begin(), text.begin() + 8),
                record.end());
    }
    Text opened;
    ASSERT_TRUE(stream.open(record, &opened).ok()) << bytes;
    EXPECT_EQ(opened, text);
  }
  const Text same = test::random_bytes(64, 1);
  EXPECT_NE(stream.seal(same), stream.seal(same)) << "equal texts look different";
}

TEST(Records, AnyChangedBitIsNoticed) {
  const Text record = Stream().seal(test::random_bytes(100, 3));
  for (size_t bit = 0; bit < 8 * record.size(); ++bit) {
    Text changed = record;
    changed[bit / 8] ^= std::byte{1} << (bit % 8);
    Stream stream;
    EXPECT_EQ(stream.open(changed).error().code, Code::kCorrupt) << "bit " << bit;
  }
}

TEST(Records, RepeatedMissingAndSwappedOnesAreNoticed) {
  const Text text = test::random_bytes(100, 3);
  {
    Stream stream;
    const Text first = stream.seal(text);
    ASSERT_TRUE(stream.open(first).ok());
    EXPECT_EQ(stream.open(first).error().message,
              "sent a record that is not authentic: record 1 of its encrypted connection was "
              "changed, repeated, left out or moved on its way");
  }
  Stream stream;
  stream.seal(text);
  EXPECT_EQ(stream.open(stream.seal(text)).error().code, Code::kCorrupt) << "one is left out";
}

TEST(Records, OfTheOtherDirectionOrAnotherConnectionDoNotOpen) {
  RecordSealer other(sha256("another secret"));
  const Text text = test::random_bytes(64, 4);
  Text record(text.size() + kRecordOverheadBytes);
  const std::array<Bytes, 1> parts{text};
  ASSERT_TRUE(other.seal(parts, record.data()).ok());
  EXPECT_EQ(Stream().open(record).error().code, Code::kCorrupt);
}

TEST(Records, BothSidesChangeTheirKeysTogether) {
  Stream stream(3);
  Stream with_one_key;
  const Text text = test::random_bytes(64, 5);
  for (int number = 0; number < 10; ++number) {
    const Text record = stream.seal(text);
    EXPECT_EQ(record == with_one_key.seal(text), number < 3) << number;
    EXPECT_TRUE(stream.open(record).ok()) << number;
  }
}

TEST(Records, WhatIsNoRecordIsRefusedByItsLength) {
  const Text nothing(kRecordHeadBytes);
  EXPECT_EQ(RecordOpener::size_of(nothing).error().message,
            "sent what is not a record of an encrypted connection: expected 1 to 131072 bytes, got "
            "0");
  EXPECT_EQ(RecordOpener::size_of(Text(4, std::byte{0xff})).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace lockstep::comm
