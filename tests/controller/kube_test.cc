#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "controller/kube/agent_http_client.h"
#include "controller/kube/kube_client.h"
#include "controller/kube/line_framer.h"
#include "tests/controller/client_loop.h"
#include "tests/controller/scripted_server.h"

namespace lockstep {
namespace {

using Peer = ScriptedServer::Peer;
using Request = ScriptedServer::Request;
using std::chrono::milliseconds;
using std::chrono::seconds;

using Loop = ClientLoop;

KubeClientOptions options_for(const ScriptedServer& server) {
  return {.server = {.url = server.url()}};
}

ApiReply call(Loop& loop, ApiClient& client, ApiRequest request) {
  std::optional<ApiReply> reply;
  client.send(std::move(request), [&](ApiReply answer) { reply = std::move(answer); });
  loop.run_until([&] { return reply.has_value(); });
  return *reply;
}

const ApiRequest kGetPod{.verb = ApiVerb::kGet, .type = kPods, .namespace_ = "ns", .name = "p"};

struct Watched {
  std::vector<WatchEvent> events;
  std::optional<ApiReply> end;
  std::unique_ptr<WatchHandle> handle;
};

void open(Watched& watched, ApiClient& client, const std::string& timeout_seconds = "300") {
  WatchRequest request{.type = kPods};
  request.query["timeoutSeconds"] = timeout_seconds;
  watched.handle = client.watch(
      std::move(request), {.on_events =
                               [&](std::vector<WatchEvent> events) {
                                 for (WatchEvent& event : events) {
                                   watched.events.push_back(std::move(event));
                                 }
                               },
                           .on_end = [&](ApiReply reply) { watched.end = std::move(reply); }});
}

std::string event_line(const char* type, const std::string& name, size_t padding = 0) {
  const Json event = {
      {"type", type},
      {"object", {{"metadata", {{"name", name}}}, {"pad", std::string(padding, 'x')}}}};
  return dump_json(event) + "\n";
}

class TempFile {
 public:
  TempFile() {
    path = testing::TempDir() + "lockstep-kube-test-XXXXXX";
    ::close(::mkstemp(path.data()));
  }
  ~TempFile() { std::filesystem::remove(path); }
  void write(const std::string& text) const { std::ofstream(path) << text; }
  std::string path;
};

TEST(LineFramer, FindsTheSameLinesHoweverTheStreamIsSplit) {
  const std::string stream = "{\"a\":1}\n\r\n{\"b\":2}\r\n\n\nlong line\nrest";
  const std::vector<std::string> expected = {"{\"a\":1}", "{\"b\":2}", "long line"};
  for (size_t first = 0; first <= stream.size(); ++first) {
    for (size_t second = first; second <= stream.size(); ++second) {
      LineFramer framer(100);
      std::vector<std::string> lines;
      ASSERT_TRUE(framer.feed(stream.substr(0, first), lines));
      ASSERT_TRUE(framer.feed(stream.substr(first, second - first), lines));
      ASSERT_TRUE(framer.feed(stream.substr(second), lines));
      ASSERT_EQ(lines, expected) << first << " " << second;
      ASSERT_EQ(framer.rest(), "rest");
    }
  }
}

TEST(LineFramer, RefusesALineBeyondItsLimit) {
  LineFramer framer(4);
  std::vector<std::string> lines;
  EXPECT_TRUE(framer.feed("abcd\nab", lines));
  EXPECT_FALSE(framer.feed("cde", lines));
}

TEST(RequestPath, IsThatOfTheKubernetesApi) {
  EXPECT_EQ(request_path(kGetPod), "/api/v1/namespaces/ns/pods/p");
  ApiRequest request{
      .verb = ApiVerb::kReplaceStatus, .type = kTrainingJobs, .namespace_ = "ns", .name = "a/b"};
  EXPECT_EQ(request_path(request),
            "/apis/lockstep.dev/v1alpha1/namespaces/ns/trainingjobs/a%2Fb/status");
  request = {.verb = ApiVerb::kList, .type = kPods};
  request.query = {{"labelSelector", "app.kubernetes.io/managed-by=lockstep"}, {"limit", "5"}};
  EXPECT_EQ(request_path(request),
            "/api/v1/pods?labelSelector=app.kubernetes.io%2Fmanaged-by%3Dlockstep&limit=5");
}

TEST(RetryAfter, IsReadAsSecondsOrADateAndBounded) {
  const WallTime now = *wall_time_from_rfc3339("2026-11-21T06:00:00Z");
  EXPECT_EQ(retry_after("", now), Duration{0});
  EXPECT_EQ(retry_after("3", now), seconds(3));
  EXPECT_EQ(retry_after("1000000000", now), seconds(300));
  EXPECT_EQ(retry_after("99999999999999999999999", now), seconds(300));
  EXPECT_EQ(retry_after("Sat, 21 Nov 2026 06:00:07 GMT", now), seconds(7));
  EXPECT_EQ(retry_after("Sat, 21 Nov 2020 06:00:07 GMT", now), Duration{0});
  EXPECT_EQ(retry_after("soon", now), Duration{0});
  EXPECT_EQ(retry_after("-5", now), Duration{0});
}

TEST(RateLimiter, LetsABurstThroughAndThenItsRateInOrder) {
  ManualClock clock;
  Timers timers(clock);
  RateLimiter limiter(timers, {.per_second = 10, .burst = 3});
  std::vector<int> made;
  for (int i = 0; i < 6; ++i) limiter.submit([&made, i] { made.push_back(i); });
  EXPECT_EQ(made, (std::vector<int>{0, 1, 2}));
  clock.advance(milliseconds(101));
  timers.run_due();
  EXPECT_EQ(made, (std::vector<int>{0, 1, 2, 3}));
  clock.advance(milliseconds(201));
  timers.run_due();
  EXPECT_EQ(made, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(limiter.waiting(), 0u);
}

TEST(RateLimiter, WhatCanWaitLetsTheOthersPassButNotForEver) {
  ManualClock clock;
  Timers timers(clock);
  RateLimiter limiter(timers, {.per_second = 1, .burst = 1});
  std::string made;
  limiter.submit([] {});
  limiter.submit([&made] { made += 'p'; }, ApiPriority::kPatient);
  for (int i = 0; i < 12; ++i) limiter.submit([&made] { made += 'x'; });
  for (int i = 0; i < 13; ++i) {
    clock.advance(milliseconds(1001));
    timers.run_due();
  }
  EXPECT_EQ(made, "xxxxxxxxxpxxx");
}

TEST(RateLimiter, WhatIsUrgentPassesAllOthersButNotForEver) {
  ManualClock clock;
  Timers timers(clock);
  RateLimiter limiter(timers, {.per_second = 1, .burst = 1});
  std::string made;
  limiter.submit([] {});
  for (int i = 0; i < 3; ++i) limiter.submit([&made] { made += 'p'; }, ApiPriority::kPatient);
  for (int i = 0; i < 3; ++i) limiter.submit([&made] { made += 'r'; });
  for (int i = 0; i < 20; ++i) limiter.submit([&made] { made += 'u'; }, ApiPriority::kUrgent);
  for (int i = 0; i < 26; ++i) {
    clock.advance(milliseconds(1001));
    timers.run_due();
  }
  EXPECT_EQ(made, "uuuuuuuuupruuuuuuuupuruurp");
  EXPECT_EQ(limiter.waiting(), 0u);
}

TEST(RateLimiter, LetsNoMoreBeOpenThanAllowedAndOnesThatEndAtOnceMakeNoPile) {
  ManualClock clock;
  Timers timers(clock);
  RateLimiter limiter(timers, {.per_second = 1, .burst = 1e9, .open_max = 2});
  int made = 0;
  for (int i = 0; i < 5; ++i) limiter.submit([&made] { ++made; });
  EXPECT_EQ(made, 2);
  EXPECT_FALSE(timers.next().has_value());
  limiter.end_one();
  EXPECT_EQ(made, 3);
  constexpr int kAtOnce = 1'000'000;
  for (int i = 0; i < kAtOnce; ++i) {
    limiter.submit([&] {
      ++made;
      limiter.end_one();
    });
  }
  for (int i = 0; i < 3; ++i) limiter.end_one();
  EXPECT_EQ(made, 5 + kAtOnce);
  EXPECT_EQ(limiter.waiting(), 0u);
}

TEST(RateLimiter, HoldsEverythingUntilTheTimeThatItIsTold) {
  ManualClock clock;
  Timers timers(clock);
  RateLimiter limiter(timers, {.per_second = 10, .burst = 2});
  int made = 0;
  for (int i = 0; i < 3; ++i) limiter.submit([&made] { ++made; });
  EXPECT_EQ(made, 2);
  limiter.hold_until(timers.now() + seconds(5));
  limiter.hold_until(timers.now() + seconds(2));
  for (int i = 0; i < 3; ++i) limiter.submit([&made] { ++made; }, ApiPriority::kUrgent);
  clock.advance(seconds(5) - Duration{1});
  timers.run_due();
  EXPECT_EQ(made, 2);
  clock.advance(Duration{1});
  timers.run_due();
  EXPECT_EQ(made, 4) << "no more than a burst has gathered";
  limiter.hold_until(timers.now());
  clock.advance(seconds(1));
  timers.run_due();
  EXPECT_EQ(made, 6);
}

TEST(KubeClient, AnswersMeanWhatTheCallerDoesNext) {
  struct Case {
    int status;
    const char* body;
    const char* fields;
    ApiOutcome outcome;
    int retry_seconds;
  };
  const Case cases[] = {
      {200, R"({"kind":"Pod"})", "", ApiOutcome::kOk, 0},
      {201, R"({"kind":"Po)", "", ApiOutcome::kUnreadable, 0},
      {400, "{}", "", ApiOutcome::kInvalid, 0},
      {401, "{}", "", ApiOutcome::kUnauthorized, 0},
      {403, "{}", "", ApiOutcome::kForbidden, 0},
      {404, "{}", "", ApiOutcome::kNotFound, 0},
      {409, R"({"reason":"AlreadyExists"})", "", ApiOutcome::kAlreadyExists, 0},
      {409, R"({"reason":"Conflict"})", "", ApiOutcome::kConflict, 0},
      {410, R"({"reason":"Expired"})", "", ApiOutcome::kExpired, 0},
      {413, "{}", "", ApiOutcome::kInvalid, 0},
      {422, "{}", "", ApiOutcome::kInvalid, 0},
      {429, "{}", "Retry-After: 3\r\n", ApiOutcome::kThrottled, 3},
      {500, "{}", "", ApiOutcome::kUnavailable, 0},
      {502, "<html>Bad Gateway</html>", "", ApiOutcome::kUnavailable, 0},
      {503, "", "Retry-After: 1\r\n", ApiOutcome::kThrottled, 1},
      {504, "{}", "", ApiOutcome::kTimeout, 0},
      {504,
       R"({"details":{"causes":[{"reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1}})", "",
       ApiOutcome::kTooLarge, 1},
  };
  Loop loop;
  const Case* current = nullptr;
  ScriptedServer server([&](const Request&, const Peer& peer) {
    peer.reply(current->status, current->body, current->fields);
  });
  KubeClient client(options_for(server), loop.mailbox, loop.timers, loop.clock);
  for (const Case& test : cases) {
    SCOPED_TRACE(std::to_string(test.status) + " " + test.body);
    current = &test;
    const ApiReply reply = call(loop, client, kGetPod);
    EXPECT_EQ(outcome_name(reply.outcome), outcome_name(test.outcome)) << reply.message;
    EXPECT_EQ(reply.retry_after, seconds(test.retry_seconds));
  }
}

