#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent/rpc/method.h"
#include "agent/rpc/wire.h"
#include "agent/server/encoding.h"
#include "agent/server/view.h"
#include "common/base/result.h"

namespace lockstep::server {

// The calls of a parameter server (docs/formats.md, "Calls of parameter servers"). Each concerns
// one unit: a dense range, or the rows of one table that the server has. The caller's rank, which
// the connection has proved, is the worker.
inline const rpc::Method kPush("lockstep.push", rpc::Repeats::kNever);
inline const rpc::Method kPull("lockstep.pull", rpc::Repeats::kAllowed);
inline const rpc::Method kPut("lockstep.put", rpc::Repeats::kNever);

enum class CallKind : uint8_t { kPush, kPull, kPut };
enum class UnitKind : uint16_t { kRange = 1, kTable = 2 };

// The head of a request. Its body:
// - of a range: the floats of the range [end - begin]; none in a pull
// - of a table: the keys, if they are sent, and the floats [keys, dim]; none in a pull
// The encoding is that of a push's floats, or of a pull's reply.
struct CallHead {
  static constexpr uint32_t kMagic = 0x3153504c;  // "LPS1"
  static constexpr uint16_t kSendsKeys = 1;

  uint32_t magic = kMagic;
  UnitKind kind = UnitKind::kRange;
  uint16_t flags = 0;
  uint32_t unit = 0;  // index of the range in the view, or of the table in the catalog
  Encoding encoding = Encoding::kF32;
  Fence fence;
  uint64_t clock = 0;        // steps that the worker has completed
  uint64_t signature = 0;    // table: signature_of() its keys
  uint64_t key_count = 0;    // table
  double learning_rate = 0;  // push
};
static_assert(sizeof(CallHead) == 72);

// The head of a reply. The body of a pull's is the floats.
struct ReplyHead {
  uint64_t slowest = 0;  // the unit's lowest clock of a worker
  uint64_t now = 0;      // UnitClock::now()
  uint64_t own = 0;      // the caller's clock: that of its next push
  uint32_t is_late = 0;  // push: 1 if it came after its step's update, and counted for nothing
  uint32_t spare = 0;
};
static_assert(sizeof(ReplyHead) == 32);

// The number by which a list of keys is known to a server after it was sent once: the first 8 bytes
// of the SHA-256 of the keys.
uint64_t signature_of(std::span<const uint64_t> keys);

// kInvalid for a head that no worker sends.
Result<CallHead> parse_call(CallKind kind, rpc::Bytes head);
// kCorrupt for a head that no server sends.
Result<ReplyHead> parse_reply(rpc::Bytes head);

using KeyList = std::shared_ptr<const std::vector<uint64_t>>;

// A request's body. The floats are where they have arrived, unless they were encoded.
struct CallBody {
  KeyList keys;  // null unless they are sent
  std::span<const float> values;
  std::vector<float> decoded;  // memory of `values`, or empty
};
// How the floats of a call to the unit are sent. `floats`: of the range, or of one row.
EncodedFloats encoded_floats(const CallHead& head, uint64_t floats);
// `body` is aligned to 8 bytes. kInvalid for a wrong size,
// and for keys that do not ascend.
Result<CallBody> parse_body(CallKind kind, const CallHead& head, uint64_t floats, rpc::Bytes body);

}  // namespace lockstep::server
