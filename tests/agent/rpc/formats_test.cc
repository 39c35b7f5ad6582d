// docs/formats.md describes the frames of remote calls as they are.
#include <gtest/gtest.h>

#include "agent/rpc/wire.h"
#include "common/base/sha256.h"
#include "tests/support/format_tables.h"

namespace lockstep::rpc {
namespace {

using test::raw;

template <class T>
std::string text_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

TEST(RpcFormats, DescribeFrames) {
  const FrameHeader header{.kind = FrameKind::kRequest,
                           .code = 0,
                           .head_bytes = 24,
                           .call = 17,
                           .method = method_id("pull"),
                           .object = 3,
                           .total = 4096,
                           .floor = 12,
                           .timeout_us = 250'000,
                           .bytes = 64,
                           .pieces = 1};
  const std::string name = raw(sha256("pull")).substr(0, 8);
  test::expect_format("Frame of a call", text_of(header),
                      {{"magic", "LCR1"},
                       {"kind", raw(uint8_t{4})},
                       {"code", raw(uint8_t{0})},
                       {"head", raw(uint16_t{24})},
                       {"call", raw(uint64_t{17})},
                       {"method", name},
                       {"object", raw(uint64_t{3})},
                       {"total", raw(uint64_t{4096})},
                       {"floor", raw(uint64_t{12})},
                       {"timeout", raw(uint64_t{250'000})},
                       {"bytes", raw(uint32_t{64})},
                       {"pieces", raw(uint32_t{1})}});
}

TEST(RpcFormats, DescribeOpenings) {
  Opening opening{.client = 5,
                  .session = kSessionResumed,
                  .calls_max = 1024,
                  .window_bytes = 1 << 26,
                  .message_bytes_max = 1 << 30,
                  .mapped = 3,
                  .process = 4711,
                  .segment_count = 1};
  opening.segments[0] = {.bytes = 20'480, .token = {1, 2, 3}, .fd = 9};
  test::expect_format("Opening", text_of(opening),
                      {{"client", raw(uint64_t{5})},
                       {"session", raw(uint32_t{1})},
                       {"calls", raw(uint32_t{1024})},
                       {"window", raw(uint64_t{1 << 26})},
                       {"message", raw(uint64_t{1 << 30})},
                       {"mapped", raw(uint64_t{3})},
                       {"process", raw(uint64_t{4711})},
                       {"segment_count", raw(uint32_t{1})},
                       {"segments", text_of(opening.segments)}});
}

TEST(RpcFormats, DescribeWhatIsLent) {
  const struct {
    LentMark mark;
    LentPiece piece;
  } lent{.mark = {.segment = 1, .word = 7, .value = 1031},
         .piece = {.segment = 1, .offset = 4096, .bytes = 65'536}};
  test::expect_format("Lent body", text_of(lent),
                      {{"mark_segment", raw(uint32_t{1})},
                       {"mark_word", raw(uint32_t{7})},
                       {"mark_value", raw(uint64_t{1031})},
                       {"segment", raw(uint32_t{1})},
                       {"offset", raw(uint64_t{4096})},
                       {"bytes", raw(uint64_t{65'536})}});
}

}  // namespace
}  // namespace lockstep::rpc
