// Single requests: limits, refusals, credentials, unreadable replies. Rows 14, 15, 24, 30 and 31.
#include <algorithm>
#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "tests/semantics/rig.h"

namespace lockstep::semantics {
namespace {

using conformance::server;
using std::chrono::seconds;

class Requests : public Semantics {
 protected:
  // Requests a configmap, which may not exist.
  loop::ApiReply ask_for(Loop& loop, kube::KubeClient& client, const std::string& name) {
    std::optional<loop::ApiReply> reply;
    client.send(
        {.verb = loop::ApiVerb::kGet, .type = kConfigMaps, .namespace_ = namespace_, .name = name},
        [&](loop::ApiReply answer) { reply = std::move(answer); });
    EXPECT_TRUE(loop.run_until([&] { return reply.has_value(); }));
    return reply.value_or(loop::ApiReply{});
  }
};

std::string http_date(WallTime time) {
  const std::time_t when = std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(time));
  std::tm parts{};
  ::gmtime_r(&when, &parts);
  char text[64];
  (void)std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return text;
}

TEST_F(Requests, WaitAsLongAsTheServerAsksButNotForEver) {
  Loop loop(100);
  struct Case {
    int status;
    std::function<std::string()> retry_after;
    double seconds_min;
  };
  const auto text = [](std::string value) { return [value] { return value; }; };
  const Case cases[] = {
      {429, text("30"), 30},
      {429, [&] { return http_date(loop.clock.wall_now() + seconds(62)); }, 60},
      {429, text("1000000000"), 300},
      {503, text("20"), 20},
      {500, {}, 0.8},
      {429, {}, 0.8},
  };
  std::vector<std::unique_ptr<FaultProxy>> proxies;
  std::vector<std::unique_ptr<Cache>> caches;
  for (const Case& test : cases) {
    FaultProxy& one = *proxies.emplace_back(std::make_unique<FaultProxy>(server().target()));
    one.on({.verb = "list",
            .fault =
                [&test](Exchange& exchange) {
                  const std::string field =
                      test.retry_after ? "Retry-After: " + test.retry_after() + "\r\n" : "";
                  exchange.answer(test.status, dump_json(status_of(test.status, "Busy")), field);
                },
            .times = 1});
    caches.push_back(std::make_unique<Cache>(loop, client_options(loop, one), of_configmaps()));
    caches.back()->informer.start();
  }
  for (size_t i = 0; i < proxies.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(loop.run_until([&] { return caches[i]->informer.synced(); }));
    const std::vector<RecordedRequest> lists = proxies[i]->seen("list");
    ASSERT_EQ(lists.size(), 2u);
    const double waited = to_seconds(lists[1].at - lists[0].at) * loop.clock.speed();
    EXPECT_GE(waited, cases[i].seconds_min);
    // At most twice that, plus the time that this machine needs.
    EXPECT_LE(waited, 2 * cases[i].seconds_min + 5 * loop.clock.speed());
  }
}

TEST_F(Requests, AWatchThatIsOneTooManyMeansNoList) {
  Loop loop(20);
  proxy.on(
      {.verb = "watch", .fault = failed(429, "TooManyRequests", "Retry-After: 5\r\n"), .times = 3});
  Cache cache(loop, client_options(loop, proxy), of_configmaps());
  cache.informer.start();
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("watch") == 4; }));
  make_map("a");
  ASSERT_TRUE(loop.run_until([&] { return cache.names() == "a"; }));
  EXPECT_EQ(proxy.count("list"), 1u);
}

TEST_F(Requests, KeepToTheirRate) {
  constexpr size_t kRequests = 60;
  constexpr double kPerSecond = 100;
  constexpr double kBurst = 10;
  Loop loop;
  kube::KubeClientOptions options = client_options(loop, proxy);
  options.rate = {.per_second = kPerSecond, .burst = kBurst};
  kube::KubeClient client(options, loop.mailbox, loop.timers, loop.clock);
  const TimePoint begin = SystemClock().now();
  size_t answers = 0;
  for (size_t i = 0; i < kRequests; ++i) {
    loop::ApiRequest request{
        .verb = loop::ApiVerb::kCreate, .type = kConfigMaps, .namespace_ = namespace_};
    request.body = named("m" + std::to_string(i));
    client.send(std::move(request), [&](const loop::ApiReply& reply) { answers += reply.ok(); });
  }
  ASSERT_TRUE(loop.run_until([&] { return answers == kRequests; }));
  const std::vector<RecordedRequest> creates = proxy.seen("create");
  ASSERT_EQ(creates.size(), kRequests);
  std::vector<TimePoint> times;  // the proxy records them in any order
  for (const RecordedRequest& create : creates) times.push_back(create.at);
  std::sort(times.begin(), times.end());
  for (size_t i = 0; i < kRequests; ++i)
    EXPECT_LE(static_cast<double>(i + 1), kBurst + kPerSecond * to_seconds(times[i] - begin) + 1e-3)
        << i;
}

class TokenFile {
 public:
  TokenFile() : path(testing::TempDir() + "lockstep-token-" + std::to_string(new_seed())) {}
  ~TokenFile() { remove(); }
  void write(const std::string& text) const {
    std::ofstream(path + ".new") << text;
    std::filesystem::rename(path + ".new", path);
  }
  void remove() const { std::filesystem::remove(path); }
  const std::string path;
};

