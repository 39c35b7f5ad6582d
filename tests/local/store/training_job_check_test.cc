// The server refuses what the controller would find invalid, and leaves stored jobs manageable.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "common/api/training_job.h"
#include "tests/local/store/api_fixture.h"

namespace lockstep::local {
namespace {

class TrainingJobCheck : public ApiTest {
 protected:
  static Json of_spec(const Json& spec) {
    Json made = job("a");
    made["spec"] = spec;
    return made;
  }
  static std::set<std::string> causes(const ApiResponse& refused) {
    std::set<std::string> words;
    for (const Json& cause : refused.body["details"]["causes"])
      words.insert(string_or(cause, "field", "") + ": " + string_or(cause, "message", ""));
    return words;
  }
  // Stores a job that was accepted before there was a check: one with both train and command.
  void store_invalid() {
    make(kJobs, of_spec({{"command", {"a"}}}));
    Api::Snapshot snapshot = api_.snapshot();
    const Json train = {{"data", {{"path", "/d"}}}, {"model", {{"preset", "gpt2-124m"}}}};
    Json stored = get(kJob).body;
    stored["spec"]["train"] = train;
    const auto [type, key] = snapshot.storage.find_uid(uid_of(stored));
    ASSERT_NE(type, nullptr);
    ASSERT_TRUE(snapshot.storage.put(*type, key, stored).ok());
    ASSERT_TRUE(api_.restore(snapshot));
    ASSERT_TRUE(get(kJob).body["spec"].contains("train"));
  }
  const std::string kJob = std::string(kJobs) + "/a";
};

TEST_F(TrainingJobCheck, RefusesANewJobInTheControllersWords) {
  const Json invalid = of_spec({{"nodes", 2},
                                {"command", {"a"}},
                                {"parallelism", {{"pipelineSchedule", "gpipe"}}},
                                {"managedBy", "somebody"}});
  const ApiResponse refused = ask("POST", kJobs, invalid);
  ASSERT_EQ(refused.code, 422) << refused.body;
  EXPECT_EQ(refused.body["reason"], "Invalid");
  const Problems problems = validate(*stored_training_job_from_json(invalid));
  ASSERT_FALSE(problems.empty());
  EXPECT_EQ(causes(refused), std::set<std::string>(problems.begin(), problems.end()));
  EXPECT_EQ(get(kJob).code, 404);
  EXPECT_EQ(ask("POST", std::string(kJobs) + "?dryRun=All", invalid).code, 422);
}

TEST_F(TrainingJobCheck, RefusesBothProgramsAndAFieldThatIsNotInThisVersion) {
  const Json train = {{"data", {{"path", "/d"}}}, {"model", {{"preset", "gpt2-124m"}}}};
  const ApiResponse both = ask("POST", kJobs, of_spec({{"command", {"a"}}, {"train", train}}));
  ASSERT_EQ(both.code, 422) << both.body;
  EXPECT_NE(dump_json(both.body).find("found both train and command"), std::string::npos);
  const ApiResponse later =
      ask("POST", kJobs, of_spec({{"command", {"a"}}, {"scheduling", Json::object()}}));
  ASSERT_EQ(later.code, 422) << later.body;
  EXPECT_NE(dump_json(later.body).find("not in this version"), std::string::npos);
}

TEST_F(TrainingJobCheck, RefusesAnUpdateThatMakesAJobInvalid) {
  make(kJobs, of_spec({{"command", {"a"}}}));
  EXPECT_EQ(ask("PATCH", kJob, {{"spec", {{"managedBy", "somebody"}}}}).code, 422);
  EXPECT_EQ(ask("PATCH", kJob, {{"spec", {{"nodes", 3}}}}).code, 200);
}

TEST_F(TrainingJobCheck, LeavesAStoredInvalidJobManageable) {
  store_invalid();
  const Json status = {{"status", {{"state", "Pending"}}}};
  EXPECT_EQ(ask("PATCH", kJob + "/status", status).code, 200);
  EXPECT_EQ(get(kJob).body["status"]["state"], "Pending");
  EXPECT_EQ(ask("PATCH", kJob, {{"metadata", {{"finalizers", {"a.b/c"}}}}}).code, 200);
  EXPECT_EQ(ask("PATCH", kJob, {{"spec", {{"suspend", true}}}}).code, 200);
  EXPECT_EQ(ask("PATCH", kJob, {{"spec", {{"managedBy", "somebody"}}}}).code, 422)
      << "a new problem";
  EXPECT_EQ(ask("DELETE", kJob).code, 200);
  EXPECT_EQ(ask("PATCH", kJob, {{"metadata", {{"finalizers", nullptr}}}}).code, 200);
  EXPECT_EQ(get(kJob).code, 404);
}

TEST_F(TrainingJobCheck, AcceptsTheCorrectionOfAStoredInvalidJob) {
  store_invalid();
  EXPECT_EQ(ask("PATCH", kJob, {{"spec", {{"command", nullptr}}}}).code, 200);
}

TEST_F(TrainingJobCheck, AStatusWriteWithoutASpecKeepsTheSpec) {
  make(kJobs, of_spec({{"command", {"a"}}}));
  Json written = get(kJob).body;
  written.erase("spec");
  written["status"] = {{"state", "Running"}};
  EXPECT_EQ(ask("PUT", kJob + "/status", written).code, 200);
  EXPECT_EQ(get(kJob).body["spec"]["command"], Json({"a"}));
  EXPECT_EQ(get(kJob).body["status"]["state"], "Running");
}

TEST_F(TrainingJobCheck, AnUnknownPathHasDetails) {
  const ApiResponse missing = ask("GET", std::string(kJobs) + "/a/nothing");
  EXPECT_EQ(missing.code, 404);
  EXPECT_EQ(missing.body["details"], Json::object());
}

}  // namespace
}  // namespace lockstep::local
