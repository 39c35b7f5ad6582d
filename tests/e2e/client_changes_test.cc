// Commands that change what runs: suspend, resume, scale, and the machines of `lockstep up`.
#include "tests/e2e/client_fixture.h"

namespace lockstep::test {
namespace {

class ClientChangesTest : public ClientFixture {
 protected:
  static void SetUpTestSuite() { start(3); }

  // Writes a job whose ranks wait until they are killed.
  static std::string waiting_job(const std::string& name, int nodes) {
    const std::string file = path(name + ".yaml");
    write_file(file, "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: " +
                         name + "}\nspec:\n  nodes: " + std::to_string(nodes) +
                         "\n  terminationGracePeriodSeconds: 5\n  command: [sleep, '1000']\n");
    return file;
  }
  static Json object(const std::string& name) {
    const Result<Json> found = parse_json(tool({"status", name, "-o", "json"}).output);
    return found.ok() ? *found : Json::object();
  }
  static bool is_in_state(const std::string& name, const std::string& state, int nodes) {
    return eventually([&] {
      const Json job = object(name);
      return job.value("/status/state"_json_pointer, "") == state &&
             job.value("/spec/nodes"_json_pointer, 0) == nodes;
    });
  }
  // Returns the lines of `machine list`, by machine.
  static std::map<std::string, std::string> machines() {
    std::istringstream text(tool({"machine", "list"}).output);
    std::map<std::string, std::string> lines;
    for (std::string line; std::getline(text, line);) lines[line.substr(0, line.find(' '))] = line;
    return lines;
  }
  static bool eventually_shows(const std::string& machine, const std::string& words) {
    return eventually([&] { return has(machines()[machine], words); });
  }
  static std::string pods_of(const std::string& name) {
    const std::string page = tool({"status", name}).output;
    const size_t pods = page.find("Pods:\n");
    return pods == std::string::npos ? "" : page.substr(pods, page.find("Events:\n", pods) - pods);
  }
};

TEST_F(ClientChangesTest, AJobIsSuspendedScaledAndResumed) {
  ASSERT_EQ(tool({"submit", waiting_job("changed", 1)}).code, 0);
  ASSERT_TRUE(is_in_state("changed", "Running", 1)) << tool({"status", "changed"}).output;

  Outcome outcome = tool({"suspend", "changed"});
  EXPECT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, "trainingjob.lockstep.dev/changed suspended\n");
  ASSERT_TRUE(is_in_state("changed", "Suspended", 1)) << tool({"status", "changed"}).output;
  EXPECT_TRUE(eventually([] { return !has(pods_of("changed"), "changed-worker-0"); }))
      << pods_of("changed");

