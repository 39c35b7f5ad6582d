#include "agent/node/options.h"

#include <charconv>
#include <functional>
#include <utility>

#include "common/api/agent_messages.h"

namespace lockstep::node {
namespace {

using Environment = std::map<std::string, std::string>;

Result<int64_t> read_number(const std::string& name, const std::string& text, int64_t maximum) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > maximum) {
    return invalid(name + ": expected a number from 0 to " + std::to_string(maximum) +
                   ", found \"" + text + "\"");
  }
  return value;
}

std::string value_or(const Environment& environment, const std::string& name,
                     const std::string& fallback) {
  const auto it = environment.find(name);
  return it == environment.end() ? fallback : it->second;
}

Result<std::string> required(const Environment& environment, const std::string& name) {
  std::string value = value_or(environment, name, "");
  if (value.empty()) return invalid(name + ": this environment variable is not set");
  return value;
}

// Parses "10.0.0.1:29400" or "[fd00::1]:29400".
Status read_listen(const std::string& text, AgentOptions& options) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos)
    return invalid("--listen: expected ADDRESS:PORT, found \"" + text + "\"");
  options.address = text.substr(0, colon);
  if (options.address.starts_with('[') && options.address.ends_with(']')) {
    options.address = options.address.substr(1, options.address.size() - 2);
  }
  TRY_ASSIGN(options.port, read_number("--listen", text.substr(colon + 1), 65535));
  return {};
}

struct Flag {
  const char* name;
  const char* value;  // the name of its value, nullptr: takes none
  const char* help;
  Status (*apply)(const std::string& text, AgentOptions& options);
};

const Flag kFlags[] = {
    {"--listen", "ADDRESS:PORT",
     "address to listen on (default: $POD_IP:29400); port 0 picks a free port", read_listen},
    {"--work-dir", "FOLDER",
     "folder for worker configurations and logs (default: /var/lib/lockstep)",
     [](const std::string& text, AgentOptions& options) -> Status {
       options.work_folder = text;
       return {};
     }},
    {"--token-file", "FILE", "file with the job's token (default: /var/run/lockstep/token/token)",
     [](const std::string& text, AgentOptions& options) -> Status {
       options.token_file = text;
       return {};
     }},
    {"--worker-binary", "FILE",
     "the worker program (default: lockstep-worker in this program's folder)",
     [](const std::string& text, AgentOptions& options) -> Status {
       options.worker_binary = text;
       return {};
     }},
    {"--termination-log", "FILE", "file to write the result to (default: /dev/termination-log)",
     [](const std::string& text, AgentOptions& options) -> Status {
       options.termination_path = text;
       options.create_termination = true;
       return {};
     }},
    {"--hold-seconds", "N",
     "exit this long after the workers ended if no controller calls (default: 600)",
     [](const std::string& text, AgentOptions& options) -> Status {
       TRY_ASSIGN(options.hold_seconds, read_number("--hold-seconds", text, 86400));
       return {};
     }},
    {"--install", "FOLDER", "copy this program's bundle to FOLDER and exit",
     [](const std::string& text, AgentOptions& options) -> Status {
       if (text.empty()) return invalid("--install: expected a folder, found an empty value");
       options.install_folder = text;
       return {};
     }},
    {"--log-json", nullptr, "log one JSON object per line to stderr",
     [](const std::string&, AgentOptions& options) -> Status {
       options.log_json = true;
       return {};
     }},
    {"--help", nullptr, "print this text",
     [](const std::string&, AgentOptions& options) -> Status {
       options.help = true;
       return {};
     }},
};

const Flag* find_flag(const std::string& name) {
  for (const Flag& flag : kFlags) {
    if (name == flag.name) return &flag;
  }
  return nullptr;
}

