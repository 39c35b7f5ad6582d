#include "agent/comm/handshake.h"

#include <algorithm>
#include <cstring>

#include "agent/comm/message_text.h"
#include "common/base/hkdf.h"

namespace lockstep::comm {
namespace {

constexpr uint32_t kMagic = 0x5448434c;  // "LCHT"
constexpr uint16_t kVersion = 2;

enum class Verdict : uint8_t {
  kWelcome = 0,
  kWrongKey,
  kWrongVersion,
  kWrongJob,
  kWrongRound,
  kWrongWorld,
  kWrongRank,
  kWrongEncryption,
};

struct Hello {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  Channel channel = Channel::kControl;
  uint8_t encrypts = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t size = 0;
  uint32_t spare = 0;
  uint64_t round = 0;
  Digest job{};
  Digest world{};
  Digest nonce{};
  Digest mac{};
};
static_assert(sizeof(Hello) == 160);

struct Challenge {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  Verdict verdict = Verdict::kWelcome;
  uint8_t reserved = 0;
  uint64_t round = 0;
  Digest nonce{};
  Digest mac{};
};
static_assert(sizeof(Challenge) == 80);

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <class T>
T parse(std::span<const std::byte> bytes) {
  T value;
  CHECK(bytes.size() == sizeof value);
  std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof value);
  return value;
}

std::string_view text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool same(const Digest& a, const Digest& b) {
  return equal_constant_time(text(bytes_of(a)), text(bytes_of(b)));
}

std::string rounds(uint64_t theirs, uint64_t ours) {
  return "is in round " + std::to_string(theirs) + ", but this rank is in round " +
         std::to_string(ours);
}

// Whether the server waits for such a connection.
bool expects(const Identity& self, Serves serves, const Hello& hello) {
  if (hello.to != self.rank || hello.from >= self.size + self.later_ranks) {
    return false;
  }
  if (serves == Serves::kCalls) return hello.channel == Channel::kCalls && hello.from != self.rank;
  const bool forms_world = hello.channel == Channel::kControl || hello.channel == Channel::kData;
  return forms_world && hello.from > self.rank;
}

// Returns the server's verdict on a Hello with a valid MAC.
Verdict judge(const Identity& self, Serves serves, const Hello& hello) {
  if (hello.version != kVersion) return Verdict::kWrongVersion;
  if (!same(hello.job, self.job)) return Verdict::kWrongJob;
  if (hello.round != self.round) return Verdict::kWrongRound;
  if (!same(hello.world, self.world) || hello.size != self.size) return Verdict::kWrongWorld;
  if (!expects(self, serves, hello)) return Verdict::kWrongRank;
  if (hello.encrypts != uint8_t{self.encrypts}) return Verdict::kWrongEncryption;
  return Verdict::kWelcome;
}

struct Refusal {
  Verdict verdict;
  uint32_t peer;
  uint64_t theirs;
  uint64_t ours;
};

Error explain(const Refusal& refusal) {
  const std::string who = rank_name(refusal.peer) + " ";
  switch (refusal.verdict) {
    case Verdict::kWelcome:
      break;
    case Verdict::kWrongKey:
      return invalid("wrong token");
    case Verdict::kWrongVersion:
      return invalid(who + "uses a different protocol version");
    case Verdict::kWrongJob:
      return invalid(who + "belongs to another job");
    case Verdict::kWrongRound: {
      const std::string message = who + rounds(refusal.theirs, refusal.ours);
      return refusal.theirs > refusal.ours ? conflict(message + ", which is obsolete")
                                           : invalid(message);
    }
    case Verdict::kWrongWorld:
      return conflict(who + "has a different world for round " + std::to_string(refusal.ours) +
                      ": the hashes of the assignment differ");
    case Verdict::kWrongRank:
      return invalid(who + "is not the rank expected at this address");
    case Verdict::kWrongEncryption:
      return invalid(who + "does not agree on encryption");
  }
  return invalid(who + "sent an unknown verdict");
}

// A peer without the key can only make claims. Other rounds and worlds have other keys
// (transport_key), so its claim usually explains the wrong key.
Error explain_wrong_key(const Refusal& claimed) {
  const bool says_why = claimed.verdict == Verdict::kWrongRound ||
                        claimed.verdict == Verdict::kWrongWorld ||
                        claimed.verdict == Verdict::kWrongJob;
  if (!says_why) return invalid("wrong token");
  return invalid("wrong token; it claims: " + explain(claimed).message);
}

}  // namespace

Handshake Handshake::client(const Identity& self, const Digest& nonce, Target target) {
  Handshake handshake(self, nonce);
  handshake.peer_ = target.rank;
  handshake.channel_ = target.channel;
  Hello hello{.channel = target.channel,
              .encrypts = self.encrypts,
              .from = self.rank,
              .to = target.rank,
              .size = self.size,
              .round = self.round,
              .job = self.job,
              .world = self.world,
              .nonce = nonce};
  handshake.transcript_ = text(bytes_of(hello).first(offsetof(Hello, mac)));
  hello.mac = handshake.mac("hello");
  handshake.transcript_.clear();
  handshake.say(bytes_of(hello));
  handshake.state_ = State::kAwaitChallenge;
  handshake.wanted_ = sizeof(Challenge);
  return handshake;
}

