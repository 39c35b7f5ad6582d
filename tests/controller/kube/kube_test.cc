#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "controller/kube/retry_after.h"
#include "tests/controller/kube/kube_calls.h"

namespace lockstep::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

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

TEST(RequestPath, IsThatOfTheKubernetesApi) {
  EXPECT_EQ(request_path(kGetPod), "/api/v1/namespaces/ns/pods/p");
  loop::ApiRequest request{.verb = loop::ApiVerb::kReplaceStatus,
                           .type = loop::kTrainingJobs,
                           .namespace_ = "ns",
                           .name = "a/b"};
  EXPECT_EQ(request_path(request),
            "/apis/lockstep.dev/v1alpha1/namespaces/ns/trainingjobs/a%2Fb/status");
  request = {.verb = loop::ApiVerb::kList, .type = loop::kPods};
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
  // 64 bits of nanoseconds reach from 1677 to 2262.
  for (const char* late : {"Sat, 12 Apr 2262 00:00:00 GMT", "Tue, 01 Jan 2300 00:00:00 GMT",
                           "Mon, 01 Jan 2600 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"})
    EXPECT_EQ(retry_after(late, now), seconds(300)) << late;
  for (const char* early : {"Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 01 Jan 1700 00:00:00 GMT",
                            "Mon, 01 Jan 1600 00:00:00 GMT", "Mon, 01 Jan 0001 00:00:00 GMT"})
    EXPECT_EQ(retry_after(early, now), Duration{0}) << early;
  EXPECT_EQ(retry_after("soon", now), Duration{0});
  EXPECT_EQ(retry_after("-5", now), Duration{0});
}

TEST(KubeClient, AnswersMeanWhatTheCallerDoesNext) {
  struct Case {
    int status;
    const char* body;
    const char* fields;
    loop::ApiOutcome outcome;
    int retry_seconds;
  };
  const Case cases[] = {
      {200, R"({"kind":"Pod"})", "", loop::ApiOutcome::kOk, 0},
      {201, R"({"kind":"Po)", "", loop::ApiOutcome::kUnreadable, 0},
      {400, "{}", "", loop::ApiOutcome::kInvalid, 0},
      {401, "{}", "", loop::ApiOutcome::kUnauthorized, 0},
      {403, "{}", "", loop::ApiOutcome::kForbidden, 0},
      {404, "{}", "", loop::ApiOutcome::kNotFound, 0},
      {409, R"({"reason":"AlreadyExists"})", "", loop::ApiOutcome::kAlreadyExists, 0},
      {409, R"({"reason":"Conflict"})", "", loop::ApiOutcome::kConflict, 0},
      {410, R"({"reason":"Expired"})", "", loop::ApiOutcome::kExpired, 0},
      {413, "{}", "", loop::ApiOutcome::kInvalid, 0},
      {422, "{}", "", loop::ApiOutcome::kInvalid, 0},
      {429, "{}", "Retry-After: 3\r\n", loop::ApiOutcome::kThrottled, 3},
      {500, "{}", "", loop::ApiOutcome::kUnavailable, 0},
      {502, "<html>Bad Gateway</html>", "", loop::ApiOutcome::kUnavailable, 0},
      {503, "", "Retry-After: 1\r\n", loop::ApiOutcome::kThrottled, 1},
      {504, "{}", "", loop::ApiOutcome::kTimeout, 0},
      {504,
       R"({"details":{"causes":[{"reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1}})", "",
       loop::ApiOutcome::kTooLarge, 1},
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
    const loop::ApiReply reply = call(loop, client, kGetPod);
    EXPECT_EQ(loop::outcome_name(reply.outcome), loop::outcome_name(test.outcome)) << reply.message;
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
  loop::ApiRequest request = kGetPod;
  request.verb = loop::ApiVerb::kDelete;
  request.body = {{"preconditions", {{"uid", "u"}}}};
  EXPECT_TRUE(call(loop, client, request).ok());
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_TRUE(seen[0].contains("DELETE /api/v1/namespaces/ns/pods/p HTTP/1.1")) << seen[0].head;
  EXPECT_TRUE(seen[0].contains("Authorization:Bearer secret\r\n"));
  EXPECT_TRUE(seen[0].contains("User-Agent:lockstep-controller/1\r\n"));
  EXPECT_EQ(seen[0].body, R"({"preconditions":{"uid":"u"}})");
}

