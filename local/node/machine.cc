#include "local/node/machine.h"

#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "local/node/fields.h"
#include "local/store/storage.h"

namespace lockstep::local {
namespace {

constexpr char kLeases[] = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
constexpr char kNodes[] = "/api/v1/nodes";
// The Kubernetes release whose behaviour the local node follows.
constexpr char kKubeletVersion[] = "v1.31.0+lockstep";
constexpr int kLeaseSeconds = 40;

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
  return cpus;
}

int64_t memory_of_computer() {
  struct sysinfo info {};
  return sysinfo(&info) == 0 ? static_cast<int64_t>(info.totalram) * info.mem_unit : 0;
}

std::string first_line(const char* file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::string architecture(const utsname& names) {
  std::string machine = names.machine;
  if (machine == "x86_64") return "amd64";
  return machine == "aarch64" ? "arm64" : machine;
}

Json condition(const char* type, bool holds, const char* reason, const char* message,
               const std::string& now, const std::string& since) {
  return {
      {"type", type},       {"status", holds ? "True" : "False"}, {"reason", reason},
      {"message", message}, {"lastHeartbeatTime", now},           {"lastTransitionTime", since}};
}

Json capacity_of(const MachineOptions& options) {
  size_t cpus = options.cpus.empty() ? usable_cpus().size() : options.cpus.size();
  int64_t memory = options.memory_bytes > 0 ? options.memory_bytes : memory_of_computer();
  Json capacity = {{"cpu", std::to_string(std::max<size_t>(1, cpus))},
                   {"memory", std::to_string(memory / 1024) + "Ki"},
                   {"pods", std::to_string(options.pods_max)}};
  if (!options.gpus.empty()) capacity["nvidia.com/gpu"] = std::to_string(options.gpus.size());
  return capacity;
}

}  // namespace

std::vector<MachineOptions> divided_computer(size_t count, const std::vector<std::string>& names) {
  std::vector<int> cpus = usable_cpus();
  size_t share = std::max<size_t>(1, cpus.size() / std::max<size_t>(1, count));
  const Gpus gpus = computer_gpus();
  std::vector<MachineOptions> machines;
  for (size_t i = 0; i < count; ++i) {
    MachineOptions machine;
    machine.name = i < names.size() ? names[i] : "local-" + std::to_string(i);
    machine.address = "127.0.0." + std::to_string(1 + i % 250);
    for (size_t k = 0; k < share && !cpus.empty(); ++k)
      machine.cpus.push_back(cpus[(i * share + k) % cpus.size()]);
    for (size_t k = gpus.size() * i / count; k < gpus.size() * (i + 1) / count; ++k)
      machine.gpus.push_back(gpus[k]);
    machines.push_back(std::move(machine));
  }
  return machines;
}

Machine::Machine(ApiCaller& api, const Clock& clock, MachineOptions options,
                 HeartbeatOptions heartbeat)
    : api_(api), clock_(clock), options_(std::move(options)), heartbeat_(heartbeat) {}

void Machine::boot() {
  on_ = true;
  ready_since_ = clock_.wall_now();
  boot_id_ = options_.name + "-" + std::to_string(ready_since_.time_since_epoch().count());
  utsname names{};
  uname(&names);
  Json labels = {{"kubernetes.io/hostname", options_.name},
                 {"kubernetes.io/os", "linux"},
                 {"kubernetes.io/arch", architecture(names)}};
  // 409 if it already exists.
  api_.create(kNodes, {{"metadata", {{"name", options_.name}, {"labels", labels}}}});
  ApiResponse node = api_.get(std::string(kNodes) + "/" + options_.name);
  uid_ = uid_of(node.body);
  write_status();
  renew_lease();
}

void Machine::write_status() {
  WallTime wall = clock_.wall_now();
  std::string now = rfc3339(wall);
  std::string since = rfc3339(ready_since_);
  utsname names{};
  uname(&names);
  Json conditions = Json::array(
      {condition("MemoryPressure", false, "KubeletHasSufficientMemory",
                 "kubelet has sufficient memory available", now, since),
       condition("DiskPressure", false, "KubeletHasNoDiskPressure", "kubelet has no disk pressure",
                 now, since),
       condition("PIDPressure", false, "KubeletHasSufficientPID",
                 "kubelet has sufficient PID available", now, since),
       condition("Ready", true, "KubeletReady", "kubelet is posting ready status", now, since)});
  Json info = {{"kubeletVersion", kKubeletVersion},
               {"kubeProxyVersion", kKubeletVersion},
               {"kernelVersion", names.release},
               {"osImage", "Linux"},
               {"operatingSystem", "linux"},
               {"architecture", architecture(names)},
               {"containerRuntimeVersion", "process://1"},
               {"machineID", first_line("/etc/machine-id")},
               {"systemUUID", ""},
               {"bootID", boot_id_}};
  Json addresses = Json::array({{{"type", "InternalIP"}, {"address", options_.address}},
                                {{"type", "Hostname"}, {"address", options_.name}}});
  Json capacity = capacity_of(options_);
  api_.patch(std::string(kNodes) + "/" + options_.name + "/status",
             {{"status",
               {{"conditions", std::move(conditions)},
                {"capacity", capacity},
                {"allocatable", capacity},
                {"addresses", std::move(addresses)},
                {"nodeInfo", std::move(info)}}}});
  next_status_ = clock_.now() + heartbeat_.status_interval;
}

void Machine::renew_lease() {
  Json spec = {{"holderIdentity", options_.name},
               {"leaseDurationSeconds", kLeaseSeconds},
               {"renewTime", rfc3339_micro(clock_.wall_now())}};
  ApiResponse renewed = api_.patch(std::string(kLeases) + "/" + options_.name, {{"spec", spec}});
  if (renewed.code == 404) {
    Json metadata = {{"name", options_.name}};
    if (!uid_.empty())
      metadata["ownerReferences"] = Json::array(
          {{{"apiVersion", "v1"}, {"kind", "Node"}, {"name", options_.name}, {"uid", uid_}}});
    api_.create(kLeases, {{"metadata", std::move(metadata)}, {"spec", spec}});
  }
  next_lease_ = clock_.now() + heartbeat_.lease_interval;
}

void Machine::node_changed(const Json& node) {
  if (!on_) return;
  for (const Json& condition : array_of(object_of(node, "status"), "conditions")) {
    if (string_or(condition, "type", "") != "Ready") continue;
    if (string_or(condition, "status", "") == "True") return;
    ready_since_ = clock_.wall_now();
    return write_status();
  }
}

void Machine::node_gone() {
  if (on_) boot();
}

void Machine::step(TimePoint now) {
  if (!on_) return;
  if (now >= next_lease_) renew_lease();
  if (now >= next_status_) write_status();
}

TimePoint Machine::next_deadline() const {
  return on_ ? std::min(next_lease_, next_status_) : TimePoint::max();
}

}  // namespace lockstep::local