TEST_F(Requests, ARotatedTokenCostsAtMostOneRefusal) {
  Loop loop(4);
  const TokenFile token;
  token.write("old");
  std::atomic<bool> is_rotated = false;
  proxy.on({.fault = failed(401, "Unauthorized"), .only = [&](const RecordedRequest& seen) {
              const auto found = seen.headers.find("authorization");
              const std::string wanted = is_rotated ? "Bearer new" : "Bearer old";
              return found == seen.headers.end() || found->second != wanted;
            }});
  kube::KubeClientOptions options = client_options(loop, proxy);
  options.credentials.token_file = token.path;
  Cache cache(loop, options, of_configmaps());
  cache.informer.start();
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("watch") == 1; }));
  is_rotated = true;
  token.write("new");
  proxy.cut();
  make_map("a");
  ASSERT_TRUE(loop.run_until([&] { return cache.names() == "a"; }));
  EXPECT_TRUE(ask_for(loop, cache.client, "a").ok());
  EXPECT_EQ(proxy.count("list"), 1u);
  const std::vector<RecordedRequest> all = proxy.seen();
  EXPECT_LE(std::count_if(all.begin(), all.end(),
                          [](const RecordedRequest& one) { return one.status == 401; }),
            1);
}

TEST_F(Requests, ATokenFileThatIsAwayForAMomentDoesNoHarm) {
  Loop loop(100);  // the token is read again once a minute
  const TokenFile token;
  token.write("good");
  kube::KubeClientOptions options = client_options(loop, proxy);
  options.credentials.token_file = token.path;
  kube::KubeClient client(options, loop.mailbox, loop.timers, loop.clock);
  make_map("a");
  EXPECT_TRUE(ask_for(loop, client, "a").ok());
  token.remove();
  loop.run_for(seconds(70));
  EXPECT_TRUE(ask_for(loop, client, "a").ok());
  token.write("");
  loop.run_for(seconds(70));
  EXPECT_TRUE(ask_for(loop, client, "a").ok());
  token.write("newer");
  loop.run_for(seconds(70));
  EXPECT_TRUE(ask_for(loop, client, "a").ok());
  std::vector<std::string> sent;
  for (const RecordedRequest& one : proxy.seen()) sent.push_back(one.headers.at("authorization"));
  EXPECT_EQ(sent, (std::vector<std::string>{"Bearer good", "Bearer good", "Bearer good",
                                            "Bearer newer"}));
}

TEST_F(Requests, AServerThatIsNotThereYetIsNoEmptyOne) {
  make_map("a");
  FaultProxy late(server().target(), false);
  late.on({.fault = refused(), .times = 1});
  late.on({.fault = failed(503, "ServiceUnavailable"), .times = 1});
  Loop loop(10);
  Cache cache(loop, client_options(loop, late), of_configmaps());
  cache.informer.start();
  loop.run_for(seconds(5));
  EXPECT_FALSE(cache.informer.synced());
  late.listen();
  ASSERT_TRUE(loop.run_until([&] { return late.count("list") == 2; }));
  EXPECT_FALSE(cache.informer.synced());
  ASSERT_TRUE(loop.run_until([&] { return cache.informer.synced(); }));
  EXPECT_EQ(cache.changes, std::vector<std::string>{"+a"});
}

TEST_F(Requests, SayWhoAsks) {
  Loop loop;
  kube::KubeClientOptions options = client_options(loop, proxy);
  options.server.user_agent = "lockstep-controller/0";
  Cache cache(loop, options, of_configmaps());
  cache.informer.start();
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("watch") == 1; }));
  for (const RecordedRequest& one : proxy.seen())
    EXPECT_EQ(one.headers.at("user-agent"), "lockstep-controller/0") << one.verb;
}

TEST_F(Requests, WhatTheServerWarnsOfIsLoggedOnce) {
  const std::string field = "Warning: 299 - \"v1 ConfigMap is as old as the hills\"\r\n";
  make_map("a");
  proxy.on({.verb = "get", .fault = [&](Exchange& exchange) {
              exchange.answer(200, exchange.ask().text, field);
            }});
  Loop loop;
  kube::KubeClient client(client_options(loop, proxy), loop.mailbox, loop.timers, loop.clock);
  EXPECT_TRUE(ask_for(loop, client, "a").ok());
  EXPECT_TRUE(ask_for(loop, client, "a").ok());
  const std::string log = logged();
  const size_t first = log.find("as old as the hills");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("as old as the hills", first + 1), std::string::npos) << log;
}

TEST_F(Requests, AnswersOfSomebodyElseAreTriedAgain) {
  make_map("a");
  proxy.on({.verb = "list",
            .fault = answered(502, "<html>Bad Gateway</html>", "Content-Type: text/html\r\n"),
            .times = 1});
  proxy.on({.verb = "list", .fault = answered(200, ""), .times = 1});
  proxy.on({.verb = "list",
            .fault = answered(200, "<html>Welcome</html>", "Content-Type: text/html\r\n"),
            .times = 1});
  proxy.on({.verb = "list",
            .fault =
                [](Exchange& exchange) {
                  const std::string text = exchange.ask().text;
                  exchange.answer(200, text.substr(0, text.size() / 2));
                },
            .times = 1});
  Loop loop(20);
  Cache cache(loop, client_options(loop, proxy), of_configmaps());
  cache.informer.start();
  ASSERT_TRUE(loop.run_until([&] { return cache.informer.synced(); }));
  EXPECT_EQ(cache.changes, std::vector<std::string>{"+a"});
  EXPECT_EQ(proxy.count("list"), 5u);
}

}  // namespace
}  // namespace lockstep::semantics
