#include "agent/server/messages.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "agent/server/limits.h"
#include "common/base/check.h"
#include "common/base/sha256.h"

namespace lockstep::server {
namespace {

Error wrong(const std::string& what, uint64_t expected, uint64_t got) {
  return invalid("[server] expected " + what + " " + std::to_string(expected) + ", got " +
                 std::to_string(got));
}

Status check_table_call(CallKind kind, const CallHead& head) {
  if (kind == CallKind::kPut) return invalid("[server] rows cannot be put");
  if (head.key_count > kKeysMax) return wrong("keys of at most", kKeysMax, head.key_count);
  return {};
}

Status check_range_call(const CallHead& head) {
  const bool sends_keys = (head.flags & CallHead::kSendsKeys) != 0;
  const bool selects = (head.flags & CallHead::kSelects) != 0;
  if (sends_keys || selects || head.signature != 0 || head.key_count != 0 || head.slot != 0) {
    return invalid("[server] a range has no keys");
  }
  return {};
}

Status check_flags(CallKind kind, const CallHead& head) {
  const bool is_push = kind == CallKind::kPush;
  const uint32_t known =
      CallHead::kSendsKeys | (is_push ? CallHead::kRepeats | CallHead::kSelects : 0u);
  if ((head.flags & ~known) != 0) return wrong("flags of at most", known, head.flags);
  return {};
}

Status check_unit_kind(UnitKind kind) {
  if (kind == UnitKind::kRange || kind == UnitKind::kTable) return {};
  return wrong("a kind of unit of at most", 2, static_cast<uint64_t>(kind));
}

template <class T>
Result<std::vector<T>> numbers_of(rpc::Bytes body) {
  if (body.size() % sizeof(T) != 0) {
    return invalid("[server] expected numbers of " + std::to_string(sizeof(T)) + " bytes, got " +
                   std::to_string(body.size()) + " bytes");
  }
  std::vector<T> numbers(body.size() / sizeof(T));
  if (!body.empty()) std::memcpy(numbers.data(), body.data(), body.size());
  return numbers;
}

bool is_ascending(std::span<const uint64_t> keys) {
  return std::ranges::adjacent_find(keys, std::ranges::greater_equal()) == keys.end();
}

// Reads the selection of a body, which begins after `before` bytes.
Result<RowSelection> parse_selection(const CallHead& head, rpc::Bytes body, uint64_t before) {
  RowSelection selection(selection_words(head.key_count));
  const uint64_t bytes = selection.size() * sizeof(uint64_t);
  if (body.size() < before + bytes) {
    return wrong("a body of bytes of at least", before + bytes, body.size());
  }
  if (bytes > 0) std::memcpy(selection.data(), body.data() + before, bytes);
  if (!is_selection_of(selection, head.key_count)) {
    return invalid("[server] expected a selection of " + std::to_string(head.key_count) +
                   " keys, got more");
  }
  return selection;
}

}  // namespace

uint64_t signature_of(std::span<const uint64_t> keys) {
  Sha256 hash;
  hash.update(keys.data(), keys.size_bytes());
  const Digest digest = hash.finish();
  uint64_t signature = 0;
  std::memcpy(&signature, digest.data(), sizeof signature);
  return signature;
}

Result<CallHead> parse_call(CallKind kind, rpc::Bytes head) {
  CallHead call;
  if (head.size() != sizeof call) return wrong("a head of bytes", sizeof call, head.size());
  std::memcpy(&call, head.data(), sizeof call);
  if (call.magic != CallHead::kMagic) return wrong("the magic", CallHead::kMagic, call.magic);
  const auto encoding = static_cast<uint64_t>(call.encoding);
  const uint64_t encodings = kind == CallKind::kPut ? 0 : 2;
  if (encoding > encodings) return wrong("an encoding of at most", encodings, encoding);
  const bool has_rate = kind == CallKind::kPush;
  if (!std::isfinite(call.learning_rate) || call.learning_rate < 0 ||
      (!has_rate && call.learning_rate != 0)) {
    return invalid("[server] expected a learning rate of at least 0, only in a push");
  }
  if (call.spare != 0) return wrong("spare bytes of", 0, call.spare);
  TRY(check_flags(kind, call));
  TRY(check_unit_kind(call.kind));
  TRY(call.kind == UnitKind::kRange ? check_range_call(call) : check_table_call(kind, call));
  return call;
}

Result<CopyHead> parse_copy(rpc::Bytes head) {
  CopyHead copy;
  if (head.size() != sizeof copy) return wrong("a head of bytes", sizeof copy, head.size());
  std::memcpy(&copy, head.data(), sizeof copy);
  if (copy.magic != CopyHead::kMagic) return wrong("the magic", CopyHead::kMagic, copy.magic);
  if (copy.kind < CopyKind::kPush || copy.kind > CopyKind::kPart) {
    return wrong("a kind of at most", 6, static_cast<uint64_t>(copy.kind));
  }
  const rpc::Bytes call = head.last(sizeof copy.call);
  if (copy.kind == CopyKind::kPush) {
    TRY(parse_call(CallKind::kPush, call));
    const bool sends_keys = (copy.call.flags & CallHead::kSendsKeys) != 0;
    if (sends_keys != (copy.call.kind == UnitKind::kTable)) {
      return invalid("[server] expected the keys of a push of rows");
    }
    if ((copy.call.flags & CallHead::kSelects) != 0) {
      return invalid("[server] expected the keys of the selected rows alone");
    }
  } else if (copy.kind == CopyKind::kPut) {
    TRY(parse_call(CallKind::kPut, call));
  } else {
    TRY(check_unit_kind(copy.call.kind));
  }
  if (copy.parts > kStateParts) return wrong("parts of at most", kStateParts, copy.parts);
  return copy;
}

Result<std::vector<uint32_t>> parse_ranks(rpc::Bytes body) {
  return numbers_of<uint32_t>(body);
}

Result<std::vector<uint64_t>> parse_keys(rpc::Bytes body) {
  return numbers_of<uint64_t>(body);
}

Result<ParsedClock> parse_clock(rpc::Bytes body) {
  ParsedClock clock;
  const size_t entries = body.size() < sizeof clock.state ? 0 : body.size() - sizeof clock.state;
  if (entries == 0 || entries % sizeof(WorkerEntry) != 0 ||
      entries / sizeof(WorkerEntry) > kWorkersMax) {
    return wrong("a clock with entries of bytes", sizeof(WorkerEntry), body.size());
  }
  std::memcpy(&clock.state, body.data(), sizeof clock.state);
  clock.workers.resize(entries / sizeof(WorkerEntry));
  std::memcpy(clock.workers.data(), body.data() + sizeof clock.state, entries);
  const auto not_below = [](const WorkerEntry& a, const WorkerEntry& b) {
    return a.worker >= b.worker;
  };
  if (std::ranges::adjacent_find(clock.workers, not_below) != clock.workers.end()) {
    return invalid("[server] expected workers in ascending order");
  }
  return clock;
}

Result<ReplyHead> parse_reply(rpc::Bytes head) {
  ReplyHead reply;
  if (head.size() != sizeof reply) {
    return corrupt("[server] expected a reply's head of " + std::to_string(sizeof reply) +
                       " bytes, got " + std::to_string(head.size()),
                   Blame::kPeer);
  }
  std::memcpy(&reply, head.data(), sizeof reply);
  return reply;
}

EncodedFloats encoded_floats(const CallHead& head, uint64_t floats) {
  if (head.kind == UnitKind::kTable) return {head.encoding, head.key_count * floats, floats};
  return {head.encoding, floats, kRangeBlock};
}

Result<CallBody> parse_body(CallKind kind, const CallHead& head, uint64_t floats, rpc::Bytes body) {
  CallBody parsed;
  const bool sends_keys = (head.flags & CallHead::kSendsKeys) != 0;
  const uint64_t key_bytes = sends_keys ? head.key_count * sizeof(uint64_t) : 0;
  CallHead sent = head;
  uint64_t before_floats = key_bytes;
  if ((head.flags & CallHead::kSelects) != 0) {
    TRY_ASSIGN(parsed.selection, parse_selection(head, body, key_bytes));
    sent.key_count = selected_count(parsed.selection);
    before_floats += parsed.selection.size() * sizeof(uint64_t);
  }
  const EncodedFloats what = encoded_floats(sent, floats);
  const uint64_t float_bytes = kind == CallKind::kPull ? 0 : encoded_bytes(what);
  if (body.size() != before_floats + float_bytes) {
    return wrong("a body of bytes", before_floats + float_bytes, body.size());
  }
  if (sends_keys) {
    auto keys = std::make_shared<std::vector<uint64_t>>(head.key_count);
    if (key_bytes > 0) std::memcpy(keys->data(), body.data(), key_bytes);
    if (!is_ascending(*keys)) return invalid("[server] expected keys in ascending order");
    parsed.keys = std::move(keys);
  }
  const rpc::Bytes values = body.subspan(before_floats);
  parsed.sent = values;
  if (what.encoding != Encoding::kF32 && kind == CallKind::kPush) {
    parsed.decoded.resize(what.floats);
    decode(what, values, parsed.decoded);
    parsed.values = parsed.decoded;
    return parsed;
  }
  CHECK(reinterpret_cast<uintptr_t>(values.data()) % alignof(float) == 0);
  parsed.values = {reinterpret_cast<const float*>(values.data()), values.size() / sizeof(float)};
  return parsed;
}

}  // namespace lockstep::server
