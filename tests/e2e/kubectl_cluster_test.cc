// kubectl on plain pods, nodes and namespaces.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "common/base/clock.h"
#include "tests/e2e/kubectl_fixture.h"

namespace lockstep::test {
namespace {

class KubectlClusterTest : public KubectlTest {
 protected:
  // Writes a pod `p` with a container `main` that runs a line of shell.
  std::string pod_file(const std::string& line, const std::string& restart = "Never",
                       const std::string& more = "") {
    return file("pod.yaml",
                "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {app: p}}\nspec:\n"
                "  restartPolicy: " +
                    restart + "\n  terminationGracePeriodSeconds: 2\n" + more +
                    "  containers:\n  - name: main\n    image: any\n    command: [sh, -c]\n"
                    "    args: [\"" +
                    line + "\"]\n");
  }
};

TEST_P(KubectlClusterTest, APodRunsAShellCommandToCompletion) {
  ok("apply -f " + pod_file("echo hello; echo oops >&2; echo last"));
  ASSERT_TRUE(eventually_prints("get pod p", "Completed"));
  EXPECT_EQ(table("get pod p").cell("p", "READY"), "0/1");
  EXPECT_EQ(ok("get pod p -o jsonpath={.status.phase}"), "Succeeded");
  EXPECT_EQ(ok("logs p"), "hello\noops\nlast\n");
  EXPECT_EQ(ok("logs p --tail=1"), "last\n");
  EXPECT_EQ(ok("logs p --limit-bytes=3"), "hel");
  EXPECT_EQ(ok("logs -f p"), "hello\noops\nlast\n");
  EXPECT_EQ(ok("logs pod/p -c main"), "hello\noops\nlast\n");
  EXPECT_TRUE(has(refused("logs p -c nope"), "container nope is not valid for pod p"));
  EXPECT_TRUE(has(refused("logs nope"), "pods \"nope\" not found"));
  EXPECT_TRUE(has(refused("logs p --previous"), "previous terminated container \"main\""));
  const PrintedTable wide = table("get pod p -o wide");
  EXPECT_TRUE(wide.cell("p", "IP").starts_with("127.")) << wide.cell("p", "IP");
  EXPECT_NE(wide.cell("p", "NODE"), "<none>");
}

TEST_P(KubectlClusterTest, LogsSayWhenEachLineCame) {
  const std::string mark = file("mark", "");
  ok("apply -f " +
     pod_file("echo one; until [ -s " + mark + " ]; do sleep 0.05; done; echo two; echo three"));
  ASSERT_TRUE(eventually_prints("logs p", "one"));
  std::unique_ptr<Program> follow = start("logs -f p --timestamps");
  ASSERT_TRUE(eventually([&] { return follow->output().ends_with(" one\n"); }));
  file("mark", "now");
  EXPECT_EQ(follow->wait(30), 0) << follow->errors();
  const std::string all = ok("logs p --timestamps");
  EXPECT_EQ(follow->output(), all);
  std::vector<std::string> times;
  std::string lines;
  std::istringstream stream(all);
  for (std::string time, line; stream >> time >> line;) {
    EXPECT_TRUE(wall_time_from_rfc3339(time).ok() && time.size() == 30) << time;
    times.push_back(time);
    lines += line + "\n";
  }
  EXPECT_EQ(lines, "one\ntwo\nthree\n");
  ASSERT_EQ(times.size(), 3u);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end())) << all;
  EXPECT_LT(times[0], times[1]);
  // kubectl itself truncates a time to seconds.
  EXPECT_EQ(ok("logs p --since-time=" + times[0].substr(0, 19) + "Z"), lines);
  EXPECT_EQ(ok("logs p --since-time=2199-01-01T00:00:00Z"), "");
  EXPECT_EQ(ok("logs p --since=1h"), lines);
  EXPECT_EQ(ok("logs p --since=1h --tail=1"), "three\n");
  EXPECT_EQ(ok("logs p --timestamps --limit-bytes=34"), all.substr(0, 34));
}

