// Deletion: finalizers, propagation to owned objects, and garbage collection.
#include "tests/conformance/support/widgets.h"

namespace lockstep::conformance {
namespace {

constexpr char kNoCollector[] = "the server has no garbage collector";

class Deletion : public Case {
 protected:
  Json held(const std::string& name, const Json& finalizers = {"lockstep.dev/hold"}) {
    Json object = named(name);
    object["metadata"]["finalizers"] = finalizers;
    return make(secrets(), object);
  }
  void release(const std::string& name) {
    EXPECT_TRUE(
        is_code(patch(secrets() + "/" + name, {{"metadata", {{"finalizers", nullptr}}}}), 200));
  }
  static Json reference(const Json& owner, bool block = false) {
    return {{"apiVersion", "v1"},
            {"kind", "Secret"},
            {"name", owner["metadata"]["name"]},
            {"uid", owner["metadata"]["uid"]},
            {"blockOwnerDeletion", block}};
  }
  Json owned(const std::string& name, const Json& references, const Json& finalizers = Json()) {
    Json object = named(name);
    object["metadata"]["ownerReferences"] = references;
    if (!finalizers.is_null()) object["metadata"]["finalizers"] = finalizers;
    return make(secrets(), object);
  }
  bool gone(const std::string& name) {
    return eventually([&] { return get(secrets() + "/" + name).code == 404; });
  }
};

TEST_F(Deletion, AFinalizerHoldsTheObjectUntilItIsRemoved) {
  Json made = held("a");
  Reply removed = ask("DELETE", secrets() + "/a");
  ASSERT_TRUE(is_code(removed, 200));
  EXPECT_NE(meta(removed.body, "deletionTimestamp"), "") << removed.text;
  EXPECT_EQ(meta(removed.body, "uid"), meta(made, "uid"));
  EXPECT_NE(meta(get(secrets() + "/a").body, "deletionTimestamp"), "");
  release("a");
  EXPECT_EQ(get(secrets() + "/a").code, 404);
}

TEST_F(Deletion, DeletingAgainWhatIsBeingDeletedIsFine) {
  held("a");
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/a"), 200));
  std::string when = meta(get(secrets() + "/a").body, "deletionTimestamp");
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/a"), 200));
  EXPECT_EQ(meta(get(secrets() + "/a").body, "deletionTimestamp"), when);
  release("a");
}

TEST_F(Deletion, AWatchSeesTheMarkAndThenTheEnd) {
  held("a");
  Watching watch(secrets() + "?watch=true&fieldSelector=metadata.name%3Da&resourceVersion=" +
                 meta(get(secrets()).body, "resourceVersion"));
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/a"), 200));
  EXPECT_EQ(watch.next_text(), "MODIFIED a");
  release("a");
  EXPECT_EQ(watch.next_text(), "DELETED a");
}

TEST_F(Deletion, NoFinalizerCanBeAddedAfterwards) {
  held("a");
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/a"), 200));
  Reply refused =
      patch(secrets() + "/a",
            {{"metadata", {{"finalizers", {"lockstep.dev/hold", "lockstep.dev/second"}}}}});
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueForbidden", "metadata.finalizers"));
  release("a");
}

TEST_F(Deletion, OneOfTwoFinalizersStillHolds) {
  held("a", {"lockstep.dev/x", "lockstep.dev/y"});
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/a"), 200));
  EXPECT_TRUE(
      is_code(patch(secrets() + "/a", {{"metadata", {{"finalizers", {"lockstep.dev/y"}}}}}), 200));
  EXPECT_EQ(get(secrets() + "/a").code, 200);
  release("a");
  EXPECT_EQ(get(secrets() + "/a").code, 404);
}

TEST_F(Deletion, ItCanNotBeUndone) {
  held("a");
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/a"), 200));
  Json object = get(secrets() + "/a").body;
  object["metadata"].erase("deletionTimestamp");
  object["metadata"].erase("deletionGracePeriodSeconds");
  EXPECT_TRUE(is_code(ask("PUT", secrets() + "/a", object), 200));
  EXPECT_NE(meta(get(secrets() + "/a").body, "deletionTimestamp"), "");
  release("a");
}

TEST_F(Deletion, AFinalizerMustBeQualified) {
  Json object = named("a");
  object["metadata"]["finalizers"] = {"not a name"};
  EXPECT_TRUE(is_failure(ask("POST", secrets(), object), 422, "Invalid"));
}

TEST_F(Deletion, AnUnknownPropagationPolicyIs422) {
  held("a");
  EXPECT_TRUE(
      is_failure(ask("DELETE", secrets() + "/a?propagationPolicy=Sideways"), 422, "Invalid"));
  EXPECT_EQ(meta(get(secrets() + "/a").body, "deletionTimestamp"), "");
  release("a");
}

TEST_F(Deletion, OwnersMustBeNamedWholly) {
  Json whole = {{"apiVersion", "v1"},
                {"kind", "Secret"},
                {"name", "x"},
                {"uid", "11111111-2222-3333-4444-555555555555"}};
  for (const char* key : {"apiVersion", "kind", "name", "uid"}) {
    Json object = named("a");
    object["metadata"]["ownerReferences"] = Json::array({whole});
    object["metadata"]["ownerReferences"][0].erase(key);
    EXPECT_TRUE(is_failure(ask("POST", secrets(), object), 422, "Invalid")) << key;
  }
}

TEST_F(Deletion, OneOwnerAloneCanBeTheController) {
  Json one = {{"apiVersion", "v1"},
              {"kind", "Secret"},
              {"name", "x"},
              {"uid", "11111111-2222-3333-4444-555555555555"},
              {"controller", true}};
  Json other = one;
  other["uid"] = "22222222-2222-3333-4444-555555555555";
  Json object = named("a");
  object["metadata"]["ownerReferences"] = {one, other};
  EXPECT_TRUE(is_failure(ask("POST", secrets(), object), 422, "Invalid"));
}

TEST_F(Deletion, InTheForegroundTheOwnerWaitsUnderAFinalizer) {
  Json owner = held("owner");
  Reply removed = ask("DELETE", secrets() + "/owner?propagationPolicy=Foreground");
  ASSERT_TRUE(is_code(removed, 200));
  Json finalizers = removed.body["metadata"]["finalizers"];
  EXPECT_NE(std::find(finalizers.begin(), finalizers.end(), "foregroundDeletion"), finalizers.end())
      << removed.text;
  release("owner");
}

TEST_F(Deletion, InTheBackgroundWhatIsOwnedGoesToo) {
  NEEDS(server().collects_garbage(), kNoCollector);
  Json owner = make(secrets(), named("owner"));
  owned("child", Json::array({reference(owner)}));
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/owner?propagationPolicy=Background"), 200));
  EXPECT_TRUE(gone("child"));
  EXPECT_TRUE(gone("owner"));
}

TEST_F(Deletion, InTheForegroundTheOwnerGoesAfterWhatBlocksIt) {
  NEEDS(server().collects_garbage(), kNoCollector);
  Json owner = make(secrets(), named("owner"));
  owned("child", Json::array({reference(owner, true)}), {"lockstep.dev/hold"});
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/owner?propagationPolicy=Foreground"), 200));
  EXPECT_TRUE(
      eventually([&] { return meta(get(secrets() + "/child").body, "deletionTimestamp") != ""; }));
  EXPECT_EQ(get(secrets() + "/owner").code, 200);
  release("child");
  EXPECT_TRUE(gone("child"));
  EXPECT_TRUE(gone("owner"));
}

TEST_F(Deletion, AnOrphanLosesItsReferenceAndStays) {
  NEEDS(server().collects_garbage(), kNoCollector);
  Json owner = make(secrets(), named("owner"));
  owned("child", Json::array({reference(owner)}));
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/owner?propagationPolicy=Orphan"), 200));
  EXPECT_TRUE(gone("owner"));
  EXPECT_TRUE(eventually(
      [&] { return !get(secrets() + "/child").body["metadata"].contains("ownerReferences"); }));
}

TEST_F(Deletion, WhatHasAnotherOwnerStays) {
  NEEDS(server().collects_garbage(), kNoCollector);
  for (const char* policy : {"Background", "Foreground"}) {
    SCOPED_TRACE(policy);
    const std::string how = std::string("?propagationPolicy=") + policy;
    Json one = make(secrets(), named("one"));
    Json two = make(secrets(), named("two"));
    owned("child", {reference(one), reference(two)});
    EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/one" + how), 200));
    EXPECT_TRUE(eventually([&] {
      return get(secrets() + "/child").body["metadata"]["ownerReferences"] ==
             Json::array({reference(two)});
    }));
    EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/two" + how), 200));
    EXPECT_TRUE(gone("child"));
    EXPECT_TRUE(gone("one") && gone("two"));
  }
}

TEST_F(Deletion, WhatNamesAnOwnerThatIsNotThereIsCollected) {
  NEEDS(server().collects_garbage(), kNoCollector);
  Json owner = make(secrets(), named("owner"));
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/owner"), 200));
  owned("late", Json::array({reference(owner)}));
  EXPECT_TRUE(gone("late"));
}

TEST_F(Deletion, AnOwnerMadeAgainUnderItsNameIsAnother) {
  NEEDS(server().collects_garbage(), kNoCollector);
  Json owner = make(secrets(), named("owner"));
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/owner"), 200));
  make(secrets(), named("owner"));
  owned("child", Json::array({reference(owner)}));
  EXPECT_TRUE(gone("child"));
}

}  // namespace
}  // namespace lockstep::conformance
