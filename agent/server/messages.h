#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent/rpc/method.h"
#include "agent/rpc/wire.h"
#include "agent/server/encoding.h"
#include "agent/server/row_selection.h"
#include "agent/server/view.h"
#include "common/base/result.h"

namespace lockstep::server {

// The calls of a parameter server (docs/formats.md, "Calls of parameter servers"). Each concerns
// one unit: a dense range, or the rows of one table that the server has. The caller's rank, which
// the connection has proved, is the worker.
inline const rpc::Method kPush("lockstep.push", rpc::Repeats::kNever);
inline const rpc::Method kPull("lockstep.pull", rpc::Repeats::kAllowed);
inline const rpc::Method kPut("lockstep.put", rpc::Repeats::kNever);
// From a server of a chain to the next one: CopyHead.
inline const rpc::Method kCopy("lockstep.copy", rpc::Repeats::kNever);
// From any member of the round: installs the view whose text is the body, if it is not empty. The
// reply is a ViewReply. Repeats ask for the same view again, which is no error.
inline const rpc::Method kInstallView("lockstep.view", rpc::Repeats::kAllowed);

enum class CallKind : uint8_t { kPush, kPull, kPut };

// The head of a request. Its body:
// - of a range: the floats of the range [end - begin]; none in a pull
// - of a table: the keys, if they are sent, and the floats [keys, dim]; none in a pull. With
//   kSelects a RowSelection comes before the floats, which are those of the selected keys
// The encoding is that of a push's floats, or of a pull's reply.
struct CallHead {
  static constexpr uint32_t kMagic = 0x3153504c;  // "LPS1"
  static constexpr uint16_t kSendsKeys = 1;
  // Push: the worker sends it again, to a server that may have taken it already.
  static constexpr uint16_t kRepeats = 2;
  // Push of rows: the others count as if the worker had not had their keys.
  static constexpr uint16_t kSelects = 4;

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
  uint32_t slot = 0;         // table: index in the view
  uint32_t spare = 0;
};
static_assert(sizeof(CallHead) == 80);

// The head of a reply. The body of a pull's is the floats.
struct ReplyHead {
  uint64_t slowest = 0;  // the unit's lowest clock of a worker
  uint64_t now = 0;      // UnitClock::now()
  uint64_t own = 0;      // the caller's clock: that of its next push
  uint32_t is_late = 0;  // push: 1 if it came after its step's update, and counted for nothing
  uint32_t spare = 0;
  uint64_t sequence = 0;  // entries of the unit's log until then: a pull shows exactly these
};
static_assert(sizeof(ReplyHead) == 40);

// The kind of a message of a chain. The first four are entries of a unit's log.
enum class CopyKind : uint32_t {
  kPush = 1,     // body: the keys of rows, and the floats as the worker sent them
  kPut = 2,      // the floats
  kExpiry = 3,   // the keys
  kWorkers = 4,  // the ranks, u32
  // A server that joins is filled: a ClockState, and the clocks of all workers ...
  kBegin = 5,
  // ... and then the unit's state in parts, between entries.
  kPart = 6,
};

// The extent of a saved state: elements, updates and arrays (values and the optimizer's states) of
// a range; rows, 0 and floats of each row with its states of a table.
struct SavedState {
  uint64_t count = 0;
  uint64_t updates = 0;
  uint64_t floats = 0;
};

// The head of a message from one server of a unit's chain to the next.
struct CopyHead {
  static constexpr uint32_t kMagic = 0x3143504c;  // "LPC1"

  uint32_t magic = kMagic;
  CopyKind kind = CopyKind::kPush;
  // Counts the messages to this server about the unit in this view, from 0: it takes them in this
  // order, in which they may not arrive.
  uint64_t number = 0;
  // The entry's place in the unit's log, from 1; a begin or part has that of the last entry before.
  uint64_t sequence = 0;
  uint32_t worker = 0;  // push, put: the worker's rank
  uint32_t parts = 0;   // part: the state's parts so far, of kStateParts
  SavedState saved;     // part
  // Names unit and view. A push's is the worker's, with the keys; if it selected some, with these
  // alone, and without a signature.
  CallHead call;
};
static_assert(sizeof(CopyHead) == 136);

// The body of a begin: this, and for each worker a WorkerEntry.
struct ClockState {
  uint64_t step = 0;
  uint64_t highest = 0;
};
struct WorkerEntry {
  uint32_t worker = 0;
  uint32_t spare = 0;
  uint64_t clock = 0;
};
static_assert(sizeof(ClockState) == 16 && sizeof(WorkerEntry) == 16);

struct ViewReply {
  uint64_t view = 0;      // the server's, now
  uint64_t unfilled = 0;  // units that this server is still filling at a server that joins
};

// The number by which a list of keys is known to a server after it was sent once: the first 8 bytes
// of the SHA-256 of the keys.
uint64_t signature_of(std::span<const uint64_t> keys);

// kInvalid for a head that no worker sends.
Result<CallHead> parse_call(CallKind kind, rpc::Bytes head);
// kInvalid for a head that no server sends to another one.
Result<CopyHead> parse_copy(rpc::Bytes head);
// kCorrupt for a head that no server sends.
Result<ReplyHead> parse_reply(rpc::Bytes head);

using KeyList = std::shared_ptr<const std::vector<uint64_t>>;

// A request's body. The floats are where they have arrived, unless they were encoded.
struct CallBody {
  KeyList keys;            // null unless they are sent
  RowSelection selection;  // only with kSelects
  std::span<const float> values;
  std::vector<float> decoded;  // memory of `values`, or empty
  rpc::Bytes sent;             // the floats as they arrived
};
// How the floats of a call to the unit are sent. `floats`: of the range, or of one row.
EncodedFloats encoded_floats(const CallHead& head, uint64_t floats);
// Returns the numbers of a body, of 4 or 8 bytes each. kInvalid for a size that does not fit.
Result<std::vector<uint32_t>> parse_ranks(rpc::Bytes body);
Result<std::vector<uint64_t>> parse_keys(rpc::Bytes body);
struct ParsedClock {
  ClockState state;
  std::vector<WorkerEntry> workers;  // ascending, at least one
};
Result<ParsedClock> parse_clock(rpc::Bytes body);
// `body` is aligned to 8 bytes. kInvalid for a wrong size,
// and for keys that do not ascend.
Result<CallBody> parse_body(CallKind kind, const CallHead& head, uint64_t floats, rpc::Bytes body);

}  // namespace lockstep::server
