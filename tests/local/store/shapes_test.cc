// Sends malformed bodies to every path in discovery, with every verb that writes.
#include "tests/local/store/api_fixture.h"

namespace lockstep::local {
namespace {

constexpr const char* kPatchTypes[] = {
    "application/json-patch+json", "application/merge-patch+json",
    "application/strategic-merge-patch+json", "application/apply-patch+yaml"};

// Returns the path of a resource from discovery; objects are named "a".
std::string target_of(const std::string& prefix, const Json& resource, bool of_object) {
  const std::string name = resource["name"];
  const size_t slash = name.find('/');
  std::string target = prefix;
  if (resource["namespaced"] == true) target += "/namespaces/default";
  target += "/" + name.substr(0, slash);
  if (of_object || slash != std::string::npos) target += "/a";
  return slash == std::string::npos ? target : target + name.substr(slash);
}

class ShapesTest : public ApiTest {
 protected:
  ShapesTest() {
    make(kJobs, job("a"));
    make(kPods, pod("a"));
    make("/api/v1/nodes", {{"metadata", {{"name", "a"}}}});
    for (const char* plural : {"secrets", "configmaps"})
      make("/api/v1/namespaces/default/" + std::string(plural), {{"metadata", {{"name", "a"}}}});
  }

  std::vector<std::string> groups() {
    std::vector<std::string> prefixes = {"/api/v1"};
    const Json known = get("/apis").body;
    for (const Json& group : known["groups"]) {
      for (const Json& version : group["versions"])
        prefixes.push_back("/apis/" + version["groupVersion"].get<std::string>());
    }
    return prefixes;
  }

  void send(const std::string& method, const std::string& type, const std::string& target,
            const std::string& body) {
    const ApiResponse answer = api_.handle({method, target, type, body});
    EXPECT_GE(answer.code, 200);
    EXPECT_LT(answer.code, 500) << method << " " << target << " " << type << " " << body << ": "
                                << answer.body;
    if (!answer.ok()) {
      EXPECT_EQ(answer.body.value("kind", ""), "Status") << method << " " << target;
    }
    ++sent_;
  }

  void send_all(const std::string& prefix, const Json& resource, const std::string& body) {
    for (const Json& verb : resource["verbs"]) {
      if (verb == "create")
        send("POST", "application/json", target_of(prefix, resource, false), body);
      if (verb == "update")
        send("PUT", "application/json", target_of(prefix, resource, true), body);
      if (verb == "delete")
        send("DELETE", "application/json", target_of(prefix, resource, true) + "?dryRun=All", body);
      if (verb != "patch") continue;
      for (const char* type : kPatchTypes)
        send("PATCH", type, target_of(prefix, resource, true) + "?fieldManager=m", body);
    }
  }

  int sent_ = 0;
};

TEST_F(ShapesTest, AreAnsweredWithWords) {
  const char* bodies[] = {"",
                          "[]",
                          "[{}]",
                          "[[]]",
                          "null",
                          "0",
                          "-1.5",
                          "\"a\"",
                          "true",
                          "{}",
                          R"({"metadata": []})",
                          R"({"metadata": 5, "spec": {}})",
                          R"({"metadata": {"name": 5}})",
                          R"({"metadata": {"name": "a"}, "spec": []})",
                          R"({"metadata": {"name": "a"}, "spec": 5, "status": "x"})",
                          R"({"metadata": {"name": "a", "labels": [], "annotations": 5}})",
                          R"({"metadata": {"name": "a", "ownerReferences": {}, "finalizers": 1}})",
                          R"({"metadata": {"name": "a", "managedFields": [5]}})",
                          R"({"target": [], "deleteOptions": [], "spec": {"replicas": []}})",
                          R"([{"op": "add", "path": "/metadata", "value": []}])",
                          R"([{"op": 5, "path": [], "value": {}}])"};
  for (const std::string& prefix : groups()) {
    const Json known = get(prefix).body;
    for (const Json& resource : known["resources"]) {
      for (const char* body : bodies) {
        send_all(prefix, resource, body);
        // Evictions succeed without options, so the pod may be gone.
        if (get(std::string(kPods) + "/a").code == 404) make(kPods, pod("a"));
      }
    }
  }
  EXPECT_GT(sent_, 1000) << "discovery names too little";
  EXPECT_EQ(get(std::string(kJobs) + "/a").code, 200);
}

}  // namespace
}  // namespace lockstep::local
