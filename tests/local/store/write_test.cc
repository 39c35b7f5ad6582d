// Tests writes: all kinds of patches, server-side apply, schemas of custom types, options.
#include "tests/local/store/api_fixture.h"

namespace lockstep::local {
namespace {

constexpr char kConfigs[] = "/api/v1/namespaces/default/configmaps";
constexpr char kCrds[] = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
constexpr char kApplyPatch[] = "application/apply-patch+yaml";
constexpr char kJsonPatch[] = "application/json-patch+json";
constexpr char kStrategic[] = "application/strategic-merge-patch+json";

const std::string kJob = std::string(kJobs) + "/a";

Json config(const std::string& name, const Json& data) {
  return {
      {"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", name}}}, {"data", data}};
}

bool has_cause(const ApiResponse& response, const std::string& field) {
  const Json causes = response.body["details"].value("causes", Json::array());
  for (const Json& cause : causes)
    if (cause["field"] == field) return true;
  return false;
}

TEST_F(ApiTest, JsonPatchesChangeSingleFields) {
  make(kJobs, job("a"));
  ApiResponse changed =
      send("PATCH", kJob, kJsonPatch,
           Json::array({{{"op", "replace"}, {"path", "/spec/nodes"}, {"value", 3}}}));
  EXPECT_EQ(changed.code, 200) << changed.body;
  EXPECT_EQ(changed.body["spec"]["nodes"], 3);
  ApiResponse failed = send("PATCH", kJob, kJsonPatch,
                            Json::array({{{"op", "test"}, {"path", "/spec/nodes"}, {"value", 7}}}));
  EXPECT_EQ(failed.code, 422);
  EXPECT_EQ(failed.body["reason"], "Invalid");
  EXPECT_EQ(send("PATCH", kJob, kJsonPatch, {{"op", "remove"}}).code, 400);
  ApiResponse status =
      send("PATCH", kJob + "/status", kJsonPatch,
           Json::array({{{"op", "add"}, {"path", "/status"}, {"value", {{"state", "Running"}}}}}));
  EXPECT_EQ(status.body["status"]["state"], "Running");
}

TEST_F(ApiTest, StrategicPatchesMergeListsOfBuiltInKinds) {
  make(kPods, pod("p"));
  ApiResponse changed = send("PATCH", std::string(kPods) + "/p", kStrategic,
                             {{"spec", {{"containers", {{{"name", "node"}, {"image", "new"}}}}}}});
  EXPECT_EQ(changed.code, 200) << changed.body;
  EXPECT_EQ(changed.body["spec"]["containers"].size(), 1u);
  EXPECT_EQ(changed.body["spec"]["containers"][0]["image"], "new");
}

TEST_F(ApiTest, TheSchemaRefusesPrunesAndWarns) {
  Json bad = job("a");
  bad["spec"]["nodes"] = "two";
  ApiResponse refused = ask("POST", kJobs, bad);
  EXPECT_EQ(refused.code, 422);
  EXPECT_TRUE(has_cause(refused, "spec.nodes")) << refused.body;

  Json long_name = job(std::string(41, 'n'));
  EXPECT_TRUE(has_cause(ask("POST", kJobs, long_name), "metadata.name"));

  Json unknown = job("a");
  unknown["spec"]["nodse"] = 2;
  ApiResponse strict = ask("POST", std::string(kJobs) + "?fieldValidation=Strict", unknown);
  EXPECT_EQ(strict.code, 400);
  EXPECT_NE(strict.body["message"].get<std::string>().find("unknown field \"spec.nodse\""),
            std::string::npos);
  ApiResponse ignored =
      ask("POST", std::string(kJobs) + "?fieldValidation=Ignore&dryRun=All", unknown);
  EXPECT_TRUE(ignored.warnings.empty());
  ApiResponse warned = ask("POST", kJobs, unknown);
  EXPECT_EQ(warned.code, 201);
  EXPECT_EQ(warned.warnings, std::vector<std::string>{"unknown field \"spec.nodse\""});
  EXPECT_FALSE(warned.body["spec"].contains("nodse"));

  ApiResponse patch = ask("PATCH", kJob, {{"spec", {{"nodes", -1}}}});
  EXPECT_EQ(patch.code, 422);
  EXPECT_EQ(get(kJob).body["spec"]["nodes"], 1);
}

TEST_F(ApiTest, TheSchemaFillsInDefaults) {
  Json schema = {{"type", "object"},
                 {"properties",
                  {{"spec",
                    {{"type", "object"},
                     {"default", Json::object()},
                     {"properties", {{"size", {{"type", "integer"}, {"default", 4}}}}}}}}}};
  make(kCrds, {{"metadata", {{"name", "toys.example.com"}}},
               {"spec",
                {{"group", "example.com"},
                 {"scope", "Cluster"},
                 {"names", {{"plural", "toys"}, {"kind", "Toy"}}},
                 {"versions",
                  {{{"name", "v1"},
                    {"served", true},
                    {"storage", true},
                    {"schema", {{"openAPIV3Schema", schema}}}}}}}}});
  Json made =
      make("/apis/example.com/v1/toys",
           {{"apiVersion", "example.com/v1"}, {"kind", "Toy"}, {"metadata", {{"name", "a"}}}});
  EXPECT_EQ(made["spec"]["size"], 4);
}

