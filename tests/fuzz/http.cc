// Bytes on a connection, as the embedded server reads them. Pipelined requests parse the same
// whether they arrive together or in pieces. No byte of a request becomes a header of the reply or
// a second reply.
#include "local/http/messages.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <sstream>
#include <vector>

#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;
using namespace lockstep::local;
namespace http = boost::beast::http;

namespace {

constexpr uint32_t kHeaderBytesMax = 512;
constexpr uint32_t kNoHeaderLimit = 1u << 20;  // beyond any input
constexpr uint64_t kBodyBytesMax = 256;
constexpr size_t kRequestsMax = 20;

struct Session {
  std::vector<local::ApiRequest> requests;
  std::vector<bool> authorized;
};

void take(const local::HttpParser& parser, Session& session) {
  session.requests.push_back(local::to_api_request(parser));
  session.authorized.push_back(local::is_authorized(parser, "secret"));
  CHECK(local::target_of(parser) == session.requests.back().target);
  CHECK(session.requests.back().body.size() <= kBodyBytesMax);
}

// Reads requests, `piece` bytes at a time, until one can't be read.
Session read(std::string_view text, size_t piece, uint32_t header_bytes_max) {
  Session session;
  std::string pending;
  auto parser = std::make_unique<local::HttpParser>();
  while (session.requests.size() < kRequestsMax) {
    parser->header_limit(header_bytes_max);
    parser->body_limit(kBodyBytesMax);
    parser->eager(true);
    boost::system::error_code error = http::error::need_more;
    if (!pending.empty())
      pending.erase(0,
                    parser->put(boost::asio::const_buffer(pending.data(), pending.size()), error));
    if (error && error != http::error::need_more) break;
    if (parser->is_done()) {
      take(*parser, session);
      if (!parser->keep_alive()) break;
      parser = std::make_unique<local::HttpParser>();
    } else if (text.empty()) {
      if (parser->got_some()) parser->put_eof(error);
      break;
    } else {
      pending += text.substr(0, piece);
      text.remove_prefix(std::min(piece, text.size()));
    }
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
  const std::string body = dump_json(answer.body);
  const auto warnings = static_cast<long>(answer.warnings.size());
  std::ostringstream wire;
  wire << local::make_response(std::move(answer), true);
  const std::string text = wire.str();
  http::response_parser<http::string_body> parser;
  parser.eager(true);
  boost::system::error_code error;
  const size_t read = parser.put(boost::asio::const_buffer(text.data(), text.size()), error);
  CHECK(!error && parser.is_done() && read == text.size());
  CHECK(parser.get().body() == body);
  const auto [first, last] = parser.get().equal_range(http::field::warning);
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
