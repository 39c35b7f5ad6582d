#include "bench/comm/cipher_rate.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "agent/comm/records.h"
#include "common/base/clock.h"
#include "common/base/sha256.h"
#include "common/crypto/aead.h"

namespace lockstep::bench {

// The best of some turns, because other programs disturb the others.
Result<CipherRate> measure_cipher() {
  constexpr int kTurns = 50;
  constexpr int kRecords = 32;  // in a turn
  TRY(can_encrypt());
  const SystemClock clock;
  comm::RecordSealer sealer(sha256("bench"));
  comm::RecordOpener opener(sha256("bench"));
  const std::vector<std::byte> text(comm::kRecordPayloadMax, std::byte{1});
  std::vector<std::byte> into(text.size());
  std::vector<std::vector<std::byte>> records(
      kRecords, std::vector<std::byte>(text.size() + comm::kRecordOverheadBytes));
  const std::array<comm::Bytes, 1> parts{text};
  CipherRate rate;
  for (int turn = 0; turn < kTurns; ++turn) {
    const TimePoint begin = clock.now();
    for (auto& record : records) {
      const Result<size_t> size = sealer.seal(parts, record.data());
      if (!size.ok()) return size.error();
    }
    const TimePoint sealed = clock.now();
    for (const auto& record : records) TRY(opener.open(record, into.data()));
    const TimePoint opened = clock.now();
    const double bytes = static_cast<double>(text.size()) * kRecords;
    rate.sealed = std::max(rate.sealed, bytes / to_seconds(sealed - begin));
    rate.opened = std::max(rate.opened, bytes / to_seconds(opened - sealed));
  }
  return rate;
}

}  // namespace lockstep::bench