TEST(KubeClient, SendsMethodPathTokenAndBody) {
  Loop loop;
  std::vector<Request> seen;
  ScriptedServer server([&](const Request& request, const Peer& peer) {
    seen.push_back(request);
    peer.reply(200, "{}");
  });
  const TempFile token;
  token.write("secret\n");
  KubeClientOptions options = options_for(server);
  options.credentials.token_file = token.path;
  options.server.user_agent = "lockstep-controller/1";
  KubeClient client(options, loop.mailbox, loop.timers, loop.clock);
  ApiRequest request = kGetPod;
  request.verb = ApiVerb::kDelete;
  request.body = {{"preconditions", {{"uid", "u"}}}};
  EXPECT_TRUE(call(loop, client, request).ok());
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_TRUE(seen[0].contains("DELETE /api/v1/namespaces/ns/pods/p HTTP/1.1")) << seen[0].head;
  EXPECT_TRUE(seen[0].contains("Authorization:Bearer secret\r\n"));
  EXPECT_TRUE(seen[0].contains("User-Agent:lockstep-controller/1\r\n"));
  EXPECT_EQ(seen[0].body, R"({"preconditions":{"uid":"u"}})");
}

TEST(KubeClient, KeepsFewRequestsOpenAndTheLeaseWaitsForNone) {
  constexpr int kRequests = 20;
  Loop loop;
  std::atomic<int> open{0}, most{0};
  std::atomic<bool> may_end{false};
  ScriptedServer server([&](const Request& request, const Peer& peer) {
    if (!request.contains("/leases/")) {
      const int now = ++open;
      for (int known = most; known < now && !most.compare_exchange_weak(known, now);) {
      }
      may_end.wait(false);
      --open;
    }
    peer.reply(200, "{}");
  });
  KubeClientOptions options = options_for(server);
  options.open_max = 4;
  KubeClient client(options, loop.mailbox, loop.timers, loop.clock);
  int answers = 0;
  for (int i = 0; i < kRequests; ++i)
    client.send(kGetPod, [&](const ApiReply& reply) { answers += reply.ok() ? 1 : 0; });
  EXPECT_EQ(client.waiting(), kRequests - options.open_max);
  const ApiRequest lease{.verb = ApiVerb::kGet, .type = kLeases, .namespace_ = "ns", .name = "l"};
  EXPECT_TRUE(call(loop, client, lease).ok());
  EXPECT_EQ(answers, 0);
  may_end = true;
  may_end.notify_all();
  loop.run_until([&] { return answers == kRequests; });
  EXPECT_LE(most, 4);
  EXPECT_EQ(client.waiting(), 0u);
}

