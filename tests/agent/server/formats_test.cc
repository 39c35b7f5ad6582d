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
                      .learning_rate = 0.25};
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
                       {"rate", raw(0.25)}});
}

TEST(ServerFormats, DescribeTheHeadOfAReply) {
  const ReplyHead head{.slowest = 5, .now = 8, .own = 7, .is_late = 1};
  test::expect_format("Head of a parameter server's reply", raw(head),
                      {{"slowest", raw(uint64_t{5})},
                       {"now", raw(uint64_t{8})},
                       {"own", raw(uint64_t{7})},
                       {"late", raw(uint32_t{1})}});
}

}  // namespace
}  // namespace lockstep::server
