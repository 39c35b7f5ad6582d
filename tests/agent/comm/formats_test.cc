// docs/formats.md describes the bytes between ranks as they are.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/comm/control_message.h"
#include "agent/comm/frame.h"
#include "agent/comm/handshake.h"
#include "agent/comm/make_communicator.h"
#include "agent/comm/shm.h"
#include "tests/support/format_tables.h"

namespace lockstep::comm {
namespace {

using test::raw;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Sends all output of one side to the other, and returns it.
std::string pass(Handshake& from, Handshake& to) {
  const std::string sent = text_of(from.output());
  EXPECT_EQ(sent.size(), to.wanted());
  EXPECT_TRUE(to.received(std::as_bytes(std::span(sent))).ok());
  from.sent(sent.size());
  return sent;
}

Identity identity(uint32_t rank) {
  return {.rank = rank,
          .size = 4,
          .round = 9,
          .job = sha256("uid"),
          .world = sha256("0123456789abcdef"),
          .key = transport_key("token", 9, "0123456789abcdef")};
}

TEST(Formats, DescribeTheHandshake) {
  const Identity low = identity(1);
  const Identity high = identity(3);
  const Digest nonces[] = {sha256("client"), sha256("server")};
  Handshake client = Handshake::client(high, nonces[0], {.rank = 1, .channel = Channel::kData});
  Handshake server = Handshake::server(low, nonces[1]);
  const std::string hello = pass(client, server);
  const std::string challenge = pass(server, client);
  const std::string proof = pass(client, server);
  const std::string welcome = pass(server, client);
  EXPECT_TRUE(client.done() && server.done());

  const std::string key = hex(hmac_sha256("token", std::string("comm/9/") + "0123456789abcdef"));
  const auto mac = [&](const std::string& message) { return raw(hmac_sha256(key, message)); };
  test::expect_format("Hello", hello,
                      {{"magic", "LCHT"},
                       {"version", raw(uint16_t{2})},
                       {"channel", raw(uint8_t{2})},
                       {"encrypts", raw(uint8_t{0})},
                       {"from", raw(uint32_t{3})},
                       {"to", raw(uint32_t{1})},
                       {"size", raw(uint32_t{4})},
                       {"round", raw(uint64_t{9})},
                       {"job", raw(sha256("uid"))},
                       {"world", raw(sha256("0123456789abcdef"))},
                       {"nonce", raw(nonces[0])},
                       {"mac", mac("hello/" + hello.substr(0, 128))}});
  test::expect_format("Challenge", challenge,
                      {{"magic", "LCHT"},
                       {"version", raw(uint16_t{2})},
                       {"verdict", raw(uint8_t{0})},
                       {"round", raw(uint64_t{9})},
                       {"nonce", raw(nonces[1])},
                       {"mac", mac("server/" + hello + challenge.substr(0, 48))}});
  EXPECT_TRUE(proof == mac("client/" + hello + challenge));
  EXPECT_TRUE(welcome == mac("welcome/" + hello + challenge + proof));
}

TEST(Formats, DescribeFrames) {
  const FrameHeader header{.kind = Collective::kReduceScatter,
                           .type = DataType::kF16,
                           .op = ReduceOp::kLor,
                           .algorithm = Algorithm::kByHostHalving,
                           .round = 11,
                           .group = 12,
                           .sequence = 13,
                           .count = 14,
                           .root = 15,
                           .part = 16,
                           .step = 17,
                           .bytes = 18,
                           .total = 19};
  test::expect_format("Frame header", raw(header),
                      {{"magic", "LCM3"},
                       {"kind", raw(uint8_t{7})},
                       {"type", raw(uint8_t{6})},
                       {"op", raw(uint8_t{5})},
                       {"algorithm", raw(uint8_t{7})},
                       {"round", raw(uint64_t{11})},
                       {"group", raw(uint64_t{12})},
                       {"sequence", raw(uint64_t{13})},
                       {"count", raw(uint64_t{14})},
                       {"root", raw(uint32_t{15})},
                       {"part", raw(uint32_t{16})},
                       {"step", raw(uint32_t{17})},
                       {"bytes", raw(uint32_t{18})},
                       {"total", raw(uint64_t{19})}});
  EXPECT_EQ(raw(FrameHeader::kLoanMagic), "LCL3");
  const CommLimits limits;
  EXPECT_EQ(limits.frame_bytes_max, size_t{1} << 20);
  EXPECT_EQ(limits.window_bytes, size_t{8} << 20);
}

TEST(Formats, DescribeTheMemoryBetweenRanks) {
  constexpr size_t kRings = 4096 + 4096;
  constexpr size_t kRing = 528'384;
  EXPECT_EQ(shm_bytes(3), kRings + 9 * kRing);
  EXPECT_EQ(shm_bytes(65), kRings + 4096 + 65 * 65 * kRing);
  const int fd = memfd_create("formats-test", MFD_CLOEXEC);
  const auto region = ShmRegion::attach({.fd = fd, .ranks = 3, .tag = 77});
  ASSERT_TRUE(region.ok()) << region.error().message;
  const auto at = [&](size_t offset, size_t bytes) {
    std::string found(bytes, '?');
    EXPECT_EQ(pread(fd, found.data(), bytes, static_cast<off_t>(offset)), std::ssize(found));
    return found;
  };
  ShmLink from({*region}, {.peer = 2, .local_rank = 1, .local_peer = 2, .bell = [] {}});
  ShmLink to({*region}, {.peer = 1, .local_rank = 2, .local_peer = 1, .bell = [] {}});
  const std::string sent = "eight...";
  EXPECT_EQ(from.write({std::as_bytes(std::span(sent))}).value(), 8u);
  ASSERT_EQ(to.peek({.at_least = 8, .at_most = 8}).value().size(), 8u);
  to.consume(5);
  const std::string lent = "lent memory";
  from.loans()->enable();
  EXPECT_EQ(from.loans()->lend(std::as_bytes(std::span(lent))), 1u);
  (*region)->publish_process(1);
  (*region)->announce_sleep(1, Sleep::kPoll);

  EXPECT_EQ(at(0, 12), raw(uint64_t{77}) + raw(uint32_t{0})) << "preamble";
  EXPECT_EQ(at(4096 + 64, 16), raw(uint32_t{0}) + raw(uint32_t{2}) + raw(uint64_t(getpid())));
  constexpr size_t kRingOf1To2 = kRings + (1 * 3 + 2) * kRing;
  EXPECT_EQ(at(kRingOf1To2, 8), raw(uint64_t{8})) << "head";
  EXPECT_EQ(at(kRingOf1To2 + 64, 8), raw(uint64_t{5})) << "tail";
  EXPECT_EQ(at(kRingOf1To2 + 128, 8), sent);
  EXPECT_EQ(at(kRingOf1To2 + 524'416 + 64, 24),
            raw(uint64_t{4 * 1 + 1}) + raw(lent.data()) + raw(uint64_t{lent.size()}))
      << "loan 1";
  close(fd);
}

TEST(Formats, DescribeControlMessages) {
  ControlMessage message{.type = ControlMessage::Type::kAbort,
                         .entered = 5,
                         .fault = {.code = Code::kTimeout, .reason = "why", .suspect = 2}};
  message.waits_for.add(6);
  const std::string bytes = text_of(ControlBytes(message).bytes());
  ASSERT_EQ(bytes.size(), 56u + 456u);
  std::string waits_for = raw(int32_t{6});
  for (int i = 1; i < 8; ++i) waits_for += raw(int32_t{-1});
  test::expect_format("Control message", bytes.substr(0, 56),
                      {{"magic", "LCC4"},
                       {"type", raw(uint32_t{3})},
                       {"suspect", raw(int32_t{2})},
                       {"code", raw(uint32_t{4})},
                       {"entered", raw(uint64_t{5})},
                       {"waitsFor", waits_for}});
  EXPECT_EQ(bytes.substr(56), std::string("why") + std::string(453, '\0'));
  message.type = ControlMessage::Type::kBell;
  EXPECT_EQ(ControlBytes(message).bytes().size(), 56u);
  EXPECT_EQ(kFaultReasonMax, 455u);
}

}  // namespace
}  // namespace lockstep::comm
