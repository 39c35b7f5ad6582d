// Runs the pods of an API server as processes of this computer, without kubelets and containers,
// until SIGTERM: soak_node KUBECONFIG FOLDER PROGRAM_FOLDER MACHINES.
#include <signal.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "common/base/clock.h"
#include "local/node/local_node.h"
#include "local/node/machine.h"
#include "local/node/process_host.h"
#include "tests/conformance/support/server.h"
#include "tests/integration/remote_node_api.h"

namespace lockstep {
namespace {

constexpr int kBadInput = 2;

int run(const std::string& kubeconfig, const std::string& folder, const std::string& programs,
        size_t machines, const sigset_t& signals) {
  Result<conformance::Target> target = conformance::target_from_kubeconfig(kubeconfig, "");
  if (!target.ok()) {
    std::cerr << target.error().message << "\n";
    return kBadInput;
  }
  const conformance::Server server(*std::move(target));
  SystemClock clock;
  integration::RemoteNodeApi api(server);
  local::ProcessHost host;
  local::LocalNodeOptions options{
      .machines = local::divided_computer(machines, {}),
      .pods = {.folder = folder + "/pods", .program_folder = programs, .working_folder = folder},
      .logs = {.folder = folder + "/logs"},
      .seed = 1};
  const auto node = local::LocalNode::start(api, host, clock, options);
  if (!node.ok()) {
    std::cerr << node.error().message << "\n";
    return EXIT_FAILURE;
  }
  int received = 0;
  sigwait(&signals, &received);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "soak_node: expected KUBECONFIG FOLDER PROGRAM_FOLDER MACHINES\n";
    return lockstep::kBadInput;
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const int machines = std::max(1, std::atoi(argv[4]));
  return lockstep::run(argv[1], argv[2], argv[3], static_cast<size_t>(machines), signals);
}
