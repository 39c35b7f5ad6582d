// Tests the files and variables that a pod gets from Secrets, ConfigMaps and its own fields.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "local/node/environment.h"
#include "local/node/files.h"
#include "local/node/volumes.h"
#include "tests/support/job_run.h"

namespace lockstep::local {
namespace {

class PodSourcesTest : public testing::Test {
 protected:
  PodSourcesTest() {
    objects_["configmaps/m"] = {
        {"kind", "ConfigMap"}, {"data", {{"a", "1"}, {"b", "2"}}}, {"binaryData", {{"c", "AAH/"}}}};
    objects_["secrets/s"] = {{"kind", "Secret"}, {"data", {{"key", "aGlkZGVu"}, {"b", "Mw=="}}}};
    objects_["configmaps/wrong"] = {{"kind", "ConfigMap"}, {"binaryData", {{"x", "%"}}}};
  }

  // Makes a pod with this volume, named `v`, at /data of its container.
  Status make_volume(Json volume) {
    volume["name"] = "v";
    pod_["spec"]["volumes"] = Json::array({std::move(volume)});
    pod_["spec"]["containers"][0]["volumeMounts"] =
        Json::array({{{"name", "v"}, {"mountPath", "/data"}}});
    TRY_ASSIGN(PodPlan plan, plan_pod(pod_));
    return PodFolder(pod_folder()).make({pod_, plan, facts_, reader_});
  }
  Result<Environment> environment(const Json& from, const Json& env = Json::array()) {
    Json& container = pod_["spec"]["containers"][0];
    container["envFrom"] = from;
    container["env"] = env;
    TRY_ASSIGN(PodPlan plan, plan_pod(pod_));
    return container_environment({pod_, plan, facts_, reader_}, plan.containers[0]);
  }

  std::string pod_folder() const { return (folder_.path() / "pod").string(); }
  std::string path_of(const std::string& file) const { return pod_folder() + "/main/data/" + file; }
  std::string text_of(const std::string& file) const {
    std::ifstream stream(path_of(file), std::ios::binary);
    return stream ? std::string{std::istreambuf_iterator<char>(stream), {}} : "no such file";
  }
  int mode_of(const std::string& file) const {
    struct stat info {};
    return stat(path_of(file).c_str(), &info) == 0 ? static_cast<int>(info.st_mode & 0777) : -1;
  }
  // Returns the number of files in the volume.
  size_t file_count() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_of("")))
      count += entry.is_regular_file();
    return count;
  }

  test::TemporaryFolder folder_;
  std::map<std::string, Json> objects_;  // by "<plural>/<name>"
  const ObjectReader reader_ = [this](const std::string& plural,
                                      const std::string& name) -> std::optional<Json> {
    auto found = objects_.find(plural + "/" + name);
    return found == objects_.end() ? std::nullopt : std::optional(found->second);
  };
  const PodFacts facts_{
      .node_name = "local-0", .pod_address = "127.0.0.9", .host_address = {}, .allocatable = {}};
  Json pod_ = {
      {"metadata",
       {{"name", "p"}, {"namespace", "default"}, {"labels", {{"x", "1"}, {"y", "\"2\""}}}}},
      {"spec",
       {{"containers", Json::array({{{"name", "main"},
                                     {"image", "any"},
                                     {"command", {"true"}},
                                     {"resources", {{"limits", {{"cpu", "1500m"}}}}}}})}}}};
};

Json config_map(const Json& more = Json::object()) {
  Json source = {{"name", "m"}};
  source.update(more);
  return {{"configMap", std::move(source)}};
}

TEST_F(PodSourcesTest, AConfigMapIsAFolderOfItsKeys) {
  ASSERT_TRUE(make_volume(config_map()).ok());
  EXPECT_EQ(text_of("a"), "1");
  EXPECT_EQ(text_of("b"), "2");
  EXPECT_EQ(text_of("c"), std::string("\0\1\xff", 3));
  EXPECT_EQ(file_count(), 3u);
  EXPECT_EQ(mode_of("a"), 0644);
}