TEST(KubeClient, AsksWhetherARequestThatWaitedMayStillGo) {
  Loop loop;
  ScriptedServer server([](const Request&, const Peer& peer) { peer.reply(200, "{}"); });
  KubeClientOptions options = options_for(server);
  options.rate = {.per_second = 100, .burst = 1};
  KubeClient client(options, loop.mailbox, loop.timers, loop.clock);
  bool may = true;
  ApiRequest guarded = kGetPod;
  guarded.may_send = [&may] { return may; };
  std::vector<ApiReply> replies;
  for (int i = 0; i < 2; ++i)
    client.send(guarded, [&](const ApiReply& reply) { replies.push_back(reply); });
  EXPECT_EQ(client.waiting(), 1u);
  may = false;
  client.send(kGetPod, [&](const ApiReply& reply) { replies.push_back(reply); });
  loop.run_until([&] { return replies.size() == 3; });
  size_t refused = 0;
  for (const ApiReply& reply : replies) refused += reply.message == not_sent().message ? 1 : 0;
  EXPECT_EQ(refused, 1u);
  EXPECT_EQ(server.requests(), 2) << "the one that waited while it was allowed did not go";
  EXPECT_EQ(client.waiting(), 0u);
}

// Of an endless sort, as whoever may create it can make it.
std::string monster(const std::string& name, const std::string& pod_template) {
  return R"({"metadata":{"name":")" + name + R"(","uid":"u"},"spec":{"nodes":1,"podTemplate":)" +
         pod_template + R"(,"suspend":true},"status":{"round":3}})";
}

