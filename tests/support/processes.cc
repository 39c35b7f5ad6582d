#include "tests/support/processes.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace lockstep::test {
namespace {

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<pid_t> all_pids() {
  std::vector<pid_t> pids;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") == std::string::npos) pids.push_back(std::stoi(name));
  }
  return pids;
}

struct Stat {
  char state = 'Z';
  pid_t parent = 0;
};

Stat stat_of(pid_t pid) {
  const std::string text = read_all("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = text.rfind(')');
  Stat stat;
  if (name_end == std::string::npos) return stat;
  std::istringstream rest(text.substr(name_end + 1));
  rest >> stat.state >> stat.parent;
  return stat;
}

std::optional<WorkerView> view_worker(pid_t pid) {
  const std::vector<std::string> args = arguments(pid);
  if (args.size() < 3 || !args[0].ends_with("lockstep-worker") || args[1] != "--config") {
    return std::nullopt;
  }
  const Result<Json> document = parse_json(read_all(args[2]));
  if (!document.ok()) return std::nullopt;
  Result<WorkerConfig> config = worker_config_from_json(*document);
  if (!config.ok()) return std::nullopt;
  WorkerView view{.pid = pid, .config = std::move(*config), .page = std::nullopt};
  const std::string fd_path =
      "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(view.config.progress_fd);
  const int fd = ::open(fd_path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return view;
  Result<ProgressPage> page = ProgressPage::attach(fd);
  if (page.ok()) view.page = std::move(*page);
  return view;
}

}  // namespace

std::vector<pid_t> descendants(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  for (const pid_t pid : all_pids()) {
    const Stat stat = stat_of(pid);
    if (stat.state != 'Z') children.emplace(stat.parent, pid);
  }
  std::vector<pid_t> found = {root};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

std::vector<std::string> arguments(pid_t pid) {
  std::istringstream text(read_all("/proc/" + std::to_string(pid) + "/cmdline"));
  std::vector<std::string> result;
  for (std::string argument; std::getline(text, argument, '\0');) result.push_back(argument);
  return result;
}

std::vector<pid_t> processes_with_environment(const std::string& text) {
  std::vector<pid_t> found;
  for (const pid_t pid : all_pids()) {
    if (pid == ::getpid() || stat_of(pid).state == 'Z') continue;
    const std::string environment = read_all("/proc/" + std::to_string(pid) + "/environ");
    if (environment.find(text) != std::string::npos) found.push_back(pid);
  }
  return found;
}

bool alive(pid_t pid) {
  return ::kill(pid, 0) == 0 && stat_of(pid).state != 'Z';
}

std::vector<WorkerView> workers_below(pid_t root) {
  std::vector<WorkerView> views;
  for (const pid_t pid : descendants(root)) {
    if (std::optional<WorkerView> view = view_worker(pid)) views.push_back(std::move(*view));
  }
  return views;
}

}  // namespace lockstep::test
