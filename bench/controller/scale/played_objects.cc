#include "bench/controller/scale/played_objects.h"

#include "controller/plan/names.h"
#include "controller/plan/pod_view.h"

namespace lockstep::bench {
namespace {

constexpr char kImageId[] =
    "registry.example.com/lockstep@sha256:"
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

// One entry for each manager, with a path for each field that it wrote.
Json managed_fields(const char* manager, int fields, const std::string& time) {
  Json owned = Json::object();
  for (int i = 0; i < fields; ++i) owned["f:field" + std::to_string(i)] = {{".", Json::object()}};
  return {{"manager", manager},       {"operation", "Update"},
          {"apiVersion", "v1"},       {"time", time},
          {"fieldsType", "FieldsV1"}, {"fieldsV1", {{"f:spec", owned}, {"f:status", owned}}}};
}

void add_managed_fields(Json& object, int fields) {
  Json& metadata = object["metadata"];
  const std::string time = string_or(metadata, "creationTimestamp", "");
  metadata["managedFields"] = Json::array({managed_fields("lockstep-controller", fields, time),
                                           managed_fields("kubelet", fields, time)});
}

// Adds what the simulated store leaves out of pods.
void add_containers(const PodTemplates& templates, Json& pod) {
  const auto of_job = templates.find(plan::controller_name(pod));
  Json env = of_job == templates.end() ? Json::array()
                                       : of_job->second.at("spec").at("containers")[0].at("env");
  for (int i = 0; i < 12; ++i) {
    env.push_back({{"name", "LOCKSTEP_VARIABLE_" + std::to_string(i)}, {"value", "some value"}});
  }
  Json mounts = Json::array();
  Json volumes = Json::array();
  for (const char* name : {"lockstep-token", "data", "shm", "kube-api-access-x2x9z"}) {
    mounts.push_back({{"name", name}, {"mountPath", std::string("/mnt/") + name}});
    volumes.push_back({{"name", name}, {"emptyDir", {{"medium", "Memory"}}}});
  }
  Json tolerations = Json::array();
  for (const char* key : {"not-ready", "unreachable"}) {
    tolerations.push_back({{"key", std::string("node.kubernetes.io/") + key},
                           {"operator", "Exists"},
                           {"effect", "NoExecute"},
                           {"tolerationSeconds", 300}});
  }
  Json& spec = pod["spec"];
  spec["containers"] = Json::array({{{"name", "node"},
                                     {"image", "registry.example.com/lockstep:0.1"},
                                     {"imagePullPolicy", "IfNotPresent"},
                                     {"resources", {{"limits", {{"nvidia.com/gpu", "8"}}}}},
                                     {"env", std::move(env)},
                                     {"volumeMounts", std::move(mounts)},
                                     {"terminationMessagePath", "/dev/termination-log"}}});
  spec["volumes"] = std::move(volumes);
  spec["tolerations"] = std::move(tolerations);
  spec["schedulerName"] = "default-scheduler";
}

Json as_served(const PodTemplates& templates, loop::ResourceType type, Json object) {
  const bool is_pod = type.plural == loop::kPods.plural;
  if (is_pod) add_containers(templates, object);
  if (object.is_object() && object.contains("metadata"))
    add_managed_fields(object, is_pod ? 30 : 20);
  return object;
}

}  // namespace

std::string served_text(const PodTemplates& templates, loop::ResourceType type, const Json& body,
                        bool is_list) {
  if (!body.is_object()) return "";
  if (!is_list) return dump_json(as_served(templates, type, body));
  Json page = {{"metadata", body["metadata"]}, {"items", Json::array()}};
  for (const Json& item : body["items"]) page["items"].push_back(as_served(templates, type, item));
  return dump_json(page);
}

loop::SharedJson received(const std::string& text, const kube::ReplyShape& shape) {
  if (text.empty()) return {};
  // A copy, which a client holds.
  return kube::to_api_reply(kube::HttpReply{.status = 200, .body = text}, WallTime{}, shape).body;
}

Json running_status(const std::string& ip, WallTime now) {
  const std::string time = rfc3339(now);
  Json conditions = Json::array();
  for (const char* type :
       {"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"}) {
    conditions.push_back({{"type", type},
                          {"status", "True"},
                          {"lastProbeTime", nullptr},
                          {"lastTransitionTime", time}});
  }
  Json container = {{"name", plan::kNodeContainer},
                    {"image", "registry.example.com/lockstep:0.1"},
                    {"imageID", kImageId},
                    {"containerID", std::string("containerd://") + (kImageId + 37)},
                    {"ready", true},
                    {"started", true},
                    {"restartCount", 0},
                    {"lastState", Json::object()},
                    {"state", {{"running", {{"startedAt", time}}}}}};
  return {{"phase", "Running"},
          {"podIP", ip},
          {"podIPs", Json::array({{{"ip", ip}}})},
          {"hostIP", "192.168.0.1"},
          {"qosClass", "BestEffort"},
          {"startTime", time},
          {"conditions", std::move(conditions)},
          {"containerStatuses", Json::array({std::move(container)})}};
}

std::vector<WorkerState> new_workers(const WorldAssignment& world, int64_t place) {
  std::vector<WorkerState> workers;
  for (int64_t i = 0; i < world.processes_per_node; ++i) {
    WorkerState worker;
    worker.rank = rank_of(world, place, i);
    worker.local_rank = i;
    worker.pid = 100 + i;
    worker.running = true;
    worker.phase = WorkerPhase::kForming;
    worker.speed = WorkerSpeed{.step_seconds = 0.5,
                               .data_seconds = 0.001,
                               .forward_seconds = 0.15,
                               .backward_seconds = 0.3,
                               .update_seconds = 0.02};
    workers.push_back(std::move(worker));
  }
  return workers;
}

ProgressStatus first_progress() {
  ProgressStatus progress;
  progress.steps = 1'000'000;
  progress.tokens = 123'456'789'000;
  progress.samples = 123'456'789;
  progress.learning_rate = 5.9973e-4;
  progress.gradient_norm = 1.0234;
  progress.tokens_per_second = 412'345.6;
  progress.samples_per_second = 402.68;
  progress.palm_flops_per_second = 1.2345e15;
  progress.causal_flops_per_second = 1.1234e15;
  progress.data_seconds = 0.001234;
  progress.forward_seconds = 0.151234;
  progress.backward_seconds = 0.301234;
  progress.communication_seconds = 0.041234;
  progress.update_seconds = 0.021234;
  progress.step_seconds = 0.512345;
  progress.precision = "bf16";
  return progress;
}

HoldingsStatus holdings() {
  return {.sharding = "optimizer",
          .shardingRanks = 8,
          .parametersBytes = 498'000'000,
          .gradientsBytes = 498'000'000,
          .optimizerBytes = 124'500'000,
          .gatheredBytes = 0,
          .activationsBytes = 2'345'678'901,
          .offloadedBytes = 0};
}

}  // namespace lockstep::bench
