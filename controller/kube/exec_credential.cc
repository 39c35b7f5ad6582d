#include "controller/kube/exec_credential.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace lockstep::kube {
namespace {

constexpr char kGroup[] = "client.authentication.k8s.io/";
constexpr size_t kOutputBytesMax = 1u << 20;
constexpr int kTurnMs = 20;  // interval between checks where nothing signals an event

Status check_plugin(const ExecPlugin& plugin) {
  if (plugin.api_version.empty()) {
    return invalid("exec.apiVersion: missing, expected client.authentication.k8s.io/v1 or v1beta1");
  }
  if (plugin.api_version != std::string(kGroup) + "v1" &&
      plugin.api_version != std::string(kGroup) + "v1beta1") {
    return invalid("exec.apiVersion: found \"" + plugin.api_version +
                   "\", expected client.authentication.k8s.io/v1 or v1beta1");
  }
  if (plugin.command.empty()) return invalid("exec.command: missing, expected a program");
  const std::string& mode = plugin.interactive_mode;
  if (mode != "Never" && mode != "IfAvailable" && mode != "Always") {
    return invalid("exec.interactiveMode: found \"" + mode +
                   "\", expected Never, IfAvailable or Always");
  }
  return {};
}

// Returns the program's environment with the plugin's own variables over it.
std::vector<std::string> environment_for(const ExecPlugin& plugin, const std::string& info) {
  std::vector<std::pair<std::string, std::string>> own = plugin.env;
  own.emplace_back("KUBERNETES_EXEC_INFO", info);
  std::vector<std::string> all;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string text(*one);
    const std::string name = text.substr(0, text.find('='));
    const auto is_same = [&name](const auto& variable) { return variable.first == name; };
    if (std::none_of(own.begin(), own.end(), is_same)) all.push_back(text);
  }
  for (const auto& [name, value] : own) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// Starts the plugin with the pipe's end as its stdout. The plugin inherits nothing else from us but
// stdin and stderr.
Result<pid_t> spawn(const ExecPlugin& plugin, const std::string& info, bool with_input,
                    const int pipe_ends[2]) {
  std::vector<std::string> arguments = {plugin.command};
  arguments.insert(arguments.end(), plugin.args.begin(), plugin.args.end());
  std::vector<std::string> environment = environment_for(plugin, info);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (!with_input) posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, plugin.command.c_str(), &actions, &attributes,
                                   pointers(arguments).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error == 0) return pid;
  std::string message = "the credential plugin " + plugin.command + " can't be run: ";
  message += std::strerror(error);
  if (!plugin.install_hint.empty()) message += "\n" + plugin.install_hint;
  return not_found(message);
}

class Waiting {
 public:
  explicit Waiting(const ExecPatience& patience)
      : patience_(patience), until_(std::chrono::steady_clock::now() + patience.time) {}

  // Returns why waiting is over; empty if it is not.
  std::string over() const {
    if (patience_.stop.stop_requested()) return "was stopped";
    if (std::chrono::steady_clock::now() < until_) return "";
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience_.time);
    return "did not end within " + std::to_string(seconds.count()) + " seconds";
  }

 private:
  const ExecPatience& patience_;
  const std::chrono::steady_clock::time_point until_;
};

// Returns what the plugin prints until it closes its stdout. Sets `trouble` if that can't be used.
std::string read_all(int fd, const Waiting& waiting, std::string& trouble) {
  std::string output;
  while (trouble.empty()) {
    trouble = waiting.over();
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    if (!trouble.empty() || ::poll(&ready, 1, kTurnMs) <= 0) continue;
    char bytes[4096];
    const ssize_t got = ::read(fd, bytes, sizeof bytes);
    if (got == 0) break;
    if (got > 0) output.append(bytes, static_cast<size_t>(got));
    if (output.size() > kOutputBytesMax) trouble = "printed more than 1 MiB";
  }
  return output;
}

