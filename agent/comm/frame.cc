#include "agent/comm/frame.h"

namespace lockstep {
namespace {

const char* kind_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kForm:
      return "forming";
    case CollectiveKind::kBarrier:
      return "barrier";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kAllGather:
      return "all_gather";
  }
  return "an unknown operation";
}

const char* type_name(DataType type) {
  switch (type) {
    case DataType::kF32:
      return "f32";
    case DataType::kBf16:
      return "bf16";
    case DataType::kF64:
      return "f64";
    case DataType::kI32:
      return "i32";
    case DataType::kI64:
      return "i64";
    case DataType::kU8:
      return "u8";
  }
  return "unknown type";
}

const char* op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "SUM";
    case ReduceOp::kAvg:
      return "AVG";
    case ReduceOp::kMin:
      return "MIN";
    case ReduceOp::kMax:
      return "MAX";
  }
  return "unknown reduction";
}

std::string details(const FrameHeader& header) {
  std::string text = collective_name(header) + " (" + std::to_string(header.count) + " x " +
                     type_name(header.type);
  if (header.kind == CollectiveKind::kAllReduce) text += std::string(" ") + op_name(header.op);
  if (header.kind == CollectiveKind::kBroadcast) {
    text += " from rank " + std::to_string(header.root) + " of the group";
  }
  return text + ")";
}

bool same_operation(const FrameHeader& a, const FrameHeader& b) {
  return a.kind == b.kind && a.type == b.type && a.op == b.op && a.group == b.group &&
         a.sequence == b.sequence && a.count == b.count && a.root == b.root;
}

}  // namespace

std::string collective_name(const FrameHeader& header) {
  std::string name = kind_name(header.kind);
  if (header.kind != CollectiveKind::kForm) name += " #" + std::to_string(header.sequence);
  if (header.group != 0) name += " of a sub-group";
  return name;
}

Status check_frame(const FrameHeader& expected, const FrameHeader& got, int sender) {
  if (got == expected) return {};
  const std::string who = "rank " + std::to_string(sender);
  if (got.magic != expected.magic) return corrupt(who + " sent something that is no frame");
  if (got.round != expected.round) {
    return corrupt(who + " sent a frame of round " + std::to_string(got.round) + " in round " +
                   std::to_string(expected.round));
  }
  if (same_operation(expected, got)) {
    return corrupt(who + " sent step " + std::to_string(got.step) + " with " +
                   std::to_string(got.bytes) + " bytes, step " + std::to_string(expected.step) +
                   " with " + std::to_string(expected.bytes) + " was expected");
  }
  return conflict("in " + details(expected) + ", " + who + " in " + details(got));
}

}  // namespace lockstep
