// Lists: order, pages at one version, selectors, and the effect of resourceVersion.
#include "tests/conformance/support/case.h"

namespace lockstep::conformance {
namespace {

using Names = std::vector<std::string>;

class Lists : public Case {
 protected:
  // Returns the path of the case's own secrets: servers may put others into a namespace.
  std::string mine(const std::string& more = "") const {
    return secrets() + "?labelSelector=mine" + (more.empty() ? "" : "&" + more);
  }
  void make_some(const Names& names) {
    for (const std::string& name : names) make(secrets(), named(name, {{"mine", name}}));
  }
};

TEST_F(Lists, AListNamesItsKindVersionAndItems) {
  make_some({"a"});
  Reply list = get(mine());
  ASSERT_TRUE(is_code(list, 200));
  EXPECT_EQ(list.body["kind"], "SecretList");
  EXPECT_EQ(list.body["apiVersion"], "v1");
  EXPECT_FALSE(meta(list.body, "resourceVersion").empty());
  EXPECT_EQ(list.body["items"].size(), 1u);
  EXPECT_EQ(meta(list.body["items"][0], "name"), "a");
}

TEST_F(Lists, AnEmptyListHasItemsThatAreAnEmptyArray) {
  Reply list = get(mine());
  ASSERT_TRUE(is_code(list, 200));
  EXPECT_EQ(list.body["items"], Json::array());
  EXPECT_FALSE(meta(list.body, "resourceVersion").empty());
}

TEST_F(Lists, ItemsComeInTheOrderOfTheirNames) {
  make_some({"b", "c", "a"});
  EXPECT_EQ(names(get(mine())), (Names{"a", "b", "c"}));
}

TEST_F(Lists, AListOfAllNamespacesHasTheObjectsOfEach) {
  make_some({"a"});
  Reply list = get("/api/v1/secrets?fieldSelector=metadata.namespace%3D" + namespace_ +
                   "&labelSelector=mine");
  EXPECT_EQ(names(list), Names{"a"});
}

TEST_F(Lists, PagesFollowEachOtherAtOneResourceVersion) {
  make_some({"a", "b", "c", "d", "e"});
  Reply first = get(mine("limit=2"));
  EXPECT_EQ(names(first), (Names{"a", "b"}));
  // Writes between the pages are not seen.
  make_some({"bb", "f"});
  ASSERT_TRUE(is_code(ask("DELETE", secrets() + "/d"), 200));
  std::string token = percent_encoded(meta(first.body, "continue"));
  Reply second = get(mine("limit=2&continue=" + token));
  EXPECT_EQ(names(second), (Names{"c", "d"}));
  EXPECT_EQ(meta(second.body, "resourceVersion"), meta(first.body, "resourceVersion"));
  token = percent_encoded(meta(second.body, "continue"));
  Reply third = get(mine("limit=2&continue=" + token));
  EXPECT_EQ(names(third), Names{"e"});
  EXPECT_EQ(meta(third.body, "continue"), "");
}

TEST_F(Lists, APageSaysHowManyItemsRemainWhereNoSelectorIsGiven) {
  for (const char* name : {"a", "b", "c"})
    make(path("coordination.k8s.io/v1", "leases"), named(name));
  Reply page = get(path("coordination.k8s.io/v1", "leases") + "?limit=1");
  ASSERT_TRUE(is_code(page, 200));
  EXPECT_EQ(page.body["metadata"].value("remainingItemCount", 0), 2);
}

TEST_F(Lists, AContinueThatIsNoTokenIs400) {
  EXPECT_TRUE(is_failure(get(mine("limit=1&continue=nonsense")), 400, "BadRequest"));
}

TEST_F(Lists, AContinueWithAResourceVersionIs400) {
  make_some({"a", "b"});
  Reply first = get(mine("limit=1"));
  std::string token = percent_encoded(meta(first.body, "continue"));
  Reply refused = get(mine("limit=1&continue=" + token +
                           "&resourceVersion=" + meta(first.body, "resourceVersion")));
  EXPECT_TRUE(is_failure(refused, 400, "BadRequest"));
}

TEST_F(Lists, ALabelSelectorCanAskForEqualityInequalityAndExistence) {
  make(secrets(), named("a", {{"mine", "1"}, {"tier", "front"}}));
  make(secrets(), named("b", {{"mine", "1"}, {"tier", "back"}}));
  make(secrets(), named("c", {{"mine", "1"}}));
  auto select = [&](const std::string& text) {
    return names(get(secrets() + "?labelSelector=" + percent_encoded("mine," + text)));
  };
  EXPECT_EQ(select("tier=front"), Names{"a"});
  EXPECT_EQ(select("tier==front"), Names{"a"});
  EXPECT_EQ(select("tier!=front"), (Names{"b", "c"}));
  EXPECT_EQ(select("tier"), (Names{"a", "b"}));
  EXPECT_EQ(select("!tier"), Names{"c"});
}

TEST_F(Lists, ALabelSelectorCanAskForSets) {
  make(secrets(), named("a", {{"mine", "1"}, {"tier", "front"}}));
  make(secrets(), named("b", {{"mine", "1"}, {"tier", "back"}}));
  make(secrets(), named("c", {{"mine", "1"}}));
  auto select = [&](const std::string& text) {
    return names(get(secrets() + "?labelSelector=" + percent_encoded("mine," + text)));
  };
  EXPECT_EQ(select("tier in (front, back)"), (Names{"a", "b"}));
  EXPECT_EQ(select("tier notin (front)"), (Names{"b", "c"}));
}

TEST_F(Lists, ALabelSelectorCanCompareWholeNumbers) {
  make(secrets(), named("a", {{"n", "2"}}));
  make(secrets(), named("b", {{"n", "10"}}));
  make(secrets(), named("c", {{"n", "ten"}}));
  make(secrets(), named("d"));
  EXPECT_EQ(names(get(secrets() + "?labelSelector=n%3E2")), std::vector<std::string>{"b"});
  EXPECT_EQ(names(get(secrets() + "?labelSelector=n%3C10")), std::vector<std::string>{"a"});
  EXPECT_EQ(get(secrets() + "?labelSelector=n%3Eten").code, 400);
}

TEST_F(Lists, ALabelSelectorThatCanNotBeReadIs400) {
  for (const char* text : {"tier in front", "=x", "a=b=c", "tier in (a", "!a=b"})
    EXPECT_TRUE(
        is_failure(get(secrets() + "?labelSelector=" + percent_encoded(text)), 400, "BadRequest"))
        << text;
}

TEST_F(Lists, AFieldSelectorCanAskForTheName) {
  make_some({"a", "b", "c"});
  EXPECT_EQ(names(get(mine("fieldSelector=metadata.name%3Db"))), Names{"b"});
  EXPECT_EQ(names(get(mine("fieldSelector=metadata.name!%3Db"))), (Names{"a", "c"}));
}

TEST_F(Lists, AFieldSelectorOfAFieldThatHasNoneIs400) {
  EXPECT_TRUE(is_failure(get(secrets() + "?fieldSelector=data.x%3Dy"), 400, "BadRequest"));
}

TEST_F(Lists, ResourceVersionZeroIsAnsweredFromAnyState) {
  make_some({"a"});
  Reply list = get(mine("resourceVersion=0"));
  ASSERT_TRUE(is_code(list, 200));
  EXPECT_TRUE(list.body["items"].is_array());
}

TEST_F(Lists, AResourceVersionIsAStateThatIsAtLeastAsNew) {
  make_some({"a"});
  std::string version = meta(get(mine()).body, "resourceVersion");
  EXPECT_EQ(names(get(mine("resourceVersion=" + version))), Names{"a"});
}

TEST_F(Lists, ResourceVersionMatchExactIsTheStateAtThatVersion) {
  make_some({"a"});
  std::string version = meta(get(mine()).body, "resourceVersion");
  make_some({"b"});
  Reply list = get(mine("resourceVersion=" + version + "&resourceVersionMatch=Exact&limit=10"));
  EXPECT_EQ(names(list), Names{"a"});
  EXPECT_EQ(meta(list.body, "resourceVersion"), version);
}

TEST_F(Lists, AResourceVersionOfTheFutureIs504WithACause) {
  Reply refused = get(mine("resourceVersion=999999999999"));
  ASSERT_TRUE(is_failure(refused, 504, "Timeout"));
  EXPECT_TRUE(has_cause(refused, "ResourceVersionTooLarge", ""));
}

TEST_F(Lists, AResourceVersionThatIsNoNumberIsRefused) {
  Reply refused = get(mine("resourceVersion=new"));
  EXPECT_GE(refused.code, 400) << refused.text;
  EXPECT_EQ(refused.body["status"], "Failure");
}

}  // namespace
}  // namespace lockstep::conformance
