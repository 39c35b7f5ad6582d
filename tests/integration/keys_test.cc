// The controller's key and the jobs' tokens, on the server of this run, with real processes.
#include <string>

#include "controller/plan/names.h"
#include "tests/integration/cluster.h"

namespace lockstep::integration {
namespace {

class Keys : public ClusterCase {
 protected:
  void suspend(const std::string& name, bool suspended) {
    ask("PATCH", jobs() + "/" + name, {{"spec", {{"suspend", suspended}}}});
  }
  std::string secrets() const { return "/api/v1/namespaces/" + namespace_ + "/secrets"; }
  std::string secret_of(const std::string& name) {
    const Json metadata = job(name)["metadata"];
    return plan::token_secret_name({.name = name, .uid = metadata["uid"]});
  }
  std::string ready_reason(const std::string& name) {
    for (const Json& known : status(name).value("conditions", Json::array())) {
      if (known["type"] == "Ready") return known["reason"];
    }
    return "";
  }
};

// docs/operations.md, "Replace the controller's key".
TEST_F(Keys, AreReplacedWhileAJobRuns) {
  make_job("a", running_script("[ $LOCKSTEP_ROUND = 1 ] || exit 0;"));
  ASSERT_TRUE(wait_for("both ranks", [&] { return starts() == 2; }));
  const auto before = uids("a");
  kill_controller();
  test::write_file(here() / "key", "another key, for new jobs\nkey of the integration tests");
  controller_ = start_controller("with-both-keys");
  make_job("b", "exit 0");
  expect_complete("b");
  EXPECT_EQ(uids("a"), before);
  EXPECT_EQ(status("a")["round"], 1);
  // A pod that is made anew mounts the job's old token, and joins the others.
  ask("DELETE", pods() + "/" + before.rbegin()->first + "?gracePeriodSeconds=0");
  expect_complete("a");
  EXPECT_EQ(status("a")["restarts"], 1) << status("a");
  EXPECT_EQ(uids("a").begin()->second, before.begin()->second);
}

TEST_F(Keys, ASecretOfSomebodyElseShowsAsAgentRefusesToken) {
  for (const char* name : {"a", "b"}) make_job(name, "exit 0", {{"suspend", true}});
  const std::map<std::string, Json> contents = {{"a", {{"token", "chosen by somebody else"}}},
                                                {"b", {{"password", "not a token"}}}};
  for (const auto& [name, content] : contents) {
    const Json made = ask("POST", secrets(),
                          {{"apiVersion", "v1"},
                           {"kind", "Secret"},
                           {"metadata", {{"name", secret_of(name)}}},
                           {"stringData", content}});
    ASSERT_TRUE(made.contains("metadata")) << made;
    suspend(name, false);
  }
  for (const auto& [name, content] : contents) {
    ASSERT_TRUE(wait_for("the condition", [&] {
      return ready_reason(name) == "AgentRefusesToken";
    })) << name;
    EXPECT_EQ(status(name).value("restarts", 0), 0);
    EXPECT_EQ(uids(name).size(), 2u) << "the pods stay";
  }
  // The condition says to do this.
  for (const auto& [name, content] : contents) {
    suspend(name, true);
    ASSERT_TRUE(wait_for("no pods", [&] { return uids(name).empty(); }));
    ask("DELETE", secrets() + "/" + secret_of(name));
    suspend(name, false);
    expect_complete(name);
  }
}

}  // namespace
}  // namespace lockstep::integration
