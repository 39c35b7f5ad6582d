#include "agent/rpc/wire.h"

#include <cstring>

#include "common/base/sha256.h"

namespace lockstep::rpc {
namespace {

constexpr uint8_t kCodes = 7;

// Which side sends a kind of frame, and whether it has a payload.
struct KindRule {
  bool from_client = false;
  bool from_server = false;
  bool has_payload = false;
};

KindRule rule_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::kOpen:
    case FrameKind::kRequest:
      return {.from_client = true, .has_payload = true};
    case FrameKind::kOpened:
    case FrameKind::kReply:
      return {.from_server = true, .has_payload = true};
    case FrameKind::kMore:
      return {.from_client = true, .from_server = true, .has_payload = true};
    case FrameKind::kAbort:
    case FrameKind::kPing:
      return {.from_client = true, .from_server = true};
    case FrameKind::kMapped:
    case FrameKind::kCancel:
    case FrameKind::kTaken:
    case FrameKind::kRelease:
    case FrameKind::kBye:
      return {.from_client = true};
  }
  return {};
}

Error bad(const std::string& what, uint64_t expected, uint64_t got) {
  return corrupt("sent " + what + ": expected at most " + std::to_string(expected) + ", got " +
                 std::to_string(got));
}

Status check_error(const FrameHeader& got) {
  if (got.code > kCodes) return bad("an unknown code", kCodes, got.code);
  if (got.total > kErrorTextMax) return bad("an error that is too long", kErrorTextMax, got.total);
  if (got.head_bytes != 0 || got.pieces != 0 || got.bytes != got.total) {
    return corrupt("sent an error with more than a text");
  }
  return {};
}

// The first frame of a message.
Status check_message(const FrameHeader& got) {
  if (got.code != 0) return check_error(got);
  if (got.head_bytes > kHeadMax) return bad("a head that is too long", kHeadMax, got.head_bytes);
  if (got.head_bytes > got.bytes || got.head_bytes > got.total) {
    return corrupt("sent a message whose head is cut");
  }
  if (got.pieces > kLentPiecesMax) return bad("a list of pieces", kLentPiecesMax, got.pieces);
  if (got.pieces > 0 && got.bytes != preface_of(got)) {
    return corrupt("sent a lent body with a wrong list of pieces");
  }
  if (got.pieces == 0 && got.bytes > got.total) return bad("a frame", got.total, got.bytes);
  return {};
}

}  // namespace

uint64_t bytes_in(std::span<const Bytes> parts) {
  uint64_t bytes = 0;
  for (const Bytes part : parts) bytes += part.size();
  return bytes;
}

size_t preface_of(const FrameHeader& header) {
  if (header.kind == FrameKind::kOpen || header.kind == FrameKind::kOpened) return header.bytes;
  if (!begins_message(header.kind)) return 0;
  if (header.code != 0) return header.bytes;
  const size_t marks =
      header.pieces == 0 ? 0 : sizeof(LentMark) + header.pieces * sizeof(LentPiece);
  return header.head_bytes + marks;
}

Status check_frame(const FrameHeader& got, Side sender, const Limits& limits) {
  if (got.magic != FrameHeader::kMagic) return corrupt("sent what is not a frame of remote calls");
  const KindRule rule = rule_of(got.kind);
  if (!(sender == Side::kClient ? rule.from_client : rule.from_server)) {
    return corrupt("sent a frame of a wrong kind, " + std::to_string(static_cast<int>(got.kind)));
  }
  if (!rule.has_payload && got.bytes != 0) return bad("a payload where none belongs", 0, got.bytes);
  if (begins_message(got.kind)) TRY(check_message(got));
  if (got.kind == FrameKind::kOpen || got.kind == FrameKind::kOpened) {
    if (got.bytes != sizeof(Opening)) return corrupt("sent an opening of a wrong size");
  } else if (got.bytes > limits.frame_bytes_max + kHeadMax) {
    return bad("a frame that is too long", limits.frame_bytes_max + kHeadMax, got.bytes);
  }
  if (got.kind == FrameKind::kMore && got.bytes == 0) return corrupt("sent an empty piece");
  return {};
}

Status check_opening(const Opening& got, Side sender) {
  if (got.segment_count > kSegmentsMax) {
    return bad("a list of segments", kSegmentsMax, got.segment_count);
  }
  const uint32_t session_max = sender == Side::kClient ? kSessionResumed : kSessionsFull;
  if (got.session > session_max) return bad("an unknown session state", session_max, got.session);
  const bool has_limits = got.calls_max > 0 && got.window_bytes > 0 && got.message_bytes_max > 0;
  if (sender == Side::kServer && !has_limits) return corrupt("sent an opening without limits");
  return {};
}

uint64_t method_id(std::string_view name) {
  const Digest digest = sha256(name);
  uint64_t id = 0;
  std::memcpy(&id, digest.data(), sizeof id);
  return id;
}

}  // namespace lockstep::rpc
