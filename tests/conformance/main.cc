// The conformance suite: what Lockstep's controller and kubectl rely on in an API server. Without
// arguments it is run against the embedded server; with --kubeconfig FILE, or that file's name in
// LOCKSTEP_CONFORMANCE_KUBECONFIG, against the server of the file's current context, in namespaces
// of its own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <iostream>

#include "tests/conformance/support/embedded.h"
#include "tests/conformance/support/server.h"

namespace lockstep::conformance {
namespace {

// The kubeconfig that was given; empty: the embedded server.
Result<std::string> kubeconfig_of(int argc, char** argv) {
  const char* variable = std::getenv("LOCKSTEP_CONFORMANCE_KUBECONFIG");
  std::string file = variable == nullptr ? "" : variable;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--kubeconfig") != 0 || i + 1 == argc)
      return invalid(std::string(argv[i]) +
                     ": expected --kubeconfig FILE, or options of GoogleTest");
    file = argv[++i];
  }
  return file;
}

Result<Target> choose(const std::string& kubeconfig, std::unique_ptr<EmbeddedServer>& embedded) {
  if (!kubeconfig.empty()) return target_from_kubeconfig(kubeconfig);
  TRY_ASSIGN(embedded, EmbeddedServer::start());
  return embedded->target();
}

int run(int argc, char** argv) {
  Result<std::string> kubeconfig = kubeconfig_of(argc, argv);
  if (!kubeconfig.ok()) {
    std::cerr << kubeconfig.error().message << "\n";
    return 2;
  }
  std::unique_ptr<EmbeddedServer> embedded;
  Result<Target> target = choose(*kubeconfig, embedded);
  if (!target.ok()) {
    std::cerr << target.error().message << "\n";
    return 2;
  }
  set_server(std::make_unique<Server>(*std::move(target)));
  Reply version = server().ask("GET", "/version");
  std::cout << "server: " << (embedded ? "embedded" : *kubeconfig) << ", version "
            << string_or(version.body, "gitVersion", "unknown") << "\n";
  if (version.code != 200) return 2;
  int result = RUN_ALL_TESTS();
  set_server(nullptr);
  return result;
}

}  // namespace
}  // namespace lockstep::conformance

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return lockstep::conformance::run(argc, argv);
}
