// Clients with the right key that do not keep to the protocol: each loses its connection, and that
// is all.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "common/base/random.h"
#include "tests/agent/rpc/raw_client.h"
#include "tests/agent/rpc/support.h"

namespace lockstep::rpc {
namespace {

using test::bytes_of;
using test::RawClient;

const Method kEcho("echo", Repeats::kAllowed);
const Method kOnce("once", Repeats::kNever);
const Method kHold("hold", Repeats::kAllowed);

// The memory of this process that is in use, in bytes.
size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  size_t resident = 0;
  file >> pages >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

class Hostile : public testing::Test {
 protected:
  Hostile() {
    Limits limits = test::quick_limits();
    limits.calls_max = 8;
    limits.window_bytes = 1 << 20;
    limits.message_bytes_max = 8 << 20;
    limits.clients_per_rank_max = 4;
    limits.objects_max = 5;
    server_ = test::make_server({.limits = limits}, listener_.fd);
    const auto echo = [](Request request) { request.answer({.head = request.head()}); };
    server_->add(kEcho, echo);
    server_->add(kOnce, echo);
    server_->add(kHold, [this](Request request) { held_.push_back(std::move(request)); });
    EXPECT_TRUE(server_->start().ok());
    client_ = test::make_client({.rank = 1});
    peer_ = test::add_server(*client_, listener_.port);
    EXPECT_TRUE(peer_.call(kEcho, {}).wait().ok());
  }
  ~Hostile() override {
    EXPECT_TRUE(peer_.call(kEcho, {}).wait().ok()) << "the other client must not notice";
    client_.reset();
    held_.clear();
  }

