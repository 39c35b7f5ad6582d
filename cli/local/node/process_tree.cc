#include "cli/local/node/process_tree.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace lockstep::local {
namespace {

constexpr int kRoundsMax = 200;
constexpr auto kPause = std::chrono::milliseconds(10);  // for the kernel to take them away

bool has_entry(const std::filesystem::path& process, const std::string& entry) {
  std::ifstream file(process / "environ", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::string wanted = entry + '\0';
  size_t found = text.find(wanted);
  while (found != std::string::npos && found > 0 && text[found - 1] != '\0')
    found = text.find(wanted, found + 1);
  return found != std::string::npos;
}

}  // namespace

std::vector<pid_t> processes_with(const std::string& environment_entry) {
  std::vector<pid_t> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end;
       at.increment(error)) {
    std::string name = at->path().filename();
    if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }))
      continue;
    pid_t pid = static_cast<pid_t>(std::stol(name));
    if (pid != getpid() && has_entry(at->path(), environment_entry)) found.push_back(pid);
  }
  return found;
}

bool kill_processes_with(const std::string& environment_entry) {
  for (int round = 0; round < kRoundsMax; ++round) {
    std::vector<pid_t> left = processes_with(environment_entry);
    if (left.empty()) return true;
    for (pid_t pid : left) kill(pid, SIGKILL);
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

}  // namespace lockstep::local
