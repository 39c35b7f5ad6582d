// Bytes on a connection, as the embedded server reads them. Pipelined requests parse the same
// whether they arrive together or in pieces. No byte of a request becomes a header of the reply or
// a second reply.
#include "local/http/messages.h"

#include <algorithm>
#include <boost/beast/http.hpp>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "common/http/bearer_token.h"
#include "common/http/request_reader.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;
using namespace lockstep::local;
using Progress = http::RequestReader::Progress;

namespace {

constexpr size_t kHeaderBytesMax = 512;
constexpr size_t kNoHeaderLimit = 1u << 20;  // beyond any input
constexpr size_t kBodyBytesMax = 256;
constexpr size_t kRequestsMax = 20;

struct Session {
  std::vector<local::ApiRequest> requests;
  std::vector<bool> authorized;
  unsigned failure = 0;
};

void take(http::RequestReader& reader, Session& session) {
  http::Request request{reader.head(), reader.take_body()};
  CHECK(request.body.size() <= kBodyBytesMax);
  session.authorized.push_back(http::has_bearer_token(request.head, "secret"));
  session.requests.push_back(local::to_api_request(std::move(request)));
}

// Reads requests, `piece` bytes at a time, until one can't be read.
Session read(std::string_view text, size_t piece, size_t header_bytes_max) {
  Session session;
  http::RequestReader reader(
      {.header_bytes_max = header_bytes_max, .body_bytes_max = kBodyBytesMax});
  reader.begin();
  while (session.requests.size() < kRequestsMax) {
    Progress progress = reader.read_head();
    if (progress == Progress::kComplete) {
      (void)reader.expects_continue();
      progress = reader.read_body();
    }
    if (progress == Progress::kFailed) {
      session.failure = reader.failure().status;
      CHECK(session.failure == 400 || session.failure == 413 || session.failure == 431);
      break;
    }
    if (progress == Progress::kComplete) {
      take(reader, session);
      if (!reader.keeps_open()) break;
      reader.begin();
      continue;
    }
    if (text.empty()) break;
    const std::span<char> room = reader.prepare();
    const size_t now = std::min({piece, text.size(), room.size()});
    std::memcpy(room.data(), text.data(), now);
    reader.commit(now);
    text.remove_prefix(now);
  }
  return session;
}

void check_same(const Session& a, const Session& b) {
  CHECK(a.requests.size() == b.requests.size() && a.authorized == b.authorized);
  for (size_t i = 0; i < a.requests.size(); ++i) {
    CHECK(a.requests[i].method == b.requests[i].method);
    CHECK(a.requests[i].target == b.requests[i].target);
    CHECK(a.requests[i].body == b.requests[i].body);
  }
}

void check_answer(const local::ApiRequest& request) {
  local::ApiResponse answer = local::bad_request(request.target + request.body);
  answer.warnings = {request.user_agent, request.body};
  const auto warnings = static_cast<long>(answer.warnings.size());
  const http::Response response = local::to_http_response(std::move(answer));
  const std::string text = http::format_head(response, {}) + response.body;
  boost::beast::http::response_parser<boost::beast::http::string_body> parser;
  parser.eager(true);
  boost::system::error_code error;
  const size_t read = parser.put(boost::asio::const_buffer(text.data(), text.size()), error);
  CHECK(!error && parser.is_done() && read == text.size());
  CHECK(parser.get().body() == response.body);
  const auto [first, last] = parser.get().equal_range(boost::beast::http::field::warning);
  CHECK(std::distance(first, last) == warnings);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text = fuzz::fuzz_text(data + 1, size - 1);
  const size_t piece = 1 + data[0] % 16;
  const Session whole = read(text, std::max<size_t>(1, text.size()), kNoHeaderLimit);
  check_same(whole, read(text, piece, kNoHeaderLimit));
  // Where exactly the limit is reached depends on the pieces.
  (void)read(text, piece, kHeaderBytesMax);
  for (const local::ApiRequest& request : whole.requests) {
    (void)local::is_health_path(request.target);
    check_answer(request);
  }
  return 0;
}
