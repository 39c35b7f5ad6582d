// Lockstep's reading of kubeconfigs, alone and compared with real kubectls (LOCKSTEP_KUBECTLS,
// paths separated by ':').
#include "controller/kube/kubeconfig.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "controller/kube/kube_access.h"
#include "tests/controller/kube/kubeconfig_cases.h"
#include "tests/controller/kube/minified_kubeconfig.h"
#include "tests/support/job_run.h"
#include "tests/support/program.h"

namespace lockstep::kube {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

std::string replaced(std::string text, const std::string& folder) {
  for (size_t at; (at = text.find("{dir}")) != std::string::npos;) text.replace(at, 5, folder);
  return text;
}

// The files of a case, read by Lockstep and by kubectl.
class Scene {
 public:
  explicit Scene(const KubeconfigCase& one) : case_(one) {
    for (const auto& [name, text] : one.files) {
      fs::create_directories((folder_.path() / name).parent_path());
      test::write_file(folder_.path() / name, text);
    }
  }
  std::string folder() const { return folder_.path().string(); }
  std::string environment() const { return replaced(case_.environment, folder()); }
  std::string explicit_file() const { return replaced(case_.explicit_file, folder()); }

  Result<Json> ours() const {
    TRY_ASSIGN(const Kubeconfig config, load_kubeconfig({.explicit_file = explicit_file(),
                                                         .environment = environment(),
                                                         .home = folder(),
                                                         .working_folder = folder()}));
    return minified_kubeconfig(config, case_.context);
  }

  Result<Json> kubectls(const std::string& program) const {
    std::vector<std::string> arguments = {program};
    if (!case_.explicit_file.empty()) arguments.push_back("--kubeconfig=" + explicit_file());
    for (const char* word : {"config", "view", "--minify", "--raw", "-o", "json"}) {
      arguments.push_back(word);
    }
    if (!case_.context.empty()) arguments.push_back("--context=" + case_.context);
    const test::Outcome outcome =
        test::run_program({.arguments = arguments,
                           .environment = {{"KUBECONFIG", environment()}, {"HOME", folder()}},
                           .folder = folder()});
    if (outcome.code != 0) return invalid(outcome.errors);
    return parse_json(outcome.output);
  }

  // Makes a path absolute: kubectl prints paths as they are in the file.
  std::string absolute(const std::string& path) const {
    if (path.starts_with("/")) return path;
    for (const auto& [name, text] : case_.files) {
      if (text.find(path) == std::string::npos) continue;
      return (folder_.path() / name).parent_path().append(path).lexically_normal().string();
    }
    return path;
  }

 private:
  const KubeconfigCase& case_;
  TemporaryFolder folder_;
};

bool is_path(const std::string& key) {
  return key == "certificate-authority" || key == "client-certificate" || key == "client-key" ||
         key == "tokenFile";
}

// Makes paths absolute and removes what has no meaning: nulls, empty strings, maps and lists,
// false, and the mode that newer kubectls fill in.
Json normal(const Json& value, const Scene& scene) {
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& item : value) out.push_back(normal(item, scene));
    return out;
  }
  if (!value.is_object()) return value;
  Json out = Json::object();
  for (const auto& [key, member] : value.items()) {
    Json inner = normal(member, scene);
    if (inner.is_string() && is_path(key)) inner = scene.absolute(inner.get<std::string>());
    if (key == "command" && inner.get<std::string>().find('/') != std::string::npos) {
      inner = scene.absolute(inner.get<std::string>());
    }
    const bool is_empty = inner.is_null() || inner == "" || inner == "IfAvailable" ||
                          inner == false ||
                          ((inner.is_object() || inner.is_array()) && inner.empty());
    if (!is_empty && key != "preferences") out[key] = std::move(inner);
  }
  return out;
}

std::vector<std::string> kubectls() {
  std::vector<std::string> paths;
  const char* list = std::getenv("LOCKSTEP_KUBECTLS");
  std::istringstream words(list == nullptr ? "" : list);
  for (std::string path; std::getline(words, path, ':');) {
    if (!path.empty()) paths.push_back(path);
  }
  return paths;
}

