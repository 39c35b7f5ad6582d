// docs/formats.md describes the heads of calls to parameter servers as they are.
#include <gtest/gtest.h>

#include "agent/server/messages.h"
#include "tests/support/format_tables.h"

namespace lockstep::server {
namespace {

using test::raw;

TEST(ServerFormats, DescribeTheHeadOfACall) {
  const CallHead head{.kind = UnitKind::kTable,
                      .flags = CallHead::kSendsKeys,
                      .unit = 3,
                      .encoding = Encoding::kInt8,
                      .fence = {.round = 7, .number = 4, .hash = 0x1122334455667788},
                      .clock = 90,
                      .signature = 12345,
                      .key_count = 6,
                      .learning_rate = 0.25,
                      .slot = 9};
  test::expect_format("Head of a call to a parameter server", raw(head),
                      {{"magic", "LPS1"},
                       {"kind", raw(uint16_t{2})},
                       {"flags", raw(uint16_t{1})},
                       {"unit", raw(uint32_t{3})},
                       {"encoding", raw(uint32_t{2})},
                       {"round", raw(uint64_t{7})},
                       {"view", raw(uint64_t{4})},
                       {"hash", raw(uint64_t{0x1122334455667788})},
                       {"clock", raw(uint64_t{90})},
                       {"signature", raw(uint64_t{12345})},
                       {"keys", raw(uint64_t{6})},
                       {"rate", raw(0.25)},
                       {"slot", raw(uint32_t{9})}});
}

TEST(ServerFormats, DescribeTheHeadOfAReply) {
  const ReplyHead head{.slowest = 5, .now = 8, .own = 7, .is_late = 1, .sequence = 11};
  test::expect_format("Head of a parameter server's reply", raw(head),
                      {{"slowest", raw(uint64_t{5})},
                       {"now", raw(uint64_t{8})},
                       {"own", raw(uint64_t{7})},
                       {"late", raw(uint32_t{1})},
                       {"sequence", raw(uint64_t{11})}});
}

TEST(ServerFormats, DescribeTheHeadOfACopysMessage) {
  const CopyHead head{.kind = CopyKind::kPart,
                      .number = 3,
                      .sequence = 20,
                      .worker = 2,
                      .parts = 17,
                      .saved = {.count = 100, .updates = 6, .floats = 4},
                      .call = {.unit = 1}};
  test::expect_format("Head of a message of a chain", raw(head),
                      {{"magic", "LPC1"},
                       {"kind", raw(uint32_t{6})},
                       {"number", raw(uint64_t{3})},
                       {"sequence", raw(uint64_t{20})},
                       {"worker", raw(uint32_t{2})},
                       {"parts", raw(uint32_t{17})},
                       {"count", raw(uint64_t{100})},
                       {"updates", raw(uint64_t{6})},
                       {"floats", raw(uint64_t{4})},
                       {"call", raw(head.call)}});
}

}  // namespace
}  // namespace lockstep::server
