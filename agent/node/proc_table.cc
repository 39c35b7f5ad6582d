#include "agent/node/proc_table.h"

#include <dirent.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

namespace lockstep::node {
namespace {

template <class T>
T number(std::string_view word) {
  T value = 0;
  std::from_chars(word.data(), word.data() + word.size(), value);
  return value;
}

std::string of_process(pid_t pid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

int64_t count_files(pid_t pid) {
  DIR* folder = opendir(of_process(pid, "fd").c_str());
  if (folder == nullptr) return 0;  // the process has ended, or belongs to another user
  int64_t count = -2;               // "." and ".."
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Source: proc(5), /proc/pid/io.
void add_io(pid_t pid, TreeUsage& usage) {
  std::ifstream file(of_process(pid, "io"));
  std::string name;
  for (int64_t value = 0; file >> name >> value;) {
    if (name == "read_bytes:") usage.read_bytes += value;
    if (name == "write_bytes:") usage.written_bytes += value;
  }
}

void add_process(pid_t pid, const ProcessStat& stat, TreeUsage& usage) {
  usage.cpu_seconds += stat.cpu_seconds;
  usage.resident_bytes += stat.resident_bytes;
  if (stat.state == 'Z') return;
  ++usage.processes;
  usage.open_files += count_files(pid);
  add_io(pid, usage);
}

}  // namespace

// Source: proc(5), /proc/pid/stat: fields 3 (state), 4 (ppid), 6 (session), 14 to 17 (CPU times of
// the process and of children waited for), 22 (starttime) and 24 (rss, in pages). Field 2 is in
// parentheses and may contain blanks and parentheses.
std::optional<ProcessStat> read_process(pid_t pid) {
  constexpr size_t kFirst = 3, kLast = 24;
  std::ifstream file(of_process(pid, "stat"));
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::string_view rest = std::string_view(text).substr(end + 1);
  std::array<std::string_view, kLast + 1> fields;
  for (size_t field = kFirst; field <= kLast; ++field) {
    const size_t begin = rest.find_first_not_of(' ');
    if (begin == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(begin);
    fields[field] = rest.substr(0, rest.find(' '));
    rest.remove_prefix(fields[field].size());
  }
  const auto per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  ProcessStat stat;
  stat.state = fields[3].front();
  stat.parent = number<pid_t>(fields[4]);
  stat.session = number<pid_t>(fields[6]);
  for (const size_t field : {14u, 15u, 16u, 17u}) {
    stat.cpu_seconds += static_cast<double>(number<int64_t>(fields[field])) / per_second;
  }
  stat.start_time = number<uint64_t>(fields[22]);
  stat.resident_bytes = number<int64_t>(fields[24]) * sysconf(_SC_PAGESIZE);
  return stat;
}

std::map<pid_t, ProcessStat> all_processes() {
  std::map<pid_t, ProcessStat> result;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return result;
  while (const dirent* entry = readdir(proc)) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    if (const auto stat = read_process(pid)) result[pid] = *stat;
  }
  closedir(proc);
  return result;
}

bool is_below(pid_t pid, pid_t root, const std::map<pid_t, ProcessStat>& all) {
  for (size_t hops = 0; hops < all.size(); ++hops) {  // a torn snapshot may have cycles
    const auto it = all.find(pid);
    if (it == all.end()) return false;
    pid = it->second.parent;
    if (pid == root) return true;
  }
  return false;
}

std::map<pid_t, TreeUsage> usage_of_trees(const std::set<pid_t>& roots) {
  std::map<pid_t, TreeUsage> usage;
  if (roots.empty()) return usage;
  const std::map<pid_t, ProcessStat> all = all_processes();
  for (const auto& [pid, stat] : all) {
    for (const pid_t root : roots) {
      if (pid != root && stat.session != root && !is_below(pid, root, all)) continue;
      add_process(pid, stat, usage[root]);
      break;
    }
  }
  return usage;
}

}  // namespace lockstep::node