TEST(KubeClient, AnObjectThatIsTooDeepOrTooLargeComesWithoutWhatMakesItSo) {
  std::string deep;
  for (int i = 0; i < 9000; ++i) deep += R"({"a":)";
  deep += "0" + std::string(9000, '}');
  std::string large = "[0";
  for (int i = 0; i < 600'000; ++i) large += ",0";
  large += "]";
  const std::string good = monster("good", R"({"spec":{}})");
  const std::string objects[] = {good, monster("deep", deep), good, monster("large", large), good};
  Loop loop;
  ScriptedServer server([&](const Request& request, const Peer& peer) {
    std::string items;
    std::string lines;
    for (const std::string& object : objects) {
      items += (items.empty() ? "" : ",") + object;
      lines += R"({"type":"ADDED","object":)" + object + "}\n";
    }
    if (request.contains("watch=1")) {
      peer.begin_chunks();
      peer.chunk(lines);
      peer.end_chunks();
    } else {
      const bool is_list = request.contains("/pods ");
      peer.reply(200, is_list ? R"({"items":[)" + items + "]}" : objects[1]);
    }
  });
  KubeClient client(options_for(server), loop.mailbox, loop.timers, loop.clock);
  const auto check = [&](const Json& object, size_t i) {
    SCOPED_TRACE(i);
    if (i % 2 == 0) {
      EXPECT_EQ(object, *parse_json(good));
      return;
    }
    EXPECT_EQ(object["metadata"]["name"], i == 1 ? "deep" : "large");
    EXPECT_NE(left_out(object["spec"]["podTemplate"]), "");
    EXPECT_EQ(object["spec"]["suspend"], true);
    EXPECT_EQ(object["status"]["round"], 3);
  };
  const ApiReply list = call(loop, client, {.verb = ApiVerb::kList, .type = kPods});
  ASSERT_TRUE(list.ok()) << list.message;
  for (size_t i = 0; i < std::size(objects); ++i) check((*list.body)["items"][i], i);
  Watched watched;
  open(watched, client);
  loop.run_until([&] { return watched.end.has_value(); });
  EXPECT_TRUE(watched.end->ok()) << watched.end->message;
  ASSERT_EQ(watched.events.size(), std::size(objects));
  for (size_t i = 0; i < std::size(objects); ++i) check(watched.events[i].object, i);
  const ApiReply one = call(loop, client, kGetPod);
  ASSERT_TRUE(one.ok()) << one.message;
  check(one.body, 1);
}

TEST(KubeClient, GivesABusyServerItsTimeAndTheLeaseWaitsForNobody) {
  std::atomic<bool> is_busy{true};
  Loop loop;
  ScriptedServer server([&](const Request& request, const Peer& peer) {
    const bool is_refused = is_busy && !request.contains("/leases/");
    peer.reply(is_refused ? 429 : 200, "{}", is_refused ? "Retry-After: 1000\r\n" : "");
  });
  KubeClientOptions options = options_for(server);
  options.hold_max = milliseconds(300);
  KubeClient client(options, loop.mailbox, loop.timers, loop.clock);
  EXPECT_EQ(call(loop, client, kGetPod).outcome, ApiOutcome::kThrottled);
  is_busy = false;
  const TimePoint refused = loop.timers.now();
  std::optional<ApiReply> reply;
  client.send(kGetPod, [&](ApiReply answer) { reply = std::move(answer); });
  const ApiRequest lease{.verb = ApiVerb::kGet, .type = kLeases, .namespace_ = "ns", .name = "l"};
  EXPECT_TRUE(call(loop, client, lease).ok());
  EXPECT_FALSE(reply.has_value());
  EXPECT_EQ(client.waiting(), 1u);
  loop.run_until([&] { return reply.has_value(); });
  EXPECT_TRUE(reply->ok());
  EXPECT_GE(loop.timers.now() - refused, milliseconds(250));
}

// A leader that is one no longer has thousands of them.
TEST(KubeClient, TakesBackAnyNumberOfRequestsThatMayGoNoMore) {
  constexpr int kWaiting = 200'000;
  std::atomic<bool> may_answer{false};
  Loop loop;
  ScriptedServer server([&](const Request&, const Peer& peer) {
    may_answer.wait(false);
    peer.reply(200, "{}");
  });
  KubeClientOptions options = options_for(server);
  options.rate = {.per_second = 1e6, .burst = 1e6};
  options.open_max = 1;
  KubeClient client(options, loop.mailbox, loop.timers, loop.clock);
  bool may = true;
  int taken_back = 0;
  ApiRequest guarded = kGetPod;
  guarded.may_send = [&may] { return may; };
  bool is_answered = false;
  client.send(guarded, [&](const ApiReply&) { is_answered = true; });
  for (int i = 0; i < kWaiting; ++i)
    client.send(guarded, [&](const ApiReply& reply) { taken_back += reply.ok() ? 0 : 1; });
  may = false;
  may_answer = true;
  may_answer.notify_all();
  loop.run_until([&] { return is_answered && client.waiting() == 0; });
  EXPECT_EQ(taken_back, kWaiting);
  EXPECT_EQ(server.requests(), 1);
}

TEST(KubeClient, ReadsTheTokenAgainWhenTheServerRefusesIt) {
  Loop loop;
  ScriptedServer server([](const Request& request, const Peer& peer) {
    const bool good = request.contains("Bearer new\r\n");
    peer.reply(good ? 200 : 401, "{}");
  });
  const TempFile token;
  token.write("old");
  KubeClientOptions options = options_for(server);
  options.credentials.token_file = token.path;
  KubeClient client(options, loop.mailbox, loop.timers, loop.clock);
  EXPECT_EQ(call(loop, client, kGetPod).outcome, ApiOutcome::kUnauthorized);
  EXPECT_EQ(server.requests(), 1);  // the same token again would be of no use
  token.write("");
  EXPECT_EQ(call(loop, client, kGetPod).outcome, ApiOutcome::kUnauthorized);
  token.write("new");
  EXPECT_TRUE(call(loop, client, kGetPod).ok());
  EXPECT_EQ(server.requests(), 4);
}

TEST(KubeClient, DoesNotFollowRedirectsWithItsToken) {
  Loop loop;
  ScriptedServer thief([](const Request&, const Peer& peer) { peer.reply(200, "{}"); });
  ScriptedServer server([&](const Request&, const Peer& peer) {
    peer.reply(302, "", "Location: " + thief.url() + "/\r\n");
  });
  KubeClient client(options_for(server), loop.mailbox, loop.timers, loop.clock);
  EXPECT_EQ(call(loop, client, kGetPod).outcome, ApiOutcome::kUnavailable);
  EXPECT_EQ(thief.requests(), 0);
}

TEST(KubeClient, AServerThatIsNotThereOrSilentOrTooTalkativeIsAnError) {
  Loop loop;
  std::string url;
  {
    const ScriptedServer gone([](const Request&, const Peer&) {});
    url = gone.url();
  }
  KubeClient nobody({.server = {.url = url}}, loop.mailbox, loop.timers, loop.clock);
  EXPECT_EQ(call(loop, nobody, kGetPod).outcome, ApiOutcome::kUnavailable);

  ScriptedServer silent([](const Request&, const Peer& peer) { peer.wait_for_close(); });
  KubeClientOptions options = options_for(silent);
  options.deadline = milliseconds(50);
  KubeClient waiting(options, loop.mailbox, loop.timers, loop.clock);
  EXPECT_EQ(call(loop, waiting, kGetPod).outcome, ApiOutcome::kTimeout);

  ScriptedServer talkative([](const Request&, const Peer& peer) {
    peer.reply(200, "\"" + std::string(100'000, 'x') + "\"");
  });
  options = options_for(talkative);
  options.reply_bytes_max = 50'000;
  KubeClient bounded(options, loop.mailbox, loop.timers, loop.clock);
  const ApiReply reply = call(loop, bounded, kGetPod);
  EXPECT_EQ(reply.outcome, ApiOutcome::kUnreadable);
  EXPECT_NE(reply.message.find("larger"), std::string::npos) << reply.message;
}

TEST(KubeWatch, EventsArriveHoweverTheyWereChunked) {
  const std::string stream = event_line("ADDED", "a") + event_line("MODIFIED", "a") +
                             event_line("BOOKMARK", "") + event_line("DELETED", "a");
  Loop loop;
  size_t piece = 1;
  ScriptedServer server([&](const Request&, const Peer& peer) {
    peer.begin_chunks();
    for (size_t at = 0; at < stream.size(); at += piece) peer.chunk(stream.substr(at, piece));
    peer.end_chunks();
  });
  KubeClient client(options_for(server), loop.mailbox, loop.timers, loop.clock);
  for (piece = 1; piece <= stream.size(); piece += 13) {
    SCOPED_TRACE(piece);
    Watched watched;
    open(watched, client);
    loop.run_until([&] { return watched.end.has_value(); });
    EXPECT_TRUE(watched.end->ok()) << watched.end->message;
    ASSERT_EQ(watched.events.size(), 4u);
    EXPECT_EQ(watched.events[0].type, WatchEventType::kAdded);
    EXPECT_EQ(watched.events[1].type, WatchEventType::kModified);
    EXPECT_EQ(watched.events[2].type, WatchEventType::kBookmark);
    EXPECT_EQ(watched.events[3].type, WatchEventType::kDeleted);
    EXPECT_EQ((*watched.events[3].object)["metadata"]["name"], "a");
  }
}

TEST(KubeWatch, ALineOfFourMebibytesIsTakenAndAnEndlessOneIsNot) {
  Loop loop;
  size_t padding = 4u << 20;
  ScriptedServer server([&](const Request&, const Peer& peer) {
    peer.begin_chunks();
    peer.chunk(event_line("ADDED", "big", padding));
    peer.end_chunks();
  });
  KubeClient client(options_for(server), loop.mailbox, loop.timers, loop.clock);
  Watched taken;
  open(taken, client);
  loop.run_until([&] { return taken.end.has_value(); });
  EXPECT_TRUE(taken.end->ok());
  ASSERT_EQ(taken.events.size(), 1u);
  padding = 19u << 20;
  Watched refused;
  open(refused, client);
  loop.run_until([&] { return refused.end.has_value(); });
  EXPECT_EQ(refused.end->outcome, ApiOutcome::kUnreadable);
  EXPECT_TRUE(refused.events.empty());
}

TEST(KubeWatch, WhatEndsItIsToldApart) {
  struct Case {
    const char* name;
    std::function<void(const Peer&)> script;
    ApiOutcome outcome;
    size_t events;
    int counted_as;  // HTTP code; 0: no whole answer
  };
  const std::string expired =
      R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"old"}})"
      "\n";
  const Case cases[] = {
      {"a clean end",
       [](const Peer& peer) {
         peer.begin_chunks();
         peer.chunk(event_line("ADDED", "a"));
         peer.end_chunks();
       },
       ApiOutcome::kOk, 1, 200},
      {"too old a version, as HTTP 200",
       [&](const Peer& peer) {
         peer.begin_chunks();
         peer.chunk(event_line("ADDED", "a") + expired);
         peer.end_chunks();
       },
       ApiOutcome::kExpired, 1, 200},
      {"too old a version, as HTTP 410",
       [](const Peer& peer) { peer.reply(410, R"({"code":410})"); }, ApiOutcome::kExpired, 0, 410},
      {"too many requests", [](const Peer& peer) { peer.reply(429, "{}", "Retry-After: 1\r\n"); },
       ApiOutcome::kThrottled, 0, 429},
      {"something that is no event",
       [](const Peer& peer) {
         peer.begin_chunks();
         peer.chunk("hello\n");
         peer.wait_for_close();
       },
       ApiOutcome::kUnreadable, 0, 200},
      {"an end within a line",
       [](const Peer& peer) {
         peer.begin_chunks();
         peer.chunk(R"({"type":"ADDED","object":{}}x)");
         peer.end_chunks();
       },
       ApiOutcome::kUnavailable, 0, 0},
  };
  Loop loop;
  const Case* current = nullptr;
  ScriptedServer server([&](const Request&, const Peer& peer) { current->script(peer); });
  KubeClient client(options_for(server), loop.mailbox, loop.timers, loop.clock);
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    current = &test;
    auto counts = client.metrics().requests;
    Watched watched;
    open(watched, client);
    loop.run_until([&] { return watched.end.has_value(); });
    EXPECT_EQ(outcome_name(watched.end->outcome), outcome_name(test.outcome))
        << watched.end->message;
    EXPECT_EQ(watched.events.size(), test.events);
    ++counts[{"WATCH", test.counted_as}];
    EXPECT_EQ(client.metrics().requests, counts);
  }
}