TEST_P(KubectlClusterTest, APodThatFailsSaysSo) {
  ok("apply -f " + pod_file("exit 3"));
  ASSERT_TRUE(eventually_prints("get pod p", "Error"));
  EXPECT_EQ(ok("get pod p -o jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"),
            "3");
  const std::string pod = ok("describe pod p");
  EXPECT_TRUE(has(pod, "Exit Code:    3"));
  EXPECT_TRUE(has(pod, "Started"));
}

TEST_P(KubectlClusterTest, TheLogsBeforeARestartAreKept) {
  const std::string mark = file("mark", "");
  ok("apply -f " + pod_file("if [ -s " + mark +
                                " ]; then echo second; exec sleep 600; fi; "
                                "echo 1 > " +
                                mark + "; echo first; exit 1",
                            "OnFailure"));
  ASSERT_TRUE(eventually_prints("logs p", "second"));
  EXPECT_EQ(ok("logs p --previous"), "first\n");
  EXPECT_TRUE(table("get pod p").cell("p", "RESTARTS").starts_with("1"));
  EXPECT_TRUE(has(ok("describe pod p"), "Last State:"));
}

TEST_P(KubectlClusterTest, AnInitContainerRunsFirst) {
  ok("apply -f " +
     pod_file("echo main", "Never",
              "  initContainers:\n  - {name: before, image: any, command: [sh, -c, echo init]}\n"));
  ASSERT_TRUE(eventually_prints("get pod p", "Completed"));
  EXPECT_EQ(ok("logs p -c before"), "init\n");
  const std::string all = ok("logs p --all-containers");  // kubectl asks in any order
  EXPECT_TRUE(all == "init\nmain\n" || all == "main\ninit\n") << all;
}

TEST_P(KubectlClusterTest, LogsAreFollowedToTheEnd) {
  const std::string mark = file("mark", "");
  ok("apply -f " + pod_file("echo one; until [ -s " + mark + " ]; do sleep 0.05; done; echo two"));
  ASSERT_TRUE(eventually_prints("logs p", "one"));
  std::unique_ptr<Program> follow = start("logs -f p");
  ASSERT_TRUE(eventually([&] { return follow->output() == "one\n"; })) << follow->errors();
  file("mark", "now");
  EXPECT_EQ(follow->wait(30), 0) << follow->errors();
  EXPECT_EQ(follow->output(), "one\ntwo\n");
}

TEST_P(KubectlClusterTest, ExecAndTheLikeAreRefusedWithWords) {
  ok("apply -f " + pod_file("exec sleep 600"));
  ASSERT_TRUE(eventually_prints("get pod p", "Running"));
  const std::string here = file("here", "text");
  for (const std::string& command :
       {std::string("exec p -- true"), std::string("attach p"), std::string("port-forward p :80"),
        "cp " + here + " p:/there", "cp p:/there " + here}) {
    const std::string error = refused(command);
    EXPECT_TRUE(has(error, "lockstep up")) << command;
  }
  ok("delete pod p --grace-period=0 --force");
  EXPECT_TRUE(has(refused("get pod p"), "NotFound"));
}

TEST_P(KubectlClusterTest, ADeletedPodEndsWithinItsGracePeriod) {
  ok("apply -f " + pod_file("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"));
  ASSERT_TRUE(eventually_prints("logs p", "up"));
  std::unique_ptr<Program> follow = start("logs -f p");
  ASSERT_TRUE(eventually([&] { return follow->output() == "up\n"; })) << follow->errors();
  EXPECT_TRUE(has(ok("delete pod p"), "pod \"p\" deleted"));
  EXPECT_EQ(follow->wait(30), 0);
  EXPECT_EQ(follow->output(), "up\nbye\n");
}

TEST_P(KubectlClusterTest, OneMayDoEverything) {
  EXPECT_EQ(ok("auth can-i create pods"), "yes\n");
  EXPECT_EQ(ok("auth can-i '*' trainingjobs.lockstep.dev --all-namespaces"), "yes\n");
  EXPECT_EQ(ok("auth can-i get pods --subresource=log"), "yes\n");
  EXPECT_EQ(ok("auth can-i get /healthz"), "yes\n");
  const std::string all = ok("auth can-i --list");
  EXPECT_TRUE(has(all, "*.*"));
  EXPECT_TRUE(has(all, "[*]"));
}