  EXPECT_EQ(tool({"scale", "changed", "--nodes", "2"}).output,
            "trainingjob.lockstep.dev/changed scaled\n");
  EXPECT_EQ(tool({"resume", "changed"}).output, "trainingjob.lockstep.dev/changed resumed\n");
  ASSERT_TRUE(is_in_state("changed", "Running", 2)) << tool({"status", "changed"}).output;
  EXPECT_TRUE(has(pods_of("changed"), "changed-worker-1")) << pods_of("changed");
  EXPECT_EQ(tool({"delete", "changed"}).code, 0);
}

TEST_F(ClientChangesTest, WhatIsNotThereOrMakesNoSenseIsRefused) {
  for (const char* command : {"suspend", "resume"}) {
    const Outcome outcome = tool({command, "nothing"});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_TRUE(has(outcome.errors, "Error from server (NotFound): ")) << outcome.errors;
  }
  for (const char* nodes : {"0", "-1", "many"})
    EXPECT_NE(tool({"scale", "nothing", "--nodes", nodes}).code, 0) << nodes;
  EXPECT_NE(tool({"scale", "nothing"}).code, 0) << "how many?";
  const Outcome outcome = tool({"machine", "kill", "local-7"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(has(outcome.errors, "nodes \"local-7\" not found")) << outcome.errors;
}

TEST_F(ClientChangesTest, AJobIsNotScaledToANumberThatItCannotHave) {
  const std::string file = path("paired.yaml");
  write_file(file, R"(apiVersion: lockstep.dev/v1alpha1
kind: TrainingJob
metadata: {name: paired}
spec:
  nodes: 2
  suspend: true
  processGroups: [{name: pair, ranks: "0,1"}]
  command: [sleep, '1000']
)");
  ASSERT_EQ(tool({"submit", file}).code, 0);
  const Outcome outcome = tool({"scale", "paired", "--nodes", "1"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(has(outcome.errors, "spec.processGroups")) << outcome.errors;
  EXPECT_EQ(object("paired").value("/spec/nodes"_json_pointer, 0), 2);
  EXPECT_EQ(tool({"scale", "paired", "--nodes", "4"}).code, 0);
  EXPECT_EQ(tool({"delete", "paired"}).code, 0);
}

TEST_F(ClientChangesTest, TheWideListSaysMore) {
  ASSERT_EQ(tool({"submit", waiting_job("wide", 1)}).code, 0);
  const auto header = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  const std::string plain = header(tool({"list"}).output);
  const std::string wide = header(tool({"list", "-o", "wide"}).output);
  EXPECT_TRUE(has(plain, "STATE") && has(wide, "STATE")) << wide;
  EXPECT_TRUE(has(wide, "SAMPLES/S")) << wide;
  EXPECT_FALSE(has(plain, "SAMPLES/S")) << plain;
  EXPECT_EQ(tool({"delete", "wide"}).code, 0);
}

TEST_F(ClientChangesTest, AMachineIsDrainedKilledAndRestored) {
  ASSERT_TRUE(eventually_shows("local-2", "Ready"));
  ASSERT_EQ(machines().size(), 4u) << "a header and three machines";
  ASSERT_EQ(tool({"submit", waiting_job("moved", 1)}).code, 0);
  ASSERT_TRUE(is_in_state("moved", "Running", 1));
  const auto machine_of_job = [] {
    const std::string pods = pods_of("moved");
    for (const char* name : {"local-0", "local-1", "local-2"}) {
      if (has(pods, name)) return std::string(name);
    }
    return std::string();
  };
  const std::string first = machine_of_job();
  ASSERT_FALSE(first.empty()) << pods_of("moved");

  Outcome outcome = tool({"machine", "drain", first});
  EXPECT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_TRUE(outcome.output.starts_with("node/" + first + " cordoned\n")) << outcome.output;
  EXPECT_TRUE(has(outcome.output, "evicting pod default/moved-worker-0")) << outcome.output;
  EXPECT_TRUE(has(machines()[first], "SchedulingDisabled")) << machines()[first];
  ASSERT_TRUE(eventually([&] {
    return !machine_of_job().empty() && machine_of_job() != first &&
           object("moved").value("/status/state"_json_pointer, "") == "Running";
  })) << tool({"status", "moved"}).output;

  const std::string second = machine_of_job();
  EXPECT_EQ(tool({"machine", "kill", second}).output, "machine/" + second + " killed\n");
  EXPECT_TRUE(eventually_shows(second, " off ")) << machines()[second];
  EXPECT_TRUE(eventually_shows(second, "NotReady")) << machines()[second];

  for (const std::string& name : {first, second}) {
    EXPECT_EQ(tool({"machine", "restore", name}).output, "machine/" + name + " restored\n");
    EXPECT_TRUE(eventually_shows(name, " on ")) << machines()[name];
    EXPECT_TRUE(eventually([&] { return !has(machines()[name], "NotReady"); })) << machines()[name];
    EXPECT_FALSE(has(machines()[name], "SchedulingDisabled")) << machines()[name];
  }
  EXPECT_EQ(tool({"delete", "moved"}).code, 0);
}

}  // namespace
}  // namespace lockstep::test
