// Tests the HTTP layer of the embedded API server over real sockets, with misbehaving clients too.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "local/http/server.h"
#include "local/http/watch_stream.h"
#include "tests/local/http/http_client.h"

namespace lockstep::local {
namespace {

constexpr char kToken[] = "right";
constexpr char kJobs[] = "/apis/lockstep.dev/v1alpha1/namespaces/default/trainingjobs";
constexpr char kPods[] = "/api/v1/namespaces/default/pods";

using Client = test::HttpClient;

std::string request(const std::string& line, const std::string& more = "",
                    const std::string& body = "") {
  return line + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + kToken + "\r\n" + more +
         (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") + "\r\n" +
         body;
}

class HttpTest : public testing::Test {
 protected:
  void start(ApiServerOptions options = {}) {
    options.token = kToken;
    auto started = ApiServer::start(api_, options);
    ASSERT_TRUE(started.ok());
    server_ = *std::move(started);
  }
  // Sends one request on its own connection. Returns the status line and everything after it.
  std::string exchange(const std::string& text) {
    Client client(server_->port());
    client.send(text);
    return client.read_all();
  }
  static std::string closing(const std::string& line, const std::string& body = "") {
    return request(line, "Connection: close\r\n", body);
  }
  static std::string job(const std::string& name) {
    return R"({"apiVersion":"lockstep.dev/v1alpha1","kind":"TrainingJob","metadata":{"name":")" +
           name + R"("},"spec":{"nodes":1,"command":["true"]}})";
  }

  SystemClock clock_;
  Api api_{clock_, 1};
  std::unique_ptr<ApiServer> server_;
};

TEST_F(HttpTest, ServesRequestsOneAfterTheOtherOnOneConnection) {
  start();
  Client client(server_->port());
  client.send(request("POST " + std::string(kJobs), "", job("a")));
  EXPECT_TRUE(client.read_until("\"uid\""));
  EXPECT_TRUE(client.received.starts_with("HTTP/1.1 201 Created"));
  client.send(request("GET " + std::string(kJobs) + "/a") + request("GET /healthz"));
  EXPECT_TRUE(client.read_until("ok"));
  EXPECT_NE(client.received.find("HTTP/1.1 200 OK"), std::string::npos);
}

TEST_F(HttpTest, WantsItsToken) {
  start();
  for (const char* header : {"", "Authorization: Bearer wrong\r\n", "Authorization: Bearer \r\n",
                             "Authorization: Basic cmlnaHQ=\r\n", "Authorization: right\r\n",
                             "Authorization: Bearer righter\r\n"}) {
    std::string answer =
        exchange("GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n" + std::string(header) + "\r\n");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 401 ")) << header << answer;
    EXPECT_NE(answer.find("\"reason\":\"Unauthorized\""), std::string::npos);
  }
  EXPECT_TRUE(
      exchange("GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 200 "));
}

TEST_F(HttpTest, RefusesABodyBeforeItIsReadWithoutTheToken) {
  start();
  std::string answer = exchange("POST " + std::string(kJobs) +
                                " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 401 ")) << answer;
}

