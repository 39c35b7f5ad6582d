#include <gtest/gtest.h>

#include "tests/controller/kube/kube_calls.h"

namespace lockstep::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

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
    EXPECT_EQ(watched.events[0].type, loop::WatchEventType::kAdded);
    EXPECT_EQ(watched.events[1].type, loop::WatchEventType::kModified);
    EXPECT_EQ(watched.events[2].type, loop::WatchEventType::kBookmark);
    EXPECT_EQ(watched.events[3].type, loop::WatchEventType::kDeleted);
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
  EXPECT_EQ(refused.end->outcome, loop::ApiOutcome::kUnreadable);
  EXPECT_TRUE(refused.events.empty());
}

TEST(KubeWatch, WhatEndsItIsToldApart) {
  struct Case {
    const char* name;
    std::function<void(const Peer&)> script;
    loop::ApiOutcome outcome;
    size_t events;
    int counted_as;  // HTTP code; 0: no complete reply
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
       loop::ApiOutcome::kOk, 1, 200},
      {"too old a version, as HTTP 200",
       [&](const Peer& peer) {
         peer.begin_chunks();
         peer.chunk(event_line("ADDED", "a") + expired);
         peer.end_chunks();
       },
       loop::ApiOutcome::kExpired, 1, 200},
      {"too old a version, as HTTP 410",
       [](const Peer& peer) { peer.reply(410, R"({"code":410})"); }, loop::ApiOutcome::kExpired, 0,
       410},
      {"too many requests", [](const Peer& peer) { peer.reply(429, "{}", "Retry-After: 1\r\n"); },
       loop::ApiOutcome::kThrottled, 0, 429},
      {"something that is no event",
       [](const Peer& peer) {
         peer.begin_chunks();
         peer.chunk("hello\n");
         peer.wait_for_close();
       },
       loop::ApiOutcome::kUnreadable, 0, 200},
      {"an end within a line",
       [](const Peer& peer) {
         peer.begin_chunks();
         peer.chunk(R"({"type":"ADDED","object":{}}x)");
         peer.end_chunks();
       },
       loop::ApiOutcome::kUnavailable, 0, 0},
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
    EXPECT_EQ(loop::outcome_name(watched.end->outcome), loop::outcome_name(test.outcome))
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
  EXPECT_EQ(watched.end->outcome, loop::ApiOutcome::kTimeout);
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
  is_stuck.wait(false);  // nothing reads the mailbox until then
  EXPECT_LT(sent, kFlood / 4);
  loop.run_until([&] { return watched.events.size() > 50; });
  watched.handle.reset();
}

}  // namespace
}  // namespace lockstep::kube
