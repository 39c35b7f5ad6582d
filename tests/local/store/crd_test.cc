// Tests types that are added and removed with their CustomResourceDefinitions, and namespaces with
// their content.
#include "tests/local/store/api_fixture.h"

namespace lockstep::local {
namespace {

constexpr char kCrds[] = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
constexpr char kToys[] = "/apis/example.com/v1/namespaces/default/toys";

Json version(const std::string& name, bool storage = true) {
  return {{"name", name},
          {"served", true},
          {"storage", storage},
          {"schema",
           {{"openAPIV3Schema",
             {{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}}}}}};
}

Json crd(const std::string& plural = "toys", const std::string& kind = "Toy") {
  return {{"apiVersion", "apiextensions.k8s.io/v1"},
          {"kind", "CustomResourceDefinition"},
          {"metadata", {{"name", plural + ".example.com"}}},
          {"spec",
           {{"group", "example.com"},
            {"scope", "Namespaced"},
            {"names", {{"plural", plural}, {"kind", kind}, {"shortNames", {"ty" + plural}}}},
            {"versions", Json::array({version("v1")})}}}};
}

Json toy(const std::string& name) {
  return {{"apiVersion", "example.com/v1"}, {"kind", "Toy"}, {"metadata", {{"name", name}}}};
}

std::string condition(const Json& object, const std::string& type) {
  for (const Json& each : object["status"]["conditions"])
    if (each["type"] == type) return each["status"];
  return "absent";
}

TEST_F(ApiTest, TheTrainingJobIsACustomResourceOfTheChart) {
  Json found = get(std::string(kCrds) + "/trainingjobs.lockstep.dev").body;
  EXPECT_EQ(condition(found, "NamesAccepted"), "True");
  EXPECT_EQ(condition(found, "Established"), "True");
  EXPECT_EQ(found["status"]["storedVersions"], Json({"v1alpha1"}));
  EXPECT_EQ(found["status"]["acceptedNames"]["listKind"], "TrainingJobList");
  EXPECT_EQ(get(kJobs).body["kind"], "TrainingJobList");
}

TEST_F(ApiTest, ADefinitionAddsItsType) {
  EXPECT_EQ(get(kToys).code, 404);
  Json made = make(kCrds, crd());
  EXPECT_EQ(condition(made, "Established"), "True");
  EXPECT_EQ(made["spec"]["names"]["singular"], "toy");
  make(kToys, toy("a"));
  EXPECT_EQ(get(std::string(kToys) + "/a").body["kind"], "Toy");
  Json listed = get("/apis/example.com/v1").body["resources"];
  EXPECT_EQ(listed[0]["name"], "toys");
  EXPECT_EQ(listed[0]["shortNames"], Json({"tytoys"}));
  Json group = get("/apis/example.com").body;
  EXPECT_EQ(group["preferredVersion"]["groupVersion"], "example.com/v1");
}

TEST_F(ApiTest, VersionsServeTheSameObjects) {
  Json two = crd();
  two["spec"]["versions"] = {version("v1alpha1"), version("v1", false)};
  make(kCrds, two);
  make(kToys, toy("a"));
  Json old = get("/apis/example.com/v1alpha1/namespaces/default/toys/a").body;
  EXPECT_EQ(old["apiVersion"], "example.com/v1alpha1");
  EXPECT_EQ(get("/apis/example.com").body["preferredVersion"]["version"], "v1");
  // Dropping a served version, or changing the storage version, changes no stored object.
  Json now = get(std::string(kCrds) + "/toys.example.com").body;
  now["spec"]["versions"][0]["served"] = false;
  now["spec"]["versions"][0]["storage"] = false;
  now["spec"]["versions"][1]["storage"] = true;
  EXPECT_EQ(ask("PUT", std::string(kCrds) + "/toys.example.com", now).code, 200);
  EXPECT_EQ(get("/apis/example.com/v1alpha1/namespaces/default/toys/a").code, 404);
  EXPECT_EQ(get(std::string(kToys) + "/a").body["apiVersion"], "example.com/v1");
  EXPECT_EQ(get(std::string(kCrds) + "/toys.example.com").body["status"]["storedVersions"],
            Json({"v1alpha1", "v1"}));
}

TEST_F(ApiTest, ADefinitionTakesItsObjectsAlong) {
  make(kCrds, crd());
  Json held = toy("held");
  held["metadata"]["finalizers"] = {"example.com/wait"};
  make(kToys, toy("a"));
  make(kToys, held);
  Watch toys = watch(std::string(kToys) + "?watch=1");
  EXPECT_EQ(events(toys), "ADDED a, ADDED held");
  EXPECT_EQ(ask("DELETE", std::string(kCrds) + "/toys.example.com").code, 200);
  EXPECT_EQ(events(toys), "DELETED a, MODIFIED held");
  Json waiting = get(std::string(kCrds) + "/toys.example.com").body;
  EXPECT_TRUE(waiting["metadata"].contains("deletionTimestamp"));
  ask("PATCH", std::string(kToys) + "/held", {{"metadata", {{"finalizers", nullptr}}}});
  EXPECT_EQ(get(std::string(kCrds) + "/toys.example.com").code, 404);
  EXPECT_EQ(get(kToys).code, 404);
  EXPECT_EQ(events(toys), "DELETED held");
  EXPECT_TRUE(toys.ended);
}

TEST_F(ApiTest, ADefinitionThatComesAgainBeginsAnew) {
  make(kCrds, crd());
  make(kToys, toy("a"));
  Json list = get(kToys).body;
  ask("DELETE", std::string(kCrds) + "/toys.example.com");
  make(kCrds, crd());
  EXPECT_EQ(get(kToys).body["items"].size(), 0u);
  Watch old = watch(std::string(kToys) + "?watch=1&resourceVersion=" +
                    list["metadata"]["resourceVersion"].get<std::string>());
  EXPECT_EQ(events(old), "ERROR Expired");
}

TEST_F(ApiTest, NamesThatAreTakenAreNotAccepted) {
  make(kCrds, crd());
  Json second = make(kCrds, crd("toyz", "Toy"));
  EXPECT_EQ(condition(second, "NamesAccepted"), "False");
  EXPECT_EQ(condition(second, "Established"), "False");
  EXPECT_EQ(get("/apis/example.com/v1/namespaces/default/toyz").code, 404);
  EXPECT_EQ(ask("DELETE", std::string(kCrds) + "/toyz.example.com").code, 200);
  EXPECT_EQ(get(kToys).code, 200);
}

TEST_F(ApiTest, BrokenDefinitionsAreRefusedByPath) {
  struct Case {
    std::string pointer;
    Json value;
    std::string field;
  };
  const std::vector<Case> cases = {
      {"/metadata/name", "other.example.com", "metadata.name"},
      {"/spec/group", "nodots", "spec.group"},
      {"/spec/scope", "Everywhere", "spec.scope"},
      {"/spec/names/plural", "Toys", "spec.names.plural"},
      {"/spec/names/kind", nullptr, "spec.names.kind"},
      {"/spec/names/listKind", "Toy", "spec.names.listKind"},
      {"/spec/versions", Json::array(), "spec.versions"},
      {"/spec/versions", 7, "spec.versions"},
      {"/spec/names", "toys", "spec.names.plural"},
      {"/spec/versions/0/storage", false, "spec.versions"},
      {"/spec/versions/0/schema", nullptr, "spec.versions[0].schema.openAPIV3Schema"},
      {"/spec/versions/0/subresources",
       {{"scale", {{"specReplicasPath", ".status.x"}, {"statusReplicasPath", ".status.y"}}}},
       "spec.versions[0].subresources.scale.specReplicasPath"},
      {"/spec/conversion", {{"strategy", "Webhook"}}, "spec.conversion.strategy"},
  };
  for (const Case& bad : cases) {
    Json document = crd();
    document[Json::json_pointer(bad.pointer)] = bad.value;
    ApiResponse refused = ask("POST", kCrds, document);
    EXPECT_EQ(refused.code, 422) << bad.pointer << refused.body;
    bool named = false;
    for (const Json& cause : refused.body["details"]["causes"])
      named = named || cause["field"] == bad.field;
    EXPECT_TRUE(named) << bad.pointer << ": " << refused.body;
  }
  Json made = make(kCrds, crd());
  made["spec"]["scope"] = "Cluster";
  EXPECT_EQ(ask("PUT", std::string(kCrds) + "/toys.example.com", made).code, 422);
}

TEST_F(ApiTest, ThereAreOnlySoManyDefinitions) {
  int code = 201;
  for (int i = 0; i < 300 && code == 201; ++i) {
    std::string name = "toys" + std::to_string(i);
    code = ask("POST", kCrds, crd(name, "Kind" + std::to_string(i))).code;
  }
  EXPECT_EQ(code, 507);
  EXPECT_EQ(ask("DELETE", std::string(kCrds) + "/toys0.example.com").code, 200);
  EXPECT_EQ(ask("POST", kCrds, crd("more", "More")).code, 201);
}

TEST_F(ApiTest, ANamespaceTakesItsContentAlong) {
  make("/api/v1/namespaces", {{"metadata", {{"name", "team"}}}});
  const std::string secrets = "/api/v1/namespaces/team/secrets";
  make(secrets, {{"metadata", {{"name", "s"}}}});
  Json held = {{"metadata", {{"name", "held"}, {"finalizers", {"example.com/wait"}}}}};
  make(secrets, held);
  ApiResponse deleted = ask("DELETE", "/api/v1/namespaces/team");
  EXPECT_EQ(deleted.code, 200);
  EXPECT_EQ(deleted.body["status"]["phase"], "Terminating");
  EXPECT_EQ(get(secrets + "/s").code, 404);
  ApiResponse refused = ask("POST", secrets, {{"metadata", {{"name", "late"}}}});
  EXPECT_EQ(refused.code, 403);
  EXPECT_EQ(refused.body["message"],
            "secrets \"late\" is forbidden: unable to create new content in namespace team because "
            "it is being terminated");
  EXPECT_EQ(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
  ask("PATCH", secrets + "/held", {{"metadata", {{"finalizers", nullptr}}}});
  EXPECT_EQ(get("/api/v1/namespaces/team").code, 404);
}

TEST_F(ApiTest, TheSystemsNamespacesStay) {
  EXPECT_EQ(ask("DELETE", "/api/v1/namespaces/default").code, 403);
  EXPECT_EQ(ask("DELETE", "/api/v1/namespaces/kube-system").code, 403);
}

}  // namespace
}  // namespace lockstep::local