TEST_F(PodSourcesTest, ItemsChooseKeysPathsAndModes) {
  const Json items = Json::array(
      {{{"key", "a"}, {"path", "deep/er/one"}}, {{"key", "b"}, {"path", "two"}, {"mode", 0400}}});
  ASSERT_TRUE(make_volume(config_map({{"items", items}, {"defaultMode", 0640}})).ok());
  EXPECT_EQ(text_of("deep/er/one"), "1");
  EXPECT_EQ(mode_of("deep/er/one"), 0640);
  EXPECT_EQ(text_of("two"), "2");
  EXPECT_EQ(mode_of("two"), 0400);
  EXPECT_EQ(file_count(), 2u);
}

TEST_F(PodSourcesTest, AVolumeThatIsMadeAgainHasWhatIsNewThen) {
  const Json volume = config_map({{"defaultMode", 0400}});
  ASSERT_TRUE(make_volume(volume).ok());
  objects_["configmaps/m"]["data"]["a"] = "new";
  ASSERT_TRUE(make_volume(volume).ok());
  EXPECT_EQ(text_of("a"), "new");
}

TEST_F(PodSourcesTest, WhatIsMissingIsNamedAsAKubeletDoes) {
  objects_.erase("configmaps/m");
  Status made = make_volume(config_map());
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::kNotFound);
  EXPECT_EQ(made.error().message,
            "MountVolume.SetUp failed for volume \"v\" : configmap \"m\" not found");
  EXPECT_TRUE(make_volume(config_map({{"optional", true}})).ok());
  EXPECT_EQ(file_count(), 0u);
}

TEST_F(PodSourcesTest, AMissingKeyIsAnErrorUnlessItIsOptional) {
  const Json items = Json::array({{{"key", "none"}, {"path", "x"}}, {{"key", "a"}, {"path", "a"}}});
  Status made = make_volume(config_map({{"items", items}}));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::kNotFound);
  EXPECT_NE(made.error().message.find("non-existent configmap key: none"), std::string::npos);
  ASSERT_TRUE(make_volume(config_map({{"items", items}, {"optional", true}})).ok());
  EXPECT_EQ(file_count(), 1u);
}

TEST_F(PodSourcesTest, NoPathLeadsOutOfTheVolume) {
  for (const char* path : {"../x", "a/../../x", "/x/../../y", ".."}) {
    const Json items = Json::array({{{"key", "a"}, {"path", path}}});
    Status made = make_volume(config_map({{"items", items}}));
    ASSERT_FALSE(made.ok()) << path;
    EXPECT_EQ(made.error().code, Code::kInvalid) << path;
  }
  EXPECT_FALSE(make_volume({{"configMap", {{"name", "wrong"}}}}).ok()) << "not base64";
}

TEST_F(PodSourcesTest, FieldsOfThePodAreFiles) {
  const Json items = Json::array(
      {{{"path", "labels"}, {"fieldRef", {{"fieldPath", "metadata.labels"}}}},
       {{"path", "name"}, {"fieldRef", {{"fieldPath", "metadata.name"}}}, {"mode", 0600}},
       {{"path", "cpu"},
        {"resourceFieldRef",
         {{"containerName", "main"}, {"resource", "limits.cpu"}, {"divisor", "1m"}}}}});
  ASSERT_TRUE(make_volume({{"downwardAPI", {{"items", items}}}}).ok());
  EXPECT_EQ(text_of("labels"), "x=\"1\"\ny=\"\\\"2\\\"\"");
  EXPECT_EQ(text_of("name"), "p");
  EXPECT_EQ(mode_of("name"), 0600);
  EXPECT_EQ(text_of("cpu"), "1500");
  const Json unknown =
      Json::array({{{"path", "x"}, {"fieldRef", {{"fieldPath", "spec.priority"}}}}});
  Status made = make_volume({{"downwardAPI", {{"items", unknown}}}});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::kInvalid);
}

