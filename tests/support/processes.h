#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "common/api/progress_page.h"
#include "common/api/worker_config.h"

// Looking at the processes of this machine through /proc, as an administrator would.
namespace lockstep::test {

// Every live descendant of `root` (not itself), in no order.
std::vector<pid_t> descendants(pid_t root);

// The arguments of a process; empty where it is gone.
std::vector<std::string> arguments(pid_t pid);

// Every live process (zombies aside) whose environment contains `text`.
std::vector<pid_t> processes_with_environment(const std::string& text);

bool alive(pid_t pid);

// A lockstep-worker as seen from outside: its configuration file and its progress page.
struct WorkerView {
  pid_t pid = 0;
  WorkerConfig config;
  std::optional<ProgressPage> page;  // its own mapping of the worker's page
};

// The lockstep-worker processes below `root` that have a readable configuration by now.
std::vector<WorkerView> workers_below(pid_t root);

}  // namespace lockstep::test