// Returns this process's sockets that are connected to that port.
std::vector<int> connections_to(int port) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_in peer{};
    socklen_t bytes = sizeof peer;
    const bool is_connected = ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) == 0;
    if (is_connected && peer.sin_family == AF_INET && ntohs(peer.sin_port) == port)
      found.push_back(fd);
  }
  return found;
}

int option_of(int fd, int level, int name) {
  int value = 0;
  socklen_t bytes = sizeof value;
  return ::getsockopt(fd, level, name, &value, &bytes) == 0 ? value : -1;
}

TEST(KubeClient, SendsABodyWithoutWaitingForAnAcknowledgementAndNoticesADeadServer) {
  Loop loop;
  ScriptedServer server([](const Request&, const Peer& peer) { peer.reply(200, "{}"); });
  KubeClient client(options_for(server), loop.mailbox, loop.timers, loop.clock);
  ASSERT_EQ(call(loop, client, kGetPod).outcome, loop::ApiOutcome::kOk);
  const std::vector<int> connections = connections_to(server.port());
  ASSERT_FALSE(connections.empty());
  for (const int fd : connections) {
    EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
  }
}

// cpprestsdk closes the connection of a request that is cancelled while it ends.
TEST(KubeClient, LeavesTheConnectionOfAnAnsweredRequestOpen) {
  Loop loop;
  ScriptedServer server([](const Request&, const Peer& peer) { peer.reply(200, "{}"); });
  KubeClientOptions options = options_for(server);
  options.rate.per_second = options.rate.burst = 1e9;
  KubeClient client(options, loop.mailbox, loop.timers, loop.clock);
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(call(loop, client, kGetPod).ok()) << i;
  EXPECT_EQ(server.ended(), 0);
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
    client.send(kGetPod, [&](const loop::ApiReply& reply) { answers += reply.ok() ? 1 : 0; });
  EXPECT_EQ(client.waiting(), kRequests - options.open_max);
  const loop::ApiRequest lease{
      .verb = loop::ApiVerb::kGet, .type = loop::kLeases, .namespace_ = "ns", .name = "l"};
  EXPECT_TRUE(call(loop, client, lease).ok());
  EXPECT_EQ(answers, 0);
  may_end = true;
  may_end.notify_all();
  loop.run_until([&] { return answers == kRequests; });
  EXPECT_LE(most, 4);
  EXPECT_EQ(client.waiting(), 0u);
}

TEST(KubeClient, MakesTheBodyOfARequestThatWaitsOnlyWhenItIsSent) {
  constexpr int kRequests = 5;
  Loop loop;
  std::atomic<bool> may_end{false};
  std::atomic<int> with_body{0};
  ScriptedServer server([&](const Request& request, const Peer& peer) {
    may_end.wait(false);
    with_body += request.body == R"({"kind":"Pod"})" ? 1 : 0;
    peer.reply(200, "{}");
  });
  KubeClientOptions options = options_for(server);
  options.open_max = 2;
  KubeClient client(options, loop.mailbox, loop.timers, loop.clock);
  int made = 0;
  int answers = 0;
  for (int i = 0; i < kRequests; ++i) {
    loop::ApiRequest request{
        .verb = loop::ApiVerb::kCreate, .type = loop::kPods, .namespace_ = "ns"};
    request.make_text = [&made] {
      ++made;
      return std::string(R"({"kind":"Pod"})");
    };
    client.send(std::move(request), [&](const loop::ApiReply&) { ++answers; });
  }
  EXPECT_EQ(made, 2);
  may_end = true;
  may_end.notify_all();
  loop.run_until([&] { return answers == kRequests; });
  EXPECT_EQ(made, kRequests);
  EXPECT_EQ(with_body, kRequests);
}