// Waits for the process and returns its status. Kills it if there is trouble already, or as soon as
// there is.
int reap(pid_t pid, const Waiting& waiting, std::string& trouble) {
  int status = 0;
  while (trouble.empty() && ::waitpid(pid, &status, WNOHANG) == 0) {
    trouble = waiting.over();
    if (trouble.empty()) ::poll(nullptr, 0, kTurnMs);
  }
  if (trouble.empty()) return status;
  ::kill(pid, SIGKILL);
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Returns what the process prints until it ends, and reaps it.
Result<std::string> collect(const std::string& name, pid_t pid, int fd,
                            const ExecPatience& patience) {
  const Waiting waiting(patience);
  std::string trouble;
  std::string output = read_all(fd, waiting, trouble);
  const int status = reap(pid, waiting, trouble);
  if (trouble.empty() && WIFEXITED(status) && WEXITSTATUS(status) != 0) {
    trouble = "failed with exit code " + std::to_string(WEXITSTATUS(status));
  }
  if (trouble.empty() && WIFSIGNALED(status)) {
    trouble = "was killed by signal " + std::to_string(WTERMSIG(status));
  }
  if (!trouble.empty()) return unavailable("the credential plugin " + name + " " + trouble);
  return output;
}

}  // namespace

Json exec_info(const ExecPlugin& plugin, const Json& cluster, bool is_terminal) {
  Json spec = {{"interactive", is_terminal && plugin.interactive_mode != "Never"}};
  if (plugin.provide_cluster_info) spec["cluster"] = cluster;
  return {{"kind", "ExecCredential"}, {"apiVersion", plugin.api_version}, {"spec", spec}};
}

Result<ExecCredential> parse_exec_credential(const ExecPlugin& plugin, const std::string& output) {
  const std::string where = "the credential plugin " + plugin.command + ": ";
  Result<Json> document = parse_json(output);
  if (!document.ok()) return invalid(where + "its output is " + document.error().message);
  if (string_or(*document, "kind", "") != "ExecCredential" ||
      string_or(*document, "apiVersion", "") != plugin.api_version) {
    return invalid(where + "expected an ExecCredential of " + plugin.api_version + ", found " +
                   string_or(*document, "kind", "(no kind)") + " of " +
                   string_or(*document, "apiVersion", "(no apiVersion)"));
  }
  const Json* status = find_member(*document, "status");
  if (status == nullptr || !status->is_object())
    return invalid(where + "expected a status, found none");
  ExecCredential credential{.token = string_or(*status, "token", ""),
                            .certificate_pem = string_or(*status, "clientCertificateData", ""),
                            .key_pem = string_or(*status, "clientKeyData", ""),
                            .expires = std::nullopt};
  if (credential.certificate_pem.empty() != credential.key_pem.empty()) {
    return invalid(where + "expected both clientCertificateData and clientKeyData, found one");
  }
  if (credential.token.empty() && credential.certificate_pem.empty()) {
    return invalid(where + "expected a token or a client certificate, found neither");
  }
  const std::string expires = string_or(*status, "expirationTimestamp", "");
  if (!expires.empty()) {
    Result<WallTime> time = wall_time_from_rfc3339(expires);
    if (!time.ok()) return invalid(where + "status.expirationTimestamp: " + time.error().message);
    credential.expires = *time;
  }
  return credential;
}

Result<ExecCredential> run_exec_plugin(const ExecPlugin& plugin, const Json& cluster,
                                       const ExecPatience& patience) {
  TRY(check_plugin(plugin));
  const bool is_terminal = ::isatty(0) == 1;
  if (plugin.interactive_mode == "Always" && !is_terminal) {
    return unavailable(
        "the credential plugin " + plugin.command +
        " needs a terminal (interactiveMode: Always), but standard input is not one");
  }
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return errno_error("[exec] pipe", errno);
  const Json info = exec_info(plugin, cluster, is_terminal);
  const bool with_input = info["spec"]["interactive"].get<bool>();
  Result<pid_t> pid = spawn(plugin, dump_json(info), with_input, pipe_ends);
  ::close(pipe_ends[1]);
  Result<std::string> output = pid.ok() ? collect(plugin.command, *pid, pipe_ends[0], patience)
                                        : Result<std::string>(pid.error());
  ::close(pipe_ends[0]);
  if (!output.ok()) return output.error();
  return parse_exec_credential(plugin, *output);
}

}  // namespace lockstep::kube
