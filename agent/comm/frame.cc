#include "agent/comm/frame.h"

#include "agent/comm/message_text.h"

namespace lockstep::comm {
namespace {

bool same_call(const FrameHeader& a, const FrameHeader& b) {
  return a.kind == b.kind && a.type == b.type && a.op == b.op && a.algorithm == b.algorithm &&
         a.count == b.count && a.root == b.root && a.part == b.part;
}

}  // namespace

std::string operation_name(const FrameHeader& header) {
  std::string name = name_of(header.kind);
  if (header.kind != Collective::kForm) name += " #" + std::to_string(header.sequence);
  if (header.group != 0) name += " of a sub-group";
  return name;
}

std::string describe(const FrameHeader& header) {
  std::string text =
      operation_name(header) + " (" + std::to_string(header.count) + " x " + name_of(header.type);
  if (traits(header.kind).reduces) text += std::string(" ") + name_of(header.op);
  if (traits(header.kind).has_root)
    text += ", root " + std::to_string(header.root) + " of the group";
  text += std::string(", ") + name_of(header.algorithm);
  if (header.part > 0) text += ", part " + std::to_string(header.part + 1);
  return text + ")";
}

Status check_frame(const FrameHeader& got, const CommLimits& limits, int sender) {
  if (got.magic != FrameHeader::kMagic && !is_loan(got)) {
    return corrupt(rank_name(sender) + " sent data that is not a frame");
  }
  if (is_loan(got) && (got.bytes == 0 || traits(got.kind).reduces)) {
    return corrupt(rank_name(sender) + " sent an invalid loan: it is empty or for a reduction");
  }
  const size_t bytes_max = is_loan(got) ? limits.window_bytes : limits.frame_bytes_max;
  if (got.bytes > bytes_max || got.bytes > got.total) {
    return corrupt(rank_name(sender) + " sent an invalid frame: " + std::to_string(got.bytes) +
                   " of " + std::to_string(got.total) + " bytes");
  }
  return {};
}

Status check_round(const FrameHeader& got, uint64_t round, int sender) {
  if (got.round == round) return {};
  return corrupt(rank_name(sender) + " sent a frame of round " + std::to_string(got.round) +
                 " in round " + std::to_string(round));
}

Result<FrameMatch> match_frame(const FrameHeader& expected, const FrameHeader& got, int sender) {
  TRY(check_round(got, expected.round, sender));
  const bool sent = expected.kind == Collective::kSend;
  if (got.group != expected.group || sent != (got.kind == Collective::kSend) ||
      (sent && got.sequence != expected.sequence)) {
    return FrameMatch::kOtherOperation;
  }
  if (got.sequence == expected.sequence && same_call(expected, got)) {
    if (got.step == expected.step && got.total == expected.total) return FrameMatch::kMatches;
    const std::string differing =
        got.step == expected.step
            ? std::to_string(got.total) + " bytes, expected " + std::to_string(expected.total)
            : "step " + std::to_string(got.step) + ", expected step " +
                  std::to_string(expected.step);
    return conflict("in " + describe(expected) + ", " + rank_name(sender) + " sends " + differing);
  }
  return conflict("in " + describe(expected) + ", " + rank_name(sender) + " in " + describe(got));
}

}  // namespace lockstep::comm