Status read_flags(const std::vector<std::string>& arguments, AgentOptions& options) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Flag* flag = find_flag(arguments[i]);
    if (flag == nullptr) return invalid(arguments[i] + ": unknown flag; see --help");
    if (flag->value != nullptr && i + 1 == arguments.size()) {
      return invalid(arguments[i] + ": expected " + flag->value + " after it");
    }
    TRY(flag->apply(flag->value != nullptr ? arguments[++i] : "", options));
  }
  return {};
}

Status read_identity(const Environment& environment, AgentOptions& options) {
  TRY_ASSIGN(options.job_uid, required(environment, "LOCKSTEP_JOB_UID"));
  TRY_ASSIGN(options.job_name, required(environment, "LOCKSTEP_JOB_NAME"));
  TRY_ASSIGN(const std::string index, required(environment, "LOCKSTEP_NODE_INDEX"));
  TRY_ASSIGN(options.node_index, read_number("LOCKSTEP_NODE_INDEX", index, 1'000'000));
  const std::string role = value_or(environment, kRoleVariable, "worker");
  for (const MemberRole known : {MemberRole::kWorker, MemberRole::kServer}) {
    if (role == member_role_name(known)) options.role = known;
  }
  if (role != member_role_name(options.role)) {
    return invalid(std::string(kRoleVariable) + ": expected \"worker\" or \"server\", found \"" +
                   role + "\"");
  }
  TRY_ASSIGN(const std::string incarnation, required(environment, "LOCKSTEP_INCARNATION"));
  TRY_ASSIGN(options.incarnation,
             read_number("LOCKSTEP_INCARNATION", incarnation, int64_t{1} << 62));
  const std::string requests = value_or(environment, kRequestsVariable, "");
  options.must_encrypt = requests == kRequestsEncrypted;
  options.signed_only = requests == kRequestsSigned || options.must_encrypt;
  if (!requests.empty() && !options.signed_only) {
    return invalid(std::string(kRequestsVariable) + ": expected \"" + kRequestsSigned + "\" or \"" +
                   kRequestsEncrypted + "\", found \"" + requests + "\"");
  }
  const std::string survivors = value_or(environment, "LOCKSTEP_SURVIVORS", "stay");
  options.keep_survivors = survivors == "stay";
  if (survivors != "stay" && survivors != "respawn") {
    return invalid("LOCKSTEP_SURVIVORS: expected \"stay\" or \"respawn\", found \"" + survivors +
                   "\"");
  }
  if (options.address.empty()) {
    TRY_ASSIGN(options.address, required(environment, "POD_IP"));
  }
  return {};
}

}  // namespace

Result<AgentOptions> read_agent_options(const std::vector<std::string>& arguments,
                                        const Environment& environment, const std::string& binary) {
  const std::string root = value_or(environment, "LOCKSTEP_POD_ROOT", "");
  AgentOptions options;
  options.port = kAgentPort;
  options.work_folder = root + "/var/lib/lockstep";
  options.token_file = root + "/var/run/lockstep/token/token";
  options.termination_path = root + "/dev/termination-log";
  options.create_termination = !root.empty();
  options.worker_binary = binary.substr(0, binary.rfind('/') + 1) + "lockstep-worker";
  TRY(read_flags(arguments, options));
  const bool runs = !options.help && options.install_folder.empty();
  if (runs) TRY(read_identity(environment, options));
  return options;
}

std::string agent_usage() {
  std::string text =
      "lockstep-agent: supervises the workers of one pod, as the controller assigns them.\n"
      "Environment variables: POD_IP, LOCKSTEP_JOB_UID, LOCKSTEP_JOB_NAME, LOCKSTEP_NODE_INDEX,\n"
      "LOCKSTEP_INCARNATION, LOCKSTEP_ROLE, LOCKSTEP_REQUESTS, LOCKSTEP_POD_ROOT,\n"
      "LOCKSTEP_SURVIVORS. Flags:\n";
  for (const Flag& flag : kFlags) {
    text += "  " + std::string(flag.name) + " " + (flag.value != nullptr ? flag.value : "") +
            "\n      " + flag.help + "\n";
  }
  return text;
}

}  // namespace lockstep::node
