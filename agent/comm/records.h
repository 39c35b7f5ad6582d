#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "common/base/result.h"
#include "common/base/sha256.h"
#include "common/crypto/aead.h"

namespace lockstep::comm {

using Bytes = std::span<const std::byte>;

// Encrypted connections between ranks carry records: the payload's length (4 bytes, little-endian,
// authenticated), the payload in AES-128-GCM, and its tag. The records of one direction are
// numbered, from 0; the number is the nonce and is not sent. So a record that was changed,
// repeated, left out or moved does not open. Both sides derive the keys from what both have said in
// the handshake, which has fresh nonces of both; there is nothing to negotiate.
constexpr size_t kRecordHeadBytes = 4;
constexpr size_t kRecordOverheadBytes = kRecordHeadBytes + kAeadTagBytes;
// The smallest of 32, 64, 128 and 256 KiB with the fastest all-reduces (bench/results, encryption).
constexpr size_t kRecordPayloadMax = size_t{128} << 10;
// After this many records, both sides derive the next key: 128 GiB at most have one key.
constexpr uint64_t kRecordsPerKey = uint64_t{1} << 20;

// The secrets of the two directions of a connection.
struct SessionSecrets {
  Digest sent{};
  Digest received{};
};

// The keys of one direction, in their order.
class RecordKeys {
 public:
  using Make = Result<std::unique_ptr<Aead>> (*)(const AeadKey&);
  RecordKeys(const Digest& secret, Make make, uint64_t records_per_key)
      : secret_(secret), make_(make), records_per_key_(records_per_key) {}
  // Returns the key for the record of this number. Numbers ascend.
  Result<Aead*> at(uint64_t number);

 private:
  Digest secret_;
  Make make_;
  uint64_t records_per_key_;
  std::unique_ptr<Aead> aead_;
};

// One direction of a connection, at its beginning. One thread at a time.
class RecordSealer {
 public:
  explicit RecordSealer(const Digest& secret, uint64_t records_per_key = kRecordsPerKey)
      : keys_(secret, make_sealing_aead, records_per_key) {}
  // Writes the record of these parts, of 1 to kRecordPayloadMax bytes together, and returns its
  // size. kUnavailable and kInternal as in aead.h.
  Result<size_t> seal(std::span<const Bytes> parts, std::byte* into);

 private:
  RecordKeys keys_;
  uint64_t number_ = 0;
};

// The same direction, at its end.
class RecordOpener {
 public:
  explicit RecordOpener(const Digest& secret, uint64_t records_per_key = kRecordsPerKey)
      : keys_(secret, make_opening_aead, records_per_key) {}
  // Returns the size of the record that begins with these bytes, at least kRecordHeadBytes.
  // kCorrupt, in words that follow a rank's name, if no record does.
  static Result<size_t> size_of(Bytes head);
  static constexpr size_t payload_of(size_t record) { return record - kRecordOverheadBytes; }
  // Writes the payload of the whole record. kCorrupt, likewise, if it is not the next one of this
  // direction; nothing may be opened after that.
  Status open(Bytes record, std::byte* into);

 private:
  RecordKeys keys_;
  uint64_t number_ = 0;
};

}  // namespace lockstep::comm
