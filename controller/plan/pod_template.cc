#include "controller/plan/pod_template.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "common/api/agent_messages.h"
#include "controller/plan/agent_injection.h"
#include "controller/plan/names.h"

namespace lockstep::plan {
namespace {

constexpr char kRankPortPrefix[] = "rank-";
constexpr char kIndexVariable[] = "LOCKSTEP_NODE_INDEX";
constexpr char kIncarnationVariable[] = "LOCKSTEP_INCARNATION";

struct MergeKey {
  std::string_view list;
  std::string_view key;
};
constexpr std::array<MergeKey, 14> kMergeKeys{{{"containers", "name"},
                                               {"initContainers", "name"},
                                               {"ephemeralContainers", "name"},
                                               {"volumes", "name"},
                                               {"volumeMounts", "mountPath"},
                                               {"volumeDevices", "devicePath"},
                                               {"env", "name"},
                                               {"ports", "containerPort"},
                                               {"imagePullSecrets", "name"},
                                               {"hostAliases", "ip"},
                                               {"resourceClaims", "name"},
                                               {"schedulingGates", "name"},
                                               {"topologySpreadConstraints", "topologyKey"},
                                               {"claims", "name"}}};

std::string_view merge_key_of(std::string_view list) {
  for (const MergeKey& entry : kMergeKeys) {
    if (entry.list == list) return entry.key;
  }
  return {};
}

// The first element of `base` with the same key counts. A list may have a thousand elements, and
// every pod of a large job is merged, so that elements are found by an index.
void merge_list(Json& base, const Json& patch, std::string_view key) {
  std::map<Json, size_t> places;
  for (size_t i = 0; i < base.size(); ++i) {
    if (const Json* value = find_member(base[i], key)) places.emplace(*value, i);
  }
  for (const Json& element : patch) {
    const Json* value = find_member(element, key);
    if (value == nullptr) {
      base.push_back(element);
      continue;
    }
    const auto [place, is_new] = places.emplace(*value, base.size());
    if (is_new) {
      base.push_back(element);
    } else {
      merge_template(base[place->second], element);
    }
  }
}

Json owner_reference(const TrainingJob& job) {
  return {{"apiVersion", kApiVersion}, {"kind", kKind},      {"name", job.metadata.name},
          {"uid", job.metadata.uid},   {"controller", true}, {"blockOwnerDeletion", true}};
}

Json variable(const char* name, std::string value) {
  return {{"name", name}, {"value", std::move(value)}};
}

Json environment(const TrainingJob& job, const NewPod& pod) {
  Json env = Json::array();
  env.push_back(
      {{"name", "POD_IP"}, {"valueFrom", {{"fieldRef", {{"fieldPath", "status.podIP"}}}}}});
  env.push_back(variable("LOCKSTEP_JOB_UID", job.metadata.uid));
  env.push_back(variable("LOCKSTEP_JOB_NAME", job.metadata.name));
  env.push_back(variable(kIndexVariable, std::to_string(pod.index)));
  env.push_back(variable(kIncarnationVariable, std::to_string(pod.incarnation)));
  if (pod.role != MemberRole::kWorker) {
    env.push_back(variable(kRoleVariable, std::string(member_role_name(pod.role))));
  }
  if (!pod.requests.empty()) env.push_back(variable(kRequestsVariable, pod.requests));
  return env;
}

// Declares the ports of the agent and of the first round's ranks, so that a local node finds an
// address where they are free. On the network of its node also those of later rounds, so that the
// scheduler finds a node where they are free; elsewhere these would only cost the server time.
Json container_ports(const TrainingJob& job) {
  constexpr int64_t kRankPortsMax = 64;
  Json ports = Json::array({{{"name", "agent"}, {"containerPort", kAgentPort}}});
  const Json* pod_spec = find_member(job.spec.podTemplate, "spec");
  const bool shares_node = pod_spec != nullptr && bool_or(*pod_spec, "hostNetwork", false);
  const int64_t count =
      std::min(shares_node ? port_count(job.spec) : processes_per_node(job.spec), kRankPortsMax);
  for (int64_t i = 0; i < count; ++i) {
    ports.push_back({{"name", kRankPortPrefix + std::to_string(i)},
                     {"containerPort", job.spec.rendezvous.port + i}});
  }
  return ports;
}

Json container(const TrainingJob& job, const NewPod& pod) {
  Json node = {
      {"name", kNodeContainer},
      {"image", job.spec.image.empty() ? pod.image : job.spec.image},
      {"command", Json::array({kAgentPath})},
      {"env", environment(job, pod)},
      {"ports", container_ports(job)},
      {"volumeMounts",
       Json::array({{{"name", "token"}, {"mountPath", kTokenFolder}, {"readOnly", true}},
                    {{"name", "work"}, {"mountPath", kWorkFolder}}})},
      {"securityContext",
       {{"allowPrivilegeEscalation", false}, {"capabilities", {{"drop", Json::array({"ALL"})}}}}}};
  if (job.spec.train) {
    // Besides volumes, the loop writes only temporary files.
    node["securityContext"]["readOnlyRootFilesystem"] = true;
    node["volumeMounts"].push_back({{"name", kTemporaryVolume}, {"mountPath", "/tmp"}});
  }
  if (job.spec.gpusPerNode > 0) {
    node["resources"] = {{"limits", {{"nvidia.com/gpu", std::to_string(job.spec.gpusPerNode)}}}};
  }
  return node;
}

Json pod_spec(const TrainingJob& job, const NewPod& pod) {
  Json security = {{"seccompProfile", {{"type", "RuntimeDefault"}}}};
  Json volumes = Json::array(
      {{{"name", "token"}, {"secret", {{"secretName", token_secret_name(job.metadata)}}}},
       {{"name", "work"}, {"emptyDir", Json::object()}}});
  if (job.spec.train) {
    security["runAsNonRoot"] = true;
    volumes.push_back({{"name", kTemporaryVolume}, {"emptyDir", Json::object()}});
  }
  return {{"restartPolicy", "Never"},
          {"terminationGracePeriodSeconds", pod_grace_seconds(job.spec)},
          {"automountServiceAccountToken", false},
          {"securityContext", std::move(security)},
          {"containers", Json::array({container(job, pod)})},
          {"volumes", std::move(volumes)}};
}

// Members of podTemplate that users can't set.
struct Refusal {
  std::string_view path;  // a JSON pointer below podTemplate
  std::string_view instead;
};
constexpr std::array<Refusal, 11> kRefusals{{
    {"/metadata/name", "the controller names the pods"},
    {"/metadata/generateName", "the controller names the pods"},
    {"/metadata/namespace", "pods are created in the job's namespace"},
    {"/metadata/ownerReferences", "the job owns its pods"},
    {"/metadata/finalizers", "finalizers would keep pods from being deleted"},
    {"/spec/restartPolicy", "it is always Never, because the controller restarts the job"},
    {"/spec/terminationGracePeriodSeconds",
     "set spec.terminationGracePeriodSeconds or spec.checkpoint.onPreemption instead"},
    {"/spec/nodeName", "use nodeSelector or affinity instead"},
    {"/spec/hostname", "agents are reached by IP address"},
    {"/spec/shareProcessNamespace", "the agent must be process 1 of its container"},
    {"/spec/ephemeralContainers", "a new pod can't have any"},
}};

std::string dotted(std::string_view pointer) {
  std::string path = "spec.podTemplate";
  for (const char c : pointer) path += c == '/' ? '.' : c;
  return path;
}

void check_marks(const Json& metadata, const char* list, Problems& problems) {
  const Json* marks = find_member(metadata, list);
  if (marks == nullptr) return;
  const std::string path = std::string("spec.podTemplate.metadata.") + list;
  if (!marks->is_object()) {
    problems.push_back(path + ": expected an object, found " + marks->type_name());
    return;
  }
  for (const auto& [key, value] : marks->items()) {
    const bool is_ours = key.starts_with(kOurLabelPrefix) || key == kManagedByLabel;
    if (is_ours)
      problems.push_back(path + "." + key + ": reserved for the controller, choose another name");
  }
}

void check_container(const Json& container, const std::string& path, Problems& problems) {
  if (string_or(container, "name", "") != kNodeContainer) return;
  for (const char* key : {"command", "args", "livenessProbe", "readinessProbe", "startupProbe",
                          "lifecycle", "terminationMessagePath"}) {
    if (find_member(container, key) != nullptr) {
      problems.push_back(path + "." + key + ": can't be set; it is reserved for the agent");
    }
  }
  if (const Json* ports = find_member(container, "ports"); ports && ports->is_array()) {
    for (const Json& port : *ports) {
      const std::string name = string_or(port, "name", "");
      if (name == "agent" || name.starts_with(kRankPortPrefix)) {
        problems.push_back(path + ".ports: the name \"" + name +
                           "\" is reserved for the controller, choose another name");
      }
    }
  }
  const Json* env = find_member(container, "env");
  if (env == nullptr || !env->is_array()) return;
  for (const Json& entry : *env) {
    const std::string name = string_or(entry, "name", "");
    if (name == "POD_IP" || name.starts_with("LOCKSTEP_")) {
      problems.push_back(path + ".env: " + name + " is set by the controller");
    }
  }
}

void check_lists(const Json& spec, Problems& problems) {
  if (const Json* volumes = find_member(spec, "volumes"); volumes && volumes->is_array()) {
    for (const Json& volume : *volumes) {
      const std::string name = string_or(volume, "name", "");
      if (name == "token" || name == "work" || name == kTemporaryVolume || name == kAgentCopier) {
        problems.push_back("spec.podTemplate.spec.volumes: \"" + name +
                           "\" is reserved for the controller, choose another name");
      }
    }
  }
  if (const Json* first = find_member(spec, "initContainers"); first && first->is_array()) {
    for (const Json& container : *first) {
      if (string_or(container, "name", "") != kAgentCopier) continue;
      problems.push_back(std::string("spec.podTemplate.spec.initContainers: \"") + kAgentCopier +
                         "\" is reserved for the controller, choose another name");
    }
  }
  const Json* containers = find_member(spec, "containers");
  if (containers == nullptr || !containers->is_array()) return;
  for (size_t i = 0; i < containers->size(); ++i) {
    check_container((*containers)[i], "spec.podTemplate.spec.containers[" + std::to_string(i) + "]",
                    problems);
  }
}

// Returns whether the field is a map with the user's own keys, which may look like names of lists:
// nodeSelector: {env: prod}.
bool is_map(std::string_view key) {
  constexpr std::array<std::string_view, 9> kMaps{
      "annotations", "labels",   "limits",   "matchLabels",     "nodeSelector",
      "options",     "overhead", "requests", "volumeAttributes"};
  return std::ranges::find(kMaps, key) != kMaps.end();
}

// Checks the types that the merge relies on.
void check_shape(const Json& value, const std::string& path, Problems& problems) {
  if (!value.is_object()) return;
  for (const auto& [key, member] : value.items()) {
    if (is_map(key)) continue;
    const std::string_view merge_key = merge_key_of(key);
    const std::string here = path + "." + key;
    if (!merge_key.empty() && !member.is_array() && !member.is_null()) {
      problems.push_back(here + ": expected a list, found " + member.type_name());
    } else if (!merge_key.empty()) {
      for (size_t i = 0; i < member.size(); ++i) {
        const std::string element = here + "[" + std::to_string(i) + "]";
        if (find_member(member[i], merge_key) == nullptr) {
          problems.push_back(element + "." + std::string(merge_key) + ": missing");
        }
        check_shape(member[i], element, problems);
      }
    } else {
      check_shape(member, here, problems);
    }
  }
}

Json is_other_node(const std::string& node) {
  Json requirement = {{"key", "metadata.name"}, {"operator", "NotIn"}};
  requirement["values"] = Json::array({node});
  return requirement;
}

// Returns the member of that path, made an object where it is none.
Json& object_at(std::initializer_list<const char*> path, Json& in) {
  Json* at = &in;
  for (const char* key : path) {
    at = &(*at)[key];
    if (!at->is_object()) *at = Json::object();
  }
  return *at;
}

// Prefers other nodes, as much as a preference can.
void shun_nodes(const std::vector<std::string>& nodes, Json& spec) {
  if (nodes.empty()) return;
  Json& terms = object_at({"affinity", "nodeAffinity"},
                          spec)["preferredDuringSchedulingIgnoredDuringExecution"];
  if (!terms.is_array()) terms = Json::array();
  for (const std::string& node : nodes) {
    terms.push_back(
        {{"weight", 100}, {"preference", {{"matchFields", Json::array({is_other_node(node)})}}}});
  }
}

// Adds the nodes to every term of the nodeSelector, because only one term has to match. A
// matchFields requirement takes one value. Source: the validation of k8s.io/api/core/v1.
void avoid_nodes(const std::vector<std::string>& nodes, Json& spec) {
  if (nodes.empty()) return;
  Json& terms =
      object_at({"affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"},
                spec)["nodeSelectorTerms"];
  if (!terms.is_array() || terms.empty()) terms = Json::array({Json::object()});
  for (Json& term : terms) {
    if (!term.is_object()) continue;
    Json& fields = term["matchFields"];
    if (!fields.is_array()) fields = Json::array();
    for (const std::string& node : nodes) fields.push_back(is_other_node(node));
  }
}

}  // namespace

void merge_template(Json& base, const Json& patch) {
  if (!patch.is_object() || !base.is_object()) {
    base = patch;
    return;
  }
  for (const auto& [key, value] : patch.items()) {
    if (value.is_null()) {
      base.erase(key);
      continue;
    }
    const std::string_view merge_key = merge_key_of(key);
    const auto place = base.find(key);
    if (place == base.end()) {
      base[key] = value;
    } else if (!merge_key.empty() && value.is_array() && place->is_array()) {
      merge_list(*place, value, merge_key);
    } else {
      merge_template(*place, value);
    }
  }
}

Json job_labels(std::string_view job) {
  return {{kJobNameLabel, job}, {kManagedByLabel, kManagedByValue}};
}

Json pod_labels(std::string_view job, const PodIdentity& pod) {
  Json labels = job_labels(job);
  labels[kRoleLabel] = member_role_name(pod.role);
  labels[kNodeIndexLabel] = std::to_string(pod.index);
  labels[kIncarnationLabel] = std::to_string(pod.incarnation);
  return labels;
}

std::optional<Json> pod_labels_by_name(std::string_view job, std::string_view pod) {
  MemberRole role = MemberRole::kWorker;
  std::string prefix = std::string(job) + "-worker-";
  if (!pod.starts_with(prefix)) {
    role = MemberRole::kServer;
    prefix = std::string(job) + "-server-";
  }
  if (!pod.starts_with(prefix)) return std::nullopt;
  const char* const end = pod.data() + pod.size();
  int64_t index = 0;
  int64_t incarnation = 0;
  const auto [dash, error] = std::from_chars(pod.data() + prefix.size(), end, index);
  if (error != std::errc{} || dash == end || *dash != '-') return std::nullopt;
  const auto [rest, error_after] = std::from_chars(dash + 1, end, incarnation);
  if (error_after != std::errc{} || rest != end) return std::nullopt;
  return pod_labels(job, {role, index, incarnation});
}

Json make_worker_pod(const TrainingJob& job, const NewPod& pod) {
  Json annotations = {{kCreatedInRoundAnnotation, std::to_string(pod.round)}};
  if (!pod.requests.empty()) annotations[kRequestsAnnotation] = pod.requests;
  if (pod.scrape_annotations) {
    annotations["prometheus.io/scrape"] = "true";
    annotations["prometheus.io/port"] = std::to_string(kAgentPort);
    annotations["prometheus.io/path"] = "/metrics";
  }
  Json result = {
      {"apiVersion", "v1"},
      {"kind", "Pod"},
      {"metadata",
       {{"name", pod_name(job.metadata.name, pod.role, pod.index, pod.incarnation)},
        {"namespace", job.metadata.namespace_},
        {"labels", pod_labels(job.metadata.name, {pod.role, pod.index, pod.incarnation})},
        {"annotations", std::move(annotations)},
        {"ownerReferences", Json::array({owner_reference(job)})}}},
      {"spec", pod_spec(job, pod)}};
  if (pod_template_problems(job.spec.podTemplate).empty()) {
    merge_template(result, job.spec.podTemplate);
  }
  inject_agent(pod.agent_image, result["spec"]);
  avoid_nodes(pod.avoid, result["spec"]);
  shun_nodes(pod.shun, result["spec"]);
  return result;
}

Json pod_like(const Json& other, std::string_view job, const PodIdentity& identity) {
  Json pod = other;
  Json& metadata = pod["metadata"];
  metadata["name"] = pod_name(job, identity.role, identity.index, identity.incarnation);
  if (const auto labels = metadata.find("labels"); labels != metadata.end()) {
    labels->update(pod_labels(job, identity));
  }
  const auto containers = pod["spec"].find("containers");
  if (containers == pod["spec"].end()) return pod;
  for (Json& container : *containers) {
    const auto env = container.find("env");
    if (string_or(container, "name", "") != kNodeContainer || env == container.end()) continue;
    for (Json& entry : *env) {
      const std::string name = string_or(entry, "name", "");
      if (name == kIndexVariable) entry["value"] = std::to_string(identity.index);
      if (name == kIncarnationVariable) entry["value"] = std::to_string(identity.incarnation);
      if (name == kIncarnationVariable) break;  // the first variables are ours
    }
  }
  return pod;
}

Json owned_metadata(const TrainingJob& job, std::string name) {
  return {{"name", std::move(name)},
          {"namespace", job.metadata.namespace_},
          {"labels", job_labels(job.metadata.name)},
          {"ownerReferences", Json::array({owner_reference(job)})}};
}

Json make_token_secret(const TrainingJob& job, const std::string& token) {
  return {{"apiVersion", "v1"},
          {"kind", "Secret"},
          {"type", "Opaque"},
          {"metadata", owned_metadata(job, token_secret_name(job.metadata))},
          {"stringData", {{kTokenKey, token}}}};
}

Problems pod_template_problems(const Json& pod_template) {
  Problems problems;
  if (!pod_template.is_object()) {
    return {std::string("spec.podTemplate: expected an object, found ") + pod_template.type_name()};
  }
  for (const Refusal& refusal : kRefusals) {
    if (pod_template.contains(Json::json_pointer(std::string(refusal.path)))) {
      problems.push_back(dotted(refusal.path) + ": can't be set; " + std::string(refusal.instead));
    }
  }
  for (const auto& [key, value] : pod_template.items()) {
    if (key != "metadata" && key != "spec") {
      problems.push_back("spec.podTemplate." + key +
                         ": unknown member; a pod template has only metadata and spec");
    } else if (!value.is_object()) {
      problems.push_back("spec.podTemplate." + key + ": expected an object, found " +
                         value.type_name());
    }
  }
  if (const Json* metadata = find_member(pod_template, "metadata")) {
    check_marks(*metadata, "labels", problems);
    check_marks(*metadata, "annotations", problems);
  }
  if (const Json* spec = find_member(pod_template, "spec")) {
    check_lists(*spec, problems);
    check_shape(*spec, "spec.podTemplate.spec", problems);
  }
  return problems;
}

}  // namespace lockstep::plan
