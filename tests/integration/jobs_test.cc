// A job on the server of this run, and what happens when others change its objects.
#include <signal.h>

#include "tests/integration/cluster.h"

namespace lockstep::integration {
namespace {

using conformance::server;
using Jobs = ClusterCase;

TEST_F(Jobs, OneCompletesAndItsObjectsSayWhoseTheyAre) {
  make_job("a", running_script());
  ASSERT_TRUE(wait_for("both ranks", [&] { return starts() == 2; }));
  const Json owner = job("a");
  for (const auto& [name, uid] : uids("a")) {
    const Json pod = ask("GET", pods() + "/" + name);
    const Json& reference = pod["metadata"]["ownerReferences"][0];
    EXPECT_EQ(reference["uid"], owner["metadata"]["uid"]);
    EXPECT_EQ(reference["controller"], true);
    EXPECT_EQ(reference["blockOwnerDeletion"], true);
  }
  let_end();
  expect_complete("a");
  const Json last = job("a");
  for (const Json& condition : last["status"]["conditions"])
    EXPECT_EQ(condition["observedGeneration"], last["metadata"]["generation"]) << condition;
}

TEST_F(Jobs, OneIsSuspendedAndResumed) {
  make_job("a", running_script());
  ASSERT_TRUE(wait_for("both ranks", [&] { return starts() == 2; }));
  ask("PATCH", jobs() + "/a", {{"spec", {{"suspend", true}}}});
  ASSERT_TRUE(wait_for("Suspended", [&] { return is("a", "Suspended") && uids("a").empty(); }));
  ask("PATCH", jobs() + "/a", {{"spec", {{"suspend", false}}}});
  ASSERT_TRUE(wait_for("both ranks again", [&] { return starts() == 4; }));
  let_end();
  expect_complete("a");
  EXPECT_FALSE(is("a", "Suspended"));
  EXPECT_EQ(status("a")["restarts"], 0) << "a suspension is no failure";
}

TEST_F(Jobs, AnInvalidOneIsToldWhatWouldBeRight) {
  // The schema can't check this; the controller reports it.
  make_job("a", "true", {{"podTemplate", {{"spec", {{"restartPolicy", "Always"}}}}}});
  ASSERT_TRUE(wait_for("Valid=False", [&] {
    for (const Json& one : status("a").value("conditions", Json::array()))
      if (one["type"] == "Valid") return one["status"] == "False" && one["reason"] == "InvalidSpec";
    return false;
  }));
  EXPECT_TRUE(uids("a").empty());
}

TEST_F(Jobs, OneWhosePodsTheServerRefusesIsToldItsWords) {
  const Json labelled = {{"labels", {{"team", "no label!"}}}};
  make_job("a", "true", {{"podTemplate", {{"metadata", labelled}}}});
  std::string message;
  ASSERT_TRUE(wait_for("Valid=False", [&] {
    for (const Json& one : status("a").value("conditions", Json::array())) {
      if (one["type"] == "Valid") message = one["status"] == "False" ? one["message"] : Json("");
    }
    return !message.empty();
  }));
  EXPECT_NE(message.find("metadata.labels: Invalid value"), std::string::npos) << message;
  EXPECT_TRUE(uids("a").empty());
}

TEST_F(Jobs, WhatOthersAppliedStays) {
  make_job("a", running_script());
  ASSERT_TRUE(wait_for("both ranks", [&] { return starts() == 2; }));
  auto apply = [&](const std::string& target, const char* version, const char* kind,
                   const std::string& name) {
    const Json label = {{"apiVersion", version},
                        {"kind", kind},
                        {"metadata", {{"name", name}, {"labels", {{"team", "blue"}}}}}};
    const conformance::Reply reply =
        server().ask("PATCH", target + "/" + name + "?fieldManager=another&force=true", label,
                     conformance::kApplyPatch);
    EXPECT_EQ(reply.code, 200) << reply.text;
  };
  apply(jobs(), "lockstep.dev/v1alpha1", "TrainingJob", "a");
  const auto before = uids("a");
  for (const auto& [name, uid] : before) apply(pods(), "v1", "Pod", name);
  let_end();
  expect_complete("a");
  EXPECT_EQ(job("a")["metadata"]["labels"].value("team", ""), "blue");
  for (const auto& [name, uid] : uids("a"))
    EXPECT_EQ(ask("GET", pods() + "/" + name)["metadata"]["labels"].value("team", ""), "blue");
  EXPECT_EQ(status("a")["restarts"], 0);
}

TEST_F(Jobs, APodThatIsGivenToAnotherJobHurtsNeitherThatJobNorTheServer) {
  make_job("a", running_script("[ $LOCKSTEP_ROUND = 1 ] || exit 0;"));
  make_job("b", running_script());
  ASSERT_TRUE(wait_for("all ranks", [&] { return starts() == 4; }));
  const auto of_b = uids("b");
  const std::string stolen = uids("a").rbegin()->first;
  const Json b = job("b");
  const Json reference = {{"apiVersion", "lockstep.dev/v1alpha1"},
                          {"kind", "TrainingJob"},
                          {"name", "b"},
                          {"uid", b["metadata"]["uid"]},
                          {"controller", true}};
  const Json patched = ask("PATCH", pods() + "/" + stolen,
                           {{"metadata", {{"ownerReferences", Json::array({reference})}}}});
  ASSERT_TRUE(patched.contains("metadata")) << patched;
  ASSERT_TRUE(wait_for(
      "word of it", [&] { return uids("a") != uids("b") && status("a").value("round", 0) >= 1; }));
  let_end();
  expect_complete("b");
  for (const auto& [name, uid] : of_b) EXPECT_EQ(uids("b")[name], uid);
  EXPECT_EQ(status("b")["restarts"], 0);
  EXPECT_LE(starts(), 8) << "a storm of new pods";
}

TEST_F(Jobs, PodsWithoutTheirLabelsAreStillKnown) {
  make_job("a", running_script());
  ASSERT_TRUE(wait_for("both ranks", [&] { return starts() == 2; }));
  const auto before = uids("a");
  for (const auto& [name, uid] : before)
    ask("PATCH", pods() + "/" + name, {{"metadata", {{"labels", nullptr}}}});
  make_job("later", "true");  // when it ends, the controller has seen the change
  expect_complete("later");
  EXPECT_EQ(uids("a"), before);
  let_end();
  expect_complete("a");
  EXPECT_EQ(starts(), 2) << "new rounds or pods for nothing";
  for (const auto& [name, uid] : before) {
    const Json labels = ask("GET", pods() + "/" + name)["metadata"].value("labels", Json::object());
    EXPECT_EQ(labels.value("lockstep.dev/job-name", ""), "a") << "what the watch selects by";
  }
}

class Leaders : public ClusterCase {
 protected:
  Leaders() { elects_ = true; }
};

TEST_F(Leaders, ASecondControllerTakesOverFromAKilledOne) {
  start_controller("second");
  make_job("a", running_script("[ $RANK-$LOCKSTEP_ROUND != 1-1 ] || { "
                               "while [ ! -e $HERE/fail ]; do sleep 0.05; done; exit 5; };"
                               "[ $LOCKSTEP_ROUND = 1 ] || exit 0;"));
  ASSERT_TRUE(wait_for("both ranks", [&] { return starts() == 2; }));
  kill_controller();
  test::write_file(here() / "fail", "");
  expect_complete("a");
  EXPECT_EQ(status("a")["restarts"], 1);
}

}  // namespace
}  // namespace lockstep::integration
