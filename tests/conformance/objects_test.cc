// Objects in general: how they are created, what the server adds to them, how they are named, and
// how they are deleted.
#include "local/schema/pattern.h"
#include "tests/conformance/support/case.h"

namespace lockstep::conformance {
namespace {

class Objects : public Case {};

// Returns whether the whole text matches the regular expression.
bool has_shape(const std::string& text, const std::string& expression) {
  return (*local::Pattern::compile("^(?:" + expression + ")$"))->matches(text);
}

TEST_F(Objects, CreateAnswers201WithTheObjectAsItIsStored) {
  Reply made = ask("POST", secrets(), named("a", {{"tier", "x"}}));
  ASSERT_TRUE(is_code(made, 201));
  EXPECT_EQ(made.body["kind"], "Secret");
  EXPECT_EQ(made.body["apiVersion"], "v1");
  EXPECT_EQ(meta(made.body, "name"), "a");
  EXPECT_EQ(meta(made.body, "namespace"), namespace_);
  EXPECT_EQ(made.body["metadata"]["labels"], Json({{"tier", "x"}}));
  EXPECT_EQ(get(secrets() + "/a").body, made.body);
}

TEST_F(Objects, TheServerGivesUidCreationTimestampAndResourceVersion) {
  Json one = make(secrets(), named("a"));
  Json other = make(secrets(), named("b"));
  EXPECT_TRUE(has_shape(meta(one, "uid"), "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")) << one;
  EXPECT_NE(meta(one, "uid"), meta(other, "uid"));
  EXPECT_TRUE(has_shape(meta(one, "creationTimestamp"), R"(\d{4}(-\d\d){2}T(\d\d:){2}\d\dZ)"))
      << one;
  EXPECT_FALSE(meta(one, "resourceVersion").empty());
  EXPECT_NE(meta(one, "resourceVersion"), meta(other, "resourceVersion"));
}

TEST_F(Objects, AClientCanNotChooseWhatTheServerGives) {
  Json object = named("a");
  object["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555";
  object["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z";
  object["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z";
  Json made = make(secrets(), object);
  EXPECT_NE(meta(made, "uid"), "11111111-2222-3333-4444-555555555555");
  EXPECT_NE(meta(made, "creationTimestamp"), "2001-01-01T00:00:00Z");
  EXPECT_FALSE(made["metadata"].contains("deletionTimestamp"));
}

TEST_F(Objects, CreateWithAResourceVersionIsRefused) {
  Json object = named("a");
  object["metadata"]["resourceVersion"] = "1";
  Reply refused = ask("POST", secrets(), object);
  EXPECT_GE(refused.code, 400) << refused.text;
  EXPECT_EQ(refused.body["message"], "resourceVersion should not be set on objects to be created");
  EXPECT_TRUE(is_failure(get(secrets() + "/a"), 404, "NotFound"));
}

TEST_F(Objects, CreateOfANameThatIsTakenIs409AlreadyExists) {
  Json first = make(secrets(), named("a"));
  Reply again = ask("POST", secrets(), named("a"));
  ASSERT_TRUE(is_failure(again, 409, "AlreadyExists"));
  EXPECT_EQ(again.body["message"], "secrets \"a\" already exists");
  EXPECT_EQ(again.body["details"], Json({{"name", "a"}, {"kind", "secrets"}}));
  EXPECT_EQ(get(secrets() + "/a").body, first);
}

TEST_F(Objects, GetOfNothingIs404NotFoundWithDetails) {
  Reply missing = get(secrets() + "/a");
  ASSERT_TRUE(is_failure(missing, 404, "NotFound"));
  EXPECT_EQ(missing.body["message"], "secrets \"a\" not found");
  EXPECT_EQ(missing.body["details"], Json({{"name", "a"}, {"kind", "secrets"}}));
}

TEST_F(Objects, NotFoundOfAGroupNamesTheGroup) {
  Reply missing = get(path("coordination.k8s.io/v1", "leases") + "/a");
  ASSERT_TRUE(is_failure(missing, 404, "NotFound"));
  EXPECT_EQ(missing.body["message"], "leases.coordination.k8s.io \"a\" not found");
  EXPECT_EQ(missing.body["details"],
            Json({{"name", "a"}, {"group", "coordination.k8s.io"}, {"kind", "leases"}}));
}

TEST_F(Objects, CreateInANamespaceThatIsNotThereIs404) {
  Reply refused = ask("POST", "/api/v1/namespaces/no-such-namespace/secrets", named("a"));
  ASSERT_TRUE(is_failure(refused, 404, "NotFound"));
  EXPECT_EQ(refused.body["message"], "namespaces \"no-such-namespace\" not found");
  EXPECT_EQ(refused.body["details"]["kind"], "namespaces");
}

TEST_F(Objects, AListInANamespaceThatIsNotThereIsEmpty) {
  Reply list = get("/api/v1/namespaces/no-such-namespace/secrets");
  ASSERT_TRUE(is_code(list, 200));
  EXPECT_EQ(list.body["items"], Json::array());
}

TEST_F(Objects, GenerateNameMakesDifferentNames) {
  Json object = {{"metadata", {{"generateName", "run-"}}}};
  std::string one = meta(make(secrets(), object), "name");
  std::string other = meta(make(secrets(), object), "name");
  const std::string shape = "run-[bcdfghjklmnpqrstvwxz2456789]{5}";
  EXPECT_TRUE(has_shape(one, shape)) << one;
  EXPECT_TRUE(has_shape(other, shape)) << other;
  EXPECT_NE(one, other);
}

TEST_F(Objects, GenerateNameCutsLongPrefixesSo63LettersAreLeft) {
  Json object = {{"metadata", {{"generateName", std::string(80, 'p')}}}};
  std::string name = meta(make(secrets(), object), "name");
  EXPECT_EQ(name.size(), 63u);
  EXPECT_TRUE(name.starts_with(std::string(58, 'p'))) << name;
}

TEST_F(Objects, AnObjectWithoutANameIs422WithACause) {
  Reply refused = ask("POST", secrets(), {{"metadata", Json::object()}});
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_EQ(refused.body["message"],
            "Secret \"\" is invalid: metadata.name: Required value: name or generateName is "
            "required");
  EXPECT_TRUE(has_cause(refused, "FieldValueRequired", "metadata.name"));
}

TEST_F(Objects, ANameThatIsNoSubdomainIs422WithACause) {
  for (const char* name : {"Upper", "under_score", "-dash", "dash-", "a..b", "with space"}) {
    Reply refused = ask("POST", secrets(), named(name));
    ASSERT_TRUE(is_failure(refused, 422, "Invalid")) << name;
    EXPECT_TRUE(has_cause(refused, "FieldValueInvalid", "metadata.name"));
    EXPECT_EQ(refused.body["details"]["kind"], "Secret");
    EXPECT_EQ(refused.body["details"]["name"], name);
  }
  EXPECT_TRUE(is_failure(ask("POST", secrets(), named(std::string(254, 'a'))), 422, "Invalid"));
  EXPECT_TRUE(is_code(ask("POST", secrets(), named(std::string(253, 'a'))), 201));
}

TEST_F(Objects, ALabelThatIsNoLabelIs422WithACause) {
  Reply refused = ask("POST", secrets(), named("a", {{"tier", "not a value"}}));
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueInvalid", "metadata.labels"));
  refused = ask("POST", secrets(), named("a", {{"not a key", "x"}}));
  EXPECT_TRUE(has_cause(refused, "FieldValueInvalid", "metadata.labels"));
}

TEST_F(Objects, TheNamespaceOfTheBodyMustBeThatOfThePath) {
  Json object = named("a");
  object["metadata"]["namespace"] = "default";
  EXPECT_TRUE(is_failure(ask("POST", secrets(), object), 400, "BadRequest"));
}

TEST_F(Objects, TheKindOfTheBodyMustBeThatOfThePath) {
  Json object = named("a");
  object["apiVersion"] = "v1";
  object["kind"] = "Pod";
  EXPECT_TRUE(is_failure(ask("POST", secrets(), object), 400, "BadRequest"));
}

TEST_F(Objects, AnUpdateReplacesTheObjectAndKeepsWhatTheServerGave) {
  Json made = make(secrets(), named("a", {{"old", "1"}}));
  Json object = made;
  object["metadata"]["labels"] = {{"new", "2"}};
  object["metadata"].erase("creationTimestamp");
  Reply updated = ask("PUT", secrets() + "/a", object);
  ASSERT_TRUE(is_code(updated, 200));
  EXPECT_EQ(updated.body["metadata"]["labels"], Json({{"new", "2"}}));
  EXPECT_EQ(meta(updated.body, "uid"), meta(made, "uid"));
  EXPECT_EQ(meta(updated.body, "creationTimestamp"), meta(made, "creationTimestamp"));
  EXPECT_NE(meta(updated.body, "resourceVersion"), meta(made, "resourceVersion"));
}

TEST_F(Objects, AnUpdateThatChangesNothingKeepsTheResourceVersion) {
  Json made = make(secrets(), named("a", {{"tier", "x"}}));
  Reply updated = ask("PUT", secrets() + "/a", made);
  ASSERT_TRUE(is_code(updated, 200));
  EXPECT_EQ(meta(updated.body, "resourceVersion"), meta(made, "resourceVersion"));
}

TEST_F(Objects, AnUpdateUnderAnotherNameIs400) {
  make(secrets(), named("a"));
  EXPECT_TRUE(is_failure(ask("PUT", secrets() + "/a", named("b")), 400, "BadRequest"));
}

TEST_F(Objects, AnUpdateOfNothingIs404) {
  Json object = named("a");
  EXPECT_TRUE(is_failure(ask("PUT", secrets() + "/a", object), 404, "NotFound"));
}

TEST_F(Objects, DeleteAnswersSuccessWithTheUidAndTheObjectIsGone) {
  Json made = make(secrets(), named("a"));
  Reply removed = ask("DELETE", secrets() + "/a");
  ASSERT_TRUE(is_code(removed, 200));
  EXPECT_EQ(removed.body["kind"], "Status");
  EXPECT_EQ(removed.body["status"], "Success");
  EXPECT_EQ(removed.body["details"]["name"], "a");
  EXPECT_EQ(removed.body["details"]["kind"], "secrets");
  EXPECT_EQ(removed.body["details"]["uid"], made["metadata"]["uid"]);
  EXPECT_TRUE(is_failure(get(secrets() + "/a"), 404, "NotFound"));
  EXPECT_TRUE(is_failure(ask("DELETE", secrets() + "/a"), 404, "NotFound"));
}

TEST_F(Objects, TheSameNameMadeAgainHasAnotherUid) {
  Json first = make(secrets(), named("a"));
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/a"), 200));
  EXPECT_NE(meta(make(secrets(), named("a")), "uid"), meta(first, "uid"));
}

TEST_F(Objects, DeleteOfACollectionTakesWhatTheSelectorNames) {
  make(secrets(), named("a", {{"tier", "x"}}));
  make(secrets(), named("b", {{"tier", "y"}}));
  make(secrets(), named("c", {{"tier", "x"}}));
  ASSERT_TRUE(is_code(ask("DELETE", secrets() + "?labelSelector=tier%3Dx"), 200));
  auto left = names(get(secrets() + "?labelSelector=tier"));
  EXPECT_EQ(left, std::vector<std::string>{"b"});
}

}  // namespace
}  // namespace lockstep::conformance
