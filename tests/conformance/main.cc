// The conformance suite: what Lockstep's controller and kubectl rely on in an API server.
#include "tests/conformance/support/suite.h"

int main(int argc, char** argv) {
  return lockstep::conformance::run_suite(argc, argv);
}
