// Watches: their events, the versions they start from, their framing, and their ends.
#include <set>

#include "tests/conformance/support/case.h"

namespace lockstep::conformance {
namespace {

constexpr double kForgetsSeconds = 660;  // compaction runs every 5 minutes and spares the last 5
constexpr int kForgetsWrites = 450;

class Watches : public Case {
 protected:
  std::string list_version() { return meta(get(secrets()).body, "resourceVersion"); }
  std::string since(const std::string& version, const std::string& more = "") const {
    return secrets() + "?watch=true&labelSelector=mine&resourceVersion=" + version +
           (more.empty() ? "" : "&" + more);
  }
  Json labelled(const std::string& name) { return named(name, {{"mine", "1"}}); }
};

TEST_F(Watches, AWatchFromAListsVersionSeesWhatFollowsInOrder) {
  std::string version = list_version();
  make(secrets(), labelled("a"));
  Watching watch(since(version));
  EXPECT_EQ(watch.next_text(), "ADDED a");
  make(secrets(), labelled("b"));
  EXPECT_EQ(watch.next_text(), "ADDED b");
  EXPECT_TRUE(is_code(patch(secrets() + "/a", {{"metadata", {{"labels", {{"x", "y"}}}}}}), 200));
  EXPECT_EQ(watch.next_text(), "MODIFIED a");
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/a"), 200));
  EXPECT_EQ(watch.next_text(), "DELETED a");
}

TEST_F(Watches, AnEventCarriesTheWholeObjectWithKindAndVersion) {
  Watching watch(since(list_version()));
  Json made = make(secrets(), labelled("a"));
  Json event = watch.next();
  ASSERT_FALSE(event.is_null());
  EXPECT_EQ(event["object"], made);
}

TEST_F(Watches, AWatchWithoutAVersionBeginsWithWhatIsThere) {
  make(secrets(), labelled("a"));
  make(secrets(), labelled("b"));
  Watching watch(secrets() + "?watch=1&labelSelector=mine");
  std::set<std::string> there = {watch.next_text(), watch.next_text()};  // in any order
  EXPECT_EQ(there, (std::set<std::string>{"ADDED a", "ADDED b"}));
  make(secrets(), labelled("c"));
  EXPECT_EQ(watch.next_text(), "ADDED c");
}

TEST_F(Watches, AnObjectThatLeavesTheSelectionIsDeletedAndOneThatEntersIsAdded) {
  make(secrets(), named("a", {{"mine", "1"}}));
  make(secrets(), named("b", {{"other", "1"}}));
  Watching watch(since(list_version()));
  EXPECT_TRUE(
      is_code(patch(secrets() + "/a", {{"metadata", {{"labels", {{"mine", nullptr}}}}}}), 200));
  EXPECT_EQ(watch.next_text(), "DELETED a");
  EXPECT_TRUE(is_code(patch(secrets() + "/b", {{"metadata", {{"labels", {{"mine", "2"}}}}}}), 200));
  EXPECT_EQ(watch.next_text(), "ADDED b");
}

TEST_F(Watches, TheDeletedObjectHasTheVersionOfItsDeletion) {
  Json made = make(secrets(), labelled("a"));
  Watching watch(since(list_version()));
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/a"), 200));
  Json event = watch.next();
  ASSERT_FALSE(event.is_null());
  EXPECT_EQ(event["type"], "DELETED");
  EXPECT_NE(meta(event["object"], "resourceVersion"), meta(made, "resourceVersion"));
  EXPECT_EQ(meta(event["object"], "uid"), meta(made, "uid"));
}

TEST_F(Watches, AWatchCanBeResumedFromAnyEventsVersion) {
  std::string version = list_version();
  make(secrets(), labelled("a"));
  make(secrets(), labelled("b"));
  Watching first(since(version));
  Json event = first.next();
  ASSERT_FALSE(event.is_null());
  Watching second(since(meta(event["object"], "resourceVersion")));
  EXPECT_EQ(second.next_text(), "ADDED b");
}

TEST_F(Watches, AWatchOfOneNameSeesThatObjectAlone) {
  Watching watch(secrets() +
                 "?watch=true&fieldSelector=metadata.name%3Db&resourceVersion=" + list_version());
  make(secrets(), labelled("a"));
  make(secrets(), labelled("b"));
  EXPECT_EQ(watch.next_text(), "ADDED b");
}

TEST_F(Watches, AWatchOfAllNamespacesSeesThisOne) {
  Watching watch("/api/v1/secrets?watch=true&labelSelector=mine%3D" + namespace_ +
                 "&resourceVersion=" + list_version());
  make(secrets(), named("a", {{"mine", namespace_}}));
  EXPECT_EQ(watch.next_text(), "ADDED a");
}

TEST_F(Watches, TheStreamIsChunkedJsonAnObjectALine) {
  Watching watch(since(list_version()));
  EXPECT_EQ(watch.head().header("content-type"), "application/json");
  EXPECT_EQ(watch.head().header("transfer-encoding"), "chunked");
  for (int i = 0; i < 20; ++i) make(secrets(), labelled("s" + std::to_string(i)));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(watch.next_text(), "ADDED s" + std::to_string(i));
}

TEST_F(Watches, TimeoutSecondsEndsTheStreamWell) {
  Watching watch(since(list_version(), "timeoutSeconds=1"));
  EXPECT_TRUE(watch.next().is_null());
  EXPECT_FALSE(HasFailure());
}

TEST_F(Watches, BookmarksTellTheVersionAndNothingElse) {
  Watching watch(since(list_version(), "allowWatchBookmarks=true&timeoutSeconds=8"));
  make(secrets(), named("unseen"));
  Json event = watch.next();
  ASSERT_FALSE(event.is_null()) << "the watch ended without a bookmark";
  EXPECT_EQ(event["type"], "BOOKMARK");
  EXPECT_EQ(event["object"]["kind"], "Secret");
  EXPECT_EQ(event["object"]["apiVersion"], "v1");
  EXPECT_EQ(meta(event["object"], "name"), "");
  EXPECT_NE(meta(event["object"], "resourceVersion"), "");
  // A watch that continues from the bookmark neither misses nor repeats anything.
  Watching resumed(since(meta(event["object"], "resourceVersion")));
  make(secrets(), labelled("a"));
  EXPECT_EQ(resumed.next_text(), "ADDED a");
}

TEST_F(Watches, NoBookmarkComesUnasked) {
  Watching watch(since(list_version(), "timeoutSeconds=3"));
  EXPECT_TRUE(watch.next().is_null());
}

TEST_F(Watches, AWatchFromAVersionThatIsForgottenIs200AndThenAnErrorEvent410) {
  // Uses events because kube-apiserver answers for them from etcd, which forgets by time. The
  // embedded server forgets by the number of writes.
  const std::string events = path("v1", "events");
  auto expired = [&]() -> Json {
    Watching watch(events + "?watch=true&resourceVersion=1&timeoutSeconds=1");
    Json event = watch.next();
    return !event.is_null() && event["type"] == "ERROR" ? event : Json();
  };
  Json about = {{"kind", "Pod"}, {"namespace", namespace_}, {"name", "p"}};
  for (int i = 0; i < kForgetsWrites; ++i)
    make(events, {{"metadata", {{"generateName", "e"}}}, {"involvedObject", about}});
  Json event;
  EXPECT_TRUE(eventually([&] { return !(event = expired()).is_null(); }, kForgetsSeconds));
  ASSERT_FALSE(event.is_null());
  EXPECT_EQ(event["object"]["kind"], "Status");
  EXPECT_EQ(event["object"]["status"], "Failure");
  EXPECT_EQ(event["object"]["reason"], "Expired");
  EXPECT_EQ(event["object"]["code"], 410);
}

TEST_F(Watches, AWatchFromTheFutureSaysSoOrSeesNothing) {
  Reply reply = get(since("999999999999", "timeoutSeconds=1"));
  if (reply.code == 200) {
    EXPECT_EQ(reply.text, "");
  } else {
    ASSERT_TRUE(is_failure(reply, 504, "Timeout"));
    EXPECT_TRUE(has_cause(reply, "ResourceVersionTooLarge", ""));
  }
}

TEST_F(Watches, ASlowReaderLosesNothing) {
  Watching watch(since(list_version()));
  for (int i = 0; i < 60; ++i) {
    Json object = labelled("s" + std::to_string(i));
    object["metadata"]["annotations"] = {{"bulk", std::string(20'000, 'x')}};
    make(secrets(), object);
  }
  for (int i = 0; i < 60; ++i) EXPECT_EQ(watch.next_text(), "ADDED s" + std::to_string(i));
}

}  // namespace
}  // namespace lockstep::conformance
