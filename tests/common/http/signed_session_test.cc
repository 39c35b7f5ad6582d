#include "common/http/signed_session.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/base/hkdf.h"
#include "common/base/sha256.h"
#include "common/http/body_cipher.h"

namespace lockstep::http {
namespace {

constexpr char kName[] = "job-worker-0-1";
constexpr char kTarget[] = "/v1/assignment?protocol=6";
constexpr char kBody[] = R"({"a":1})";
constexpr char kReply[] = R"({"sequence":1})";

std::string secret() {
  std::string text;
  while (text.size() < 64) text += "6e";
  return text;
}

Digest nonce_from(uint8_t first) {
  Digest nonce;
  for (uint8_t& byte : nonce) byte = first++;
  return nonce;
}

struct Pair {
  explicit Pair(uint8_t first = 0, bool encrypts = false)
      : client({.server_name = kName,
                .secrets = {"another", secret()},
                .nonce = nonce_from(first),
                .encrypts = encrypts}),
        server({.server_name = kName,
                .secret = secret(),
                .nonce = nonce_from(static_cast<uint8_t>(first + 32))}) {}
  bool greet() {
    const auto proof = server.greet(client.hello());
    return proof && client.accept(*proof);
  }
  std::string request(const char* body = kBody) {
    return client.sign("PUT", kTarget, sha256(body));
  }

