// The suites' own check of the server that they are about to use.
#include <thread>

#include "tests/conformance/support/case.h"
#include "tests/conformance/support/neighbour.h"

namespace lockstep::conformance {
namespace {

class Suite : public Case {
 protected:
  std::string leases() const { return path("coordination.k8s.io/v1", "leases"); }
  static Json renewed(int micros) {
    char time[40];
    std::snprintf(time, sizeof time, "2026-01-01T00:00:00.%06dZ", micros % 1'000'000);
    return {{"spec", {{"renewTime", time}}}};
  }
  void make_lease(const std::string& name) {
    Json lease = renewed(0);
    lease["metadata"] = {{"name", name}};
    lease["spec"]["holderIdentity"] = "somebody";
    lease["spec"]["leaseDurationSeconds"] = 1;
    make(leases(), lease);
  }
};

TEST_F(Suite, SeesNoControllerInALeaseThatNobodyRenews) {
  make_lease("lockstep-controller");
  EXPECT_EQ(active_controller(server()), std::nullopt);
}

TEST_F(Suite, NamesTheControllerThatRenewsItsLease) {
  make_lease("lockstep-controller");
  const std::jthread holder([this](const std::stop_token& stop) {
    for (int i = 1; !stop.stop_requested(); ++i)
      (void)patch(leases() + "/lockstep-controller", renewed(i));
  });
  const std::optional<std::string> found = active_controller(server());
  ASSERT_TRUE(found.has_value());
  EXPECT_NE(found->find(namespace_ + "/lockstep-controller, held by somebody"), std::string::npos)
      << *found;
}

TEST_F(Suite, HasNothingAgainstAControllerOfOneNamespace) {
  make_lease("lockstep-controller-team-a");
  EXPECT_EQ(active_controller(server()), std::nullopt);
}

}  // namespace
}  // namespace lockstep::conformance
