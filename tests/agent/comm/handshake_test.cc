#include "agent/comm/handshake.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "common/base/random.h"

namespace lockstep::comm {
namespace {

Identity identity(uint32_t rank, uint64_t round = 3, const std::string& key = "secret") {
  return {.rank = rank,
          .size = 4,
          .round = round,
          .job = sha256("job"),
          .world = sha256("world"),
          .key = key};
}

std::vector<std::byte> take_output(Handshake& handshake) {
  const auto output = handshake.output();
  std::vector<std::byte> bytes(output.begin(), output.end());
  handshake.sent(bytes.size());
  return bytes;
}

struct Outcome {
  Status client;
  Status server;
  bool client_done = false;
  bool server_done = false;
};

using Tamper = std::function<void(int message, std::vector<std::byte>&)>;

// Carries messages between both sides until both are done or one has given up: Hello, Challenge,
// Proof, Welcome.
Outcome shake(Handshake& client, Handshake& server, const Tamper& tamper = {}) {
  Outcome outcome;
  int message = 0;
  const auto carry = [&](Handshake& from, Handshake& to, Status& status) {
    auto bytes = take_output(from);
    if (tamper) tamper(message, bytes);
    ++message;
    if (bytes.size() == to.wanted() && !bytes.empty()) status = to.received(bytes);
  };
  carry(client, server, outcome.server);
  carry(server, client, outcome.client);
  if (outcome.server.ok()) carry(client, server, outcome.server);
  if (outcome.server.ok()) carry(server, client, outcome.client);
  outcome.client_done = client.done();
  outcome.server_done = server.done();
  return outcome;
}

Outcome shake(const Identity& client, const Identity& server, const Tamper& tamper = {}) {
  Handshake from = Handshake::client(client, sha256("a"), {server.rank, Channel::kData});
  Handshake to = Handshake::server(server, sha256("b"));
  return shake(from, to, tamper);
}

TEST(Handshake, TellsBothSidesWhomTheyHave) {
  const Identity high = identity(2);
  const Identity low = identity(1);
  Handshake client = Handshake::client(high, sha256("a"), {1, Channel::kData});
  Handshake server = Handshake::server(low, sha256("b"));
  const Outcome outcome = shake(client, server);
  EXPECT_TRUE(outcome.client_done && outcome.server_done);
  EXPECT_EQ(server.peer(), 2u);
  EXPECT_EQ(server.channel(), Channel::kData);
  EXPECT_EQ(client.peer(), 1u);
}

TEST(Handshake, EveryChangedByteIsNoticed) {
  for (int message = 0; message < 4; ++message) {
    const size_t sizes[] = {160, 80, 32, 32};
    for (size_t at = 0; at < sizes[message]; ++at) {
      const Outcome outcome =
          shake(identity(2), identity(1), [&](int number, std::vector<std::byte>& bytes) {
            if (number == message) bytes[at] ^= std::byte{1};
          });
      // The server has the last word.
      ASSERT_EQ(outcome.server_done, message == 3) << "message " << message << ", byte " << at;
      ASSERT_FALSE(outcome.client_done) << "message " << message << ", byte " << at;
    }
  }
}

TEST(Handshake, AReplayedProofOpensNothing) {
  std::vector<std::byte> hello;
  std::vector<std::byte> proof;
  shake(identity(2), identity(1), [&](int number, std::vector<std::byte>& bytes) {
    if (number == 0) hello = bytes;
    if (number == 2) proof = bytes;
  });
  const Identity low = identity(1);
  Handshake server = Handshake::server(low, sha256("another nonce"));
  ASSERT_TRUE(server.received(hello).ok());
  take_output(server);
  EXPECT_EQ(server.received(proof).error().message, "wrong token");
  EXPECT_FALSE(server.done());
}

TEST(Handshake, AServersOwnWordsCantBeReflected) {
  const Identity low = identity(1);
  Handshake server = Handshake::server(low, sha256("b"));
  const Identity high = identity(2);
  Handshake client = Handshake::client(high, sha256("a"), {1, Channel::kControl});
  ASSERT_TRUE(server.received(take_output(client)).ok());
  const auto challenge = take_output(server);
  // Sends the MAC of the challenge back as the proof.
  EXPECT_FALSE(server.received(std::span(challenge).last(32)).ok());
}

TEST(Handshake, TheStaleSideKnowsThatItIsObsolete) {
  const Outcome old_client = shake(identity(2, 3), identity(1, 4));
  EXPECT_EQ(old_client.client.error().code, Code::kConflict);
  EXPECT_EQ(old_client.server.error().code, Code::kInvalid);
  const Outcome old_server = shake(identity(2, 4), identity(1, 3));
  EXPECT_EQ(old_server.client.error().code, Code::kInvalid);
  EXPECT_EQ(old_server.server.error().code, Code::kConflict);
}

TEST(Handshake, AStrangerCantMakeARankBelieveThatItIsObsolete) {
  const Outcome outcome = shake(identity(2, 9, "guess"), identity(1, 3));
  EXPECT_EQ(outcome.server.error().code, Code::kInvalid);
  EXPECT_EQ(outcome.server.error().message,
            "wrong token; it claims: rank 2 is in round 9, but this rank is in round 3, which is "
            "obsolete");
  EXPECT_EQ(outcome.client.error().code, Code::kInvalid);
  EXPECT_EQ(shake(identity(2, 3, "guess"), identity(1, 3)).server.error().message, "wrong token");
}

TEST(Handshake, ChecksWhoItIs) {
  EXPECT_FALSE(shake(identity(1), identity(1)).server_done);  // itself
  EXPECT_FALSE(shake(identity(0), identity(1)).server_done);  // lower ranks listen
  EXPECT_FALSE(shake(identity(9), identity(1)).server_done);  // out of range
  Identity smaller = identity(2);
  smaller.size = 3;
  EXPECT_EQ(shake(smaller, identity(1)).server.error().code, Code::kConflict);
}

TEST(Handshake, ServesAWorldOrCallsAndNotTheOther) {
  struct Case {
    uint32_t from;
    Channel channel;
    Serves serves;
    bool is_welcome;
  };
  const Case cases[] = {
      {2, Channel::kData, Serves::kWorld, true},  {2, Channel::kCalls, Serves::kWorld, false},
      {2, Channel::kData, Serves::kCalls, false}, {2, Channel::kControl, Serves::kCalls, false},
      {2, Channel::kCalls, Serves::kCalls, true}, {0, Channel::kCalls, Serves::kCalls, true},
      {0, Channel::kData, Serves::kWorld, false}, {1, Channel::kCalls, Serves::kCalls, false},
      {4, Channel::kCalls, Serves::kCalls, false}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.from);
    const Identity self = identity(each.from);
    const Identity other = identity(1);
    Handshake client = Handshake::client(self, sha256("a"), {1, each.channel});
    Handshake server = Handshake::server(other, sha256("b"), each.serves);
    const Outcome outcome = shake(client, server);
    EXPECT_EQ(outcome.client_done && outcome.server_done, each.is_welcome);
    if (!each.is_welcome) {
      EXPECT_EQ(outcome.server.error().code, Code::kInvalid);
    }
  }
}

TEST(Handshake, SurvivesGarbage) {
  const Identity low = identity(1);
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    Handshake server = Handshake::server(low, sha256("b"));
    for (int turn = 0; turn < 3 && server.wanted() > 0; ++turn) {
      std::vector<std::byte> bytes(server.wanted());
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next_u32());
      // Half of them begin correctly.
      if (seed % 2 == 0 && turn == 0) std::memcpy(bytes.data(), "LCHT\1\0", 6);
      if (!server.received(bytes).ok()) break;
      take_output(server);
    }
    ASSERT_FALSE(server.done()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace lockstep::comm
