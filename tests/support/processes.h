#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "common/api/progress_page.h"
#include "common/api/worker_config.h"

// Inspects this machine's processes through /proc, as an administrator would.
namespace lockstep::test {

// Returns every live descendant of `root`, without `root` itself, in no particular order.
std::vector<pid_t> descendants(pid_t root);

// Returns a process's arguments; empty if it is gone.
std::vector<std::string> arguments(pid_t pid);

// Returns every live process (not zombies) whose environment contains `text`.
std::vector<pid_t> processes_with_environment(const std::string& text);

bool alive(pid_t pid);

// A lockstep-worker as seen from outside: its configuration file and progress page.
struct WorkerView {
  pid_t pid = 0;
  WorkerConfig config;
  std::optional<ProgressPage> page;  // our own mapping of the worker's page
};

// Returns the lockstep-worker processes below `root` that already have a readable configuration.
std::vector<WorkerView> workers_below(pid_t root);

}  // namespace lockstep::test
