// The local node with real processes: what a kubelet would report, and that nothing stays behind.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "cli/local/node/embedded_node_api.h"
#include "cli/local/node/local_node.h"
#include "common/base/check.h"

namespace lockstep::local {
namespace {

constexpr char kPods[] = "/api/v1/namespaces/default/pods";
constexpr auto kGuard = std::chrono::seconds(30);

std::string text_of(const std::string& file) {
  return end_of_file(file, 1u << 20);
}

class NodeTest : public testing::Test {
 protected:
  NodeTest() {
    folder_ = testing::TempDir() + "lockstep-node-" + std::to_string(getpid());
    api_.on_change([this] {
      std::lock_guard lock(mutex_);
      changed_.notify_all();
    });
  }
  ~NodeTest() override {
    node_.reset();
    std::filesystem::remove_all(folder_);
  }

  void start_node(size_t machines = 0) {
    LocalNodeOptions options{.pods = {.folder = folder_ + "/pods",
                                      .program_folder = folder_ + "/none",
                                      .backoff_first = std::chrono::milliseconds(200),
                                      .backoff_max = std::chrono::milliseconds(800),
                                      .retry = std::chrono::milliseconds(50)},
                             .logs = {.folder = folder_ + "/logs", .keep = true},
                             .seed = static_cast<uint64_t>(getpid())};
    if (machines > 0) options.machines = divided_computer(machines, {});
    auto node = LocalNode::start(node_api_, host_, clock_, options);
    ASSERT_TRUE(node.ok());
    node_ = *std::move(node);
  }
  ApiResponse ask(const std::string& method, const std::string& target, const Json& body = Json()) {
    return api_.handle({method, target, "", body.is_null() ? "" : dump_json(body)});
  }
  Json get(const std::string& name) { return ask("GET", std::string(kPods) + "/" + name).body; }

  static Json shell_pod(const std::string& name, const std::string& script) {
    return {
        {"metadata", {{"name", name}, {"labels", {{"role", "worker"}}}}},
        {"spec",
         {{"restartPolicy", "Never"},
          {"containers",
           Json::array(
               {{{"name", "node"}, {"image", "none"}, {"command", {"/bin/sh", "-c", script}}}})}}}};
  }
  void make(const Json& pod) {
    ApiResponse made = ask("POST", kPods, pod);
    ASSERT_EQ(made.code, 201) << made.body;
  }
  void make_object(const std::string& plural, const Json& object) {
    EXPECT_EQ(ask("POST", "/api/v1/namespaces/default/" + plural, object).code, 201);
  }
  bool wait_for_event(const std::string& reason, const std::string& text) {
    return wait_until([&] {
      Json events = ask("GET", "/api/v1/events").body["items"];
      for (const Json& event : events) {
        if (event["reason"] == reason &&
            event["message"].get<std::string>().find(text) != std::string::npos)
          return true;
      }
      return false;
    });
  }
  template <class Condition>
  bool wait_until(Condition condition) {
    auto deadline = std::chrono::steady_clock::now() + kGuard;
    std::unique_lock lock(mutex_);
    while (true) {
      lock.unlock();
      bool holds = condition();
      lock.lock();
      if (holds) return true;
      if (std::chrono::steady_clock::now() > deadline) return false;
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
  }
  bool wait_for_phase(const std::string& name, const std::string& phase) {
    return wait_until([&] {
      Json pod = get(name);
      return pod.contains("status") && pod["status"]["phase"] == phase;
    });
  }
  bool wait_gone(const std::string& name) {
    return wait_until([&] { return get(name)["code"] == 404; });
  }
  std::string log_of(const std::string& name) {
    return text_of(folder_ + "/logs/" + name + ".log");
  }
  bool wait_for_log(const std::string& name, const std::string& text) {
    return wait_until([&] { return log_of(name).find(text) != std::string::npos; });
  }
  // Those whose environment has LOCKSTEP_POD_ROOT in the pod's folder.
  std::vector<pid_t> processes_of(const std::string& name) {
    std::vector<pid_t> all;
    std::string entry = "LOCKSTEP_POD_ROOT=" + folder_ + "/pods/" + name + "-";
    std::error_code error;
    for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
      int pid = std::atoi(process.path().filename().c_str());
      if (pid <= 0 || pid == getpid()) continue;
      std::ifstream environment(process.path() / "environ", std::ios::binary);
      std::string text{std::istreambuf_iterator<char>(environment), {}};
      if (text.find(entry) != std::string::npos) all.push_back(pid);
    }
    return all;
  }

