// lockstep-controller, the local node and agents around an API server: what happens to jobs there.
#include "tests/conformance/support/suite.h"

int main(int argc, char** argv) {
  return lockstep::conformance::run_suite(argc, argv);
}