TEST_F(PodSourcesTest, AProjectedVolumePutsSeveralSourcesIntoOneFolder) {
  const Json secret_items = Json::array({{{"key", "key"}, {"path", "secret/key"}}});
  const Json fields =
      Json::array({{{"path", "where"}, {"fieldRef", {{"fieldPath", "spec.nodeName"}}}}});
  const Json sources = Json::array({{{"secret", {{"name", "s"}, {"items", secret_items}}}},
                                    {{"configMap", {{"name", "m"}}}},
                                    {{"configMap", {{"name", "none"}, {"optional", true}}}},
                                    {{"downwardAPI", {{"items", fields}}}}});
  ASSERT_TRUE(make_volume({{"projected", {{"sources", sources}}}}).ok());
  EXPECT_EQ(text_of("secret/key"), "hidden");
  EXPECT_EQ(mode_of("secret/key"), 0600);
  EXPECT_EQ(text_of("a"), "1");
  EXPECT_EQ(mode_of("a"), 0644);
  EXPECT_EQ(text_of("where"), "local-0");
  EXPECT_EQ(file_count(), 5u);
}

TEST_F(PodSourcesTest, AProjectedTokenIsRefusedInWords) {
  const Json sources = Json::array({{{"serviceAccountToken", {{"path", "token"}}}}});
  Status made = make_volume({{"projected", {{"sources", sources}}}});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::kInvalid);
  EXPECT_NE(made.error().message.find("secret, configMap and downwardAPI"), std::string::npos);
}

TEST_F(PodSourcesTest, EnvFromSetsAllKeysUnderAPrefix) {
  Result<Environment> variables =
      environment(Json::array({{{"configMapRef", {{"name", "m"}}}},
                               {{"secretRef", {{"name", "s"}}}, {"prefix", "S_"}},
                               {{"configMapRef", {{"name", "none"}, {"optional", true}}}}}));
  // A variable can't contain a NUL byte, but c does.
  ASSERT_FALSE(variables.ok());
  objects_["configmaps/m"].erase("binaryData");
  variables = environment(Json::array(
      {{{"configMapRef", {{"name", "m"}}}}, {{"secretRef", {{"name", "s"}}}, {"prefix", "S_"}}}));
  ASSERT_TRUE(variables.ok()) << variables.error().message;
  EXPECT_EQ(*variables, (Environment{{"a", "1"}, {"b", "2"}, {"S_b", "3"}, {"S_key", "hidden"}}));
}

TEST_F(PodSourcesTest, WhatComesLaterWinsAndEnvComesLast) {
  objects_["configmaps/m"].erase("binaryData");
  Result<Environment> variables = environment(
      Json::array({{{"configMapRef", {{"name", "m"}}}}, {{"secretRef", {{"name", "s"}}}}}),
      Json::array(
          {{{"name", "a"}, {"value", "own $(b) $(key)"}},
           {{"name", "d"}, {"valueFrom", {{"configMapKeyRef", {{"name", "m"}, {"key", "a"}}}}}}}));
  ASSERT_TRUE(variables.ok()) << variables.error().message;
  EXPECT_EQ(*variables,
            (Environment{{"a", "own 3 hidden"}, {"b", "3"}, {"key", "hidden"}, {"d", "1"}}));
}

TEST_F(PodSourcesTest, EnvFromWhatIsMissingIsAnError) {
  for (const auto& [field, words] : {std::pair("configMapRef", "configmap \"none\" not found"),
                                     std::pair("secretRef", "secret \"none\" not found")}) {
    Result<Environment> variables = environment(Json::array({{{field, {{"name", "none"}}}}}));
    ASSERT_FALSE(variables.ok());
    EXPECT_EQ(variables.error().code, Code::kNotFound);
    EXPECT_EQ(variables.error().message, words);
    EXPECT_TRUE(environment(Json::array({{{field, {{"name", "none"}, {"optional", true}}}}})).ok());
  }
}

}  // namespace
}  // namespace lockstep::local