// The specs of many pods take much memory. One that is read by name may be written back.
TEST(KubeClient, PodsOfListsComeWithoutMostOfTheirSpecAndOneThatIsReadComesWhole) {
  const Json pod = {{"metadata", {{"name", "a"}}},
                    {"spec", {{"containers", {{{"name", "node"}}}}, {"nodeName", "n"}}}};
  const Json cut = {{"metadata", {{"name", "a"}}}, {"spec", {{"nodeName", "n"}}}};
  Loop loop;
  ScriptedServer server([&](const Request& request, const Peer& peer) {
    const bool is_list = request.contains("/pods HTTP");
    peer.reply(200, dump_json(is_list ? Json{{"items", {pod}}} : pod));
  });
  KubeClient client(options_for(server), loop.mailbox, loop.timers, loop.clock);
  loop::ApiRequest request{.verb = loop::ApiVerb::kList, .type = loop::kPods, .namespace_ = "ns"};
  EXPECT_EQ(call(loop, client, request).body, (Json{{"items", {cut}}}));
  request.verb = loop::ApiVerb::kGet;
  request.name = "a";
  EXPECT_EQ(call(loop, client, request).body, pod);
}

// A server may send a whole list as one chunk. The informer then asks for a smaller page.
TEST(KubeClient, AReplyInOneChunkThatIsTooLargeIsUnreadable) {
  Loop loop;
  ScriptedServer server([&](const Request&, const Peer& peer) {
    peer.begin_chunks();
    peer.chunk(std::string(65u << 20, ' '));
    peer.end_chunks();
  });
  KubeClient client(options_for(server), loop.mailbox, loop.timers, loop.clock);
  loop::ApiRequest list{.verb = loop::ApiVerb::kList, .type = loop::kPods};
  EXPECT_EQ(loop::outcome_name(call(loop, client, list).outcome),
            loop::outcome_name(loop::ApiOutcome::kUnreadable));
}

TEST(KubeClient, AsksWhetherARequestThatWaitedMayStillGo) {
  Loop loop;
  ScriptedServer server([](const Request&, const Peer& peer) { peer.reply(200, "{}"); });
  KubeClientOptions options = options_for(server);
  options.rate = {.per_second = 100, .burst = 1};
  KubeClient client(options, loop.mailbox, loop.timers, loop.clock);
  bool may = true;
  loop::ApiRequest guarded = kGetPod;
  guarded.may_send = [&may] { return may; };
  std::vector<loop::ApiReply> replies;
  for (int i = 0; i < 2; ++i)
    client.send(guarded, [&](const loop::ApiReply& reply) { replies.push_back(reply); });
  EXPECT_EQ(client.waiting(), 1u);
  may = false;
  client.send(kGetPod, [&](const loop::ApiReply& reply) { replies.push_back(reply); });
  loop.run_until([&] { return replies.size() == 3; });
  size_t refused = 0;
  for (const loop::ApiReply& reply : replies)
    refused += reply.message == loop::not_sent().message ? 1 : 0;
  EXPECT_EQ(refused, 1u);
  EXPECT_EQ(server.requests(), 2) << "the one that waited while it was allowed did not go";
  EXPECT_EQ(client.waiting(), 0u);
}

