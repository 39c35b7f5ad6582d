// Tests what happens to jobs on an API server with lockstep-controller, the local node and agents.
#include "tests/conformance/support/suite.h"

int main(int argc, char** argv) {
  return lockstep::conformance::run_suite(argc, argv);
}
