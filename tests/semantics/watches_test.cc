// Watches that break, stall, and repeat or omit events: rows 7 to 12.
#include <algorithm>

#include "tests/semantics/rig.h"

namespace lockstep::semantics {
namespace {

using conformance::meta;
using conformance::server;
using std::chrono::seconds;

class Watches : public Semantics {
 protected:
  // Runs `change` and returns the next event lines of the configmaps, as the server writes them.
  std::vector<std::string> record(const std::function<void()>& change, size_t lines) {
    const std::string version = meta(get(configmaps()).body, "resourceVersion");
    auto stream =
        server().open(configmaps() + "?watch=1&labelSelector=mine&resourceVersion=" + version,
                      "application/json");
    std::vector<std::string> found;
    EXPECT_TRUE(stream.ok());
    change();
    while (stream.ok() && found.size() < lines) {
      Result<std::optional<std::string>> line = (*stream)->read_line();
      if (!line.ok() || !line->has_value()) break;
      found.push_back(**line);
    }
    EXPECT_EQ(found.size(), lines);
    return found;
  }
};

// Returns the seconds between two requests on a loop's clock.
double gap(const RecordedRequest& from, const RecordedRequest& to, const Loop& loop) {
  return to_seconds(to.at - from.at) * loop.clock.speed();
}

// The client leaves out managedFields.
Json as_delivered(Json object) {
  object["metadata"].erase("managedFields");
  return object;
}

TEST_F(Watches, ADeadOneIsGivenUpAfterItsTimeAndNotBefore) {
  const std::pair<const char*, Fault> holes[] = {
      {"after the headers",
       [](Exchange& exchange) {
         exchange.begin_stream();
         exchange.wait_for_client_close();
       }},
      {"within a line",
       [](Exchange& exchange) {
         exchange.begin_stream();
         exchange.chunk("{\"type\":\"ADDED\",\"obj");
         exchange.wait_for_client_close();
       }},
      {"within a chunk",
       [](Exchange& exchange) {
         exchange.begin_stream();
         exchange.raw("40\r\n{\"type\":\"ADDED\",");
         exchange.wait_for_client_close();
       }},
  };
  Loop loop(100);
  std::vector<std::unique_ptr<FaultProxy>> proxies;
  std::vector<std::unique_ptr<Cache>> caches;
  for (const auto& [name, hole] : holes) {
    FaultProxy& one = *proxies.emplace_back(std::make_unique<FaultProxy>(server().target()));
    one.on({.verb = "watch", .fault = hole, .times = 1});
    kube::KubeClientOptions client = client_options(loop, one);
    client.watch_margin = kube::KubeClientOptions().watch_margin;
    caches.push_back(std::make_unique<Cache>(loop, client, of_configmaps()));
    caches.back()->informer.start();
  }
  for (size_t i = 0; i < proxies.size(); ++i) {
    SCOPED_TRACE(holes[i].first);
    ASSERT_TRUE(loop.run_until([&] { return proxies[i]->count("watch") == 2; }));
    const std::vector<RecordedRequest> watches = proxies[i]->seen("watch");
    // The watch lasts at least 240 s from the client's request.
    EXPECT_GE(gap(watches[0], watches[1], loop), 200.0);
    EXPECT_EQ(proxies[i]->count("list"), 1u);
  }
  make_map("a");
  for (const auto& cache : caches)
    EXPECT_TRUE(loop.run_until([&] { return cache->names() == "a"; }));
}

TEST_F(Watches, AQuietOneLivesUntilTheServerEndsIt) {
  Loop loop;
  loop::InformerOptions options = of_configmaps();
  options.watch_seconds_min = options.watch_seconds_max = 3;
  Cache cache(loop, client_options(loop, proxy), options);
  cache.informer.start();
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("watch") == 2; }));
  const std::vector<RecordedRequest> watches = proxy.seen("watch");
  EXPECT_GE(gap(watches[0], watches[1], loop), 2.0);  // the server may count from a bit earlier
  EXPECT_EQ(proxy.count("list"), 1u);
}

TEST_F(Watches, HoweverAStreamIsCutIntoChunksItsObjectsAreTheSame) {
  const std::vector<std::string> lines = record(
      [&] {
        make_map("a");
        delete_map("a");
      },
      2);
  std::string stream;
  for (const std::string& line : lines) stream += line + "\n";
  std::vector<size_t> cuts;
  proxy.on({.verb = "watch", .fault = [&](Exchange& exchange) {
              exchange.begin_stream();
              size_t at = 0;
              for (const size_t cut : cuts) {
                exchange.chunk(stream.substr(at, cut - at));
                at = cut;
              }
              exchange.chunk(stream.substr(at));
              exchange.end_stream();
            }});
  Loop loop;
  kube::KubeClient client(client_options(loop, proxy), loop.mailbox, loop.timers, loop.clock);
  const auto objects_are_the_same = [&] {
    std::vector<Json> objects;
    std::optional<loop::ApiReply> end;
    const auto handle =
        client.watch({.type = kConfigMaps, .namespace_ = namespace_},
                     {.on_events =
                          [&](std::vector<loop::WatchEvent> events) {
                            for (loop::WatchEvent& event : events)
                              objects.push_back(std::move(event.object));
                          },
                      .on_end = [&](loop::ApiReply reply) { end = std::move(reply); }});
    if (!loop.run_until([&] { return end.has_value(); }) || !end->ok()) return false;
    if (objects.size() != lines.size()) return false;
    for (size_t i = 0; i < lines.size(); ++i)
      if (objects[i] != as_delivered((*parse_json(lines[i]))["object"])) return false;
    return true;
  };
  for (size_t cut = 0; cut < stream.size(); ++cut) {
    cuts = {cut};
    ASSERT_TRUE(objects_are_the_same()) << "cut at " << cut;
  }
  Random random(new_seed());
  for (int i = 0; i < 50; ++i) {
    cuts.clear();
    for (size_t at = random.below(40); at < stream.size(); at += 1 + random.below(40))
      cuts.push_back(at);
    ASSERT_TRUE(objects_are_the_same()) << "round " << i;
  }
  cuts.clear();
  for (size_t at = 1; at < stream.size(); ++at) cuts.push_back(at);
  EXPECT_TRUE(objects_are_the_same()) << "byte by byte";
}