  std::string folder_;
  SystemClock clock_;
  Api api_{clock_, 1};
  EmbeddedNodeApi node_api_{api_};
  std::mutex mutex_;
  std::condition_variable changed_;
  ProcessHost host_;
  std::unique_ptr<LocalNode> node_;
};

TEST_F(NodeTest, RunsAPodToSuccess) {
  start_node();
  make(shell_pod("p", "echo hello; echo words >&2"));
  ASSERT_TRUE(wait_for_phase("p", "Succeeded"));
  Json pod = get("p");
  EXPECT_EQ(pod["spec"]["nodeName"], "local");
  EXPECT_TRUE(pod["status"]["podIP"].get<std::string>().starts_with("127."));
  const Json& terminated = pod["status"]["containerStatuses"][0]["state"]["terminated"];
  EXPECT_EQ(terminated["exitCode"], 0);
  EXPECT_EQ(terminated["reason"], "Completed");
  EXPECT_EQ(log_of("p"), "hello\nwords\n");
  Json node = ask("GET", "/api/v1/nodes/local").body;
  EXPECT_EQ(node["status"]["conditions"][3]["type"], "Ready");
  EXPECT_EQ(node["status"]["conditions"][3]["status"], "True");
}

TEST_F(NodeTest, SpreadsPodsOverSeveralMachines) {
  start_node(3);
  for (const char* name : {"a", "b", "c"}) make(shell_pod(name, "nproc; sleep 1000"));
  std::set<std::string> nodes, addresses, hosts;
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(wait_for_phase(name, "Running"));
    Json pod = get(name);
    nodes.insert(pod["spec"]["nodeName"]);
    addresses.insert(pod["status"]["podIP"]);
    hosts.insert(pod["status"]["hostIP"]);
  }
  EXPECT_EQ(nodes, (std::set<std::string>{"local-0", "local-1", "local-2"}));
  EXPECT_EQ(addresses.size(), 3u);
  EXPECT_EQ(hosts.size(), 3u);
  Json node = ask("GET", "/api/v1/nodes/local-1").body;
  EXPECT_EQ(node["metadata"]["labels"]["kubernetes.io/hostname"], "local-1");
  EXPECT_EQ(node["status"]["capacity"]["pods"], "110");
  ASSERT_TRUE(wait_for_log("a", "\n"));
  EXPECT_EQ(log_of("a"), node["status"]["capacity"]["cpu"].get<std::string>() + "\n");
  EXPECT_EQ(ask("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/local-2")
                .body["spec"]["holderIdentity"],
            "local-2");
}

TEST_F(NodeTest, SaysWhyAPodIsNotPlacedAndPlacesItLater) {
  start_node(2);
  Json pod = shell_pod("p", "true");
  pod["spec"]["nodeSelector"] = {{"disk", "fast"}};
  make(pod);
  ASSERT_TRUE(wait_until([&] {
    return dump_json(get("p")["status"]).find("0/2 nodes are available") != std::string::npos;
  }));
  EXPECT_EQ(api_.handle({"PATCH", "/api/v1/nodes/local-1", "application/merge-patch+json",
                         R"({"metadata": {"labels": {"disk": "fast"}}})"})
                .code,
            200);
  ASSERT_TRUE(wait_for_phase("p", "Succeeded"));
  EXPECT_EQ(get("p")["spec"]["nodeName"], "local-1");
}

TEST_F(NodeTest, ReportsARunningPodWithItsAddress) {
  start_node();
  make(shell_pod("a", "sleep 1000"));
  make(shell_pod("b", "sleep 1000"));
  ASSERT_TRUE(wait_for_phase("a", "Running"));
  ASSERT_TRUE(wait_for_phase("b", "Running"));
  Json a = get("a")["status"], b = get("b")["status"];
  EXPECT_NE(a["podIP"], b["podIP"]);
  EXPECT_EQ(a["conditions"][1]["type"], "Ready");
  EXPECT_EQ(a["conditions"][1]["status"], "True");
  EXPECT_TRUE(a["containerStatuses"][0]["state"].contains("running"));
  EXPECT_FALSE(a["startTime"].get<std::string>().empty());
}

TEST_F(NodeTest, ReportsExitCodesSignalsAndMessages) {
  start_node();
  make(shell_pod("code", "printf why >\"$LOCKSTEP_POD_ROOT/dev/termination-log\"; exit 7"));
  make(shell_pod("signal", "kill -KILL $$$$"));
  Json missing = shell_pod("missing", "");
  missing["spec"]["containers"][0]["command"] = {"/no/such/program"};
  make(missing);
  for (const char* name : {"code", "signal", "missing"})
    ASSERT_TRUE(wait_for_phase(name, "Failed"));
  auto terminated = [&](const std::string& name) {
    return get(name)["status"]["containerStatuses"][0]["state"]["terminated"];
  };
  EXPECT_EQ(terminated("code")["exitCode"], 7);
  EXPECT_EQ(terminated("code")["reason"], "Error");
  EXPECT_EQ(terminated("code")["message"], "why");
  EXPECT_EQ(terminated("signal")["exitCode"], 137);
  EXPECT_EQ(terminated("signal")["signal"], 9);
  EXPECT_EQ(terminated("missing")["exitCode"], 128);
  EXPECT_EQ(terminated("missing")["reason"], "StartError");
  EXPECT_NE(terminated("missing")["message"].get<std::string>().find("/no/such/program"),
            std::string::npos);
}

TEST_F(NodeTest, GivesAPodItsEnvironment) {
  start_node();
  Json pod = shell_pod("p", "echo \"$IP|$NAME|$ROLE|$PLAIN\"");
  auto field = [](const char* name, const char* path) {
    return Json{{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", path}}}}}};
  };
  pod["spec"]["containers"][0]["env"] = Json::array({field("IP", "status.podIP"),
                                                     field("NAME", "metadata.name"),
                                                     field("ROLE", "metadata.labels['role']"),
                                                     {{"name", "PLAIN"}, {"value", "x y"}}});
  make(pod);
  ASSERT_TRUE(wait_for_phase("p", "Succeeded"));
  std::string address = get("p")["status"]["podIP"];
  EXPECT_EQ(log_of("p"), address + "|p|worker|x y\n");
}

TEST_F(NodeTest, WaitsForASecretAndShowsItAsPrivateFiles) {
  start_node();
  Json pod = shell_pod("p",
                       "cd $LOCKSTEP_POD_ROOT; cat var/run/t/token; stat -Lc ' %a' var/run/t "
                       "var/run/t/token; touch var/lib/x/file && echo written");
  pod["spec"]["containers"][0]["volumeMounts"] = Json::array(
      {{{"name", "t"}, {"mountPath", "/var/run/t"}}, {{"name", "e"}, {"mountPath", "/var/lib/x"}}});
  pod["spec"]["volumes"] = Json::array({{{"name", "t"}, {"secret", {{"secretName", "s"}}}},
                                        {{"name", "e"}, {"emptyDir", Json::object()}}});
  make(pod);
  ASSERT_TRUE(wait_for_event("FailedMount", "secret \"s\" not found"));
  EXPECT_EQ(get("p")["status"]["phase"], "Pending");
  make_object("secrets", {{"metadata", {{"name", "s"}}}, {"stringData", {{"token", "abc"}}}});
  ASSERT_TRUE(wait_for_phase("p", "Succeeded")) << get("p");
  EXPECT_EQ(log_of("p"), "abc 700\n 600\nwritten\n");
}

TEST_F(NodeTest, RefusesWhatItCannotRunInWords) {
  start_node();
  Json no_command = shell_pod("image", "true");
  no_command["spec"]["containers"][0].erase("command");
  Json claim = shell_pod("volume", "true");
  claim["spec"]["volumes"] =
      Json::array({{{"name", "h"}, {"persistentVolumeClaim", {{"claimName", "c"}}}}});
  claim["spec"]["containers"][0]["volumeMounts"] =
      Json::array({{{"name", "h"}, {"mountPath", "/h"}}});
  Json escape = shell_pod("escape", "true");
  escape["spec"]["volumes"] = Json::array({{{"name", "e"}, {"emptyDir", Json::object()}}});
  escape["spec"]["containers"][0]["volumeMounts"] =
      Json::array({{{"name", "e"}, {"mountPath", "/../../x"}}});
  Json grpc = shell_pod("grpc", "true");
  grpc["spec"]["containers"][0]["livenessProbe"] = {{"grpc", {{"port", 1}}}};
  Json field = shell_pod("field", "true");
  field["spec"]["containers"][0]["env"] = Json::array(
      {{{"name", "A"}, {"valueFrom", {{"fieldRef", {{"fieldPath", "spec.priority"}}}}}}});
  for (const Json& pod : {no_command, claim, escape, grpc, field}) {
    make(pod);
    std::string name = pod["metadata"]["name"];
    ASSERT_TRUE(wait_for_phase(name, "Failed")) << name << get(name);
    EXPECT_EQ(get(name)["status"]["reason"], "NotSupported") << name;
    EXPECT_NE(get(name)["status"]["message"].get<std::string>().find("a local node"),
              std::string::npos);
  }
}

TEST_F(NodeTest, RunsInitContainersInOrderAndThenAllContainers) {
  start_node();
  Json pod = shell_pod("p", "cat $LOCKSTEP_POD_ROOT/shared/a; sleep 1000");
  pod["spec"]["volumes"] = Json::array({{{"name", "v"}, {"emptyDir", Json::object()}}});
  Json mounts = Json::array({{{"name", "v"}, {"mountPath", "/shared"}}});
  auto container = [&](const char* name, const char* script) {
    return Json{{"name", name}, {"command", {"/bin/sh", "-c", script}}, {"volumeMounts", mounts}};
  };
  pod["spec"]["containers"][0]["volumeMounts"] = mounts;
  pod["spec"]["containers"].push_back(container("other", "echo other; sleep 1000"));
  pod["spec"]["initContainers"] =
      Json::array({container("one", "echo 1 >>$LOCKSTEP_POD_ROOT/shared/a"),
                   container("two", "echo 2 >>$LOCKSTEP_POD_ROOT/shared/a")});
  make(pod);
  ASSERT_TRUE(wait_for_phase("p", "Running"));
  ASSERT_TRUE(wait_until([&] { return text_of(folder_ + "/logs/p_node.log") == "1\n2\n"; }));
  ASSERT_TRUE(wait_until([&] { return text_of(folder_ + "/logs/p_other.log") == "other\n"; }));
  Json status = get("p")["status"];
  for (const Json& init : status["initContainerStatuses"])
    EXPECT_EQ(init["state"]["terminated"]["reason"], "Completed");
  EXPECT_EQ(status["containerStatuses"].size(), 2u);
}

TEST_F(NodeTest, AFailedInitContainerFailsAPodThatIsNeverRestarted) {
  start_node();
  Json pod = shell_pod("p", "echo never");
  pod["spec"]["initContainers"] =
      Json::array({{{"name", "i"}, {"command", {"/bin/sh", "-c", "exit 4"}}}});
  make(pod);
  ASSERT_TRUE(wait_for_phase("p", "Failed"));
  Json status = get("p")["status"];
  EXPECT_EQ(status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 4);
  EXPECT_TRUE(status["containerStatuses"][0]["state"].contains("waiting"));
  EXPECT_EQ(log_of("p"), "");
}

TEST_F(NodeTest, RestartsAContainerWithBackOffAndKeepsItsLastState) {
  start_node();
  Json pod = shell_pod("p", "echo try; exit 5");
  pod["spec"]["restartPolicy"] = "OnFailure";
  make(pod);
  ASSERT_TRUE(wait_until([&] {
    Json status = get("p")["status"];
    if (!status.contains("containerStatuses")) return false;
    const Json& container = status["containerStatuses"][0];
    return container["restartCount"] >= 2 && container["state"].contains("waiting") &&
           container["state"]["waiting"]["reason"] == "CrashLoopBackOff" &&
           container["lastState"]["terminated"]["exitCode"] == 5;
  })) << get("p");
  EXPECT_EQ(get("p")["status"]["phase"], "Running");
  EXPECT_TRUE(wait_for_event("BackOff", "Back-off restarting failed container"));
  std::string uid = get("p")["metadata"]["uid"];
  Result<std::string> previous = node_->logs().log_file(uid, "node", true);
  ASSERT_TRUE(previous.ok());
  EXPECT_EQ(text_of(*previous), "try\n");
}

TEST_F(NodeTest, ResolvesEnvironmentAndArguments) {
  start_node();
  make_object("secrets", {{"metadata", {{"name", "s"}}}, {"stringData", {{"k", "hidden"}}}});
  Json pod = shell_pod("p", "echo \"$A|$B|$C|$D\"'|$(B)|$$(B)'");
  pod["spec"]["containers"][0]["resources"] = {{"limits", {{"cpu", "1500m"}}}};
  pod["spec"]["containers"][0]["env"] = Json::array(
      {{{"name", "A"}, {"value", "a"}},
       {{"name", "B"}, {"value", "$(A)-$(NONE)"}},
       {{"name", "C"}, {"valueFrom", {{"secretKeyRef", {{"name", "s"}, {"key", "k"}}}}}},
       {{"name", "D"}, {"valueFrom", {{"resourceFieldRef", {{"resource", "limits.cpu"}}}}}}});
  make(pod);
  ASSERT_TRUE(wait_for_phase("p", "Succeeded")) << get("p");
  EXPECT_EQ(log_of("p"), "a|a-$(NONE)|hidden|2|a-$(NONE)|$(B)\n");
  Json missing = shell_pod("missing", "true");
  missing["spec"]["containers"][0]["env"] = Json::array(
      {{{"name", "C"}, {"valueFrom", {{"secretKeyRef", {{"name", "s"}, {"key", "no"}}}}}}});
  make(missing);
  ASSERT_TRUE(wait_until([&] {
    return dump_json(get("missing")["status"]).find("CreateContainerConfigError") !=
           std::string::npos;
  }));
  EXPECT_NE(dump_json(get("missing")["status"]).find("couldn't find key no in Secret default/s"),
            std::string::npos);
}

TEST_F(NodeTest, ReadinessFollowsTheProbeAndLivenessRestarts) {
  start_node();
  Json pod = shell_pod("p", "sleep 1000");
  pod["spec"]["restartPolicy"] = "Always";
  Json& container = pod["spec"]["containers"][0];
  auto exec = [](const std::string& test) {
    return Json{{"exec", {{"command", {"/bin/sh", "-c", test}}}},
                {"periodSeconds", 1},
                {"failureThreshold", 1}};
  };
  container["readinessProbe"] = exec("test -e $LOCKSTEP_POD_ROOT/ready");
  container["livenessProbe"] = exec("! test -e $LOCKSTEP_POD_ROOT/dead");
  container["terminationGracePeriodSeconds"] = 1;
  make(pod);
  ASSERT_TRUE(wait_for_phase("p", "Running"));
  ASSERT_TRUE(wait_for_event("Unhealthy", "Readiness probe failed: command exited with 1"));
  EXPECT_EQ(get("p")["status"]["containerStatuses"][0]["ready"], false);
  std::string root =
      folder_ + "/pods/p-" + get("p")["metadata"]["uid"].get<std::string>().substr(0, 8) + "/node";
  std::ofstream(root + "/ready") << "x";
  ASSERT_TRUE(
      wait_until([&] { return get("p")["status"]["containerStatuses"][0]["ready"] == true; }));
  std::ofstream(root + "/dead") << "x";
  ASSERT_TRUE(
      wait_until([&] { return get("p")["status"]["containerStatuses"][0]["restartCount"] >= 1; }));
  EXPECT_TRUE(wait_for_event("Killing", "failed liveness probe, will be restarted"));
  EXPECT_TRUE(wait_for_event("Unhealthy", "Liveness probe failed"));
}

TEST_F(NodeTest, ProbesOverTheNetwork) {
  start_node();
  Json pod = shell_pod("p", "exec python3 -m http.server 8080 --bind $IP");
  Json& container = pod["spec"]["containers"][0];
  container["env"] = Json::array(
      {{{"name", "IP"}, {"valueFrom", {{"fieldRef", {{"fieldPath", "status.podIP"}}}}}}});
  container["ports"] = Json::array({{{"name", "web"}, {"containerPort", 8080}}});
  container["startupProbe"] = {
      {"tcpSocket", {{"port", "web"}}}, {"periodSeconds", 1}, {"failureThreshold", 60}};
  container["readinessProbe"] = {{"httpGet", {{"port", "web"}, {"path", "/"}}},
                                 {"periodSeconds", 1}};
  make(pod);
  ASSERT_TRUE(wait_until([&] {
    Json status = get("p")["status"];
    return status.contains("containerStatuses") && status["containerStatuses"][0]["ready"] == true;
  })) << get("p");
}

TEST_F(NodeTest, RunsHooks) {
  start_node();
  Json pod = shell_pod(
      "p", "trap 'exit 0' TERM; cat $LOCKSTEP_POD_ROOT/m/begun; while :; do sleep 0.05; done");
  pod["spec"]["volumes"] = Json::array({{{"name", "h"}, {"hostPath", {{"path", folder_}}}}});
  Json& container = pod["spec"]["containers"][0];
  container["volumeMounts"] = Json::array({{{"name", "h"}, {"mountPath", "/m"}}});
  auto hook = [](const std::string& file) {
    return Json{{"exec", {{"command", {"/bin/sh", "-c", "echo x >$LOCKSTEP_POD_ROOT/m/" + file}}}}};
  };
  container["lifecycle"] = {{"postStart", hook("begun")}, {"preStop", hook("ended")}};
  make(pod);
  ASSERT_TRUE(wait_for_phase("p", "Running"));
  EXPECT_EQ(text_of(folder_ + "/begun"), "x\n");
  ask("DELETE", std::string(kPods) + "/p");
  ASSERT_TRUE(wait_gone("p"));
  EXPECT_EQ(text_of(folder_ + "/ended"), "x\n");
}

TEST_F(NodeTest, AnActiveDeadlineFailsThePod) {
  start_node();
  Json pod = shell_pod("p", "exec sleep 1000");
  pod["spec"]["activeDeadlineSeconds"] = 1;
  pod["spec"]["terminationGracePeriodSeconds"] = 1;
  make(pod);
  ASSERT_TRUE(wait_for_phase("p", "Failed"));
  EXPECT_EQ(get("p")["status"]["reason"], "DeadlineExceeded");
  EXPECT_TRUE(wait_until([&] { return processes_of("p").empty(); }));
}

TEST_F(NodeTest, APowerCutIsSilentAndTheMachineBootsAgain) {
  start_node(2);
  auto power = [&](const char* how) {
    EXPECT_EQ(api_.handle({"PATCH", "/api/v1/nodes/local-0", "application/merge-patch+json",
                           dump_json({{"metadata", {{"annotations", {{kPowerAnnotation, how}}}}}})})
                  .code,
              200);
  };
  Json never = shell_pod("never", "echo ready; sleep 1000");
  Json always = shell_pod("always", "echo ready; sleep 1000");
  always["spec"]["restartPolicy"] = "Always";
  for (Json* pod : {&never, &always}) {
    (*pod)["spec"]["nodeSelector"] = {{"kubernetes.io/hostname", "local-0"}};
    make(*pod);
    ASSERT_TRUE(wait_for_log((*pod)["metadata"]["name"], "ready"));
    ASSERT_TRUE(wait_for_phase((*pod)["metadata"]["name"], "Running"));
  }
  power("off");
  ASSERT_TRUE(wait_until([&] { return processes_of("never").empty(); }));
  ASSERT_TRUE(wait_until([&] { return node_->is_empty(); }));
  EXPECT_EQ(get("never")["status"]["phase"], "Running") << "nobody is there to say otherwise";
  power("on");
  ASSERT_TRUE(wait_for_phase("never", "Failed"));
  const Json ended = get("never")["status"]["containerStatuses"][0]["state"]["terminated"];
  EXPECT_EQ(ended["exitCode"], 255);
  EXPECT_EQ(ended["reason"], "Unknown");
  ASSERT_TRUE(wait_until([&] {
    Json container = get("always")["status"]["containerStatuses"][0];
    return container["restartCount"] == 1 && container["state"].contains("running");
  })) << get("always");
}

TEST_F(NodeTest, WhatWasDeletedWhileTheMachineWasOffEndsWhenItBoots) {
  start_node(1);
  make(shell_pod("p", "echo ready; sleep 1000"));
  ASSERT_TRUE(wait_for_phase("p", "Running"));
  auto power = [&](const char* how) {
    api_.handle({"PATCH", "/api/v1/nodes/local-0", "application/merge-patch+json",
                 dump_json({{"metadata", {{"annotations", {{kPowerAnnotation, how}}}}}})});
  };
  power("off");
  ASSERT_TRUE(wait_until([&] { return node_->is_empty(); }));
  ask("DELETE", std::string(kPods) + "/p");
  EXPECT_TRUE(get("p")["metadata"].contains("deletionTimestamp"));
  power("on");
  ASSERT_TRUE(wait_gone("p"));
}

// A listener on all addresses, on a port of the system's choice.
class TakenPort {
 public:
  TakenPort() {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t size = sizeof name;
    bool listens = bind(fd_, reinterpret_cast<const sockaddr*>(&name), size) == 0 &&
                   listen(fd_, 1) == 0 &&
                   getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &size) == 0;
    CHECK(listens);
    port_ = ntohs(name.sin_port);
  }
  ~TakenPort() { close(fd_); }

  uint16_t port() const { return port_; }

 private:
  int fd_ = -1;
  uint16_t port_ = 0;
};

TEST_F(NodeTest, SaysWhichPortIsTaken) {
  TakenPort taken;
  start_node();
  Json pod = shell_pod("p", "true");
  pod["spec"]["containers"][0]["ports"] = Json::array({{{"containerPort", taken.port()}}});
  make(pod);
  ASSERT_TRUE(wait_for_phase("p", "Failed")) << get("p");
  Json status = get("p")["status"];
  EXPECT_EQ(status["reason"], "NoAddress");
  EXPECT_NE(status["message"].get<std::string>().find("port " + std::to_string(taken.port()) +
                                                      " is taken on every one"),
            std::string::npos)
      << status;
}

TEST_F(NodeTest, ATroubleOfTheNodeIsNotCalledAPodThatItDoesNotSupport) {
  start_node();
  Json pod = shell_pod("p", "true");
  // A file where its second folder would have to be.
  pod["spec"]["volumes"] = Json::array({{{"name", "s"}, {"secret", {{"secretName", "s"}}}},
                                        {{"name", "e"}, {"emptyDir", Json::object()}}});
  pod["spec"]["containers"][0]["volumeMounts"] =
      Json::array({{{"name", "s"}, {"mountPath", "/a"}}, {{"name", "e"}, {"mountPath", "/a/b/c"}}});
  EXPECT_EQ(ask("POST", "/api/v1/namespaces/default/secrets",
                {{"metadata", {{"name", "s"}}}, {"stringData", {{"b", "a file"}}}})
                .code,
            201);
  make(pod);
  ASSERT_TRUE(wait_for_phase("p", "Failed")) << get("p");
  EXPECT_EQ(get("p")["status"]["reason"], "NodeFailure");
}

TEST_F(NodeTest, DeletionSendsSigtermAndWaits) {
  start_node();
  make(shell_pod("p", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(wait_for_log("p", "ready"));
  ask("DELETE", std::string(kPods) + "/p");
  ASSERT_TRUE(wait_gone("p"));
  EXPECT_NE(log_of("p").find("bye"), std::string::npos);
  EXPECT_TRUE(wait_until([&] { return node_->is_empty(); }));
}

TEST_F(NodeTest, ThenKillsAndAllDescendantsWithIt) {
  start_node();
  // A child in a session of its own, and one that nobody waits for: neither is in the group.
  make(shell_pod("p",
                 "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & "
                 "(setsid sleep 1000 &) ; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(wait_for_log("p", "ready"));
  ASSERT_TRUE(wait_until([&] { return processes_of("p").size() >= 4; }));
  std::vector<pid_t> before = processes_of("p");
  ask("DELETE", std::string(kPods) + "/p", {{"gracePeriodSeconds", 1}});
  ASSERT_TRUE(wait_gone("p"));
  for (pid_t pid : before) EXPECT_TRUE(wait_until([&] { return kill(pid, 0) != 0; }));
  EXPECT_TRUE(wait_until([&] { return node_->is_empty(); }));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/pods"));
}

TEST_F(NodeTest, ForcedDeletionKillsAtOnce) {
  start_node();
  make(shell_pod("p", "trap '' TERM; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(wait_for_log("p", "ready"));
  std::vector<pid_t> before = processes_of("p");
  ASSERT_FALSE(before.empty());
  ask("DELETE", std::string(kPods) + "/p", {{"gracePeriodSeconds", 0}});
  EXPECT_EQ(get("p")["code"], 404);
  EXPECT_TRUE(wait_until([&] { return kill(before[0], 0) != 0; }));
}

TEST_F(NodeTest, AContainerEndsWithAllThatItStarted) {
  start_node();
  make(shell_pod("p", "setsid sleep 1000 & exit 3"));
  ASSERT_TRUE(wait_for_phase("p", "Failed"));
  EXPECT_TRUE(processes_of("p").empty());
}

TEST_F(NodeTest, NothingOutlivesTheNode) {
  start_node();
  make(shell_pod("p", "trap '' TERM; setsid sleep 1000 & echo ready; sleep 1000"));
  ASSERT_TRUE(wait_for_log("p", "ready"));
  std::vector<pid_t> before = processes_of("p");
  node_.reset();
  for (pid_t pid : before) EXPECT_TRUE(wait_until([&] { return kill(pid, 0) != 0; }));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/pods"));
}

TEST_F(NodeTest, ChildrenDieWithTheirProcess) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  pid_t owner = fork();
  if (owner == 0) {
    ProcessHost host;
    Result<pid_t> child = host.spawn({.program = "/bin/sleep",
                                      .arguments = {"sleep", "1000"},
                                      .working_folder = "/",
                                      .output_file = "/dev/null"},
                                     [](ExitStatus) {});
    pid_t pid = child.ok() ? *child : -1;
    if (write(fds[1], &pid, sizeof pid) < 0) _exit(1);
    pause();
  }
  pid_t child = -1;
  ASSERT_EQ(read(fds[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_GT(child, 0);
  EXPECT_EQ(kill(child, 0), 0);
  kill(owner, SIGKILL);
  EXPECT_TRUE(wait_until([&] { return kill(child, 0) != 0; }));
  close(fds[0]);
  close(fds[1]);
}

TEST(AddressPool, GivesEachPodItsOwnAddressWithFreePorts) {
  AddressPool pool(7);
  std::set<std::string> seen;
  for (int i = 0; i < 300; ++i) {
    Result<std::string> address = pool.take({29400});
    ASSERT_TRUE(address.ok());
    EXPECT_TRUE(seen.insert(*address).second) << *address;
  }
}

}  // namespace
}  // namespace lockstep::local
