#include "common/http/signed_session.h"

#include <algorithm>
#include <charconv>

#include "common/base/hkdf.h"

namespace lockstep::http {
namespace {

constexpr std::string_view kScheme = "Lockstep ";
constexpr std::string_view kEncrypted = "encrypted";  // in a greeting
constexpr size_t kHexDigits = 2 * sizeof(Digest);

bool is_hex_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

std::optional<Digest> digest_from_hex(std::string_view text) {
  if (text.size() != kHexDigits || !std::ranges::all_of(text, is_hex_digit)) return std::nullopt;
  Digest digest{};
  for (size_t i = 0; i < digest.size(); ++i) {
    std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, digest[i], 16);
  }
  return digest;
}

// Splits at single spaces. Returns one part more than `parts_max` for a text that has more.
std::vector<std::string_view> split(std::string_view text, size_t parts_max) {
  std::vector<std::string_view> parts;
  while (parts.size() <= parts_max) {
    const size_t space = text.find(' ');
    parts.push_back(text.substr(0, space));
    if (space == std::string_view::npos) break;
    text.remove_prefix(space + 1);
  }
  return parts;
}

std::string mac(const Digest& key, const std::string& message) {
  return hex(hmac_sha256(bytes_view(key), message));
}

std::string request_mac(const SessionKeys& keys, uint64_t counter, std::string_view method,
                        std::string_view target, std::string_view body_digest) {
  std::string message = std::to_string(counter);
  for (const std::string_view part : {method, target, body_digest}) {
    message.append("\n").append(part);
  }
  return mac(keys.request, message);
}

struct ReplyParts {
  uint64_t counter;
  const std::string& request_mac;
  unsigned status;
  const Digest& body;
};
std::string reply_mac(const SessionKeys& keys, const ReplyParts& reply) {
  return mac(keys.reply, std::to_string(reply.counter) + "\n" + reply.request_mac + "\n" +
                             std::to_string(reply.status) + "\n" + hex(reply.body));
}

std::string greeting_mac(const SessionKeys& keys, bool encrypts) {
  return mac(keys.reply, encrypts ? "hello encrypted" : "hello");
}

SessionKeys keys_for(std::string_view use, std::string_view secret, const SessionNonces& nonces,
                     std::string_view server_name) {
  const std::string salt =
      std::string(bytes_view(nonces.client)) + std::string(bytes_view(nonces.server));
  const auto key = [&](std::string_view direction) {
    std::string info = "lockstep session 1/";
    info.append(direction).append(use).append("/").append(server_name);
    return hkdf_sha256(salt, secret, info);
  };
  return {.request = key("request"), .reply = key("reply")};
}

}  // namespace

SessionKeys session_keys(std::string_view secret, const SessionNonces& nonces,
                         std::string_view server_name) {
  return keys_for("", secret, nonces, server_name);
}

SessionKeys session_body_keys(std::string_view secret, const SessionNonces& nonces,
                              std::string_view server_name) {
  return keys_for(" body", secret, nonces, server_name);
}

bool is_session_authorization(std::string_view authorization) {
  return authorization.starts_with(kScheme);
}

std::string SessionClient::hello() const {
  std::string text = std::string(kScheme) + hex(options_.nonce);
  return options_.encrypts ? text.append(" ").append(kEncrypted) : text;
}

bool SessionClient::accept(std::string_view proof) {
  const std::vector<std::string_view> parts = split(proof, 2);
  if (parts.size() != 2) return false;
  const std::optional<Digest> nonce = digest_from_hex(parts[0]);
  if (!nonce) return false;
  nonces_ = {.client = options_.nonce, .server = *nonce};
  for (secret_ = 0; secret_ < options_.secrets.size(); ++secret_) {
    keys_ = session_keys(options_.secrets[secret_], nonces_, options_.server_name);
    if (equal_constant_time(greeting_mac(keys_, options_.encrypts), parts[1])) return true;
  }
  return false;
}

SessionKeys SessionClient::body_keys() const {
  return session_body_keys(options_.secrets[secret_], nonces_, options_.server_name);
}

std::string SessionClient::sign(std::string_view method, std::string_view target,
                                const Digest& body) {
  const std::string digest = hex(body);
  request_mac_ = request_mac(keys_, ++counter_, method, target, digest);
  return std::string(kScheme) + std::to_string(counter_) + " " + digest + " " + request_mac_;
}

bool SessionClient::check(std::string_view proof, unsigned status, const Digest& body) const {
  const std::string expected =
      std::to_string(counter_) + " " +
      reply_mac(keys_,
                {.counter = counter_, .request_mac = request_mac_, .status = status, .body = body});
  return counter_ > 0 && equal_constant_time(proof, expected);
}

std::optional<std::string> SessionServer::greet(std::string_view authorization) {
  if (options_.secret.empty() || keys_ || !is_session_authorization(authorization)) {
    return std::nullopt;
  }
  const std::vector<std::string_view> parts = split(authorization.substr(kScheme.size()), 2);
  const std::optional<Digest> nonce = digest_from_hex(parts[0]);
  const bool asks = parts.size() == 2 && parts[1] == kEncrypted;
  if (!nonce || parts.size() > (asks ? 2 : 1)) return std::nullopt;
  if (options_.must_encrypt && !asks) return std::nullopt;
  encrypts_ = asks;
  nonces_ = {.client = *nonce, .server = options_.nonce};
  keys_ = session_keys(options_.secret, nonces_, options_.server_name);
  return hex(options_.nonce) + " " + greeting_mac(*keys_, encrypts_);
}

SessionKeys SessionServer::body_keys() const {
  return session_body_keys(options_.secret, nonces_, options_.server_name);
}

bool SessionServer::accept(std::string_view authorization, std::string_view method,
                           std::string_view target) {
  if (!keys_ || !is_session_authorization(authorization)) return false;
  const std::vector<std::string_view> parts = split(authorization.substr(kScheme.size()), 3);
  if (parts.size() != 3 || parts[1].size() != kHexDigits) return false;
  if (parts[0] != std::to_string(counter_ + 1)) return false;
  std::string expected = request_mac(*keys_, counter_ + 1, method, target, parts[1]);
  if (!equal_constant_time(expected, parts[2])) return false;
  ++counter_;
  request_mac_ = std::move(expected);
  body_digest_ = parts[1];
  return true;
}

bool SessionServer::accept_body(std::string_view body) const {
  return equal_constant_time(hex(sha256(body)), body_digest_);
}

std::string SessionServer::sign(unsigned status, std::string_view body) const {
  return std::to_string(counter_) + " " +
         reply_mac(*keys_, {.counter = counter_,
                            .request_mac = request_mac_,
                            .status = status,
                            .body = sha256(body)});
}

}  // namespace lockstep::http
