#pragma once

namespace lockstep::conformance {

// The main() of a suite that tests a server. Without arguments, the suite tests the embedded
// server. With --kubeconfig FILE, or that file's name in LOCKSTEP_CONFORMANCE_KUBECONFIG, it tests
// the server of the file's current context, or of --context. --unsupported-too also runs the cases
// that the embedded server doesn't support according to docs/api-server.md. GoogleTest's options
// are accepted.
int run_suite(int argc, char** argv);

}  // namespace lockstep::conformance
