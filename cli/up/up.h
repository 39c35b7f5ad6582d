#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace lockstep {

struct UpOptions {
  std::string program_folder;  // where lockstep-controller, -agent and -worker are
  std::string home;            // the user's; empty: there is none
  // kubeconfig and logs. Empty: .lockstep/up of `home`; with a command a temporary one, removed at
  // the end.
  std::string folder;
  std::string kubeconfig;  // a file that isn't there yet; empty: <folder>/kubeconfig
  uint16_t port = 0;       // of the API server; 0: the system chooses
  int machines = 2;
  // How long the API server keeps old changes, from which a watch can be resumed.
  Duration history_age = std::chrono::minutes(5);
  std::vector<std::string> command;  // empty: stay until a signal comes
};

// A cluster on this machine for the ordinary kubectl, until SIGINT, SIGTERM or SIGHUP or the end of
// the command. The kubeconfig is there, readable by this user alone, before the command starts or a
// line is printed, and gone at the end. The first signal ends pods within their grace periods, a
// second one at once. Nothing is kept from one time to the next: objects live in memory.
// Returns the exit code: the command's own (127 where it could not be started), else 0;
// kExitBadInput for options that can't be carried out, kExitFailed when the controller does not
// stay up. Called where there is one thread.
int run_up(const UpOptions& options, const Clock& clock);

}  // namespace lockstep