TEST(KubeWatch, ADeadOneEndsAtItsOwnDeadline) {
  Loop loop;
  ScriptedServer server([](const Request&, const Peer& peer) {
    peer.begin_chunks();
    peer.chunk(event_line("ADDED", "a"));
    peer.wait_for_close();
  });
  KubeClientOptions options = options_for(server);
  options.watch_margin = std::chrono::seconds(2);
  KubeClient client(options, loop.mailbox, loop.timers, loop.clock);
  Watched watched;
  open(watched, client, "0");
  loop.run_until([&] { return watched.end.has_value(); });
  EXPECT_EQ(watched.end->outcome, ApiOutcome::kTimeout);
  EXPECT_EQ(watched.events.size(), 1u);
}

TEST(KubeWatch, EndsWithItsHandleAndTheServerSeesIt) {
  Loop loop;
  std::atomic<bool> closed{false};
  ScriptedServer server([&](const Request&, const Peer& peer) {
    peer.begin_chunks();
    peer.chunk(event_line("ADDED", "a"));
    peer.wait_for_close();
    closed = true;
    closed.notify_all();
  });
  KubeClient client(options_for(server), loop.mailbox, loop.timers, loop.clock);
  Watched watched;
  open(watched, client);
  loop.run_until([&] { return !watched.events.empty(); });
  watched.handle.reset();
  closed.wait(false);
  loop.mailbox.run();
  EXPECT_FALSE(watched.end.has_value());
  EXPECT_TRUE(client.metrics().requests.empty());
}