Handshake Handshake::server(const Identity& self, const Digest& nonce, Serves serves) {
  Handshake handshake(self, nonce);
  handshake.serves_ = serves;
  handshake.wanted_ = sizeof(Hello);
  return handshake;
}

Digest Handshake::mac(std::string_view role) const {
  return hmac_sha256(self_->key, std::string(role) + "/" + transcript_);
}

void Handshake::say(std::span<const std::byte> bytes) {
  output_ = text(bytes);
  output_sent_ = 0;
  transcript_ += output_;
}

// The transcript, up to the client's proof, is HKDF's salt.
void Handshake::derive_secrets(bool is_client) {
  const Digest salt = sha256(transcript_);
  const Digest secret = hmac_sha256(bytes_view(salt), self_->key);
  const Digest from_client = hkdf_expand(secret, "lockstep comm client");
  const Digest from_server = hkdf_expand(secret, "lockstep comm server");
  secrets_ = is_client ? SessionSecrets{.sent = from_client, .received = from_server}
                       : SessionSecrets{.sent = from_server, .received = from_client};
}

std::span<const std::byte> Handshake::output() const {
  return std::as_bytes(std::span(output_)).subspan(output_sent_);
}

void Handshake::sent(size_t bytes) {
  CHECK(bytes <= output().size());
  output_sent_ += bytes;
}

Status Handshake::received(std::span<const std::byte> bytes) {
  switch (state_) {
    case State::kAwaitHello:
      return take_hello(bytes);
    case State::kAwaitChallenge:
      return take_challenge(bytes);
    case State::kAwaitProof:
      return take_proof(bytes);
    case State::kAwaitWelcome:
      return take_welcome(bytes);
    case State::kDone:
      break;
  }
  return invalid("data after the end of the handshake");
}

Status Handshake::take_hello(std::span<const std::byte> bytes) {
  const auto hello = parse<Hello>(bytes);
  if (hello.magic != kMagic) return invalid("data that is not a handshake");
  transcript_ = text(bytes.first(offsetof(Hello, mac)));
  const bool has_key = same(hello.mac, mac("hello"));
  Verdict verdict = judge(*self_, serves_, hello);
  if (!has_key && verdict == Verdict::kWelcome) verdict = Verdict::kWrongKey;
  const Refusal refusal{verdict, hello.from, hello.round, self_->round};
  if (!has_key) {
    verdict_ = explain_wrong_key(refusal);
  } else if (verdict != Verdict::kWelcome) {
    verdict_ = explain(refusal);
  }
  transcript_ = text(bytes);
  Challenge challenge{.verdict = verdict, .round = self_->round, .nonce = nonce_};
  const std::string heard = transcript_;
  transcript_ += text(bytes_of(challenge).first(offsetof(Challenge, mac)));
  challenge.mac = mac("server");
  transcript_ = heard;
  say(bytes_of(challenge));
  if (!has_key) return verdict_;
  peer_ = hello.from;
  peer_nonce_ = hello.nonce;
  channel_ = hello.channel;
  state_ = State::kAwaitProof;
  wanted_ = sizeof(Digest);
  return {};
}

Status Handshake::take_challenge(std::span<const std::byte> bytes) {
  const auto challenge = parse<Challenge>(bytes);
  if (challenge.magic != kMagic) return invalid("data that is not a handshake");
  const std::string said = transcript_;
  transcript_ += text(bytes.first(offsetof(Challenge, mac)));
  const bool has_key = same(challenge.mac, mac("server"));
  transcript_ = said + std::string(text(bytes));
  const Refusal refusal{challenge.verdict, peer_, challenge.round, self_->round};
  if (!has_key) return explain_wrong_key(refusal);
  const Digest proof = mac("client");
  say(bytes_of(proof));
  if (challenge.verdict != Verdict::kWelcome) {
    wanted_ = 0;
    return explain(refusal);
  }
  state_ = State::kAwaitWelcome;
  wanted_ = sizeof(Digest);
  return {};
}

Status Handshake::take_proof(std::span<const std::byte> bytes) {
  const auto proof = parse<Digest>(bytes);
  if (!same(proof, mac("client"))) return invalid("wrong token");
  if (!verdict_.ok()) return verdict_;
  transcript_ += text(bytes);
  derive_secrets(false);
  const Digest welcome = mac("welcome");
  say(bytes_of(welcome));
  state_ = State::kDone;
  wanted_ = 0;
  return {};
}

Status Handshake::take_welcome(std::span<const std::byte> bytes) {
  const auto welcome = parse<Digest>(bytes);
  if (!same(welcome, mac("welcome"))) return invalid("wrong token");
  derive_secrets(true);
  state_ = State::kDone;
  wanted_ = 0;
  return {};
}

}  // namespace lockstep::comm
