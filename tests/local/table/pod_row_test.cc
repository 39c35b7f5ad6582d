// Tests the output of `kubectl get pods` for each pod state that a kubelet reports.
#include "local/table/pod_row.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::local {
namespace {

struct Case {
  const char* name;
  const char* pod;
  const char* ready;
  const char* status;
  const char* restarts;
};

Json cells(const char* text) {
  Result<Json> pod = parse_json(text);
  EXPECT_TRUE(pod.ok()) << text;
  return pod_cells(*pod, *wall_time_from_rfc3339("2026-03-01T12:00:00Z"));
}

void expect_cells(const Case& one) {
  SCOPED_TRACE(one.name);
  Json found = cells(one.pod);
  EXPECT_EQ(found[1], one.ready);
  EXPECT_EQ(found[2], one.status);
  EXPECT_EQ(found[3], one.restarts);
}

TEST(PodRowTest, SaysHowItsContainersFare) {
  for (
      const Case& one : std::vector<Case>{
          {"waits for a node",
           R"({"spec": {"containers": [{}, {}]}, "status": {"phase": "Pending"}})", "0/2",
           "Pending", "0"},
          {"is gated",
           R"({"spec": {"containers": [{}]}, "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}})",
           "0/1", "SchedulingGated", "0"},
          {"is made",
           R"({"spec": {"containers": [{}]}, "status": {"phase": "Pending", "containerStatuses": [
                {"state": {"waiting": {"reason": "ContainerCreating"}}}]}})",
           "0/1", "ContainerCreating", "0"},
          {"runs",
           R"({"spec": {"containers": [{}, {}]}, "status": {"phase": "Running", "containerStatuses": [
                {"ready": true, "state": {"running": {}}}, {"ready": false, "state": {"running": {}}}]}})",
           "1/2", "Running", "0"},
          {"crashes",
           R"({"spec": {"containers": [{}]}, "status": {"phase": "Running", "containerStatuses": [
                {"restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                 "lastState": {"terminated": {"finishedAt": "2026-03-01T11:58:30Z"}}}]}})",
           "0/1", "CrashLoopBackOff", "4 (90s ago)"},
          {"was restarted once, nobody knows when",
           R"({"spec": {"containers": [{}]}, "status": {"phase": "Running", "containerStatuses": [
                {"restartCount": 1, "ready": true, "state": {"running": {}}}]}})",
           "1/1", "Running", "1"},
          {"is done",
           R"({"spec": {"containers": [{}]}, "status": {"phase": "Succeeded", "containerStatuses": [
                {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}})",
           "0/1", "Completed", "0"},
          {"failed",
           R"({"spec": {"containers": [{}]}, "status": {"phase": "Failed", "containerStatuses": [
                {"state": {"terminated": {"exitCode": 3, "reason": "Error"}}}]}})",
           "0/1", "Error", "0"},
          {"failed without a reason",
           R"({"spec": {"containers": [{}]}, "status": {"phase": "Failed", "containerStatuses": [
                {"state": {"terminated": {"exitCode": 3}}}]}})",
           "0/1", "ExitCode:3", "0"},
          {"was killed",
           R"({"spec": {"containers": [{}]}, "status": {"phase": "Failed", "containerStatuses": [
                {"state": {"terminated": {"exitCode": 137, "signal": 9}}}]}})",
           "0/1", "Signal:9", "0"},
          {"has one container that is done and one that runs",
           R"({"spec": {"containers": [{}, {}]}, "status": {"phase": "Running", "containerStatuses": [
                {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                {"ready": true, "state": {"running": {}}}]}})",
           "1/2", "NotReady", "0"},
          {"the same, and it counts as ready",
           R"({"spec": {"containers": [{}, {}]}, "status": {"phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [
                {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                {"ready": true, "state": {"running": {}}}]}})",
           "1/2", "Running", "0"},
          {"the first reason counts",
           R"({"spec": {"containers": [{}, {}]}, "status": {"phase": "Failed", "containerStatuses": [
                {"state": {"terminated": {"exitCode": 1, "reason": "OOMKilled"}}},
                {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}})",
           "0/2", "OOMKilled", "0"},
          {"was evicted",
           R"({"spec": {"containers": [{}]}, "status": {"phase": "Failed", "reason": "Evicted"}})",
           "0/1", "Evicted", "0"},
      })
    expect_cells(one);
}

