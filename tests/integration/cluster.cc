#include "tests/integration/cluster.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

#include "local/node/program.h"
#include "tests/conformance/support/widgets.h"
#include "tests/support/processes.h"

namespace lockstep::integration {
namespace {

using conformance::kDefinitions;
using conformance::server;
using test::eventually;

constexpr char kJobsApi[] = "lockstep.dev/v1alpha1";
constexpr size_t kMachines = 3;
constexpr size_t kLogTail = 4000;

std::string tail(const std::filesystem::path& file) {
  const std::string text = test::read_file(file);
  return "\n== " + file.filename().string() + "\n" +
         text.substr(text.size() > kLogTail ? text.size() - kLogTail : 0);
}

std::string quoted(const std::string& text) {
  return Json(text).dump();
}

// Returns lockstep-controller's arguments for access through the relay with the run's credentials,
// and writes the files that they name. Like kubectl, the controller takes no token for a server
// without TLS from a kubeconfig.
std::vector<std::string> access_flags(const conformance::Target& target, int port,
                                      const std::filesystem::path& folder) {
  const auto authorization = target.headers.find("Authorization");
  const std::string token =
      authorization == target.headers.end() ? "" : authorization->second.substr(sizeof "Bearer");
  const std::string address = "://127.0.0.1:" + std::to_string(port);
  if (!target.endpoint.tls) {
    test::write_file(folder / "token", token);
    return {"--server", "http" + address, "--token-file", "token"};
  }
  std::string user = "{token: " + quoted(token) + "}";
  if (token.empty()) {
    test::write_file(folder / "client.crt", target.endpoint.certificate_pem);
    test::write_file(folder / "client.key", target.endpoint.key_pem);
    user = "{client-certificate: client.crt, client-key: client.key}";
  }
  test::write_file(folder / "ca.crt", target.endpoint.ca_pem);
  test::write_file(folder / "kubeconfig",
                   "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
                   "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
                   "clusters: [{name: c, cluster: {server: https" +
                       address + ", certificate-authority: ca.crt}}]\n" +
                       "users: [{name: u, user: " + user + "}]\n");
  return {"--kubeconfig", "kubeconfig"};
}

}  // namespace

std::string running_script(const std::string& before) {
  return "echo x >> $HERE/starts; " + before +
         " while [ ! -e $HERE/end ]; do sleep 0.05; done; "
         "echo x >> $HERE/ends";
}

void ClusterCase::SetUpTestSuite() {
  if (server().serves(kJobsApi, "trainingjobs")) return;
  const Json made = ask("POST", kDefinitions, conformance::our_definition());
  ASSERT_TRUE(made.contains("spec")) << made;
  ASSERT_TRUE(eventually([] { return server().serves(kJobsApi, "trainingjobs"); }));
}

void ClusterCase::SetUp() {
  static std::atomic<int> cases = 0;
  namespace_ = "integration-" + std::to_string(getpid()) + "-" + std::to_string(++cases);
  const Json made = ask("POST", "/api/v1/namespaces", {{"metadata", {{"name", namespace_}}}});
  ASSERT_TRUE(made.contains("metadata")) << made;
  relay_ = std::make_unique<Relay>(std::stoi(server().target().endpoint.port));
  access_flags_ = access_flags(server().target(), relay_->port(), here());
  test::write_file(here() / "key", "key of the integration tests");
  start_machines();
  controller_ = start_controller("controller");
}

void ClusterCase::start_machines() {
  for (size_t i = 0; i < kMachines; ++i) machines_.push_back(namespace_ + "-" + std::to_string(i));
  node_api_ = std::make_unique<RemoteNodeApi>(server());
  host_ = std::make_unique<local::ProcessHost>();
  local::LocalNodeOptions options{
      .machines = local::divided_computer(kMachines, machines_),
      .heartbeat = {.lease_interval = std::chrono::milliseconds(500)},
      .node_controller = {.grace = std::chrono::seconds(4), .eviction = std::chrono::seconds(1)},
      .pods = {.folder = here() / "pods", .program_folder = LOCKSTEP_BIN_DIR},
      .logs = {.folder = here() / "logs", .keep = true},
      .seed = std::hash<std::string>{}(namespace_)};
  auto node = local::LocalNode::start(*node_api_, *host_, clock_, options);
  ASSERT_TRUE(node.ok()) << node.error().message;
  node_ = *std::move(node);
}

pid_t ClusterCase::start_controller(const std::string& name) {
  const std::string program = std::string(LOCKSTEP_BIN_DIR) + "/lockstep-controller";
  std::vector<std::string> arguments = {program};
  arguments.insert(arguments.end(), access_flags_.begin(), access_flags_.end());
  arguments.insert(arguments.end(), {"--key-file", "key", "--namespace", namespace_});
  if (!elects_) arguments.push_back("--leader-elect=false");
  const Result<pid_t> pid = host_->spawn({.program = program,
                                          .arguments = arguments,
                                          .environment = local::merged_environment({}),
                                          .working_folder = here(),
                                          .output_file = here() / (name + ".log")},
                                         [](local::ExitStatus) {});
  EXPECT_TRUE(pid.ok()) << pid.error().message;
  return pid.ok() ? *pid : 0;
}

void ClusterCase::kill_controller() {
  ASSERT_GT(controller_, 0);
  ::kill(controller_, SIGKILL);
  wait_for("the controller's end", [&] { return !test::alive(controller_); });
}

void ClusterCase::TearDown() {
  if (HasFailure()) std::cout << logs() << "\n";
  ask("DELETE", jobs());
  ask("DELETE", pods() + "?gracePeriodSeconds=0");
  node_.reset();
  host_.reset();
  relay_.reset();
  for (const std::string& machine : machines_) ask("DELETE", "/api/v1/nodes/" + machine);
  conformance::remove_namespace(namespace_);
}

Json ClusterCase::ask(const std::string& method, const std::string& target, const Json& body) {
  return server()
      .ask(method, target, body, method == "PATCH" ? conformance::kMergePatch : "application/json")
      .body;
}

std::string ClusterCase::jobs() const {
  return std::string("/apis/") + kJobsApi + "/namespaces/" + namespace_ + "/trainingjobs";
}

std::string ClusterCase::pods() const {
  return "/api/v1/namespaces/" + namespace_ + "/pods";
}

void ClusterCase::make_job(const std::string& name, const std::string& script, const Json& spec) {
  Json whole = {{"nodes", 2},
                {"command", {"sh", "-c", "HERE=" + here().string() + "; " + script}},
                {"terminationGracePeriodSeconds", 1}};
  whole.update(spec);
  const Json made = ask("POST", jobs(),
                        {{"apiVersion", kJobsApi},
                         {"kind", "TrainingJob"},
                         {"metadata", {{"name", name}}},
                         {"spec", whole}});
  ASSERT_TRUE(made.contains("spec")) << made;
}

Json ClusterCase::job(const std::string& name) {
  return ask("GET", jobs() + "/" + name);
}

Json ClusterCase::status(const std::string& name) {
  return job(name).value("status", Json::object());
}

bool ClusterCase::is(const std::string& name, const char* condition) {
  for (const Json& known : status(name).value("conditions", Json::array())) {
    if (known["type"] == condition) return known["status"] == "True";
  }
  return false;
}

bool ClusterCase::wait_for(const char* what, const std::function<bool()>& condition) {
  if (eventually(condition)) return true;
  ADD_FAILURE() << "waited in vain: " << what;
  return false;
}

void ClusterCase::expect_complete(const std::string& name) {
  wait_for("the job's end", [&] { return is(name, "Complete") || is(name, "Failed"); });
  EXPECT_TRUE(is(name, "Complete")) << status(name);
}

std::map<std::string, std::string> ClusterCase::uids(const std::string& job_name) {
  std::map<std::string, std::string> found;
  const Json list = ask("GET", pods());
  for (const Json& pod : list.value("items", Json::array())) {
    const Json& metadata = pod["metadata"];
    const std::string name = metadata["name"];
    if (name.starts_with(job_name + "-worker-") && !metadata.contains("deletionTimestamp"))
      found[name] = metadata["uid"];
  }
  return found;
}

int ClusterCase::lines_of(const std::string& file) {
  const std::string text = test::read_file(here() / file);
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

std::string ClusterCase::logs() {
  std::string text;
  const Json list = ask("GET", jobs());
  for (const Json& one : list.value("items", Json::array()))
    text +=
        "\n== " + std::string(one["metadata"]["name"]) + ": " + one.value("status", Json()).dump();
  const Json all = ask("GET", pods());
  for (const Json& one : all.value("items", Json::array()))
    text += "\n== pod " + std::string(one["metadata"]["name"]) + " on " +
            one["spec"].value("nodeName", "nothing") + ": " + one.value("status", Json()).dump();
  for (const auto& entry : std::filesystem::directory_iterator(here())) {
    if (entry.path().extension() == ".log") text += tail(entry.path());
  }
  for (const auto& entry : std::filesystem::directory_iterator(here() / "logs"))
    text += tail(entry.path());
  return text;
}

}  // namespace lockstep::integration