// A job with any podTemplate, as users who may create jobs can store it.
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
      const bool is_list = request.contains("/trainingjobs ");
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
  const loop::ApiReply list =
      call(loop, client, {.verb = loop::ApiVerb::kList, .type = loop::kTrainingJobs});
  ASSERT_TRUE(list.ok()) << list.message;
  for (size_t i = 0; i < std::size(objects); ++i) check((*list.body)["items"][i], i);
  Watched watched;
  open(watched, client, "300", loop::kTrainingJobs);
  loop.run_until([&] { return watched.end.has_value(); });
  EXPECT_TRUE(watched.end->ok()) << watched.end->message;
  ASSERT_EQ(watched.events.size(), std::size(objects));
  for (size_t i = 0; i < std::size(objects); ++i) check(watched.events[i].object, i);
  const loop::ApiReply one = call(loop, client, kGetPod);
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
  EXPECT_EQ(call(loop, client, kGetPod).outcome, loop::ApiOutcome::kThrottled);
  is_busy = false;
  const TimePoint refused = loop.timers.now();
  std::optional<loop::ApiReply> reply;
  client.send(kGetPod, [&](loop::ApiReply answer) { reply = std::move(answer); });
  const loop::ApiRequest lease{
      .verb = loop::ApiVerb::kGet, .type = loop::kLeases, .namespace_ = "ns", .name = "l"};
  EXPECT_TRUE(call(loop, client, lease).ok());
  EXPECT_FALSE(reply.has_value());
  EXPECT_EQ(client.waiting(), 1u);
  loop.run_until([&] { return reply.has_value(); });
  EXPECT_TRUE(reply->ok());
  EXPECT_GE(loop.timers.now() - refused, milliseconds(250));
}

// A leader that has lost its lease may have thousands of waiting requests.
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
  loop::ApiRequest guarded = kGetPod;
  guarded.may_send = [&may] { return may; };
  bool is_answered = false;
  client.send(guarded, [&](const loop::ApiReply&) { is_answered = true; });
  for (int i = 0; i < kWaiting; ++i)
    client.send(guarded, [&](const loop::ApiReply& reply) { taken_back += reply.ok() ? 0 : 1; });
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
  EXPECT_EQ(call(loop, client, kGetPod).outcome, loop::ApiOutcome::kUnauthorized);
  EXPECT_EQ(server.requests(), 1);  // it does not retry with the same token
  token.write("");
  EXPECT_EQ(call(loop, client, kGetPod).outcome, loop::ApiOutcome::kUnauthorized);
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
  EXPECT_EQ(call(loop, client, kGetPod).outcome, loop::ApiOutcome::kUnavailable);
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
  EXPECT_EQ(call(loop, nobody, kGetPod).outcome, loop::ApiOutcome::kUnavailable);

  ScriptedServer silent([](const Request&, const Peer& peer) { peer.wait_for_close(); });
  KubeClientOptions options = options_for(silent);
  options.deadline = milliseconds(50);
  KubeClient waiting(options, loop.mailbox, loop.timers, loop.clock);
  EXPECT_EQ(call(loop, waiting, kGetPod).outcome, loop::ApiOutcome::kTimeout);

  ScriptedServer talkative([](const Request&, const Peer& peer) {
    peer.reply(200, "\"" + std::string(100'000, 'x') + "\"");
  });
  options = options_for(talkative);
  options.reply_bytes_max = 50'000;
  KubeClient bounded(options, loop.mailbox, loop.timers, loop.clock);
  const loop::ApiReply reply = call(loop, bounded, kGetPod);
  EXPECT_EQ(reply.outcome, loop::ApiOutcome::kUnreadable);
  EXPECT_NE(reply.message.find("larger"), std::string::npos) << reply.message;
}

// The network's threads report the end of a cancelled request later, when its loop may be gone. The
// loops are kept alive here only to show whether a report arrives.
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
    Watched watched;  // destroyed after the client
    {
      KubeClient client(options_for(server), loop.mailbox, loop.timers, loop.clock);
      client.send(kGetPod, [&](const loop::ApiReply&) { ++answers; });
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
  const loop::ApiRequest lease{
      .verb = loop::ApiVerb::kGet, .type = loop::kLeases, .namespace_ = "ns", .name = "l"};
  EXPECT_EQ(call(loop, client, lease).outcome, loop::ApiOutcome::kOk);
  for (const auto& old : loops) EXPECT_EQ(old->mailbox.run(), 0u);
  EXPECT_EQ(answers, 0u);
}

}  // namespace
}  // namespace lockstep::kube
