#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace lockstep::cli {

struct UpOptions {
  std::string program_folder;  // with lockstep-controller, -agent and -worker
  std::string home;            // the user's; empty: none
  // For the kubeconfig and logs. If empty: .lockstep/up in `home`, or, with a command, a temporary
  // folder that is removed at the end.
  std::string folder;
  std::string kubeconfig;  // a file that does not exist yet; empty: <folder>/kubeconfig
  uint16_t port = 0;       // of the API server; 0: the system chooses
  int machines = 2;
  // How long the API server keeps old changes, from which a watch can be resumed.
  Duration history_age = std::chrono::minutes(5);
  std::vector<std::string> command;  // empty: run until a signal
};

// Runs a cluster on this machine for the real kubectl, until SIGINT, SIGTERM or SIGHUP or the end
// of the command.
// - The kubeconfig, readable only by this user, exists before the command starts or a line is
//   printed. It is removed at the end.
// - The first signal ends pods within their grace periods, a second one immediately.
// - Objects live in memory; nothing is kept from one run to the next.
// Returns the command's exit code (127 if it could not be started), or 0 without a command;
// kExitBadInput for unusable options; kExitFailed if the controller does not stay up. Call it while
// the process has one thread.
int run_up(const UpOptions& options, const Clock& clock);

}  // namespace lockstep::cli
