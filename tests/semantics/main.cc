// Tests the controller's client with faulty servers and networks: the rows of
// docs/client-semantics.md.
#include "tests/conformance/support/suite.h"

int main(int argc, char** argv) {
  return lockstep::conformance::run_suite(argc, argv);
}