TEST_F(Watches, OnesThatEndAtOnceAreOpenedMoreAndMoreRarely) {
  Loop loop(200);
  proxy.on({.verb = "watch", .fault = [](Exchange& exchange) {
              exchange.begin_stream();
              exchange.end_stream();
            }});
  loop::InformerOptions options = of_configmaps();
  options.short_watch = seconds(200);  // on this clock: one second of the machine's
  Cache cache(loop, client_options(loop, proxy), options);
  cache.informer.start();
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("watch") >= 9; }));
  const std::vector<RecordedRequest> watches = proxy.seen("watch");
  // The delays double from 0.8 s to at most 30 s. Each is stretched by up to its own length.
  const double wanted[] = {0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30};
  for (size_t i = 0; i < std::size(wanted); ++i)
    EXPECT_GE(gap(watches[i], watches[i + 1], loop), wanted[i]) << i;
  EXPECT_EQ(proxy.count("list"), 1u);
}

TEST_F(Watches, ManyClientsComeBackSpreadAfterAnOutage) {
  constexpr size_t kClients = 50;
  Loop loop;
  std::vector<std::unique_ptr<Cache>> caches;
  for (size_t i = 0; i < kClients; ++i) {
    caches.push_back(std::make_unique<Cache>(loop, client_options(loop, proxy), of_configmaps()));
    caches.back()->informer.start();
  }
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("watch") == kClients; }));
  proxy.cut();
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("watch") == 2 * kClients; }));
  const std::vector<RecordedRequest> watches = proxy.seen("watch");
  // Each client waits for a random time in [0.8, 1.6) seconds: their waits spread over more than
  // half of that range.
  EXPECT_GE(gap(watches[kClients], watches.back(), loop), 0.4);
  EXPECT_EQ(proxy.count("list"), kClients);
  make_map("a");
  for (const auto& cache : caches)
    EXPECT_TRUE(loop.run_until([&] { return cache->names() == "a"; }));
}

TEST_F(Watches, EventsThatAreRepeatedAreNotReportedAgain) {
  std::vector<std::string> sent;
  proxy.on({.verb = "watch",
            .fault =
                [&](Exchange& exchange) {
                  if (!exchange.open_watch()) return;
                  exchange.begin_stream();
                  while (sent.size() < 10) {
                    std::optional<std::string> event = exchange.next_event();
                    if (!event) break;
                    sent.push_back(*event);
                    exchange.line(*event);
                  }
                  exchange.hang_up();
                },
            .times = 1});
  proxy.on({.verb = "watch", .fault = [&](Exchange& exchange) {
              if (!exchange.open_watch()) return;
              exchange.begin_stream();
              for (const std::string& line : sent) exchange.line(line);
              while (std::optional<std::string> event = exchange.next_event())
                exchange.line(*event);
            }});
  Loop loop;
  Cache cache(loop, client_options(loop, proxy), of_configmaps());
  cache.informer.start();
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("watch") == 1; }));
  for (const char* name : {"a", "b", "c"}) make_map(name);
  for (int i = 0; i < 5; ++i) change_map("b", std::to_string(i));
  delete_map("a");
  make_map("a");
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("watch") == 2; }));
  make_map("last");
  ASSERT_TRUE(loop.run_until([&] { return cache.names() == "a b c last"; }));
  const std::vector<std::string> expected = {"+a", "+b", "+c", "~b", "~b",   "~b",
                                             "~b", "~b", "-a", "+a", "+last"};
  EXPECT_EQ(cache.changes, expected);
  EXPECT_EQ(cache.object("b"), as_delivered(get(configmaps() + "/b").body));
}

TEST_F(Watches, ADeletionThatWasNotHeardOfShowsInTheUidOfTheNext) {
  proxy.on({.verb = "watch", .fault = filtered([](const std::string& line) {
                               const bool is_swallowed =
                                   line.find("\"DELETED\"") != std::string::npos;
                               return is_swallowed ? std::vector<std::string>()
                                                   : std::vector<std::string>{line};
                             })});
  Loop loop;
  Cache cache(loop, client_options(loop, proxy), of_configmaps());
  cache.informer.start();
  make_map("a");
  ASSERT_TRUE(loop.run_until([&] { return cache.names() == "a"; }));
  const std::string first = meta(cache.object("a"), "uid");
  delete_map("a");
  const std::string second = meta(make_map("a"), "uid");
  ASSERT_TRUE(loop.run_until([&] { return meta(cache.object("a"), "uid") == second; }));
  EXPECT_NE(first, second);
  EXPECT_EQ(cache.changes, (std::vector<std::string>{"+a", "-a", "+a"}));
}

}  // namespace
}  // namespace lockstep::semantics