TEST(PodRowTest, SaysWhichInitContainerIsNotDone) {
  for (const Case& one : std::vector<Case>{
           {"the first one runs",
            R"({"spec": {"containers": [{}], "initContainers": [{}, {}]},
                "status": {"phase": "Pending", "initContainerStatuses": [
                  {"state": {"running": {}}}, {"state": {"waiting": {"reason": "PodInitializing"}}}],
                "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}]}})",
            "0/1", "Init:0/2", "0"},
           {"the second one has begun",
            R"({"spec": {"containers": [{}], "initContainers": [{}, {}]},
                "status": {"phase": "Pending", "initContainerStatuses": [
                  {"restartCount": 2, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                  {"state": {"waiting": {"reason": "PodInitializing"}}}]}})",
            "0/1", "Init:1/2", "2"},
           {"fails",
            R"({"spec": {"containers": [{}], "initContainers": [{}]},
                "status": {"phase": "Failed", "initContainerStatuses": [
                  {"state": {"terminated": {"exitCode": 2, "reason": "Error"}}}]}})",
            "0/1", "Init:Error", "0"},
           {"fails with a code alone",
            R"({"spec": {"containers": [{}], "initContainers": [{}]},
                "status": {"phase": "Failed", "initContainerStatuses": [
                  {"state": {"terminated": {"exitCode": 2}}}]}})",
            "0/1", "Init:ExitCode:2", "0"},
           {"crashes",
            R"({"spec": {"containers": [{}], "initContainers": [{}]},
                "status": {"phase": "Pending", "initContainerStatuses": [{"restartCount": 1,
                  "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                  "lastState": {"terminated": {"finishedAt": "2026-03-01T11:59:50Z"}}}]}})",
            "0/1", "Init:CrashLoopBackOff", "1 (10s ago)"},
           {"all are done: their restarts count no more",
            R"({"spec": {"containers": [{}], "initContainers": [{}]},
                "status": {"phase": "Running", "initContainerStatuses": [{"restartCount": 5,
                  "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}],
                "containerStatuses": [{"ready": true, "state": {"running": {}}}]}})",
            "1/1", "Running", "0"},
       })
    expect_cells(one);
}

TEST(PodRowTest, IsTerminatingUntilItIsOver) {
  for (
      const Case& one : std::vector<Case>{
          {"runs still",
           R"({"metadata": {"deletionTimestamp": "2026-03-01T12:00:30Z"}, "spec": {"containers": [{}]},
                "status": {"phase": "Running", "containerStatuses": [
                  {"ready": true, "state": {"running": {}}}]}})",
           "1/1", "Terminating", "0"},
          {"is over already",
           R"({"metadata": {"deletionTimestamp": "2026-03-01T12:00:30Z"}, "spec": {"containers": [{}]},
                "status": {"phase": "Succeeded", "containerStatuses": [
                  {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}})",
           "0/1", "Completed", "0"},
          {"its node is gone",
           R"({"metadata": {"deletionTimestamp": "2026-03-01T12:00:30Z"}, "spec": {"containers": [{}]},
                "status": {"phase": "Running", "reason": "NodeLost"}})",
           "0/1", "Unknown", "0"},
      })
    expect_cells(one);
}

TEST(PodRowTest, SaysInWideOutputWhereItIs) {
  Json nowhere = cells(R"({"metadata": {"name": "p"}})");
  EXPECT_EQ(nowhere, Json::array({"p", "0/0", "", "0", "<unknown>", "<none>", "<none>", "<none>",
                                  "<none>"}));
  Json somewhere = cells(R"({"metadata": {"creationTimestamp": "2026-03-01T12:00:00Z"},
      "spec": {"nodeName": "m", "readinessGates": [{"conditionType": "A"}, {"conditionType": "B"}]},
      "status": {"podIP": "127.0.0.9", "podIPs": [{"ip": "127.0.0.2"}], "nominatedNodeName": "n",
                 "conditions": [{"type": "A", "status": "True"}]}})");
  EXPECT_EQ(somewhere[4], "0s");
  EXPECT_EQ(somewhere[5], "127.0.0.2");
  EXPECT_EQ(somewhere[6], "m");
  EXPECT_EQ(somewhere[7], "n");
  EXPECT_EQ(somewhere[8], "1/2");
}

}  // namespace
}  // namespace lockstep::local
