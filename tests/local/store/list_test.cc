// Tests list options, and watches that begin with existing objects.
#include "tests/local/store/api_fixture.h"

namespace lockstep::local {
namespace {

TEST_F(ApiTest, APageSaysHowManyFollow) {
  for (const char* name : {"a", "b", "c", "d"}) make(kJobs, job(name));
  Json first = get(std::string(kJobs) + "?limit=1").body;
  EXPECT_EQ(first["metadata"]["remainingItemCount"], 3);
  Json selected = get(std::string(kJobs) + "?limit=1&fieldSelector=metadata.name!%3Dx").body;
  EXPECT_FALSE(selected["metadata"].contains("remainingItemCount"));
}

TEST_F(ApiTest, ATokenThatIsTooOldComesWithANewOne) {
  for (const char* name : {"a", "b", "c"}) make(kJobs, job(name));
  std::string token = get(std::string(kJobs) + "?limit=1").body["metadata"]["continue"];
  for (int i = 0; i < 60; ++i)
    ask("PATCH", std::string(kJobs) + "/a", {{"spec", {{"nodes", i + 2}}}});
  ApiResponse late = get(std::string(kJobs) + "?limit=1&continue=" + token);
  ASSERT_EQ(late.code, 410);
  std::string next = late.body["metadata"]["continue"];
  Json rest = get(std::string(kJobs) + "?continue=" + next).body;
  ASSERT_EQ(rest["items"].size(), 2u);
  EXPECT_EQ(rest["items"][0]["metadata"]["name"], "b");
}

TEST_F(ApiTest, AnOlderVersionIsListedAsItWas) {
  make(kJobs, job("b"));
  Json then = get(kJobs).body;
  make(kJobs, job("a"));
  make(kJobs, job("c"));
  ask("PATCH", std::string(kJobs) + "/b", {{"spec", {{"nodes", 7}}}});
  ask("DELETE", std::string(kJobs) + "/b");
  Json again = get(std::string(kJobs) + "?resourceVersionMatch=Exact&resourceVersion=" +
                   then["metadata"]["resourceVersion"].get<std::string>())
                   .body;
  EXPECT_EQ(again, then);
}

TEST_F(ApiTest, ListOptionsThatCannotBeAreRefused) {
  for (const char* name : {"a", "b"}) make(kJobs, job(name));
  std::string token = get(std::string(kJobs) + "?limit=1").body["metadata"]["continue"];
  const std::vector<std::pair<std::string, int>> cases = {
      {"continue=" + token + "&resourceVersion=5", 400},
      {"continue=" + token + "&resourceVersion=0", 200},
      {"resourceVersionMatch=Exact", 422},
      {"resourceVersionMatch=Exact&resourceVersion=0", 422},
      {"resourceVersionMatch=Maybe&resourceVersion=1", 422},
      {"resourceVersionMatch=NotOlderThan&resourceVersion=1", 200},
      {"sendInitialEvents=true", 422},
  };
  for (const auto& [query, code] : cases)
    EXPECT_EQ(get(std::string(kJobs) + "?" + query).code, code) << query;
  for (const char* selector :
       {"tier%20in%20front", "%3Dx", "a%3Db%3Dc", "tier%20in%20(a", "!a%3Db", "a%3D-b"})
    EXPECT_EQ(get(std::string(kJobs) + "?labelSelector=" + selector).code, 400) << selector;
}

TEST_F(ApiTest, AWatchListSaysWhenItIsComplete) {
  make(kJobs, job("a"));
  Watch jobs = watch(std::string(kJobs) +
                     "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&"
                     "resourceVersionMatch=NotOlderThan");
  make(kJobs, job("b"));
  std::vector<Json> seen = api_.next_events(jobs, 10);
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0]["type"], "ADDED");
  EXPECT_EQ(seen[1]["type"], "BOOKMARK");
  EXPECT_EQ(seen[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
  EXPECT_EQ(seen[1]["object"]["metadata"]["resourceVersion"],
            seen[0]["object"]["metadata"]["resourceVersion"]);
  EXPECT_EQ(seen[2]["object"]["metadata"]["name"], "b");
  EXPECT_FALSE(api_.bookmark(jobs)["object"]["metadata"].contains("annotations"));
}

TEST_F(ApiTest, AWatchMayBeginWithNewsAlone) {
  make(kJobs, job("a"));
  Watch jobs = watch(std::string(kJobs) +
                     "?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
  EXPECT_EQ(events(jobs), "");
  make(kJobs, job("b"));
  EXPECT_EQ(events(jobs), "ADDED b");
}

}  // namespace
}  // namespace lockstep::local
