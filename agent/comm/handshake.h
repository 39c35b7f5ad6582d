#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "agent/comm/records.h"
#include "common/base/result.h"
#include "common/base/sha256.h"

namespace lockstep::comm {

// The purpose of a connection between two ranks. kCalls carries remote calls (agent/rpc), which any
// rank may make to any other.
enum class Channel : uint8_t { kControl = 1, kData = 2, kCalls = 3 };

// The purpose of a listener: the connections of a world that forms, where the higher rank connects
// to the lower one, or remote calls.
enum class Serves : uint8_t { kWorld, kCalls };

// The identity of this process.
struct Identity {
  uint32_t rank = 0;
  uint32_t size = 0;
  uint32_t later_ranks = 0;  // after these, of servers that may be added to the round
  uint64_t round = 0;
  Digest job{};    // SHA-256 of the job's uid
  Digest world{};  // SHA-256 of the world hash
  std::string key;
  bool encrypts = false;  // what follows the handshake; equal on all ranks
};

// One side of the handshake that opens every connection. Both sides prove that they hold the key,
// as in RFC 2195 (challenge and response). They use HMAC-SHA256 over everything said so far and a
// fresh nonce of the other side, so nothing can be replayed or reflected:
//
//   client -> Hello      its rank, the rank it wants, round, job, world, nonce; HMAC("hello")
//   server -> Challenge  its verdict and round, its nonce; HMAC("server" + all so far)
//   client -> Proof      HMAC("client" + all so far)
//   server -> Welcome    HMAC("welcome" + all so far)
//
// The server has the last word, because only it knows whether the Proof came in time: a client
// without a Welcome has no connection, and makes another one. Workers of one job run one image, so
// no version is compatible with another: a different one is named and refused.
//
// Messages have fixed sizes, so a stranger cannot make either side read or keep more than a Hello.
// Pure: bytes in, bytes out; the nonce is an argument. Little-endian hosts only.
class Handshake {
 public:
  struct Target {
    uint32_t rank = 0;
    Channel channel = Channel::kControl;
  };
  static Handshake client(const Identity& self, const Digest& nonce, Target target);
  static Handshake server(const Identity& self, const Digest& nonce,
                          Serves serves = Serves::kWorld);

  // Bytes to send next; empty if it is the other side's turn.
  std::span<const std::byte> output() const;
  void sent(size_t bytes);
  // Exactly how many bytes must come next; the caller reads no more than that.
  size_t wanted() const { return wanted_; }
  // Takes exactly wanted() bytes. Errors, after which output() may hold the explanation for the
  // other side:
  // - kInvalid: not one of ours, or not for us (a wrong key, garbage, an older round). The caller
  //   closes the connection, and the other side may try again.
  // - kConflict: a rank with the right key is in a newer round, or has another world for this one.
  //   This rank can never form and need not keep trying.
  Status received(std::span<const std::byte> bytes);

  bool done() const { return state_ == State::kDone && output().empty(); }
  // For the client: the other side has proved itself, and only its Welcome is missing. Either that
  // or the end of the connection will come.
  bool awaits_welcome() const { return state_ == State::kAwaitWelcome; }
  // For the server: the Hello proves that its sender has the key, or has overheard it.
  bool has_shown_key() const { return state_ == State::kAwaitProof; }
  // For the server, valid once has_shown_key(): each Hello has another one.
  const Digest& peer_nonce() const { return peer_nonce_; }
  // Valid once done(): secrets for what follows, which nobody else can derive without the key.
  // Both sides' nonces and all else that was said go into them (HKDF, RFC 5869).
  const SessionSecrets& secrets() const { return secrets_; }
  // Valid once done().
  uint32_t peer() const { return peer_; }
  Channel channel() const { return channel_; }

 private:
  enum class State { kAwaitHello, kAwaitChallenge, kAwaitProof, kAwaitWelcome, kDone };
  Handshake(const Identity& self, const Digest& nonce) : self_(&self), nonce_(nonce) {}
  Status take_hello(std::span<const std::byte> bytes);
  Status take_challenge(std::span<const std::byte> bytes);
  Status take_proof(std::span<const std::byte> bytes);
  Status take_welcome(std::span<const std::byte> bytes);
  Digest mac(std::string_view role) const;
  void say(std::span<const std::byte> bytes);
  void derive_secrets(bool is_client);

  const Identity* self_;
  Digest nonce_;
  Digest peer_nonce_{};
  SessionSecrets secrets_;
  State state_ = State::kAwaitHello;
  Serves serves_ = Serves::kWorld;
  uint32_t peer_ = 0;
  Channel channel_ = Channel::kControl;
  size_t wanted_ = 0;
  std::string transcript_;  // what both sides have said
  std::string output_;
  size_t output_sent_ = 0;
  Status verdict_;  // the server's; sent to the client, and acted upon after its Proof
};

}  // namespace lockstep::comm
