#pragma once

namespace lockstep::conformance {

// main() of a suite about a server. Without arguments it is run against the embedded server; with
// --kubeconfig FILE, or that file's name in LOCKSTEP_CONFORMANCE_KUBECONFIG, against the server of
// the file's current context or that of --context. --unsupported-too asks the embedded one also
// what docs/api-server.md says that it doesn't support. GoogleTest's options are taken.
int run_suite(int argc, char** argv);

}  // namespace lockstep::conformance
