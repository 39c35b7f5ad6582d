// Lists, and the watches that continue from them: rows 1 to 6 and 28.
#include "controller/loop/resource_version.h"
#include "tests/semantics/rig.h"

namespace lockstep::semantics {
namespace {

using conformance::eventually;
using conformance::meta;
using conformance::Reply;
using conformance::server;
using std::chrono::seconds;

class Lists : public Semantics {
 protected:
  Loop loop{4};
};

TEST_F(Lists, AreReadFromTheQuorumInPages) {
  make_map("a");
  Cache cache(loop, client_options(loop, proxy), of_configmaps());
  cache.informer.start();
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("watch") == 1; }));
  const std::vector<RecordedRequest> lists = proxy.seen("list");
  ASSERT_EQ(lists.size(), 1u);
  EXPECT_EQ(lists[0].query.at("limit"), "500");
  EXPECT_FALSE(lists[0].query.contains("resourceVersion"));
  EXPECT_FALSE(lists[0].query.contains("resourceVersionMatch"));
  EXPECT_EQ(cache.names(), "a");
}

TEST_F(Lists, AreFollowedByAWatchFromTheListsOwnVersion) {
  make_map("a");
  std::string listed;
  proxy.on({.verb = "list", .fault = [&](Exchange& exchange) {
              const Reply reply = exchange.ask();
              listed = meta(reply.body, "resourceVersion");
              (void)make_map("between");
              exchange.answer(reply);
            }});
  Cache cache(loop, client_options(loop, proxy), of_configmaps());
  cache.informer.start();
  ASSERT_TRUE(loop.run_until([&] { return cache.names() == "a between"; }));
  EXPECT_EQ(proxy.seen("watch").at(0).query.at("resourceVersion"), listed);
  EXPECT_EQ(cache.times("+between"), 1);
}

TEST_F(Lists, VersionsOfTheServerAreDecimalAndGrow) {
  std::string before = meta(make_map("first"), "resourceVersion");
  for (int i = 0; i < 20; ++i) {
    const std::string after = meta(make_map("m" + std::to_string(i)), "resourceVersion");
    const auto order = loop::compare_versions(after, before);
    ASSERT_TRUE(order.has_value()) << before << " " << after;
    EXPECT_EQ(*order, std::strong_ordering::greater) << before << " " << after;
    before = after;
  }
}

TEST_F(Lists, ABookmarkMovesTheNextWatchAndNothingElse) {
  make_map("a");
  std::string bookmark;
  proxy.on(
      {.verb = "watch",
       .fault =
           [&](Exchange& exchange) {
             exchange.begin_stream();
             exchange.line(event_line(
                 "BOOKMARK",
                 {{"kind", "ConfigMap"},
                  {"apiVersion", "v1"},
                  {"metadata", {{"resourceVersion", bookmark}, {"creationTimestamp", nullptr}}}}));
             exchange.hang_up();
           },
       .times = 1});
  // Takes the version of a secret as the bookmark, so that no configmap has changed.
  proxy.on({.verb = "list", .fault = [&](Exchange& exchange) {
              const Reply reply = exchange.ask();
              bookmark = meta(make(secrets(), named("other")), "resourceVersion");
              exchange.answer(reply);
            }});
  Cache cache(loop, client_options(loop, proxy), of_configmaps());
  cache.informer.start();
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("watch") == 2; }));
  EXPECT_EQ(proxy.seen("watch")[1].query.at("resourceVersion"), bookmark);
  EXPECT_EQ(proxy.seen("watch")[0].query.at("allowWatchBookmarks"), "true");
  EXPECT_EQ(proxy.count("list"), 1u);
  EXPECT_EQ(cache.changes, std::vector<std::string>{"+a"});
  make_map("b");
  ASSERT_TRUE(loop.run_until([&] { return cache.names() == "a b"; }));
  EXPECT_EQ(cache.changes.size(), 2u);
}

// A way in which kube-apiserver 1.20 says that a version is gone.
struct Gone {
  const char* name;
  Fault fault;
};

TEST_F(Lists, AVersionThatIsGoneMeansOneListThatFindsWhatVanished) {
  const Gone shapes[] = {
      {"an event of a watch",
       [](Exchange& exchange) {
         exchange.begin_stream();
         exchange.line(event_line("ERROR", status_of(410, "Expired")));
         exchange.end_stream();
       }},
      {"the watch's status", failed(410, "Gone")},
  };
  for (const Gone& shape : shapes) {
    SCOPED_TRACE(shape.name);
    FaultProxy fresh(server().target());
    const std::string suffix = std::to_string(&shape - shapes);
    make_map("stays" + suffix);
    make_map("goes" + suffix);
    Cache cache(loop, client_options(loop, fresh), of_configmaps());
    cache.informer.start();
    ASSERT_TRUE(loop.run_until([&] { return fresh.count("watch") == 1; }));
    fresh.on({.verb = "watch",
              .fault =
                  [&](Exchange& exchange) {
                    exchange.wait("deleted");
                    shape.fault(exchange);
                  },
              .times = 1});
    fresh.cut();
    delete_map("goes" + suffix);
    make_map("comes" + suffix);
    fresh.open_gate("deleted");
    ASSERT_TRUE(loop.run_until([&] { return cache.times("+comes" + suffix) == 1; }));
    EXPECT_EQ(cache.times("-goes" + suffix), 1);
    EXPECT_EQ(cache.times("+stays" + suffix), 1);
    EXPECT_EQ(fresh.count("list"), 2u);
    ASSERT_TRUE(loop.run_until([&] { return fresh.count("watch") == 3; }));
  }
}

