#include "tests/local/store/api_fixture.h"

namespace lockstep::local {
namespace {

std::string from(const std::string& collection, const Json& list) {
  return collection +
         "?watch=1&resourceVersion=" + list["metadata"]["resourceVersion"].get<std::string>();
}

TEST_F(ApiTest, AWatchGoesOnWhereAListEnded) {
  make(kJobs, job("before"));
  Watch jobs = watch(from(kJobs, get(kJobs).body));
  EXPECT_EQ(events(jobs), "");
  make(kJobs, job("a"));
  make(kPods, pod("other-type"));
  ask("PATCH", std::string(kJobs) + "/a", {{"spec", {{"nodes", 2}}}});
  ask("DELETE", std::string(kJobs) + "/a");
  EXPECT_EQ(events(jobs), "ADDED a, MODIFIED a, DELETED a");
  EXPECT_EQ(events(jobs), "");
}

TEST_F(ApiTest, AWatchWithoutAVersionBeginsWithWhatIsThere) {
  make(kJobs, job("a"));
  make(kJobs, job("b"));
  for (const char* version : {"", "&resourceVersion=0"}) {
    Watch jobs = watch(std::string(kJobs) + "?watch=true" + version);
    EXPECT_EQ(events(jobs), "ADDED a, ADDED b");
  }
}

TEST_F(ApiTest, VersionsOfEventsGrowAndDeletionsHaveTheirOwn) {
  Watch jobs = watch(from(kJobs, get(kJobs).body));
  Json made = make(kJobs, job("a"));
  ask("DELETE", std::string(kJobs) + "/a");
  std::vector<Json> seen = api_.next_events(jobs, 10);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0]["object"], made);
  EXPECT_GT(version_of(seen[1]["object"]), version_of(made));
  EXPECT_EQ(seen[1]["object"]["metadata"]["uid"], made["metadata"]["uid"]);
}

TEST_F(ApiTest, SelectionsAddAndDelete) {
  Watch selected =
      watch(from(kJobs, get(kJobs).body) + "&labelSelector=" + std::string("on%3Dyes"));
  auto label = [&](const Json& value) {
    ask("PATCH", std::string(kJobs) + "/a", {{"metadata", {{"labels", {{"on", value}}}}}});
  };
  make(kJobs, job("a"));
  EXPECT_EQ(events(selected), "");
  label("yes");
  EXPECT_EQ(events(selected), "ADDED a");
  ask("PATCH", std::string(kJobs) + "/a", {{"spec", {{"nodes", 4}}}});
  EXPECT_EQ(events(selected), "MODIFIED a");
  label("no");
  EXPECT_EQ(events(selected), "DELETED a");
  label(nullptr);
  ask("DELETE", std::string(kJobs) + "/a");
  EXPECT_EQ(events(selected), "");
}

TEST_F(ApiTest, NamespacesAreKeptApart) {
  Watch here = watch(std::string(kJobs) + "?watch=1");
  Watch everywhere = watch("/apis/lockstep.dev/v1alpha1/trainingjobs?watch=1");
  make("/apis/lockstep.dev/v1alpha1/namespaces/kube-system/trainingjobs", job("a"));
  EXPECT_EQ(events(here), "");
  EXPECT_EQ(events(everywhere), "ADDED a");
}

TEST_F(ApiTest, AWatchThatFellBehindIsToldSo) {
  Json list = get(kJobs).body;
  Watch slow = watch(from(kJobs, list));
  make(kJobs, job("a"));
  for (int i = 0; i < 60; ++i)
    ask("PATCH", std::string(kJobs) + "/a", {{"spec", {{"nodes", i + 2}}}});
  EXPECT_EQ(events(slow), "ERROR Expired");
  EXPECT_TRUE(slow.ended);
  EXPECT_EQ(events(slow), "");
  // A watch that begins with such a version also gets HTTP 200 and then the error.
  Watch late = watch(from(kJobs, list));
  EXPECT_EQ(events(late), "ERROR Expired");
  // Other types have their own history.
  Watch pods = watch(from(kPods, list));
  EXPECT_EQ(events(pods), "");
  EXPECT_FALSE(pods.ended);
}

TEST_F(ApiTest, AQuietWatchDoesNotFallBehind) {
  Watch jobs = watch(from(kJobs, get(kJobs).body));
  make(kPods, pod("p"));
  for (int i = 0; i < 60; ++i)
    ask("PATCH", std::string(kPods) + "/p",
        {{"metadata", {{"labels", {{"i", std::to_string(i)}}}}}});
  EXPECT_EQ(events(jobs), "");
  Json mark = api_.bookmark(jobs);
  EXPECT_EQ(mark["type"], "BOOKMARK");
  EXPECT_EQ(version_of(mark["object"]), version_of(get(std::string(kPods) + "/p").body));
  EXPECT_EQ(mark["object"]["kind"], "TrainingJob");
}

TEST_F(ApiTest, WatchesThatCannotBeAreRefused) {
  auto code = [&](const std::string& query) {
    auto opened = api_.open_watch({"GET", std::string(kJobs) + "?watch=1&" + query, "", ""});
    auto* error = std::get_if<ApiResponse>(&opened);
    return error == nullptr ? 200 : error->code;
  };
  EXPECT_EQ(code("resourceVersion=99999"), 504);
  EXPECT_EQ(code("resourceVersion=x"), 400);
  EXPECT_EQ(code("timeoutSeconds=-1"), 400);
  EXPECT_EQ(code("labelSelector=a%20b"), 400);
  EXPECT_EQ(code("sendInitialEvents=true"), 422);
  EXPECT_EQ(code("timeoutSeconds=5"), 200);
}

TEST_F(ApiTest, OldEventsMakeRoomForNewOnes) {
  for (int i = 0; i < 2005; ++i)
    make("/api/v1/namespaces/default/events",
         {{"metadata", {{"name", "e" + std::to_string(i)}}}, {"reason", "Test"}});
  EXPECT_EQ(get("/api/v1/namespaces/default/events").body["items"].size(), 2000u);
  EXPECT_EQ(get("/api/v1/namespaces/default/events/e0").code, 404);
  EXPECT_EQ(get("/api/v1/namespaces/default/events/e2004").code, 200);
}

}  // namespace
}  // namespace lockstep::local
