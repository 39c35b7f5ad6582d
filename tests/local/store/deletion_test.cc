#include "tests/local/store/api_fixture.h"

namespace lockstep::local {
namespace {

std::string path(const std::string& collection, const std::string& name) {
  return collection + "/" + name;
}

TEST_F(ApiTest, DeletesAtOnceWithoutFinalizers) {
  Json object = make(kJobs, job("a"));
  ApiResponse response = ask("DELETE", path(kJobs, "a"));
  EXPECT_EQ(response.code, 200);
  EXPECT_EQ(response.body["status"], "Success");
  EXPECT_EQ(response.body["details"]["uid"], object["metadata"]["uid"]);
  EXPECT_EQ(get(path(kJobs, "a")).code, 404);
}

TEST_F(ApiTest, AFinalizerHoldsAnObjectUntilItIsRemoved) {
  Json object = job("a");
  object["metadata"]["finalizers"] = {"lockstep.dev/hold"};
  make(kJobs, object);
  Json deleted = ask("DELETE", path(kJobs, "a")).body;
  EXPECT_TRUE(deleted["metadata"].contains("deletionTimestamp"));
  EXPECT_EQ(deleted["metadata"]["generation"], 2);
  ApiResponse added = ask("PATCH", path(kJobs, "a"),
                          {{"metadata", {{"finalizers", {"lockstep.dev/hold", "x/more"}}}}});
  EXPECT_EQ(added.code, 422);
  EXPECT_EQ(ask("PATCH", path(kJobs, "a"), {{"metadata", {{"finalizers", Json::array()}}}}).code,
            200);
  EXPECT_EQ(get(path(kJobs, "a")).code, 404);
}

TEST_F(ApiTest, APodOnANodeGetsItsGracePeriod) {
  make(kPods, pod("p"));
  bind("p");
  Json deleted = ask("DELETE", path(kPods, "p")).body;
  EXPECT_EQ(deleted["metadata"]["deletionGracePeriodSeconds"], 30);
  EXPECT_EQ(deleted["metadata"]["deletionTimestamp"],
            rfc3339(clock_.wall_now() + std::chrono::seconds(30)));
  // A shorter grace period applies, a longer one does not.
  ask("DELETE", path(kPods, "p"), {{"gracePeriodSeconds", 5}});
  ask("DELETE", path(kPods, "p"), {{"gracePeriodSeconds", 60}});
  EXPECT_EQ(get(path(kPods, "p")).body["metadata"]["deletionGracePeriodSeconds"], 5);
  EXPECT_EQ(ask("DELETE", path(kPods, "p"), {{"gracePeriodSeconds", 0}}).code, 200);
  EXPECT_EQ(get(path(kPods, "p")).code, 404);
}

TEST_F(ApiTest, PodsThatDoNotRunGoAtOnce) {
  make(kPods, pod("unscheduled"));
  ask("DELETE", path(kPods, "unscheduled"));
  EXPECT_EQ(get(path(kPods, "unscheduled")).code, 404);
  for (const char* phase : {"Succeeded", "Failed"}) {
    make(kPods, pod("ended"));
    bind("ended");
    ask("PATCH", path(kPods, "ended") + "/status", {{"status", {{"phase", phase}}}});
    ask("DELETE", path(kPods, "ended"));
    EXPECT_EQ(get(path(kPods, "ended")).code, 404) << phase;
  }
}

TEST_F(ApiTest, APodIsBoundOnce) {
  make(kPods, pod("p"));
  bind("p");
  EXPECT_EQ(get(path(kPods, "p")).body["spec"]["nodeName"], "local");
  EXPECT_EQ(ask("POST", path(kPods, "p") + "/binding", {{"target", {{"name", "other"}}}}).code,
            409);
  EXPECT_EQ(ask("POST", path(kPods, "p") + "/binding", Json::object()).code, 400);
}

TEST_F(ApiTest, WhatAnObjectOwnsGoesWithIt) {
  Json owner = make(kJobs, job("a"));
  make(kPods, owned_by(pod("p"), owner));
  make(kPods, owned_by(pod("running"), owner));
  bind("running");
  make(kSecrets, owned_by({{"metadata", {{"name", "s"}}}}, owner));
  make(kSecrets, {{"metadata", {{"name", "free"}}}});
  ask("DELETE", path(kJobs, "a"));
  EXPECT_EQ(get(path(kJobs, "a")).code, 404);
  EXPECT_EQ(get(path(kPods, "p")).code, 404);
  EXPECT_EQ(get(path(kSecrets, "s")).code, 404);
  EXPECT_EQ(get(path(kSecrets, "free")).code, 200);
  EXPECT_TRUE(get(path(kPods, "running")).body["metadata"].contains("deletionTimestamp"));
}

TEST_F(ApiTest, WhatIsMadeForAnOwnerThatIsGoneGoesToo) {
  Json owner = make(kJobs, job("a"));
  ask("DELETE", path(kJobs, "a"));
  make(kPods, owned_by(pod("late"), owner));
  EXPECT_EQ(get(path(kPods, "late")).code, 404);
  // A new object with the old name is a different owner.
  make(kJobs, job("a"));
  make(kPods, owned_by(pod("later"), owner));
  EXPECT_EQ(get(path(kPods, "later")).code, 404);
}

TEST_F(ApiTest, TheLastOwnerDecides) {
  for (const char* policy : {"Background", "Foreground"}) {
    SCOPED_TRACE(policy);
    Json a = make(kJobs, job("a")), b = make(kJobs, job("b"));
    Json shared = owned_by({{"metadata", {{"name", "s"}}}}, a);
    Json second = owned_by(Json::object(), b)["metadata"]["ownerReferences"][0];
    second["controller"] = false;
    shared["metadata"]["ownerReferences"].push_back(second);
    make(kSecrets, shared);
    ask("DELETE", path(kJobs, "a"), {{"propagationPolicy", policy}});
    EXPECT_EQ(get(path(kJobs, "a")).code, 404);
    Json left = get(path(kSecrets, "s")).body;
    ASSERT_EQ(left["metadata"]["ownerReferences"].size(), 1u) << left;
    EXPECT_EQ(left["metadata"]["ownerReferences"][0]["uid"], b["metadata"]["uid"]);
    ask("DELETE", path(kJobs, "b"), {{"propagationPolicy", policy}});
    EXPECT_EQ(get(path(kSecrets, "s")).code, 404);
    EXPECT_EQ(get(path(kJobs, "b")).code, 404);
  }
}

TEST_F(ApiTest, ForegroundWaitsForTheDependents) {
  Json owner = make(kJobs, job("a"));
  make(kPods, owned_by(pod("p"), owner));
  bind("p");
  Json deleted = ask("DELETE", path(kJobs, "a"), {{"propagationPolicy", "Foreground"}}).body;
  EXPECT_EQ(deleted["metadata"]["finalizers"], Json::array({"foregroundDeletion"}));
  EXPECT_TRUE(get(path(kPods, "p")).body["metadata"].contains("deletionTimestamp"));
  ask("DELETE", path(kPods, "p"), {{"gracePeriodSeconds", 0}});
  EXPECT_EQ(get(path(kPods, "p")).code, 404);
  EXPECT_EQ(get(path(kJobs, "a")).code, 404);
}

TEST_F(ApiTest, OrphansStay) {
  Json owner = make(kJobs, job("a"));
  make(kPods, owned_by(pod("p"), owner));
  ask("DELETE", path(kJobs, "a"), {{"propagationPolicy", "Orphan"}});
  EXPECT_EQ(get(path(kJobs, "a")).code, 404);
  EXPECT_TRUE(get(path(kPods, "p")).body["metadata"]["ownerReferences"].empty());
}

TEST_F(ApiTest, LongChainsOfOwnersAreCollected) {
  Json owner = make(kSecrets, {{"metadata", {{"name", "s0"}}}});
  for (int i = 1; i < 2000; ++i)
    owner = make(kSecrets, owned_by({{"metadata", {{"name", "s" + std::to_string(i)}}}}, owner));
  ask("DELETE", path(kSecrets, "s0"));
  EXPECT_TRUE(get(kSecrets).body["items"].empty());
}

TEST_F(ApiTest, ACollectionIsDeletedBySelector) {
  for (const char* name : {"a", "b"}) {
    Json object = job(name);
    object["metadata"]["labels"] = {{"name", name}};
    make(kJobs, object);
  }
  EXPECT_EQ(ask("DELETE", std::string(kJobs) + "?labelSelector=name%3Da").code, 200);
  EXPECT_EQ(get(path(kJobs, "a")).code, 404);
  EXPECT_EQ(get(path(kJobs, "b")).code, 200);
}

}  // namespace
}  // namespace lockstep::local
