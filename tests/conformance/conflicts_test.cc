// Optimistic concurrency: a write that is based on an outdated version is refused.
#include "tests/conformance/support/case.h"

namespace lockstep::conformance {
namespace {

class Conflicts : public Case {
 protected:
  // Creates "a" and changes it once. Returns the first state, whose version is now outdated.
  Json outdated() {
    Json first = make(secrets(), named("a"));
    Json second = first;
    second["metadata"]["labels"] = {{"by", "another"}};
    EXPECT_TRUE(is_code(ask("PUT", secrets() + "/a", second), 200));
    return first;
  }
};

TEST_F(Conflicts, AnUpdateFromAnOldResourceVersionIs409Conflict) {
  Json old = outdated();
  Reply refused = ask("PUT", secrets() + "/a", old);
  ASSERT_TRUE(is_failure(refused, 409, "Conflict"));
  EXPECT_EQ(refused.body["message"],
            "Operation cannot be fulfilled on secrets \"a\": the object has been modified; please "
            "apply your changes to the latest version and try again");
  EXPECT_EQ(refused.body["details"], Json({{"name", "a"}, {"kind", "secrets"}}));
}

TEST_F(Conflicts, AnUpdateWithoutAResourceVersionOverwritesABuiltInObject) {
  outdated();
  EXPECT_TRUE(is_code(ask("PUT", secrets() + "/a", named("a")), 200));
}

TEST_F(Conflicts, AnUpdateOfALeaseNeedsAResourceVersion) {
  const std::string leases = path("coordination.k8s.io/v1", "leases");
  make(leases, named("a"));
  Reply refused = ask("PUT", leases + "/a", named("a"));
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueInvalid", "metadata.resourceVersion"));
}

TEST_F(Conflicts, AnUpdateOfAnotherUidIs409Conflict) {
  Json object = make(secrets(), named("a"));
  object["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555";
  object["metadata"].erase("resourceVersion");
  EXPECT_TRUE(is_failure(ask("PUT", secrets() + "/a", object), 409, "Conflict"));
}

TEST_F(Conflicts, AMergePatchWithAnOldResourceVersionIs409Conflict) {
  Json old = outdated();
  Json change = {
      {"metadata",
       {{"resourceVersion", old["metadata"]["resourceVersion"]}, {"labels", {{"x", "y"}}}}}};
  EXPECT_TRUE(is_failure(patch(secrets() + "/a", change), 409, "Conflict"));
}

TEST_F(Conflicts, APatchWithAnotherUidIsRefused) {
  Json made = make(secrets(), named("a"));
  Json change = {{"metadata", {{"uid", "11111111-2222-3333-4444-555555555555"}}}};
  Reply refused = patch(secrets() + "/a", change);
  EXPECT_TRUE(refused.code == 409 || refused.code == 422) << refused.text;
  EXPECT_EQ(get(secrets() + "/a").body, made);
}

TEST_F(Conflicts, ADeleteWithAnotherUidAsPreconditionIs409AndTheObjectStays) {
  Json made = make(secrets(), named("a"));
  Json options = {{"preconditions", {{"uid", "11111111-2222-3333-4444-555555555555"}}}};
  Reply refused = ask("DELETE", secrets() + "/a", options);
  ASSERT_TRUE(is_failure(refused, 409, "Conflict"));
  EXPECT_EQ(get(secrets() + "/a").body, made);
  options["preconditions"]["uid"] = made["metadata"]["uid"];
  EXPECT_TRUE(is_code(ask("DELETE", secrets() + "/a", options), 200));
}

TEST_F(Conflicts, ADeleteWithAnOldResourceVersionAsPreconditionIs409) {
  Json old = outdated();
  Json options = {{"preconditions", {{"resourceVersion", old["metadata"]["resourceVersion"]}}}};
  EXPECT_TRUE(is_failure(ask("DELETE", secrets() + "/a", options), 409, "Conflict"));
}

}  // namespace
}  // namespace lockstep::conformance