TEST_F(ApiTest, ApplyCreatesAndUpdatesWhatTheManagerOwns) {
  const std::string target = std::string(kConfigs) + "/c?fieldManager=one";
  EXPECT_EQ(
      send("PATCH", std::string(kConfigs) + "/c", kApplyPatch, config("c", Json::object())).code,
      422);
  ApiResponse made = send("PATCH", target, kApplyPatch, config("c", {{"a", "1"}, {"b", "1"}}));
  EXPECT_EQ(made.code, 201) << made.body;
  EXPECT_EQ(made.body["metadata"]["managedFields"][0]["manager"], "one");
  EXPECT_EQ(made.body["metadata"]["managedFields"][0]["operation"], "Apply");
  ApiResponse again = send("PATCH", target, kApplyPatch, config("c", {{"a", "1"}, {"b", "1"}}));
  EXPECT_EQ(again.code, 200);
  EXPECT_EQ(again.body, made.body);  // nothing was written
  ApiResponse less = send("PATCH", target, kApplyPatch, config("c", {{"a", "2"}}));
  EXPECT_EQ(less.body["data"], Json({{"a", "2"}}));
}

TEST_F(ApiTest, ApplyMeetsTheFieldsOfOthers) {
  make(std::string(kConfigs) + "?fieldManager=maker", config("c", {{"a", "1"}}));
  const std::string target = std::string(kConfigs) + "/c?fieldManager=two";
  ApiResponse conflict = send("PATCH", target, kApplyPatch, config("c", {{"a", "2"}}));
  EXPECT_EQ(conflict.code, 409);
  EXPECT_EQ(conflict.body["reason"], "Conflict");
  EXPECT_EQ(conflict.body["details"]["causes"][0]["reason"], "FieldManagerConflict");
  EXPECT_EQ(conflict.body["details"]["causes"][0]["field"], ".data.a");
  ApiResponse forced =
      send("PATCH", target + "&force=true", kApplyPatch, config("c", {{"a", "2"}}));
  EXPECT_EQ(forced.code, 200) << forced.body;
  EXPECT_EQ(forced.body["data"]["a"], "2");
}

TEST_F(ApiTest, ApplyReadsYamlAndKeepsStatusApart) {
  std::string yaml =
      "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: a}\n"
      "spec: {nodes: 2, command: [a]}\nstatus: {state: Complete}\n";
  ApiResponse made = api_.handle({"PATCH", kJob + "?fieldManager=me", kApplyPatch, yaml});
  EXPECT_EQ(made.code, 201) << made.body;
  EXPECT_EQ(made.body["spec"]["nodes"], 2);
  EXPECT_FALSE(made.body.contains("status"));
  ApiResponse status = api_.handle({"PATCH", kJob + "/status?fieldManager=me", kApplyPatch, yaml});
  EXPECT_EQ(status.code, 200) << status.body;
  EXPECT_EQ(status.body["status"]["state"], "Complete");
  EXPECT_EQ(status.body["metadata"]["managedFields"].size(), 2u) << status.body["metadata"];
  EXPECT_EQ(api_.handle({"POST", kConfigs, "application/yaml", "metadata: {name: y}\n"}).code, 201);
}

TEST_F(ApiTest, UpdatesAreRecordedUnderTheirManager) {
  ApiRequest request{"POST", kJobs, "application/json", dump_json(job("a"))};
  request.user_agent = "kubectl/v1.33.0 (linux/amd64)";
  Json made = api_.handle(request).body;
  EXPECT_EQ(made["metadata"]["managedFields"][0]["manager"], "kubectl");
  EXPECT_EQ(made["metadata"]["managedFields"][0]["operation"], "Update");
  EXPECT_FALSE(make(kPods, pod("p"))["metadata"].contains("managedFields"));
}

TEST_F(ApiTest, OptionsThatAreNoneAreRefused) {
  make(kJobs, job("a"));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"dryRun=Some", "dryRun"},
      {"fieldValidation=Maybe", "fieldValidation"},
      {"force=true", "force"},
      {"fieldManager=" + std::string(129, 'm'), "fieldManager"},
  };
  for (const auto& [query, field] : cases) {
    ApiResponse refused = ask("PATCH", kJob + "?" + query, Json::object());
    EXPECT_EQ(refused.code, 422) << query;
    EXPECT_TRUE(has_cause(refused, field)) << query << refused.body;
  }
}

TEST_F(ApiTest, DryRunsOfEveryPatchLeaveNoTrace) {
  Json before = make(std::string(kConfigs), config("c", {{"a", "1"}}));
  const std::string target = std::string(kConfigs) + "/c?dryRun=All&fieldManager=me";
  EXPECT_EQ(send("PATCH", target, kStrategic, {{"data", {{"a", "2"}}}}).body["data"]["a"], "2");
  EXPECT_EQ(send("PATCH", target + "&force=true", kApplyPatch, config("c", {{"a", "3"}}))
                .body["data"]["a"],
            "3");
  EXPECT_EQ(get(std::string(kConfigs) + "/c").body, before);
  EXPECT_EQ(send("PATCH", std::string(kConfigs) + "/new?dryRun=All&fieldManager=me", kApplyPatch,
                 config("new", Json::object()))
                .code,
            201);
  EXPECT_EQ(get(std::string(kConfigs) + "/new").code, 404);
}

}  // namespace
}  // namespace lockstep::local