TEST_P(KubectlClusterTest, DescribeANode) {
  const std::string name = ok("get nodes -o jsonpath={.items[0].metadata.name}");
  const std::string node = ok("describe node " + name);
  for (const char* words : {"Name:", "Conditions:", "Addresses:", "Capacity:", "Allocatable:",
                            "Non-terminated Pods:", "Allocated resources:", "Events:"})
    EXPECT_TRUE(has(node, words));
}

TEST_P(KubectlClusterTest, CordonDrainAndUncordon) {
  ok("apply -f " + pod_file("exec sleep 600"));
  ASSERT_TRUE(eventually_prints("get pod p", "Running"));
  const std::string node = object("pod p")["spec"]["nodeName"];
  EXPECT_EQ(ok("cordon " + node), "node/" + node + " cordoned\n");
  EXPECT_EQ(table("get nodes").cell(node, "STATUS"), "Ready,SchedulingDisabled");
  EXPECT_TRUE(has(refused("drain " + node + " --timeout=20s"), "--force"));
  const std::string drained = ok("drain " + node + " --force --timeout=60s");
  EXPECT_TRUE(has(drained, "pod/p evicted"));
  EXPECT_TRUE(has(drained, "node/" + node + (minor_version() > 20 ? " drained" : " evicted")));
  refused("get pod p");
  EXPECT_EQ(ok("uncordon " + node), "node/" + node + " uncordoned\n");
  EXPECT_EQ(table("get nodes").cell(node, "STATUS"), "Ready");
}

TEST_P(KubectlClusterTest, DeletingANamespaceTakesItsContent) {
  const std::string name = namespace_name() + "-inner";
  ok("create namespace " + name);
  ok("create configmap m --from-literal=a=b --namespace " + name);
  ok("apply --namespace " + name + " -f " + pod_file("exec sleep 600"));
  ASSERT_TRUE(eventually_prints("get pod p --namespace " + name, "Running"));
  EXPECT_TRUE(has(ok("delete namespace " + name), "namespace \"" + name + "\" deleted"));
  EXPECT_TRUE(has(refused("get namespace " + name), "NotFound"));
  EXPECT_EQ(ok("get pods,configmaps -o name --namespace " + name), "");
  EXPECT_TRUE(has(refused("create configmap m --namespace " + name), "not found"));
}

TEST_P(KubectlClusterTest, ACustomResourceDefinitionOfOnesOwn) {
  const std::string group = namespace_name() + ".example.com";
  ok("apply -f " +
     file("crd.yaml",
          "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"
          "metadata: {name: widgets." +
              group + "}\nspec:\n  group: " + group +
              "\n  scope: Namespaced\n  names: {kind: Widget, plural: widgets}\n"
              "  versions:\n  - name: v1\n    served: true\n    storage: true\n"
              "    additionalPrinterColumns:\n"
              "    - {name: SIZE, type: integer, jsonPath: .spec.size}\n"
              "    schema: {openAPIV3Schema: {type: object, properties: {spec: "
              "{type: object, properties: {size: {type: integer, minimum: 1}}}}}}\n"));
  ok("wait --for=condition=Established crd/widgets." + group + " --timeout=20s");
  const std::string widget = "apiVersion: " + group + "/v1\nkind: Widget\nmetadata: {name: w}\n";
  ok("apply -f " + file("w.yaml", widget + "spec: {size: 3}\n"));
  EXPECT_EQ(table("get widgets." + group).cell("w", "SIZE"), "3");
  EXPECT_TRUE(
      has(refused("apply -f " + file("w.yaml", widget + "spec: {size: 0}\n")), "spec.size"));
  ok("delete crd widgets." + group);
  EXPECT_TRUE(has(refused("get widgets." + group), "the server"));
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Kubectl, KubectlClusterTest, testing::ValuesIn(kubectls()),
                         [](const auto& info) { return version_of(info.param); });

}  // namespace lockstep::test
