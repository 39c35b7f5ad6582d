// Tests scale of custom types and eviction of pods.
#include "tests/local/store/api_fixture.h"

namespace lockstep::local {
namespace {

const std::string kScale = std::string(kJobs) + "/a/scale";

TEST_F(ApiTest, ScaleShowsAndSetsTheReplicas) {
  make(kJobs, job("a"));
  Json scale = get(kScale).body;
  EXPECT_EQ(scale["apiVersion"], "autoscaling/v1");
  EXPECT_EQ(scale["kind"], "Scale");
  EXPECT_EQ(scale["spec"]["replicas"], 1);
  EXPECT_EQ(scale["status"]["replicas"], 0);
  scale["spec"]["replicas"] = 3;
  EXPECT_EQ(ask("PUT", kScale, scale).body["spec"]["replicas"], 3);
  Json object = get(std::string(kJobs) + "/a").body;
  EXPECT_EQ(object["spec"]["nodes"], 3);
  EXPECT_EQ(object["metadata"]["generation"], 2);
  EXPECT_EQ(ask("PUT", kScale, scale).code, 409);  // from an older version
  EXPECT_EQ(ask("PATCH", kScale, {{"spec", {{"replicas", 2}}}}).body["spec"]["replicas"], 2);
  EXPECT_EQ(ask("PATCH", kScale + "?dryRun=All", {{"spec", {{"replicas", 9}}}}).code, 200);
  EXPECT_EQ(get(std::string(kJobs) + "/a").body["spec"]["nodes"], 2);
}

TEST_F(ApiTest, ScalesThatCannotBeAreRefused) {
  make(kJobs, job("a"));
  make(kPods, pod("p"));
  EXPECT_EQ(ask("PATCH", kScale, {{"spec", {{"replicas", -1}}}}).code, 422);
  EXPECT_EQ(ask("PATCH", kScale, {{"spec", {{"replicas", "two"}}}}).code, 400);
  EXPECT_EQ(ask("PATCH", kScale, {{"spec", {{"replicas", 0}}}}).code, 422);  // by the schema
  EXPECT_EQ(get(std::string(kPods) + "/p/scale").code, 404);
  EXPECT_EQ(get(std::string(kJobs) + "/none/scale").code, 404);
  EXPECT_EQ(ask("DELETE", kScale).code, 405);
}

TEST_F(ApiTest, BodiesOfAnotherShapeAreRefusedNotFatal) {
  make(kJobs, job("a"));
  make(kPods, pod("p"));
  for (const Json& body : {Json::array(), Json(5), Json("x"), Json(nullptr)}) {
    EXPECT_EQ(ask("PUT", kScale, body).code, 400) << body;
    EXPECT_EQ(ask("POST", std::string(kPods) + "/p/binding", body).code, 400) << body;
    EXPECT_EQ(ask("POST", std::string(kPods) + "/p/eviction", body).code, 400) << body;
  }
  EXPECT_EQ(ask("PUT", kScale, {{"metadata", 5}, {"spec", {{"replicas", 2}}}}).code, 400);
  Json odd = get(std::string(kPods) + "/p").body;
  odd["status"] = 5;
  ask("PUT", std::string(kPods) + "/p/status", odd);
  bind("p");
  EXPECT_EQ(get(std::string(kPods) + "/p").body["spec"]["nodeName"].is_string(), true);
}

TEST_F(ApiTest, AGraceWithoutEndIsShownAsACentury) {
  make(kPods, pod("p"));
  bind("p");
  const std::string target = std::string(kPods) + "/p";
  EXPECT_EQ(ask("DELETE", target, {{"gracePeriodSeconds", INT64_MAX}}).code, 200);
  const std::string gone_by = get(target).body["metadata"]["deletionTimestamp"];
  EXPECT_TRUE(wall_time_from_rfc3339(gone_by).ok()) << gone_by;
}

TEST_F(ApiTest, AnEvictionDeletesThePod) {
  make(kPods, pod("p"));
  bind("p");
  const Json eviction = {{"apiVersion", "policy/v1"},
                         {"kind", "Eviction"},
                         {"metadata", {{"name", "p"}}},
                         {"deleteOptions", {{"gracePeriodSeconds", 5}}}};
  const std::string target = std::string(kPods) + "/p/eviction";
  EXPECT_EQ(ask("POST", target + "?dryRun=All", eviction).code, 201);
  EXPECT_FALSE(get(std::string(kPods) + "/p").body["metadata"].contains("deletionTimestamp"));
  EXPECT_EQ(ask("POST", target, eviction).code, 201);
  EXPECT_EQ(get(std::string(kPods) + "/p").body["metadata"]["deletionGracePeriodSeconds"], 5);
  EXPECT_EQ(ask("POST", std::string(kPods) + "/none/eviction", eviction).code, 404);
}

TEST_F(ApiTest, AnEvictionReadsItsDeleteOptions) {
  make(kPods, pod("p"));
  const std::string target = std::string(kPods) + "/p/eviction";
  const auto evict = [&](const Json& options) {
    return ask("POST", target, {{"kind", "Eviction"}, {"deleteOptions", options}}).code;
  };
  EXPECT_EQ(evict(Json::array()), 400);
  EXPECT_EQ(evict({{"gracePeriodSeconds", "x"}}), 400);
  EXPECT_EQ(evict({{"dryRun", {"Some"}}}), 422);
  EXPECT_EQ(evict({{"preconditions", {{"uid", "another"}}}}), 409);
  EXPECT_EQ(evict({{"dryRun", {"All"}}}), 201);
  EXPECT_EQ(get(std::string(kPods) + "/p").code, 200) << "nothing was to be done yet";
  EXPECT_EQ(evict(nullptr), 201);
}

TEST_F(ApiTest, DiscoveryListsSubresources) {
  auto kind_of = [&](const std::string& list, const std::string& name) -> std::string {
    const Json resources = get(list).body["resources"];
    for (const Json& entry : resources)
      if (entry["name"] == name) return entry["kind"];
    return "absent";
  };
  EXPECT_EQ(kind_of("/apis/lockstep.dev/v1alpha1", "trainingjobs/scale"), "Scale");
  EXPECT_EQ(kind_of("/api/v1", "pods/eviction"), "Eviction");
  EXPECT_EQ(kind_of("/api/v1", "pods/log"), "Pod");
}

// kubectl 1.20 deletes pods instead of evicting them if discovery does not list this group.
TEST_F(ApiTest, DiscoveryListsTheGroupOfEvictions) {
  Json names = Json::array();
  const Json groups = get("/apis").body["groups"];
  for (const Json& group : groups) names.push_back(group["name"]);
  EXPECT_NE(std::find(names.begin(), names.end(), "policy"), names.end()) << names;
  EXPECT_EQ(get("/apis/policy").body["preferredVersion"]["groupVersion"], "policy/v1");
  const Json list = get("/apis/policy/v1beta1").body;
  ASSERT_EQ(list["resources"].size(), 1u) << list;
  EXPECT_EQ(list["resources"][0]["verbs"], Json::array()) << "budgets are not served";
  EXPECT_EQ(get("/apis/policy/v2").code, 404);
}

}  // namespace
}  // namespace lockstep::local