TEST(Kubeconfig, MeansWhatKubectlTakesItToMean) {
  const std::vector<std::string> programs = kubectls();
  if (programs.empty()) GTEST_SKIP() << "LOCKSTEP_KUBECTLS names no kubectl";
  ASSERT_GE(kubeconfig_cases().size(), 30u);
  for (const KubeconfigCase& one : kubeconfig_cases()) {
    const Scene scene(one);
    const Result<Json> ours = scene.ours();
    for (const std::string& program : programs) {
      SCOPED_TRACE(one.name + ", " + program);
      const Result<Json> theirs = scene.kubectls(program);
      EXPECT_EQ(ours.ok(), theirs.ok()) << (ours.ok() ? theirs : ours).error().message;
      if (!ours.ok() || !theirs.ok()) continue;
      EXPECT_EQ(normal(*ours, scene).dump(1), normal(*theirs, scene).dump(1));
    }
  }
}

TEST(Kubeconfig, TakesEachEntryWholeFromTheFirstFileThatHasIt) {
  for (const KubeconfigCase& one : kubeconfig_cases()) {
    if (one.name != "the first of two files wins, entry by entry") continue;
    const Scene scene(one);
    const Result<Json> ours = scene.ours();
    ASSERT_TRUE(ours.ok()) << ours.error().message;
    EXPECT_EQ((*ours)["clusters"][0]["cluster"], Json({{"server", "https://one:6443"}}));
    EXPECT_EQ((*ours)["users"][0]["user"], Json({{"token", "t"}}));
    EXPECT_EQ((*ours)["contexts"][0]["context"]["namespace"], "team");
    return;
  }
  FAIL() << "no such case";
}

TEST(Kubeconfig, NamesTheFileAndTheFieldOfAMistake) {
  TemporaryFolder folder;
  const std::string file = (folder.path() / "config").string();
  const auto message_of = [&](const std::string& text) {
    test::write_file(file, text);
    const Result<Kubeconfig> config = load_kubeconfig({.explicit_file = file});
    return config.ok() ? "read" : config.error().message;
  };
  EXPECT_EQ(
      message_of("users:\n- {name: a}\n- {name: b, user: {token: 12}}\n"),
      "kubeconfig " + file +
          ": users[1].user.token: found number, expected a string (in quotes, if it looks like "
          "a number)");
  EXPECT_EQ(
      message_of("users: [{name: b, user: {exec: {env: [{name: [x]}]}}}]"),
      "kubeconfig " + file +
          ": users[0].user.exec.env[0].name: found array, expected a string (in quotes, if it "
          "looks like a number)");
  EXPECT_EQ(message_of("clusters: [{name: a}, {name: a}]"),
            "kubeconfig " + file + ": clusters[1].name: \"a\" is listed twice");
  EXPECT_NE(message_of("a: [").find("kubeconfig " + file + ": line "), std::string::npos);
}

TEST(Kubeconfig, RefusesFilesThatAreTooLarge) {
  TemporaryFolder folder;
  const std::string file = (folder.path() / "config").string();
  test::write_file(file, "# " + std::string(5u << 20, 'x'));
  const Result<Kubeconfig> config = load_kubeconfig({.explicit_file = file});
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.error().message.find("larger than"), std::string::npos);
}

TEST(Kubeconfig, RefusesAnEndlessListOfFiles) {
  std::string list;
  for (int i = 0; i < 100; ++i) list += "/none/" + std::to_string(i) + ":";
  EXPECT_FALSE(load_kubeconfig({.environment = list}).ok());
}

TEST(Kubeconfig, IsEmptyWithoutAnyFile) {
  TemporaryFolder folder;
  const Result<Kubeconfig> config = load_kubeconfig({.home = folder.path().string()});
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config->contexts.empty());
}

TEST(Kubeconfig, ItsContextSaysInWhichNamespaceTheLeaseIs) {
  EXPECT_EQ(lease_namespace({}), "default");
  EXPECT_EQ(lease_namespace({.of_context = "team-a"}), "team-a");
  EXPECT_EQ(lease_namespace({.of_flag = "team-b", .of_context = "team-a"}), "team-b");
  EXPECT_EQ(lease_namespace({.of_pod = "system", .of_flag = "team-b", .of_context = "team-a"}),
            "system");
}

}  // namespace
}  // namespace lockstep::kube
