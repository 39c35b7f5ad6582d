#include "cli/client/aligned.h"
#include "cli/client/command.h"

namespace lockstep::cli {
namespace {

// Annotation that the local node obeys: "off" cuts a machine's power.
constexpr char kPowerAnnotation[] = "local.lockstep.dev/power";
// Start of the container runtime version that its machines report.
constexpr char kLocalRuntime[] = "process://";

struct MachineFlags {
  ConnectionFlags flags;
  std::vector<std::string> names;
};

const Json& member(const Json& object, const char* key) {
  static const Json nothing = Json::object();
  const Json* value = find_member(object, key);
  return value == nullptr ? nothing : *value;
}

bool is_off(const Json& node) {
  return string_or(member(member(node, "metadata"), "annotations"), kPowerAnnotation, "") == "off";
}

std::string state_of(const Json& node) {
  std::string state = "Unknown";
  const Json& conditions = member(member(node, "status"), "conditions");
  for (const Json& one : conditions.is_array() ? conditions : Json::array()) {
    if (string_or(one, "type", "") != "Ready") continue;
    state = string_or(one, "status", "") == "True" ? "Ready" : "NotReady";
  }
  if (bool_or(member(node, "spec"), "unschedulable", false)) state += ",SchedulingDisabled";
  return state;
}

ApiCall pods_on(const std::string& machine) {
  ApiCall call{.path = core_path("", "pods")};
  call.query["fieldSelector"] = "spec.nodeName=" + machine;
  return call;
}

// Returns the machine's pods that have not ended.
Result<std::vector<Json>> live_pods(Connection& connection, const std::string& machine) {
  TRY_ASSIGN(const Json list, connection.call(pods_on(machine)));
  std::vector<Json> pods;
  const Json& items = member(list, "items");
  for (const Json& pod : items.is_array() ? items : Json::array()) {
    const std::string phase = string_or(member(pod, "status"), "phase", "");
    const bool is_here = string_or(member(pod, "spec"), "nodeName", "") == machine;
    if (is_here && phase != "Succeeded" && phase != "Failed") pods.push_back(pod);
  }
  return pods;
}

Result<int> list_machines(Connection& connection) {
  TRY_ASSIGN(const Json list, connection.call({.path = core_path("", "nodes")}));
  std::vector<std::vector<std::string>> rows = {{"NAME", "STATUS", "POWER", "PODS", "AGE"}};
  const Json& items = member(list, "items");
  for (const Json& node : items.is_array() ? items : Json::array()) {
    const std::string name = meta_text(node, "name");
    TRY_ASSIGN(const std::vector<Json> pods, live_pods(connection, name));
    rows.push_back({name, state_of(node), is_off(node) ? "off" : "on", std::to_string(pods.size()),
                    age_of(meta_text(node, "creationTimestamp"), connection.clock().wall_now())});
  }
  print(aligned(rows));
  return 0;
}

Status patch_node(Connection& connection, const std::string& name, const Json& patch) {
  TRY(connection.call({.method = "PATCH",
                       .path = core_path("", "nodes", name),
                       .body = patch,
                       .content_type = "application/merge-patch+json"}));
  return {};
}

// Other nodes ignore the annotation, and kubectl drain knows more (DaemonSets, bare pods).
Status check_local(Connection& connection, const std::string& name) {
  TRY_ASSIGN(const Json node, connection.call({.path = core_path("", "nodes", name)}));
  const std::string runtime =
      string_or(member(member(node, "status"), "nodeInfo"), "containerRuntimeVersion", "");
  if (runtime.starts_with(kLocalRuntime)) return {};
  return invalid("machine " + name +
                 ": not a machine of `lockstep up`; for other nodes use kubectl");
}

Status set_power(Connection& connection, const std::string& name, bool is_on) {
  TRY(check_local(connection, name));
  const Json value = is_on ? Json() : Json("off");
  Json patch = {{"metadata", {{"annotations", {{kPowerAnnotation, value}}}}}};
  if (is_on) patch["spec"] = {{"unschedulable", Json()}};
  return patch_node(connection, name, patch);
}

// Evicts a pod like `kubectl drain`: it leaves when its disruption budget allows it. Servers before
// 1.22 only know the older version.
Status evict(Connection& connection, const Json& pod) {
  const std::string path =
      core_path(meta_text(pod, "namespace"), "pods", meta_text(pod, "name")) + "/eviction";
  Status last;
  for (const char* version : {"policy/v1", "policy/v1beta1"}) {
    const Json body = {
        {"apiVersion", version},
        {"kind", "Eviction"},
        {"metadata",
         {{"name", meta_text(pod, "name")}, {"namespace", meta_text(pod, "namespace")}}}};
    const Result<Json> done = connection.call({.method = "POST", .path = path, .body = body});
    if (done.ok()) return {};
    last = done.error();
    if (done.error().message.starts_with("Error from server (TooManyRequests)")) break;
  }
  return last;
}

// Cordons the machine, evicts its pods and waits until none are left.
Status drain(Connection& connection, const std::string& name) {
  TRY(check_local(connection, name));
  TRY(patch_node(connection, name, {{"spec", {{"unschedulable", true}}}}));
  print("node/" + name + " cordoned\n");
  std::map<std::string, bool> asked;  // by UID
  while (true) {
    TRY_ASSIGN(const std::vector<Json> pods, live_pods(connection, name));
    if (pods.empty()) break;
    for (const Json& pod : pods) {
      bool& is_asked = asked[meta_text(pod, "uid")];
      if (std::exchange(is_asked, true)) continue;
      const Status status = evict(connection, pod);
      if (status.ok()) {
        print("evicting pod " + meta_text(pod, "namespace") + "/" + meta_text(pod, "name") + "\n");
      } else if (status.error().message.starts_with("Error from server (TooManyRequests)")) {
        is_asked = false;
      } else if (status.error().code != Code::kNotFound) {
        return status;
      }
    }
    connection.run_until([] { return false; },
                         connection.clock().now() + std::chrono::milliseconds(300));
  }
  print("node/" + name + " drained\n");
  return {};
}

void add_one(CLI::App& machine, ClientContext context, const char* name, const char* description,
             const std::function<Status(Connection&, const std::string&)>& act) {
  const auto options = std::make_shared<MachineFlags>();
  CLI::App* command = machine.add_subcommand(name, description);
  command->add_option("MACHINE", options->names, "Names of machines, from `machine list`")
      ->required();
  add_connection_flags(*command, options->flags, false);
  command->callback([options, context, act] {
    run_client(context, options->flags, [&](Connection& connection) -> Result<int> {
      for (const std::string& one : options->names) TRY(act(connection, one));
      return 0;
    });
  });
}

}  // namespace

void add_machine(CLI::App& app, ClientContext context) {
  CLI::App* machine = app.add_subcommand(
      "machine", "List, power off, power on or drain the machines of `lockstep up`");
  machine->require_subcommand(1);
  const auto options = std::make_shared<MachineFlags>();
  CLI::App* list =
      machine->add_subcommand("list", "List the machines, with their state and number of pods");
  add_connection_flags(*list, options->flags, false);
  list->callback([options, context] { run_client(context, options->flags, list_machines); });
  add_one(*machine, context, "kill",
          "Power machines off: pods are killed immediately, heartbeats stop",
          [](Connection& connection, const std::string& name) -> Status {
            TRY(set_power(connection, name, false));
            print("machine/" + name + " killed\n");
            return {};
          });
  add_one(*machine, context, "restore", "Power machines on, and let them accept pods again",
          [](Connection& connection, const std::string& name) -> Status {
            TRY(set_power(connection, name, true));
            print("machine/" + name + " restored\n");
            return {};
          });
  add_one(*machine, context, "drain", "Keep new pods away from machines, and evict their pods",
          drain);
}

}  // namespace lockstep::cli
