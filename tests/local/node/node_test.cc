// Tests that the local node, with real processes, reports what a kubelet would.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "tests/local/node/node_fixture.h"

namespace lockstep::local {
namespace {

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

// A listener on all addresses; the system chooses the port.
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
                                                      " is in use on every one"),
            std::string::npos)
      << status;
}

TEST_F(NodeTest, ATroubleOfTheNodeIsNotCalledAPodThatItDoesNotSupport) {
  start_node();
  Json pod = shell_pod("p", "true");
  // Puts a file where the pod needs its second folder.
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

}  // namespace
}  // namespace lockstep::local
