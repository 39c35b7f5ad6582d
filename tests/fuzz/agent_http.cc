// Bytes on a connection to an agent, as its server and its guard read them: a stranger's request is
// never authentic. Any change of a signed message makes it a stranger's.
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "common/http/body_cipher.h"
#include "common/http/guard.h"
#include "common/http/request_reader.h"
#include "common/http/signed_session.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;
using Progress = http::RequestReader::Progress;

namespace {

constexpr char kName[] = "job-worker-0-1";
constexpr char kSecret[] = "0123456789abcdef";
constexpr size_t kBodyBytesMax = 1024;
constexpr int kRequestsMax = 20;

// Answers requests as http::Session does, until one can't be read.
void serve(std::string_view text, size_t piece) {
  const auto guard = http::session_guards({.server_name = kName, .secret = kSecret})();
  http::RequestReader reader({.header_bytes_max = 2048, .body_bytes_max = kBodyBytesMax});
  reader.begin();
  http::Head head;
  bool is_known = false;  // the head has been read
  for (int requests = 0; requests < kRequestsMax;) {
    Progress progress = is_known ? Progress::kComplete : reader.read_head();
    if (progress == Progress::kComplete && !is_known) {
      is_known = true;
      head = reader.head();
      if (guard->check(head)) return;  // a greeting, or a refusal
      CHECK(!head.is_authentic);       // nobody guesses a mac
    }
    if (progress == Progress::kComplete) progress = reader.read_body();
    if (progress == Progress::kFailed) return;
    if (progress == Progress::kComplete) {
      std::string body = reader.take_body();
      CHECK(!guard->check_body(body));
      http::Response response;
      guard->sign(response);
      CHECK(response.fields.empty());
      ++requests;
      is_known = false;
      if (!reader.keeps_open()) return;
      reader.begin();
      continue;
    }
    if (text.empty()) return;
    const std::span<char> room = reader.prepare();
    const size_t now = std::min({piece, text.size(), room.size()});
    std::memcpy(room.data(), text.data(), now);
    reader.commit(now);
    text.remove_prefix(now);
  }
}

// Exchanges one signed request and reply, in which the input replaces the authorization or the
// proof at some place.
// The body is what is sent, encrypted or not.
void exchange(std::string_view target, std::string_view body, std::string_view forged, size_t at) {
  const Digest client_nonce = sha256(target), server_nonce = sha256(body);
  http::SessionClient client({.server_name = kName,
                              .secrets = {"", kSecret},
                              .nonce = client_nonce,
                              .encrypts = at % 2 == 0});
  http::SessionServer server({.server_name = kName, .secret = kSecret, .nonce = server_nonce});
  const auto with = [&](std::string text) {
    const size_t from = at % (text.size() + 1);
    return text.replace(from, std::min(forged.size(), text.size() - from), forged);
  };
  const std::string hello = client.hello();
  if (with(hello) != hello) {
    http::SessionServer other({.server_name = kName, .secret = kSecret, .nonce = server_nonce});
    (void)other.greet(with(hello));
    CHECK(!other.accept(with(hello), "GET", target));
  }
  const std::string greeting = *server.greet(hello);
  if (with(greeting) != greeting) CHECK(!client.accept(with(greeting)));
  CHECK(client.accept(greeting));
  const std::string request = client.sign("PUT", target, sha256(body));
  if (with(request) != request) CHECK(!server.accept(with(request), "PUT", target));
  CHECK(server.accept(request, "PUT", target) && server.accept_body(body));
  if (with(std::string(body)) != body) CHECK(!server.accept_body(with(std::string(body))));
  const std::string proof = server.sign(200, body);
  if (with(proof) != proof) CHECK(!client.check(with(proof), 200, sha256(body)));
  CHECK(client.check(proof, 200, sha256(body)));
}

// Encrypts a body, in which the input replaces something on its way.
void encrypt(std::string_view body, std::string_view forged, size_t at) {
  const Digest sent = sha256(body), received = sha256(forged);
  http::BodyCipher client = http::BodyCipher::make(sent, received).value();
  http::BodyCipher server = http::BodyCipher::make(received, sent).value();
  std::string text = client.encrypt(1, body).value();
  CHECK(text.size() == http::encrypted_size(body.size()));
  CHECK(server.decrypt(1, text).value() == body);
  CHECK(text.empty() || !server.decrypt(2, text).ok());
  const std::string before = text;
  const size_t from = at % (text.size() + 1);
  text.replace(from, std::min(forged.size(), text.size() - from), forged);
  CHECK(text == before || !server.decrypt(1, text).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text = fuzz::fuzz_text(data + 2, size - 2);
  serve(text, 1 + data[0] % 64);
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  const std::string_view rest = end == std::string_view::npos ? "" : text.substr(end + 1);
  const std::string_view forged = rest.substr(0, data[0] % 32);
  exchange(line, rest, forged, data[1]);
  encrypt(rest, forged, data[1]);
  return 0;
}
