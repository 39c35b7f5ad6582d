// Leases, as leader election uses them.
#include "tests/conformance/support/case.h"

namespace lockstep::conformance {
namespace {

class Leases : public Case {
 protected:
  std::string leases() const { return path("coordination.k8s.io/v1", "leases"); }
  static Json lease(const std::string& holder) {
    Json object = named("leader");
    object["spec"] = {{"holderIdentity", holder},
                      {"leaseDurationSeconds", 15},
                      {"acquireTime", "2026-01-02T03:04:05.000006Z"},
                      {"renewTime", "2026-01-02T03:04:05.000006Z"},
                      {"leaseTransitions", 0}};
    return object;
  }
};

TEST_F(Leases, OneCandidateAloneMakesIt) {
  make(leases(), lease("one"));
  EXPECT_TRUE(is_failure(ask("POST", leases(), lease("two")), 409, "AlreadyExists"));
  EXPECT_EQ(get(leases() + "/leader").body["spec"]["holderIdentity"], "one");
}

TEST_F(Leases, TimesAreKeptToTheMicrosecond) {
  Json made = make(leases(), lease("one"));
  EXPECT_EQ(made["spec"]["renewTime"], "2026-01-02T03:04:05.000006Z");
  EXPECT_EQ(made["spec"]["acquireTime"], "2026-01-02T03:04:05.000006Z");
}

TEST_F(Leases, OfTwoThatRenewFromTheSameVersionOneLoses) {
  Json seen = make(leases(), lease("one"));
  Json first = seen;
  first["spec"]["renewTime"] = "2026-01-02T03:04:07.000000Z";
  Json second = seen;
  second["spec"]["holderIdentity"] = "two";
  second["spec"]["leaseTransitions"] = 1;
  EXPECT_TRUE(is_code(ask("PUT", leases() + "/leader", first), 200));
  EXPECT_TRUE(is_failure(ask("PUT", leases() + "/leader", second), 409, "Conflict"));
  EXPECT_EQ(get(leases() + "/leader").body["spec"]["holderIdentity"], "one");
}

TEST_F(Leases, OneCanBeReleased) {
  Json object = make(leases(), lease("one"));
  object["spec"]["holderIdentity"] = "";
  object["spec"]["leaseDurationSeconds"] = 1;
  ASSERT_TRUE(is_code(ask("PUT", leases() + "/leader", object), 200));
  Json stored = get(leases() + "/leader").body;
  EXPECT_EQ(string_or(stored["spec"], "holderIdentity", "none"), "");
}

TEST_F(Leases, DurationsAndTransitionsAreChecked) {
  Json object = lease("one");
  object["spec"]["leaseDurationSeconds"] = 0;
  Reply refused = ask("POST", leases(), object);
  ASSERT_TRUE(is_failure(refused, 422, "Invalid"));
  EXPECT_TRUE(has_cause(refused, "FieldValueInvalid", "spec.leaseDurationSeconds"));
  object = lease("one");
  object["spec"]["leaseTransitions"] = -1;
  EXPECT_TRUE(
      has_cause(ask("POST", leases(), object), "FieldValueInvalid", "spec.leaseTransitions"));
}

}  // namespace
}  // namespace lockstep::conformance
