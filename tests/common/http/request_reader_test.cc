#include "common/http/request_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::http {
namespace {

using Progress = RequestReader::Progress;
constexpr RequestReader::Limits kLimits{.header_bytes_max = 200, .body_bytes_max = 100};

struct Read {
  std::vector<Request> requests;
  RequestReader::Failure failure;
};

// Reads all requests of a connection whose bytes arrive in pieces of this size.
Read read(std::string_view bytes, size_t piece, const RequestReader::Limits& limits = kLimits) {
  Read result;
  RequestReader reader(limits);
  reader.begin();
  Progress progress = Progress::kNeedsMore;
  bool in_body = false;
  while (true) {
    if (!in_body) {
      progress = reader.read_head();
      in_body = progress == Progress::kComplete;
    }
    if (in_body) progress = reader.read_body();
    if (progress == Progress::kFailed) {
      result.failure = reader.failure();
      return result;
    }
    if (progress == Progress::kComplete) {
      result.requests.push_back({reader.head(), reader.take_body()});
      in_body = false;
      reader.begin();
      continue;
    }
    if (bytes.empty()) return result;
    const std::span<char> room = reader.prepare();
    const size_t now = std::min({piece, bytes.size(), room.size()});
    std::memcpy(room.data(), bytes.data(), now);
    reader.commit(now);
    bytes.remove_prefix(now);
  }
}

TEST(RequestReader, ReadsTheSameRequestsHoweverTheirBytesArrive) {
  const std::string bytes =
      "GET /a?b=c HTTP/1.1\r\nHost: x\r\nAccept: one\r\naccept: two\r\n\r\n"
      "PUT /b HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody"
      "PUT /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;e=f\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
      "PUT /empty HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
      "PUT /trailer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nf\r\n0\r\nA: b\r\n\r\n"
      "DELETE /d HTTP/1.0\r\n\r\n";
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{64}, bytes.size()}) {
    const Read all = read(bytes, piece);
    ASSERT_EQ(all.requests.size(), 6u) << piece << " " << all.failure.message;
    EXPECT_EQ(all.requests[0].head.method, "GET");
    EXPECT_EQ(all.requests[0].head.target, "/a?b=c");
    EXPECT_EQ(all.requests[0].head.fields.size(), 3u);
    EXPECT_EQ(all.requests[0].head.field("ACCEPT"), "one") << "the first one";
    EXPECT_EQ(all.requests[0].head.field("Absent"), "");
    EXPECT_EQ(all.requests[1].body, "body");
    EXPECT_EQ(all.requests[2].body, "abcde");
    EXPECT_EQ(all.requests[3].body, "");
    EXPECT_EQ(all.requests[4].body, "f");
    EXPECT_EQ(all.requests[5].head.method, "DELETE");
  }
}

TEST(RequestReader, LimitsEveryPartOfARequest) {
  struct Case {
    const char* name;
    std::string bytes;
    unsigned status;
  };
  const std::string head = "PUT / HTTP/1.1\r\n",
                    chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string much(200'000, 'x');
  for (const Case& one : std::vector<Case>{
           {"target", "GET /" + much, 431},
           {"field", head + "A: " + much, 431},
           {"body", head + "Content-Length: 101\r\n\r\n", 413},
           {"chunk", chunked + "65\r\nx", 413},
           {"chunks", chunked + "32\r\n" + std::string(0x32, 'x') + "\r\n33\r\n", 413},
           {"extension", chunked + "1;" + much, 431},
           {"trailer", chunked + "0\r\nA: " + much, 431},
           {"chunk size", chunked + "ffffffffffffffffff\r\n", 400},
           {"garbage", "\x01\x02 what\r\n\r\n", 400},
           {"version", "GET / HTTP/2.0\r\n\r\n", 400}}) {
    for (const size_t piece : {size_t{1}, size_t{4096}}) {
      const Read result = read(one.bytes, piece);
      EXPECT_EQ(result.failure.status, one.status)
          << one.name << " in pieces of " << piece << ": " << result.failure.message;
      EXPECT_TRUE(result.requests.empty());
    }
  }
}

// Each piece ends with the first byte of the next field, so that the parser takes whole fields as
// they come and never holds much.
TEST(RequestReader, LimitsTheFieldsOfAHeadAndOfATrailerTogether) {
  const std::string field = "Name: " + std::string(50, 'x') + "\r\n";
  const std::string chunked = "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n";
  struct Case {
    std::string begin;
    size_t bytes_max;  // a trailer may arrive together with a piece of a body
  };
  for (const auto& [begin, bytes_max] : {Case{"GET / HTTP/1.1\r\n", 400}, Case{chunked, 70'000}}) {
    RequestReader reader(kLimits);
    reader.begin();
    size_t sent = 0;
    const auto feed = [&](const std::string& bytes) {
      std::memcpy(reader.prepare().data(), bytes.data(), bytes.size());
      reader.commit(bytes.size());
      sent += bytes.size();
      const Progress head = reader.read_head();
      return head == Progress::kComplete ? reader.read_body() : head;
    };
    Progress progress = feed(begin + "N");
    while (progress == Progress::kNeedsMore && sent < 1'000'000) {
      progress = feed(field.substr(1) + "N");
    }
    EXPECT_EQ(progress, Progress::kFailed) << begin;
    EXPECT_EQ(reader.failure().status, 431u) << reader.failure().message;
    EXPECT_LE(sent, bytes_max) << begin;
  }
}

TEST(RequestReader, TakesALowerLimitForTheBodyAfterTheHead) {
  for (const char* length :
       {"Content-Length: 11\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nb\r\nx\r\n"}) {
    RequestReader reader(kLimits);
    reader.begin();
    const std::string bytes = std::string("PUT / HTTP/1.1\r\n") + length;
    std::memcpy(reader.prepare().data(), bytes.data(), bytes.size());
    reader.commit(bytes.size());
    ASSERT_EQ(reader.read_head(), Progress::kComplete);
    reader.limit_body(10);
    ASSERT_EQ(reader.read_body(), Progress::kFailed) << length;
    EXPECT_EQ(reader.failure().status, 413u);
  }
}

TEST(Message, HasNoFieldFromAValue) {
  const Response response{.status = 201,
                          .body = "four",
                          .content_type = "a\r\nb",
                          .fields = {{"Warning", "x\r\n\r\ny\x7f"}}};
  EXPECT_EQ(format_head(response, {.closes = true}),
            "HTTP/1.1 201 Created\r\nContent-Type: a  b\r\nCache-Control: no-store\r\n"
            "Warning: x    y \r\nConnection: close\r\nContent-Length: 4\r\n\r\n");
}

TEST(Message, WritesChunks) {
  EXPECT_EQ(format_chunk(std::string(26, 'x')), "1a\r\n" + std::string(26, 'x') + "\r\n");
}

}  // namespace
}  // namespace lockstep::http