TEST(KubeWatch, AFloodWaitsInTheNetworkAndNotInMemory) {
  constexpr size_t kFlood = 256u << 20;
  Loop loop;
  std::atomic<size_t> sent{0};
  std::atomic<bool> is_stuck{false};
  ScriptedServer server([&](const Request&, const Peer& peer) {
    const std::string line = event_line("ADDED", "a", 100'000);
    peer.begin_chunks();
    while (sent < kFlood && peer.is_writable(1000)) {
      if (!peer.chunk(line)) break;
      sent += line.size();
    }
    is_stuck = true;
    is_stuck.notify_all();
    peer.wait_for_close();
  });
  KubeClient client(options_for(server), loop.mailbox, loop.timers, loop.clock);
  Watched watched;
  open(watched, client);
  is_stuck.wait(false);  // nobody reads the mailbox
  EXPECT_LT(sent, kFlood / 4);
  loop.run_until([&] { return watched.events.size() > 50; });
  watched.handle.reset();
}

// The network's threads say how a cancelled request ended when they get to it. By then the loop
// that it belonged to may be gone: the loops live on here only to show what would have come.
TEST(KubeClient, LeavesTheLoopAloneOnceItIsGone) {
  ScriptedServer server([](const Request& request, const Peer& peer) {
    if (request.contains("/leases/")) {
      peer.reply(200, "{}");
      return;
    }
    if (request.contains("watch=1")) {
      peer.begin_chunks();
      peer.chunk(event_line("ADDED", "a"));
    }
    peer.wait_for_close();
  });
  std::vector<std::unique_ptr<Loop>> loops;
  size_t answers = 0;
  for (int round = 0; round < 50; ++round) {
    Loop& loop = *loops.emplace_back(std::make_unique<Loop>());
    Watched watched;  // ends after the client
    {
      KubeClient client(options_for(server), loop.mailbox, loop.timers, loop.clock);
      client.send(kGetPod, [&](const ApiReply&) { ++answers; });
      open(watched, client);
      if (round % 2 == 0) loop.run_until([&] { return !watched.events.empty(); });
      if (round % 3 == 0) watched.handle.reset();
    }
    loop.mailbox.run();
    EXPECT_FALSE(watched.end.has_value());
    EXPECT_FALSE(loop.timers.next().has_value());
  }
  Loop loop;
  KubeClient client(options_for(server), loop.mailbox, loop.timers, loop.clock);
  const ApiRequest lease{.verb = ApiVerb::kGet, .type = kLeases, .namespace_ = "ns", .name = "l"};
  EXPECT_EQ(call(loop, client, lease).outcome, ApiOutcome::kOk);
  for (const auto& old : loops) EXPECT_EQ(old->mailbox.run(), 0u);
  EXPECT_EQ(answers, 0u);
}

TEST(AgentClient, PutsAssignmentsAndPollsStates) {
  Loop loop;
  std::vector<Request> seen;
  int status = 200;
  AgentState state;
  state.boot_id = "boot";
  state.sequence = 8;
  state.phase = "Running";
  ScriptedServer server([&](const Request& request, const Peer& peer) {
    seen.push_back(request);
    peer.reply(status, status == 200 ? dump_json(to_json(state)) : R"({"error":"no"})");
  });
  AgentHttpClient client({.port = server.port()}, loop.mailbox, loop.timers);
  const AgentAddress agent{.ip = "127.0.0.1", .token = "job-token"};
  Assignment told;
  told.job_name = "j";
  const auto assignment = std::make_shared<const Assignment>(told);
  told.node_index = 3;
  std::optional<Result<AgentState>> answer;
  const auto done = [&](Result<AgentState> result) { answer.emplace(std::move(result)); };
  const auto wait = [&] { loop.run_until([&] { return answer.has_value(); }); };
  client.put_assignment(agent, assignment, 3, done);
  wait();
  ASSERT_TRUE(answer->ok()) << answer->error().message;
  EXPECT_EQ(**answer, state);
  EXPECT_TRUE(seen[0].contains("PUT /v1/assignment HTTP/1.1"));
  EXPECT_TRUE(seen[0].contains("Authorization: Bearer job-token\r\n"));
  EXPECT_EQ(Json::parse(seen[0].body), to_json(told));
  answer.reset();
  client.poll_state(agent, 7, seconds(10), done);
  wait();
  EXPECT_TRUE(seen[1].contains("GET /v1/state?since=7&timeoutSeconds=10 HTTP/1.1"));
  for (const auto& [code, expected] : std::map<int, Code>{{400, Code::kInvalid},
                                                          {401, Code::kInvalid},
                                                          {409, Code::kConflict},
                                                          {503, Code::kUnavailable}}) {
    status = code;
    answer.reset();
    client.put_assignment(agent, assignment, 3, done);
    wait();
    ASSERT_FALSE(answer->ok());
    EXPECT_EQ(answer->error().code, expected) << code;
  }
}

// Pods in the node's network have its address, and one that is gone leaves its own to another.
TEST(AgentClient, ForgettingAnAgentLeavesOthersAtItsAddressAlone) {
  Loop loop;
  AgentState state;
  state.boot_id = "boot";
  state.phase = "Idle";
  std::atomic<int> asked{0};
  std::atomic<bool> may_answer{false};
  ScriptedServer server([&](const Request&, const Peer& peer) {
    ++asked;
    may_answer.wait(false);
    peer.reply(200, dump_json(to_json(state)));
  });
  AgentHttpClient client({.port = server.port()}, loop.mailbox, loop.timers);
  const AgentAddress gone{.ip = "127.0.0.1", .token = "a"};
  const AgentAddress other{.ip = "127.0.0.1", .token = "b"};
  int answers = 0;
  const auto done = [&](const Result<AgentState>& answer) { answers += answer.ok() ? 1 : 0; };
  client.poll_state(gone, 0, seconds(10), done);
  client.poll_state(other, 0, seconds(10), done);
  client.put_assignment(other, std::make_shared<const Assignment>(), 0, done);
  client.forget(gone);
  client.forget(gone);
  may_answer = true;
  may_answer.notify_all();
  loop.run_until([&] { return answers == 3; });
  client.forget(other);
  client.poll_state(other, 0, seconds(10), done);
  loop.run_until([&] { return answers == 4; });
  EXPECT_EQ(asked, 4);
}

}  // namespace
}  // namespace lockstep
