#include "local/node/process_sweeper.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "common/base/log.h"

namespace lockstep::local {
namespace {

constexpr int kLooksMax = 500;
constexpr int kUnknownLooksMax = 100;  // a program may begin with an empty environment
constexpr auto kPause = std::chrono::milliseconds(10);  // time for killed processes to disappear
constexpr size_t kEnvironmentBytesMax = 4u << 20;

// Returns the container marker in a process's environment, or empty.
std::string_view container_in(std::string_view environment) {
  static const std::string kEntry = std::string(kContainerVariable) + "=";
  for (size_t at = 0; at < environment.size();) {
    size_t end = environment.find('\0', at);
    if (end == std::string_view::npos) end = environment.size();
    std::string_view entry = environment.substr(at, end - at);
    if (entry.starts_with(kEntry)) return entry.substr(kEntry.size());
    at = end + 1;
  }
  return {};
}

void read_environment(const char* pid, std::string& text) {
  text.clear();
  std::string file = "/proc/" + std::string(pid) + "/environ";
  int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char buffer[8192];
  for (ssize_t bytes; (bytes = read(fd, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(bytes));
    if (text.size() > kEnvironmentBytesMax) break;
  }
  close(fd);
}

// Returns whether the process is our child, and alive. Descendants become that when their parents
// end (ProcessHost).
bool is_living_child(const char* pid) {
  std::ifstream file("/proc/" + std::string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // a name may have parentheses
  if (name_end == std::string::npos) return false;
  std::istringstream rest(text.substr(name_end + 1));
  char state = 'Z';
  pid_t parent = 0;
  rest >> state >> parent;
  return parent == getpid() && state != 'Z' && state != 'X';
}

// Returns whether there is a child whose environment cannot be read yet, because it is just
// executing a program: nobody knows which container it belongs to.
template <class Visit>
bool visit_containers(Visit visit) {
  bool any_unknown = false;
  std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (folder == nullptr) return false;
  std::string text;
  pid_t self = getpid();
  while (const dirent* entry = readdir(folder.get())) {
    char* end = nullptr;
    long pid = std::strtol(entry->d_name, &end, 10);
    if (pid <= 0 || *end != '\0' || pid == self) continue;
    read_environment(entry->d_name, text);
    std::string_view container = container_in(text);
    if (!container.empty()) visit(static_cast<pid_t>(pid), container);
    if (text.empty() && is_living_child(entry->d_name)) any_unknown = true;
  }
  return any_unknown;
}

}  // namespace

ProcessSweeper::ProcessSweeper() : thread_([this] { loop(); }) {}

ProcessSweeper::~ProcessSweeper() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ProcessSweeper::sweep(const std::string& container, OnDone on_done) {
  {
    std::lock_guard lock(mutex_);
    tasks_[container] = {std::move(on_done), 0};
  }
  changed_.notify_all();
}

void ProcessSweeper::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::set<std::string, std::less<>> wanted;
    for (const auto& [container, task] : tasks_) wanted.insert(container);
    lock.unlock();
    std::set<std::string> found;
    const bool any_unknown = visit_containers([&](pid_t pid, std::string_view container) {
      if (!wanted.contains(container)) return;
      kill(pid, SIGKILL);
      found.emplace(container);
    });
    lock.lock();
    std::vector<OnDone> done;
    for (const std::string& container : wanted) {
      auto task = tasks_.find(container);
      if (found.contains(container) && ++task->second.looks < kLooksMax) continue;
      const bool may_be_found = any_unknown && !found.contains(container);
      if (may_be_found && ++task->second.unknown_looks < kUnknownLooksMax) continue;
      if (found.contains(container))
        log_error("processes of a container did not end after SIGKILL", {{"container", container}});
      done.push_back(std::move(task->second.on_done));
      tasks_.erase(task);
    }
    lock.unlock();
    for (const OnDone& on_done : done) on_done();
    if (!found.empty() || any_unknown) std::this_thread::sleep_for(kPause);
    lock.lock();
  }
}

}  // namespace lockstep::local
