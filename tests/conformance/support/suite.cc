#include "tests/conformance/support/suite.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <iostream>
#include <optional>

#include "tests/conformance/support/embedded.h"
#include "tests/conformance/support/neighbour.h"
#include "tests/conformance/support/server.h"

namespace lockstep::conformance {
namespace {

struct Flags {
  std::string kubeconfig;        // empty: the embedded server
  std::string context;           // empty: the current one
  bool unsupported_too = false;  // also run the cases that the embedded server doesn't support
};

Result<Flags> flags_of(int argc, char** argv) {
  const char* variable = std::getenv("LOCKSTEP_CONFORMANCE_KUBECONFIG");
  Flags flags{.kubeconfig = variable == nullptr ? "" : variable};
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i];
    if (flag == "--unsupported-too") {
      flags.unsupported_too = true;
    } else if (flag == "--kubeconfig" && i + 1 < argc) {
      flags.kubeconfig = argv[++i];
    } else if (flag == "--context" && i + 1 < argc) {
      flags.context = argv[++i];
    } else {
      return invalid(flag + ": expected --kubeconfig FILE, --context NAME, --unsupported-too, or " +
                     "an option of GoogleTest");
    }
  }
  if (!flags.context.empty() && flags.kubeconfig.empty())
    return invalid("--context: expected --kubeconfig as well");
  return flags;
}

Result<Target> choose(const Flags& flags, std::unique_ptr<EmbeddedServer>& embedded) {
  if (!flags.kubeconfig.empty()) return target_from_kubeconfig(flags.kubeconfig, flags.context);
  TRY_ASSIGN(embedded, EmbeddedServer::start());
  return embedded->target();
}

}  // namespace

int run_suite(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to connections that the server has closed
  Result<Flags> flags = flags_of(argc, argv);
  if (!flags.ok()) {
    std::cerr << flags.error().message << "\n";
    return 2;
  }
  std::unique_ptr<EmbeddedServer> embedded;
  Result<Target> target = choose(*flags, embedded);
  if (!target.ok()) {
    std::cerr << target.error().message << "\n";
    return 2;
  }
  target->run_unsupported_cases = flags->unsupported_too;
  set_server(std::make_unique<Server>(*std::move(target)));
  Reply version = server().ask("GET", "/version");
  std::cout << "server: " << (embedded ? "embedded" : flags->kubeconfig) << ", version "
            << string_or(version.body, "gitVersion", "unknown") << "\n";
  if (version.code != 200) return 2;
  if (embedded == nullptr) {
    if (const std::optional<std::string> why_not = active_controller(server())) {
      std::cerr << *why_not << "\n";
      return 2;
    }
  }
  int result = RUN_ALL_TESTS();
  set_server(nullptr);
  return result;
}

}  // namespace lockstep::conformance