  test::Listener listener_ = test::listen_here();
  std::vector<Request> held_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Client> client_;
  Peer peer_;
};

FrameHeader request(uint64_t call, const Method& method, uint64_t total = 0) {
  return {.kind = FrameKind::kRequest, .call = call, .method = method.id, .total = total};
}

TEST_F(Hostile, LoseTheirConnection) {
  const std::vector<std::byte> some(100);
  using Say = std::function<void(RawClient&)>;
  const std::pair<const char*, Say> cases[] = {
      {"a request before the opening", [](RawClient& raw) { raw.say(request(1, kEcho)); }},
      {"a cancel before the opening",
       [](RawClient& raw) { raw.say({.kind = FrameKind::kCancel}); }},
      {"garbage", [&](RawClient& raw) { raw.say_bytes(some); }},
      {"two openings",
       [](RawClient& raw) {
         raw.open(77);
         raw.open(77);
       }},
      {"an opening with many segments",
       [](RawClient& raw) {
         const Opening opening{.client = 77, .segment_count = 9};
         raw.say({.kind = FrameKind::kOpen}, test::value_bytes(opening));
       }},
      {"another rank's number",
       [this](RawClient& raw) { raw.open(peer_.call(kEcho, {}).id().client); }},
      {"a request that is too large",
       [](RawClient& raw) {
         raw.open(77);
         raw.say(request(1, kEcho, (8 << 20) + 1));
       }},
      {"too many calls",
       [](RawClient& raw) {
         raw.open(77);
         for (uint64_t i = 1; i < 20; ++i) raw.say(request(i, kHold));
       }},
      {"too many begun requests",
       [](RawClient& raw) {
         raw.open(77);
         for (uint64_t i = 1; i < 20; ++i) raw.say(request(i, kHold, 10));
       }},
      {"too many bytes",
       [](RawClient& raw) {
         raw.open(77);
         for (uint64_t i = 1; i < 4; ++i) raw.say(request(i, kHold, 500'000));
       }},
      {"a lent body of nobody's memory",
       [](RawClient& raw) {
         raw.open(77);
         FrameHeader header = request(1, kEcho, 100);
         header.pieces = 1;
         struct {
           LentMark mark;
           LentPiece piece;
         } lent{.piece = {.bytes = 100}};
         raw.say(header, test::value_bytes(lent));
       }},
      {"numbers far apart",
       [](RawClient& raw) {
         raw.open(77);
         raw.say(request(1 + kUnfinishedMax, kOnce));
       }},
      {"a reply",
       [](RawClient& raw) {
         raw.open(77);
         raw.say({.kind = FrameKind::kReply, .call = 1});
       }},
  };
  size_t refused = 0;
  for (const auto& [name, say] : cases) {
    SCOPED_TRACE(name);
    RawClient raw(listener_.port);
    say(raw);
    EXPECT_TRUE(raw.is_ended());
    ++refused;
    EXPECT_TRUE(test::eventually([&] { return server_->counts().refused_connections == refused; }));
    EXPECT_TRUE(test::eventually([&] { return server_->counts().connections == 1; }));
  }
}

TEST_F(Hostile, SayAnythingAndLeave) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    RawClient raw(listener_.port);
    if (random.below(4) > 0) raw.open(77 + random.below(3), static_cast<uint32_t>(random.below(2)));
    for (uint64_t frames = random.below(12); frames > 0; --frames) {
      FrameHeader header{.kind = static_cast<FrameKind>(random.below(14)),
                         .code = static_cast<uint8_t>(random.below(20) == 0 ? 3 : 0),
                         .head_bytes = static_cast<uint16_t>(random.below(20)),
                         .call = random.below(6),
                         .method = random.below(2) == 0 ? kOnce.id : kHold.id,
                         .object = random.below(2),
                         .total = random.below(300),
                         .floor = random.below(5),
                         .timeout_us = random.below(2) == 0 ? 0 : random.next_u64(),
                         .pieces = static_cast<uint32_t>(random.below(9) == 0 ? 1 : 0)};
      const std::vector<std::byte> payload(random.below(200));
      raw.say(header, payload);
    }
    raw.shut();
  }
  EXPECT_TRUE(test::eventually([&] { return server_->counts().connections == 1; }));
}

// Sessions are bounded for each rank, so one rank cannot keep others out.
TEST_F(Hostile, CannotFillTheServerWithSessions) {
  for (uint64_t client = 100; client < 140; ++client) {
    RawClient raw(listener_.port);
    raw.open(client);
    EXPECT_FALSE(raw.hear().empty());
  }
  EXPECT_TRUE(test::eventually([&] { return server_->counts().connections == 1; }));
  EXPECT_LE(server_->counts().sessions, 5u);
}

// A request's memory is used only as far as its bytes have come.
TEST_F(Hostile, CannotReserveMemoryByAnnouncingIt) {
  const size_t before = resident_bytes();
  std::vector<std::unique_ptr<RawClient>> all;
  for (uint32_t i = 0; i < 4; ++i) {
    all.push_back(std::make_unique<RawClient>(listener_.port));
    all.back()->open(100 + i);
    all.back()->say(request(1, kHold, 8 << 20));
  }
  EXPECT_TRUE(test::eventually([&] { return server_->counts().calls == 4; }));
  EXPECT_LT(resident_bytes(), before + (8 << 20));
}

// A client that does not read its replies makes the server keep no more than its calls.
TEST_F(Hostile, CannotMakeTheServerKeepReplies) {
  RawClient raw(listener_.port);
  raw.open(77);
  const size_t before = resident_bytes();
  for (uint64_t i = 1; i <= 200'000 && i < 20'000; ++i) {
    FrameHeader header = request(i, kEcho, kHeadMax);
    header.head_bytes = kHeadMax;
    const std::vector<std::byte> head(kHeadMax);
    raw.say(header, head);
    if (i % 4 == 0) raw.say({.kind = FrameKind::kCancel, .call = i});
  }
  EXPECT_LE(server_->counts().calls, 8u);
  EXPECT_LT(resident_bytes(), before + (16 << 20));
}

// Back-pressure: a client with much to send to a server that answers nothing uses bounded memory on
// both sides, apart from its own buffers.
TEST_F(Hostile, AreNotNeededToTestBackPressure) {
  const std::vector<std::byte> memory(512 << 10);
  const Bytes body[] = {memory};
  const size_t before = resident_bytes();
  std::vector<Call> calls;
  for (int i = 0; i < 2000; ++i) calls.push_back(peer_.call(kHold, {.body = body}));
  EXPECT_TRUE(test::eventually([&] { return server_->counts().calls == 2; }));
  EXPECT_LT(resident_bytes(), before + (16 << 20));
  calls.clear();
}

}  // namespace
}  // namespace lockstep::rpc