TEST_F(Lists, AServerThatAlwaysSaysGoneIsAskedMoreAndMoreRarely) {
  Loop fast(20);
  proxy.on({.verb = "watch", .fault = failed(410, "Expired")});
  Cache cache(fast, client_options(fast, proxy), of_configmaps());
  cache.informer.start();
  ASSERT_TRUE(fast.run_until([&] { return proxy.count("watch") == 1; }));
  fast.run_for(seconds(10));
  // The first list after 410 comes at once, and again after ten seconds. Between, retries wait for
  // at least 0.8, 1.6 and 3.2 seconds: at most six lists and six watches.
  EXPECT_LE(proxy.count(), 12u);
  EXPECT_GE(proxy.count("list"), 2u);
}

TEST_F(Lists, AVersionThatTheServerItselfHasForgottenMeansAList) {
  make_map("stays");
  const std::string old = configmaps() + "?watch=true&resourceVersion=1&timeoutSeconds=1";
  const auto is_forgotten = [&] {
    return get(old).text.find("\"ERROR\"") != std::string::npos || get(old).code == 410;
  };
  if (!is_forgotten()) {  // a server that forgets by the number of writes
    for (int i = 0; i < 450; ++i) make(configmaps(), {{"metadata", {{"generateName", "m"}}}});
  }
  ASSERT_TRUE(eventually(is_forgotten));
  proxy.on({.verb = "watch", .fault = with_query("resourceVersion", "1"), .times = 1});
  Cache cache(loop, client_options(loop, proxy), of_configmaps());
  cache.informer.start();
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("watch") == 2; }));
  EXPECT_EQ(proxy.count("list"), 2u);
  EXPECT_EQ(cache.changes, std::vector<std::string>{"+stays"});
}

TEST_F(Lists, AVersionFromTheFutureMeansAListWithoutOne) {
  make_map("a");
  // Gets the server's own error by a list: to a watch, kube-apiserver 1.20 does not reply but
  // waits.
  proxy.on({.verb = "watch",
            .fault =
                [](Exchange& exchange) {
                  exchange.request.query = {{"resourceVersion", "999999999999"},
                                            {"resourceVersionMatch", "NotOlderThan"}};
                  exchange.answer(exchange.ask());
                },
            .times = 1});
  Cache cache(loop, client_options(loop, proxy), of_configmaps());
  cache.informer.start();
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("watch") == 2; }));
  const std::vector<RecordedRequest> asked = proxy.seen();
  ASSERT_EQ(asked.size(), 4u);  // list, watch, list, watch
  EXPECT_EQ(asked[1].status, 504);
  EXPECT_EQ(asked[2].verb, "list");
  EXPECT_FALSE(asked[2].query.contains("resourceVersion"));
  EXPECT_EQ(cache.changes, std::vector<std::string>{"+a"});
}

TEST_F(Lists, WatchesThatTheServerEndsAreFollowedByWatches) {
  // The loop runs at double speed, so that a watch of one second does not count as too short.
  Loop twice(2);
  proxy.on({.verb = "watch", .fault = with_query("timeoutSeconds", "1"), .times = 3});
  proxy.on({.verb = "watch", .fault = ended_after(1), .times = 30});
  Cache cache(twice, client_options(twice, proxy), of_configmaps());
  cache.informer.start();
  ASSERT_TRUE(twice.run_until([&] { return proxy.count("watch") == 4; }));
  for (int i = 0; i < 33; ++i) {
    const std::string name = "m" + std::to_string(i);
    make_map(name);
    ASSERT_TRUE(twice.run_until([&] { return cache.times("+" + name) == 1; })) << name;
  }
  EXPECT_EQ(proxy.count("list"), 1u);
  EXPECT_GE(proxy.count("watch"), 34u);
  EXPECT_EQ(cache.changes.size(), 33u);
}

TEST_F(Lists, APageThatIsTooLargeIsReadInSmallerOnes) {
  for (const char* name : {"a", "b", "c", "d", "e"})
    make(configmaps(), [&] {
      Json map = named(name, {{"mine", "1"}});
      map["data"] = {{"much", std::string(10'000, 'x')}};
      return map;
    }());
  kube::KubeClientOptions narrow = client_options(loop, proxy);
  narrow.reply_bytes_max = 25'000;
  Cache cache(loop, narrow, of_configmaps());
  cache.informer.start();
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("watch") == 1; }));
  EXPECT_EQ(cache.names(), "a b c d e");
  EXPECT_EQ(cache.changes.size(), 5u);
}

TEST_F(Lists, PagesMakeOneListAndAnExpiredOneMeansTheWholeListAgain) {
  for (const char* name : {"a", "b", "c", "d", "e"}) make_map(name);
  loop::InformerOptions options = of_configmaps();
  options.page_size = 2;
  int pages = 0;
  proxy.on({.verb = "list", .fault = [&](Exchange& exchange) {
              // The contents of the first two pages change before the third page is requested.
              if (++pages == 3) {
                delete_map("a");
                make_map("f");
                exchange.answer(410, dump_json(status_of(410, "Expired")));
              } else {
                exchange.pass();
              }
            }});
  Cache cache(loop, client_options(loop, proxy), options);
  cache.informer.start();
  ASSERT_TRUE(loop.run_until([&] { return proxy.count("watch") == 1; }));
  EXPECT_EQ(cache.names(), "b c d e f");
  EXPECT_EQ(cache.times("+a"), 0);
  const std::vector<RecordedRequest> lists = proxy.seen("list");
  ASSERT_EQ(lists.size(), 6u);
  EXPECT_FALSE(lists[3].query.contains("continue"));
  const std::vector<std::string> listed = names(get(configmaps() + "?labelSelector=mine"));
  EXPECT_EQ(listed, (std::vector<std::string>{"b", "c", "d", "e", "f"}));
}

}  // namespace
}  // namespace lockstep::semantics
