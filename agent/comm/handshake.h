#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/base/result.h"
#include "common/base/sha256.h"

namespace lockstep {

// What a connection between two ranks is for.
enum class Channel : uint8_t { kControl = 1, kData = 2 };

// Who this process is.
struct Identity {
  uint32_t rank = 0;
  uint32_t size = 0;
  uint64_t round = 0;
  Digest job{};    // SHA-256 of the job's uid
  Digest world{};  // SHA-256 of the world hash
  std::string key;
};

// One side of the handshake that opens every connection. Both sides prove that they hold the key,
// in the manner of RFC 2195 (challenge and response) with HMAC-SHA256 over all that was said so far
// and a fresh nonce of the other side, so nothing can be replayed or reflected:
//
//   client -> Hello      who it is, whom it wants, round, job, world, its nonce; HMAC("hello")
//   server -> Challenge  its verdict and round, its nonce; HMAC("server" + all so far)
//   client -> Proof      HMAC("client" + all so far)
//   server -> Welcome    HMAC("welcome" + all so far)
//
// The last word is the server's, which alone knows whether the Proof came in time: a client that
// has none has no connection, and makes another one. Workers of one job are of one image, so there
// is nothing to be compatible with: another version is named and refused.
//
// Sizes are fixed, so a stranger can make neither side read or keep more than a Hello. Pure: bytes
// in, bytes out; the nonce is an argument. Byte order: little-endian hosts alone.
class Handshake {
 public:
  struct Target {
    uint32_t rank = 0;
    Channel channel = Channel::kControl;
  };
  static Handshake client(const Identity& self, const Digest& nonce, Target target);
  static Handshake server(const Identity& self, const Digest& nonce);

  // Bytes to send next; empty if it is the other side's turn.
  std::span<const std::byte> output() const;
  void sent(size_t bytes);
  // Exactly how many bytes must come next; none is read beyond them.
  size_t wanted() const { return wanted_; }
  // Takes exactly wanted() bytes. kInvalid: not one of ours, or not for us (a wrong key, garbage,
  // an older round); the connection is to be closed and the other side may try again. kConflict:
  // a rank with the right key is in a newer round, or has another world for this one: this rank
  // can't form, and need not go on trying. In both cases output() may hold what tells the other
  // side.
  Status received(std::span<const std::byte> bytes);

  bool done() const { return state_ == State::kDone && output().empty(); }
  // The client's: the other side has proved itself, and only its last word is missing. It will
  // come, or the end of the connection.
  bool awaits_welcome() const { return state_ == State::kAwaitWelcome; }
  // Once done.
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

  const Identity* self_;
  Digest nonce_;
  State state_ = State::kAwaitHello;
  uint32_t peer_ = 0;
  Channel channel_ = Channel::kControl;
  size_t wanted_ = 0;
  std::string transcript_;  // what both sides said
  std::string output_;
  size_t output_sent_ = 0;
  Status verdict_;  // the server's, told to the client and acted upon after its Proof
};

}  // namespace lockstep