  SessionClient client;
  SessionServer server;
};

std::string hex_of(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    for (const int digit : {(byte >> 4) & 15, byte & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

// Returns the text with another digit at the place.
std::string changed(std::string text, size_t at) {
  text[at] = text[at] == '0' ? '1' : '0';
  return text;
}

TEST(Hkdf, AgreesWithTheStandardsExample) {  // RFC 5869, A.1, the first 32 bytes
  std::string salt, info;
  for (char byte = 0; byte < 13; ++byte) salt += byte;
  for (int byte = 0xf0; byte < 0xfa; ++byte) info += static_cast<char>(byte);
  EXPECT_EQ(hex(hkdf_sha256(salt, std::string(22, '\x0b'), info)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
}

// Computed with Python's hmac and hashlib from the header's description.
TEST(SignedSession, HasTheKnownBytes) {
  Pair pair;
  EXPECT_EQ(pair.client.hello(),
            "Lockstep 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
  const auto proof = pair.server.greet(pair.client.hello());
  ASSERT_TRUE(proof);
  EXPECT_EQ(*proof,
            "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f "
            "dca9f841dbb1a76be455ada4f31b61a4d7371831450844dd0e90f1a2206a2fa9");
  ASSERT_TRUE(pair.client.accept(*proof));
  const std::string request = pair.request();
  EXPECT_EQ(request,
            "Lockstep 1 015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862 "
            "bcabef632462fea457c47ce9d63c5970916c510b5d6adc651d201c6f235be271");
  ASSERT_TRUE(pair.server.accept(request, "PUT", kTarget));
  EXPECT_TRUE(pair.server.accept_body(kBody));
  EXPECT_EQ(pair.server.sign(200, kReply),
            "1 2033a6254fd5696fdaaeb53618afd555a41bd0d2fb0890434c4d0308b972c300");
  const SessionKeys keys =
      session_keys(secret(), {.client = nonce_from(0), .server = nonce_from(32)}, kName);
  EXPECT_EQ(hex(keys.request), "aa307a9940538ed313e065916aa941fe09b270e819b2c74ce0d0fb95aa18ebc8");
  EXPECT_EQ(hex(keys.reply), "ceab6bae862059b8c4ac6df2f91a23b1532c670eea733315d6736c9cf4116c4b");
}

TEST(SignedSession, CarriesManyRequestsOfBothSides) {
  Pair pair;
  ASSERT_TRUE(pair.greet());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(pair.server.accept(pair.request(), "PUT", kTarget)) << i;
    ASSERT_TRUE(pair.server.accept_body(kBody));
    ASSERT_TRUE(pair.client.check(pair.server.sign(200, kReply), 200, sha256(kReply))) << i;
  }
}

TEST(SignedSession, RefusesARequestOfWhichAnyPartIsChanged) {
  const std::string good = [] {
    Pair pair;
    pair.greet();
    return pair.request();
  }();
  const auto accepts = [](const std::string& authorization, const char* method = "PUT",
                          const char* target = kTarget) {
    Pair pair;
    EXPECT_TRUE(pair.greet());
    return pair.server.accept(authorization, method, target);
  };
  ASSERT_TRUE(accepts(good)) << "the same nonces make the same keys";
  for (size_t at = 0; at < good.size(); ++at) EXPECT_FALSE(accepts(changed(good, at))) << at;
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(accepts(good.substr(0, size))) << size;
  }
  EXPECT_FALSE(accepts(good + " "));
  EXPECT_FALSE(accepts(good + "0"));
  EXPECT_FALSE(accepts(good, "POST"));
  EXPECT_FALSE(accepts(good, "PUT", "/v1/assignment"));
  EXPECT_FALSE(accepts(good, "PUT", "/v1/assignment?protocol=7"));
  EXPECT_FALSE(accepts("Lockstep 01" + good.substr(10))) << "one spelling for each counter";
  EXPECT_FALSE(accepts("Lockstep +1" + good.substr(10)));
}

TEST(SignedSession, RefusesAnotherBody) {
  Pair pair;
  ASSERT_TRUE(pair.greet());
  ASSERT_TRUE(pair.server.accept(pair.request(), "PUT", kTarget));
  EXPECT_FALSE(pair.server.accept_body(R"({"a":2})"));
  EXPECT_FALSE(pair.server.accept_body(""));
  EXPECT_TRUE(pair.server.accept_body(kBody));
}

TEST(SignedSession, RefusesAReplyOfWhichAnyPartIsChanged) {
  Pair pair;
  ASSERT_TRUE(pair.greet());
  ASSERT_TRUE(pair.server.accept(pair.request(), "PUT", kTarget));
  const std::string good = pair.server.sign(200, kReply);
  ASSERT_TRUE(pair.client.check(good, 200, sha256(kReply)));
  for (size_t at = 0; at < good.size(); ++at) {
    EXPECT_FALSE(pair.client.check(changed(good, at), 200, sha256(kReply))) << at;
  }
  EXPECT_FALSE(pair.client.check("", 200, sha256(kReply)));
  EXPECT_FALSE(pair.client.check(good, 409, sha256(kReply)));
  EXPECT_FALSE(pair.client.check(good, 200, sha256(R"({"sequence":2})")));
}

TEST(SignedSession, RefusesMessagesAgainAndOutOfOrder) {
  Pair pair;
  ASSERT_TRUE(pair.greet());
  const std::string first = pair.request();
  ASSERT_TRUE(pair.server.accept(first, "PUT", kTarget));
  const std::string first_reply = pair.server.sign(200, kReply);
  EXPECT_FALSE(pair.server.accept(first, "PUT", kTarget)) << "again";
  const std::string second = pair.request();
  const std::string third = pair.request();
  EXPECT_FALSE(pair.server.accept(third, "PUT", kTarget)) << "before its turn";
  EXPECT_TRUE(pair.server.accept(second, "PUT", kTarget));
  EXPECT_FALSE(pair.client.check(first_reply, 200, sha256(kReply))) << "of an earlier request";
  EXPECT_TRUE(pair.server.accept(third, "PUT", kTarget));
}

TEST(SignedSession, RefusesMessagesOfAnotherConnection) {
  Pair recorded(0), fresh(100);
  ASSERT_TRUE(recorded.greet() && fresh.greet());
  const std::string request = recorded.request();
  ASSERT_TRUE(recorded.server.accept(request, "PUT", kTarget));
  EXPECT_FALSE(fresh.server.accept(request, "PUT", kTarget));
  fresh.request();
  EXPECT_FALSE(fresh.client.check(recorded.server.sign(200, kReply), 200, sha256(kReply)));
  // The recorded client's greeting again, to a server that chooses its nonce anew.
  SessionServer server({.server_name = kName, .secret = secret(), .nonce = nonce_from(200)});
  ASSERT_TRUE(server.greet(recorded.client.hello()));
  EXPECT_FALSE(server.accept(request, "PUT", kTarget));
}

// A reply's mac does not pass for a request's.
TEST(SignedSession, HasAKeyForEachDirection) {
  Pair pair;
  ASSERT_TRUE(pair.greet());
  const SessionKeys keys =
      session_keys(secret(), {.client = nonce_from(0), .server = nonce_from(32)}, kName);
  EXPECT_NE(keys.request, keys.reply);
}

TEST(SignedSession, TheClientDoesNotBelieveAServerWithoutTheSecret) {
  SessionClient client({.server_name = kName, .secrets = {secret()}, .nonce = nonce_from(0)});
  SessionServer stranger({.server_name = kName, .secret = "guess", .nonce = nonce_from(32)});
  EXPECT_FALSE(client.accept(*stranger.greet(client.hello())));
  SessionServer other({.server_name = "job-worker-1-1", .secret = secret(), .nonce = {}});
  EXPECT_FALSE(client.accept(*other.greet(client.hello()))) << "another agent of the job";
  for (const std::string proof : {"", " ", "00", "a b", "a b c"}) {
    EXPECT_FALSE(client.accept(proof)) << proof;
  }
  Pair earlier(0), later(1);
  const std::string recorded = *earlier.server.greet(earlier.client.hello());
  EXPECT_FALSE(later.client.accept(recorded)) << "recorded from another greeting";
}

TEST(SignedSession, TheServerAcceptsNobodyWithoutAGreetingOrASecret) {
  Pair pair;
  EXPECT_FALSE(pair.server.accept(pair.request(), "PUT", kTarget));
  ASSERT_TRUE(pair.server.greet(pair.client.hello()));
  EXPECT_FALSE(pair.server.greet(pair.client.hello())) << "a second one";
  SessionServer keyless({.server_name = kName, .secret = "", .nonce = nonce_from(1)});
  EXPECT_FALSE(keyless.greet(pair.client.hello()));
  for (const std::string hello : {"", "Lockstep", "Lockstep ", "Lockstep 00", "Bearer 00"}) {
    Pair fresh;
    EXPECT_FALSE(fresh.server.greet(hello)) << hello;
  }
}

TEST(SignedSession, TheServerMayHaveAnyOfTheClientsSecrets) {
  for (const char* secret : {"new", "old", "oldest"}) {
    SCOPED_TRACE(secret);
    SessionClient client(
        {.server_name = kName, .secrets = {"new", "old", "oldest"}, .nonce = nonce_from(0)});
    SessionServer server({.server_name = kName, .secret = secret, .nonce = nonce_from(32)});
    ASSERT_TRUE(client.accept(*server.greet(client.hello())));
    EXPECT_TRUE(server.accept(client.sign("GET", "/v1/state", sha256("")), "GET", "/v1/state"));
  }
}

// Computed with Python's hmac, hashlib and cryptography from the header's description.
TEST(EncryptedSession, HasTheKnownBytes) {
  Pair pair(0, /*encrypts=*/true);
  EXPECT_EQ(pair.client.hello(),
            "Lockstep 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f encrypted");
  const auto proof = pair.server.greet(pair.client.hello());
  ASSERT_TRUE(proof);
  EXPECT_EQ(*proof,
            "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f "
            "3207874e6fc4ed2fc858c1d1807aedc38fb45e88876db1e673efa23b4b45af06");
  ASSERT_TRUE(pair.client.accept(*proof));
  EXPECT_TRUE(pair.server.encrypts());
  const SessionKeys keys = pair.client.body_keys();
  EXPECT_EQ(hex(keys.request), "e2330b8bec3d6683cea9469a90aaca7a74055c24dda4a3ed5b96b1920087ccf5");
  EXPECT_EQ(hex(keys.reply), "56933c0b3adc836517bfb7c57d091422565440686fa689ec2c42e05e797bfb75");
  EXPECT_EQ(hex(pair.server.body_keys().request), hex(keys.request));
  EXPECT_EQ(hex(pair.server.body_keys().reply), hex(keys.reply));
  EXPECT_EQ(hex_of(BodyCipher::make(keys.request, keys.reply)->encrypt(1, kBody).value()),
            "0c4d52ea2de46f9fe9180d8daee2332b8b310028604cf8");
}

// Somebody in between leaves the word out, or adds it.
TEST(EncryptedSession, BothSidesAgreeThatItIsOne) {
  Pair encrypted(0, /*encrypts=*/true), plain(0);
  EXPECT_FALSE(encrypted.client.accept(*encrypted.server.greet(plain.client.hello())));
  EXPECT_FALSE(plain.client.accept(*plain.server.greet(encrypted.client.hello())));
  const std::string hello = Pair().client.hello();
  for (const std::string word : {" ", " Encrypted", " encrypted ", " encrypted x", "  encrypted"}) {
    EXPECT_FALSE(Pair().server.greet(hello + word)) << word;
  }
}

TEST(EncryptedSession, AServerMayRefuseOthers) {
  SessionServer server(
      {.server_name = kName, .secret = secret(), .nonce = nonce_from(32), .must_encrypt = true});
  EXPECT_FALSE(server.greet(Pair(0).client.hello()));
  Pair pair(0, /*encrypts=*/true);
  EXPECT_TRUE(pair.client.accept(*server.greet(pair.client.hello())));
}

TEST(BodyCipher, DecryptsWhatTheOtherSideEncryptedWithTheSameNumber) {
  const Digest sent = sha256("one"), received = sha256("another");
  BodyCipher client = BodyCipher::make(sent, received).value();
  BodyCipher server = BodyCipher::make(received, sent).value();
  const std::string large(1 << 20, 'x');
  uint64_t number = 0;
  for (const std::string& body : {std::string(), std::string("1"), std::string(kBody), large}) {
    ++number;
    std::string text = client.encrypt(number, body).value();
    EXPECT_EQ(text.size(), encrypted_size(body.size()));
    EXPECT_EQ(server.decrypt(number, text).value(), body);
    EXPECT_EQ(client.decrypt(number, server.encrypt(number, body).value()).value(), body);
    if (body.empty()) continue;
    EXPECT_EQ(text.find(body), std::string::npos);
    EXPECT_FALSE(server.decrypt(number + 1, text).ok());
    EXPECT_FALSE(client.decrypt(number, text).ok()) << "each direction has its own key";
    text.back() ^= 1;
    EXPECT_FALSE(server.decrypt(number, text).ok());
    for (const size_t size : {size_t{1}, kBodyTagBytes - 1, kBodyTagBytes}) {
      EXPECT_FALSE(server.decrypt(number, text.substr(0, size)).ok()) << size;
    }
  }
}

}  // namespace
}  // namespace lockstep::http