TEST_F(HttpTest, RefusesWhatIsTooLarge) {
  start();
  std::string huge = "POST " + std::string(kJobs);
  EXPECT_TRUE(exchange(request(huge, "Content-Length: 3145729\r\n")).starts_with("HTTP/1.1 413 "));
  EXPECT_TRUE(exchange(request("GET /api", "X: " + std::string(20'000, 'x') + "\r\n"))
                  .starts_with("HTTP/1.1 431 "));
  // Chunks that are too large in total.
  std::string chunk = "100000\r\n" + std::string(0x100000, ' ') + "\r\n";
  Client client(server_->port());
  client.send(request(huge, "Transfer-Encoding: chunked\r\n"));
  for (int i = 0; i < 4 && client.send(chunk); ++i) {
  }
  EXPECT_TRUE(client.read_until("413"));
}

TEST_F(HttpTest, AnswersGarbageAndGoesOn) {
  start();
  for (const std::string& garbage :
       {std::string("\x16\x03\x01\x02\x00\x01\xfc\x03\x03", 9) + "\r\n\r\n",
        std::string("GET\r\n\r\n"), std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string("\0\0\0\0\r\n\r\n", 8),
        std::string("POST / HTTP/1.1\r\nContent-Length: nine\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")}) {
    std::string answer = exchange(garbage);
    EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 400 ")) << answer;
  }
  EXPECT_TRUE(exchange(closing("GET /api")).starts_with("HTTP/1.1 200 "));
}

TEST_F(HttpTest, EndsRequestsThatTakeTooLong) {
  start({.io_timeout = std::chrono::milliseconds(200)});
  EXPECT_EQ(exchange("GET /api HTTP/1.1\r\nHost:"), "");
  EXPECT_EQ(exchange(request("POST " + std::string(kJobs), "Content-Length: 100\r\n") + "{"), "");
}

TEST_F(HttpTest, EndsIdleConnections) {
  start({.idle_timeout = std::chrono::milliseconds(100)});
  EXPECT_EQ(exchange(""), "");
  EXPECT_TRUE(exchange(request("GET /healthz")).starts_with("HTTP/1.1 200 "));
}

TEST_F(HttpTest, ServesItsOwnerWhileIdleStrangersHoldAllConnections) {
  // Both ends of all connections are in this process.
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  start();
  std::vector<std::unique_ptr<Client>> strangers;
  for (size_t i = 0; i < ApiServerOptions().connections_max; ++i)
    strangers.push_back(std::make_unique<Client>(server_->port()));
  Client owner(server_->port());
  owner.send(request("GET /api"));
  EXPECT_TRUE(owner.read_until("HTTP/1.1 200 OK"));
  // The oldest of them gave way. More strangers evict each other, and not the owner.
  EXPECT_EQ(strangers.front()->read_all(), "");
  for (int i = 0; i < 10; ++i) strangers.push_back(std::make_unique<Client>(server_->port()));
  owner.received.clear();
  owner.send(request("GET /api"));
  EXPECT_TRUE(owner.read_until("HTTP/1.1 200 OK"));
}

TEST_F(HttpTest, HasAsManyConnectionsAsItSays) {
  start({.connections_max = 2});
  auto first = std::make_unique<Client>(server_->port());
  Client second(server_->port());
  for (Client* client : {first.get(), &second}) {
    client->send(request("GET /healthz"));
    EXPECT_TRUE(client->read_until("ok"));
  }
  EXPECT_EQ(exchange(""), "");
  // One client leaves, so there is room again.
  first.reset();
  std::string answer;
  while (answer.empty()) answer = exchange(closing("GET /healthz"));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 "));
}

TEST_F(HttpTest, StreamsAWatch) {
  start();
  Client client(server_->port());
  client.send(request("GET " + std::string(kJobs) + "?watch=true"));
  EXPECT_TRUE(client.read_until("\r\n\r\n"));
  EXPECT_NE(client.received.find("Transfer-Encoding: chunked"), std::string::npos);
  exchange(closing("POST " + std::string(kJobs), job("a")));
  EXPECT_TRUE(client.read_until("\"type\":\"ADDED\"}\n"));
  exchange(closing("DELETE " + std::string(kJobs) + "/a"));
  EXPECT_TRUE(client.read_until("\"type\":\"DELETED\"}\n"));
}

TEST_F(HttpTest, EndsAWatchAfterItsTimeWithABookmark) {
  start();
  std::string answer =
      exchange(request("GET " + std::string(kJobs) +
                       "?watch=true&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion=1"));
  EXPECT_NE(answer.find("\"type\":\"BOOKMARK\""), std::string::npos);
  EXPECT_TRUE(answer.ends_with("0\r\n\r\n")) << answer;
}

TEST_F(HttpTest, TellsALateWatchInAnEvent) {
  Api small(clock_, 1, {.history_max = 2});
  for (const char* name : {"a", "b", "c", "d"})
    small.handle({"POST", kJobs, "application/json", job(name)});
  ApiServerOptions options{.token = kToken};
  auto server = ApiServer::start(small, options);
  ASSERT_TRUE(server.ok());
  Client client((*server)->port());
  client.send(request("GET " + std::string(kJobs) + "?watch=1&resourceVersion=1"));
  std::string answer = client.read_all();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer;
  EXPECT_NE(answer.find("\"code\":410"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("0\r\n\r\n"));
}

TEST_F(HttpTest, CutsOffAWatcherThatDoesNotRead) {
  start({.connections_max = 2, .io_timeout = std::chrono::milliseconds(300)});
  Client slow(server_->port(), 4096);
  slow.send(request("GET " + std::string(kPods) + "?watch=true"));
  EXPECT_TRUE(slow.read_until("\r\n\r\n"));
  std::string filler(512 * 1024, 'x');
  for (int i = 0; i < 40; ++i) {
    ApiResponse made =
        api_.handle({"POST", kPods, "application/json",
                     R"({"metadata":{"name":"p)" + std::to_string(i) +
                         R"("},"spec":{"containers":[{"name":"c","filler":")" + filler + "\"}]}}"});
    ASSERT_EQ(made.code, 201);
  }
  // The server freed the client's place, although it neither read nor closed.
  Client other(server_->port());
  other.send(request("GET /healthz"));
  EXPECT_TRUE(other.read_until("ok"));
  std::string answer;
  while (answer.empty()) answer = exchange(closing("GET /healthz"));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 "));
}

TEST_F(HttpTest, ServesManyWatchersAtOnce) {
  start();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    clients.back()->send(request("GET " + std::string(kJobs) + "?watch=true"));
  }
  for (auto& client : clients) EXPECT_TRUE(client->read_until("\r\n\r\n"));
  api_.handle({"POST", kJobs, "application/json", job("a")});
  for (auto& client : clients) EXPECT_TRUE(client->read_until("\"type\":\"ADDED\"}\n"));
}

TEST_F(HttpTest, HasAsManyWatchesAsItSays) {
  start({.watchers_max = 1});
  auto first = std::make_unique<Client>(server_->port());
  first->send(request("GET " + std::string(kJobs) + "?watch=true"));
  EXPECT_TRUE(first->read_until("\r\n\r\n"));
  const std::string watch = closing("GET " + std::string(kJobs) + "?watch=true&timeoutSeconds=1");
  const std::string refused = exchange(watch);
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 429 ")) << refused;
  EXPECT_NE(refused.find("Retry-After: 1"), std::string::npos);
  first.reset();
  std::string answer;
  do answer = exchange(watch);
  while (answer.starts_with("HTTP/1.1 429 "));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer;
}

TEST(WakeTime, HasNoBookmarkInItWhereNoneWasAskedFor) {
  const TimePoint end = TimePoint{} + std::chrono::seconds(100);
  const TimePoint bookmark = TimePoint{} + std::chrono::seconds(60);
  EXPECT_EQ(wake_time(end, bookmark, true), bookmark);
  EXPECT_EQ(wake_time(end, bookmark, false), end) << "it would be woken in the past for ever";
  EXPECT_EQ(wake_time(bookmark, end, true), bookmark);
}

TEST_F(HttpTest, ForgetsOldChangesByItself) {
  Api api(clock_, 1, {.history_age = std::chrono::milliseconds(1)});
  auto server =
      ApiServer::start(api, {.token = kToken, .compact_interval = std::chrono::milliseconds(1)});
  ASSERT_TRUE(server.ok());
  ASSERT_EQ(api.handle({"POST", kJobs, "application/json", job("a")}).code, 201);
  std::string answer;
  do {
    Client client((*server)->port());
    client.send(
        closing("GET " + std::string(kJobs) + "?watch=true&timeoutSeconds=1&resourceVersion=1"));
    answer = client.read_all();
  } while (answer.find("\"code\":410") == std::string::npos);
  // Existing objects are still listed.
  EXPECT_NE(dump_json(api.handle({"GET", kJobs, "", ""}).body).find("\"a\""), std::string::npos);
}

TEST_F(HttpTest, StopsWithOpenConnections) {
  start();
  Client watcher(server_->port()), idle(server_->port());
  watcher.send(request("GET " + std::string(kJobs) + "?watch=true"));
  EXPECT_TRUE(watcher.read_until("\r\n\r\n"));
  server_.reset();
  watcher.read_all();
  idle.read_all();
  // The Api works after its server has stopped.
  EXPECT_EQ(api_.handle({"POST", kJobs, "application/json", job("a")}).code, 201);
}

TEST_F(HttpTest, SaysWhichAddressIsTaken) {
  start();
  ApiServerOptions same{.port = server_->port(), .token = kToken};
  auto second = ApiServer::start(api_, same);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find(std::to_string(server_->port())), std::string::npos);
}

}  // namespace
}  // namespace lockstep::local
