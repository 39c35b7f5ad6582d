#include "agent/comm/records.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/hkdf.h"

namespace lockstep::comm {

Result<Aead*> RecordKeys::at(uint64_t number) {
  const bool is_first = number % records_per_key_ == 0;
  if (!is_first) return aead_.get();
  const Digest derived = hkdf_expand(secret_, "lockstep comm key");
  secret_ = hkdf_expand(secret_, "lockstep comm next");
  AeadKey key;
  std::copy_n(derived.begin(), key.size(), key.begin());
  TRY_ASSIGN(aead_, make_(key));
  return aead_.get();
}

Result<size_t> RecordSealer::seal(std::span<const Bytes> parts, std::byte* into) {
  size_t bytes = 0;
  for (const Bytes part : parts) bytes += part.size();
  CHECK(bytes > 0 && bytes <= kRecordPayloadMax);
  const auto length = static_cast<uint32_t>(bytes);
  std::memcpy(into, &length, sizeof length);
  TRY_ASSIGN(Aead* const aead, keys_.at(number_));
  TRY(aead->seal(number_, Bytes(into, kRecordHeadBytes), parts, into + kRecordHeadBytes));
  ++number_;
  return bytes + kRecordOverheadBytes;
}

Result<size_t> RecordOpener::size_of(Bytes head) {
  uint32_t length = 0;
  static_assert(sizeof length == kRecordHeadBytes);
  CHECK(head.size() >= sizeof length);
  std::memcpy(&length, head.data(), sizeof length);
  if (length == 0 || length > kRecordPayloadMax) {
    return corrupt("sent what is not a record of an encrypted connection: expected 1 to " +
                   std::to_string(kRecordPayloadMax) + " bytes, got " + std::to_string(length));
  }
  return length + kRecordOverheadBytes;
}

Status RecordOpener::open(Bytes record, std::byte* into) {
  TRY_ASSIGN(Aead* const aead, keys_.at(number_));
  const Status opened =
      aead->open(number_, record.first(kRecordHeadBytes), record.subspan(kRecordHeadBytes), into);
  if (!opened.ok() && opened.error().code == Code::kCorrupt) {
    return corrupt("sent a record that is not authentic: record " + std::to_string(number_) +
                   " of its encrypted connection was changed, repeated, left out or moved on its "
                   "way");
  }
  TRY(opened);
  ++number_;
  return {};
}

}  // namespace lockstep::comm
