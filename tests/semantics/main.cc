// What the controller's client does when servers and networks do what they do: the rows of
// docs/client-semantics.md.
#include "tests/conformance/support/suite.h"

int main(int argc, char** argv) {
  return lockstep::conformance::run_suite(argc, argv);
}
