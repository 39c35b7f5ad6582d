#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "local/node/local_node.h"
#include "local/node/process_host.h"
#include "tests/conformance/support/server.h"
#include "tests/integration/relay.h"
#include "tests/integration/remote_node_api.h"
#include "tests/support/job_run.h"

namespace lockstep::integration {

// A whole cluster around the API server of this run: three machines of the local node, which act as
// scheduler, kubelet and node controller over HTTP, and lockstep-controller as a process that
// reaches the server through a relay. Agents and ranks are real processes. Each case has its own
// namespace and machines.
class ClusterCase : public testing::Test {
 protected:
  static void SetUpTestSuite();
  void SetUp() override;
  void TearDown() override;

  static Json ask(const std::string& method, const std::string& target, const Json& body = Json());
  // Paths of collections in the case's namespace.
  std::string jobs() const;
  std::string pods() const;

  // Creates a job of two nodes, one process each, that runs the script with `sh -c`.
  void make_job(const std::string& name, const std::string& script,
                const Json& spec = Json::object());
  Json job(const std::string& name);
  Json status(const std::string& name);
  bool is(const std::string& name, const char* condition);
  // Waits until the job is Complete or Failed. Fails the case, with the logs, if it isn't Complete.
  void expect_complete(const std::string& name);
  // Waits for the condition; false on timeout, with the logs in the case's output.
  bool wait_for(const char* what, const std::function<bool()>& condition);

  // The pods of a job that are not being deleted: name -> UID.
  std::map<std::string, std::string> uids(const std::string& job_name);
  // How often running_script() started and finished, in all jobs and rounds.
  int starts() { return lines_of("starts"); }
  int ends() { return lines_of("ends"); }
  std::filesystem::path here() const { return folder_.path(); }
  void let_end() { test::write_file(here() / "end", ""); }

  // Starts another controller, whose log has that name.
  pid_t start_controller(const std::string& name);
  // Sends SIGKILL; returns when the controller is gone.
  void kill_controller();
  std::string logs();

  std::string namespace_;
  std::vector<std::string> machines_;
  test::TemporaryFolder folder_;
  std::unique_ptr<Relay> relay_;
  pid_t controller_ = 0;
  bool elects_ = false;  // leader election; if off, a new controller need not wait for a Lease

 private:
  int lines_of(const std::string& file);
  void start_machines();

  SystemClock clock_;
  std::vector<std::string> access_flags_;
  std::unique_ptr<RemoteNodeApi> node_api_;
  std::unique_ptr<local::ProcessHost> host_;
  std::unique_ptr<local::LocalNode> node_;
};

// Returns a script that records its start, runs `before`, runs until let_end(), and records its
// end.
std::string running_script(const std::string& before = "");

}  // namespace lockstep::integration
