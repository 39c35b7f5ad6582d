// Which calls a server takes, and which it refuses.
#include "agent/server/messages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "agent/server/limits.h"

namespace lockstep::server {
namespace {

rpc::Bytes bytes_of(const CallHead& head) {
  return std::as_bytes(std::span(&head, 1));
}

CallHead rows(uint64_t keys, bool sends_keys = true) {
  return {.kind = UnitKind::kTable,
          .flags = sends_keys ? CallHead::kSendsKeys : uint16_t{0},
          .unit = 2,
          .clock = 5,
          .signature = 77,
          .key_count = keys};
}

TEST(Messages, RefuseHeadsThatNoWorkerSends) {
  const struct {
    CallKind kind;
    CallHead head;
    std::function<void(CallHead&)> change;
    std::string says;
  } cases[] = {
      {CallKind::kPull, {}, [](CallHead& h) { h.magic = 1; }, "the magic"},
      {CallKind::kPull,
       {},
       [](CallHead& h) { h.encoding = Encoding{3}; },
       "an encoding of at most 2"},
      {CallKind::kPut,
       {},
       [](CallHead& h) { h.encoding = Encoding{1}; },
       "an encoding of at most 0"},
      {CallKind::kPull, {}, [](CallHead& h) { h.kind = static_cast<UnitKind>(3); }, "got 3"},
      {CallKind::kPull, {}, [](CallHead& h) { h.kind = static_cast<UnitKind>(0); }, "got 0"},
      {CallKind::kPull, {}, [](CallHead& h) { h.flags = 1; }, "a range has no keys"},
      {CallKind::kPull, {}, [](CallHead& h) { h.signature = 1; }, "a range has no keys"},
      {CallKind::kPull, {}, [](CallHead& h) { h.key_count = 1; }, "a range has no keys"},
      {CallKind::kPull, {}, [](CallHead& h) { h.learning_rate = 1; }, "only in a push"},
      {CallKind::kPut, {}, [](CallHead& h) { h.learning_rate = 1; }, "only in a push"},
      {CallKind::kPush, {}, [](CallHead& h) { h.learning_rate = -1; }, "at least 0"},
      {CallKind::kPush, {}, [](CallHead& h) { h.learning_rate = NAN; }, "at least 0"},
      {CallKind::kPut, rows(1), [](CallHead&) {}, "rows cannot be put"},
      {CallKind::kPull, rows(1), [](CallHead& h) { h.flags = 3; }, "got 3"},
      {CallKind::kPush, rows(1), [](CallHead& h) { h.flags = 8; }, "flags of at most 7, got 8"},
      {CallKind::kPush, {}, [](CallHead& h) { h.flags = 4; }, "a range has no keys"},
      {CallKind::kPull, rows(1), [](CallHead& h) { h.flags = 4; }, "flags of at most 1, got 4"},
      {CallKind::kPull, {}, [](CallHead& h) { h.slot = 1; }, "a range has no keys"},
      {CallKind::kPull, {}, [](CallHead& h) { h.spare = 1; }, "spare bytes"},
      {CallKind::kPull, rows(1), [](CallHead& h) { h.key_count = kKeysMax + 1; },
       "keys of at most"},
  };
  for (const auto& each : cases) {
    CallHead head = each.head;
    each.change(head);
    const auto parsed = parse_call(each.kind, bytes_of(head));
    ASSERT_FALSE(parsed.ok()) << each.says;
    EXPECT_EQ(parsed.error().code, Code::kInvalid);
    EXPECT_NE(parsed.error().message.find(each.says), std::string::npos) << parsed.error().message;
  }
  const CallHead head;
  EXPECT_FALSE(parse_call(CallKind::kPull, bytes_of(head).first(71)).ok());
  EXPECT_FALSE(parse_call(CallKind::kPull, {}).ok());
  EXPECT_TRUE(parse_call(CallKind::kPull, bytes_of(head)).ok());
}

TEST(Messages, OfServersAreHeardOrRefused) {
  const struct {
    CopyHead head;
    std::string says;  // empty: it is taken
  } cases[] = {
      {{.call = {.learning_rate = 0.5}}, ""},
      {{.kind = CopyKind::kPush, .call = rows(2)}, ""},
      {{.kind = CopyKind::kPut}, ""},
      {{.kind = CopyKind::kPart, .parts = 256}, ""},
      {{.magic = 1}, "the magic"},
      {{.kind = CopyKind{0}}, "a kind of at most 6, got 0"},
      {{.kind = CopyKind{7}}, "a kind of at most 6, got 7"},
      {{.kind = CopyKind::kPart, .parts = 257}, "parts of at most 256, got 257"},
      {{.kind = CopyKind::kPush, .call = rows(2, false)}, "expected the keys of a push"},
      {{.kind = CopyKind::kPush, .call = {.learning_rate = NAN}}, "at least 0"},
      {{.kind = CopyKind::kPut, .call = rows(1)}, "rows cannot be put"},
      {{.kind = CopyKind::kExpiry, .call = {.kind = UnitKind{3}}}, "a kind of unit"},
  };
  for (const auto& each : cases) {
    const auto parsed = parse_copy(std::as_bytes(std::span(&each.head, 1)));
    EXPECT_EQ(parsed.ok(), each.says.empty());
    if (parsed.ok()) continue;
    EXPECT_EQ(parsed.error().code, Code::kInvalid);
    EXPECT_NE(parsed.error().message.find(each.says), std::string::npos) << parsed.error().message;
  }
  const CopyHead head;
  EXPECT_FALSE(parse_copy(std::as_bytes(std::span(&head, 1)).first(135)).ok());
}

TEST(Messages, HaveClocksOfAscendingWorkers) {
  const auto parse = [](const std::vector<uint64_t>& numbers) {
    return parse_clock(std::as_bytes(std::span(numbers)));
  };
  const auto clock = parse({5, 7, 1, 6, 3, 7});
  ASSERT_TRUE(clock.ok());
  EXPECT_EQ(clock->state.step, 5u);
  EXPECT_EQ(clock->state.highest, 7u);
  ASSERT_EQ(clock->workers.size(), 2u);
  EXPECT_EQ(clock->workers[1].worker, 3u);
  EXPECT_EQ(clock->workers[1].clock, 7u);
  EXPECT_FALSE(parse({}).ok());
  EXPECT_FALSE(parse({5, 7}).ok());
  EXPECT_FALSE(parse({5, 7, 1}).ok());
  EXPECT_FALSE(parse({5, 7, 3, 6, 1, 7}).ok());
  EXPECT_FALSE(parse({5, 7, 3, 6, 3, 7}).ok());
  const std::vector<uint32_t> odd(3);
  EXPECT_FALSE(parse_keys(std::as_bytes(std::span(odd))).ok());
  EXPECT_TRUE(parse_ranks(std::as_bytes(std::span(odd))).ok());
}

// A body: keys, and then floats.
struct Body {
  std::vector<uint64_t> keys;
  std::vector<float> values;
  std::vector<uint64_t> bytes() const {
    std::vector<uint64_t> all(keys.size() + (values.size() + 1) / 2);
    std::copy(keys.begin(), keys.end(), all.begin());
    std::copy(values.begin(), values.end(), reinterpret_cast<float*>(all.data() + keys.size()));
    return all;
  }
  size_t size() const { return keys.size() * 8 + values.size() * 4; }
};

Result<CallBody> parse(CallKind kind, const CallHead& head, const Body& body, uint64_t floats) {
  static std::vector<uint64_t> bytes;
  bytes = body.bytes();
  return parse_body(kind, head, floats, std::as_bytes(std::span(bytes)).first(body.size()));
}

TEST(Messages, HaveKeysAndThenFloats) {
  const Body body{.keys = {3, 8}, .values = {1, 2, 3, 4, 5, 6}};
  const auto parsed = parse(CallKind::kPush, rows(2), body, 3);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(*parsed->keys, body.keys);
  EXPECT_EQ(std::vector<float>(parsed->values.begin(), parsed->values.end()), body.values);
  const auto known = parse(CallKind::kPush, rows(2, false), {.values = body.values}, 3);
  ASSERT_TRUE(known.ok());
  EXPECT_EQ(known->keys, nullptr);
  const auto range = parse(CallKind::kPush, {}, {.values = body.values}, 6);
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(range->values.size(), 6u);
  EXPECT_TRUE(parse(CallKind::kPull, rows(2), {.keys = {3, 8}}, 3).ok());
  EXPECT_TRUE(parse(CallKind::kPull, rows(0), {}, 3).ok());
}

// A selection looks like a further key.
TEST(Messages, MayHaveFloatsOfSelectedKeysOnly) {
  CallHead head = rows(3);
  head.flags |= CallHead::kSelects;
  const auto parsed =
      parse(CallKind::kPush, head, {.keys = {3, 8, 9, 0b101}, .values = {1, 2, 3, 4}}, 2);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(*parsed->keys, (std::vector<uint64_t>{3, 8, 9}));
  EXPECT_EQ(parsed->selection, RowSelection{0b101});
  EXPECT_EQ(parsed->values.size(), 4u);
  EXPECT_TRUE(parse(CallKind::kPush, head, {.keys = {3, 8, 9, 0}}, 2).ok());
  for (const Body& wrong :
       {Body{.keys = {3, 8, 9, 0b111}, .values = {1, 2, 3, 4}},
        Body{.keys = {3, 8, 9, 0b1001}, .values = {1, 2, 3, 4}}, Body{.keys = {3, 8, 9}}}) {
    const auto refused = parse(CallKind::kPush, head, wrong, 2);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kInvalid);
  }
}

TEST(Messages, RefuseBodiesOfAnotherSize) {
  EXPECT_FALSE(parse(CallKind::kPush, rows(2), {.keys = {3, 8}, .values = {1, 2}}, 3).ok());
  EXPECT_FALSE(parse(CallKind::kPull, rows(2), {.keys = {3}}, 3).ok());
  EXPECT_FALSE(parse(CallKind::kPull, {}, {.values = {1}}, 1).ok());
  EXPECT_FALSE(parse(CallKind::kPush, {}, {.values = {1}}, 2).ok());
  const auto refused = parse(CallKind::kPush, {}, {.values = {1, 2, 3}}, 2);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "[server] expected a body of bytes 8, got 12");
}

TEST(Messages, RefuseKeysThatDoNotAscend) {
  for (const std::vector<uint64_t>& keys : {std::vector<uint64_t>{3, 3}, {8, 3}}) {
    const auto refused = parse(CallKind::kPull, rows(2), {.keys = keys}, 3);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kInvalid);
  }
}

}  // namespace
}  // namespace lockstep::server
