#include "tests/e2e/kubectl_fixture.h"

#include <signal.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words;
  std::string word;
  bool begun = false;
  bool quoted = false;
  for (char c : command) {
    if (c == '\'') {
      quoted = !quoted;
      begun = true;
    } else if (!quoted && c == ' ') {
      if (begun) words.push_back(std::move(word));
      word.clear();
      begun = false;
    } else {
      word += c;
      begun = true;
    }
  }
  if (begun) words.push_back(std::move(word));
  return words;
}

// Returns "shows-the-columns-v1-33" for "ShowsTheColumns/v1_33"; keeps the end of a long name.
std::string namespace_for(const std::string& test) {
  constexpr size_t kLongest = 48;
  std::string name;
  for (char c : test.substr(test.size() - std::min(test.size(), kLongest))) {
    const bool upper = c >= 'A' && c <= 'Z';
    if ((upper && !name.empty()) || c == '/' || c == '_') name += '-';
    if (std::isalnum(static_cast<unsigned char>(c)))
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name.substr(name.starts_with('-') ? 1 : 0);
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

std::string asked_version(const std::string& kubectl) {
  const Outcome version =
      run_program({.arguments = {kubectl, "version", "--client", "-o", "json"}});
  Result<Json> parsed = parse_json(version.output);
  const Json* client = parsed.ok() ? find_member(*parsed, "clientVersion") : nullptr;
  if (client == nullptr) return "unknown";
  // Some builds call their minor version "32+".
  std::string minor = string_or(*client, "minor", "");
  minor.resize(std::min(minor.find_first_not_of("0123456789"), minor.size()));
  return "v" + string_or(*client, "major", "") + "_" + minor;
}

}  // namespace

std::vector<std::string> kubectls() {
  const char* given = std::getenv("LOCKSTEP_KUBECTLS");
  if (given == nullptr) return {""};
  std::vector<std::string> paths;
  std::istringstream text(given);
  std::set<std::string> versions;
  for (std::string path; std::getline(text, path, ':');)
    if (!path.empty() && versions.insert(version_of(path)).second) paths.push_back(path);
  return paths.empty() ? std::vector<std::string>{""} : paths;
}

std::string version_of(const std::string& kubectl) {
  static std::map<std::string, std::string> known;
  auto [found, is_new] = known.try_emplace(kubectl, "none");
  if (is_new && !kubectl.empty()) found->second = asked_version(kubectl);
  return found->second;
}

PrintedTable::PrintedTable(const std::string& text) {
  std::istringstream lines(text);
  std::vector<size_t> starts;
  for (std::string line; std::getline(lines, line);) {
    if (starts.empty()) {
      for (size_t i = 0; i < line.size(); ++i)
        if (line[i] != ' ' && (i == 0 || (i > 1 && line[i - 1] == ' ' && line[i - 2] == ' ')))
          starts.push_back(i);
    }
    std::vector<std::string> cells;
    for (size_t i = 0; i < starts.size(); ++i) {
      const size_t end = i + 1 < starts.size() ? starts[i + 1] : line.size();
      cells.push_back(starts[i] >= line.size() ? ""
                                               : trimmed(line.substr(starts[i], end - starts[i])));
    }
    if (headers_.empty()) {
      headers_ = std::move(cells);
    } else {
      rows_.push_back(std::move(cells));
    }
  }
}

std::string PrintedTable::cell(const std::string& name, const std::string& header) const {
  const auto at = std::find(headers_.begin(), headers_.end(), header);
  for (const std::vector<std::string>& row : rows_) {
    if (row[0] == name && at != headers_.end())
      return row[static_cast<size_t>(at - headers_.begin())];
  }
  return "no such cell";
}

std::vector<std::string> PrintedTable::column(const std::string& header) const {
  if (headers_.empty()) return {};  // "No resources found" goes to stderr
  const auto at = std::find(headers_.begin(), headers_.end(), header);
  if (at == headers_.end()) return {"no such column"};
  std::vector<std::string> cells;
  for (const std::vector<std::string>& row : rows_)
    cells.push_back(row[static_cast<size_t>(at - headers_.begin())]);
  return cells;
}

struct KubectlTest::Cluster {
  Cluster()
      : up({.arguments = {std::string(LOCKSTEP_BIN_DIR) + "/lockstep", "up", "--folder",
                          (folder.path() / "up").string()},
            .folder = folder.path()}) {
    write_file(folder.path() / "text.txt", generated_text(20'000, 5));
  }
  ~Cluster() {
    up.signal(SIGTERM);
    up.wait();
  }

  std::string kubeconfig() const { return folder.path() / "up" / "kubeconfig"; }

  TemporaryFolder folder;
  Program up;
};

KubectlTest::Cluster& KubectlTest::cluster() {
  static Cluster cluster;
  return cluster;
}

void KubectlTest::SetUp() {
  if (GetParam().empty()) GTEST_SKIP() << "LOCKSTEP_KUBECTLS names no kubectl";
  ASSERT_TRUE(eventually([&] { return fs::exists(cluster().kubeconfig()); }))
      << cluster().up.errors();
  const std::string name =
      namespace_for(testing::UnitTest::GetInstance()->current_test_info()->name());
  namespace_ = "default";
  ok("create namespace " + name);
  namespace_ = name;
}

void KubectlTest::TearDown() {
  if (!namespace_.empty()) ok("delete namespace " + namespace_ + " --wait=false");
}

Program::Options KubectlTest::options_for(const std::string& command) const {
  // Flags must follow the name of a plugin.
  std::vector<std::string> words = words_of(command);
  const size_t named = words[0] == "lockstep" ? 2 : 0;
  std::vector<std::string> arguments = {GetParam()};
  arguments.insert(arguments.end(), words.begin(), words.begin() + static_cast<long>(named));
  arguments.insert(arguments.end(), {"--namespace", namespace_});
  arguments.insert(arguments.end(), words.begin() + static_cast<long>(named), words.end());
  const fs::path home = cluster().folder.path() / version_of(GetParam());  // for kubectl's caches
  return {.arguments = std::move(arguments),
          .environment = {{"KUBECONFIG", cluster().kubeconfig()},
                          {"HOME", home},
                          {"PATH", std::string(LOCKSTEP_BIN_DIR) + ":" + std::getenv("PATH")},
                          {"KUBE_EDITOR", folder_.path() / "editor"}},
          .folder = folder_.path()};
}

Outcome KubectlTest::kubectl(const std::string& command) {
  return run_program(options_for(command), 60);
}

std::string KubectlTest::ok(const std::string& command) {
  const Outcome outcome = kubectl(command);
  EXPECT_EQ(outcome.code, 0) << "kubectl " << command << "\n" << outcome.output << outcome.errors;
  return outcome.output;
}

std::string KubectlTest::refused(const std::string& command) {
  const Outcome outcome = kubectl(command);
  EXPECT_NE(outcome.code, 0) << "kubectl " << command << "\n" << outcome.output << outcome.errors;
  return outcome.errors;
}

std::unique_ptr<Program> KubectlTest::start(const std::string& command) {
  return std::make_unique<Program>(options_for(command));
}

bool KubectlTest::eventually_prints(const std::string& command, const std::string& words) {
  Outcome last;
  const bool found = eventually(
      [&] {
        last = kubectl(command);
        return last.output.find(words) != std::string::npos;
      },
      60);
  EXPECT_TRUE(found) << "kubectl " << command << " never printed " << words << "; the last was\n"
                     << last.output << last.errors;
  return found;
}

bool KubectlTest::eventually_gone(const std::string& kind_and_name) {
  return eventually(
      [&] {
        const Outcome outcome = kubectl("get " + kind_and_name);
        return outcome.errors.find("NotFound") != std::string::npos;
      },
      60);
}

Json KubectlTest::object(const std::string& kind_and_name) {
  Result<Json> parsed = parse_json(ok("get " + kind_and_name + " -o json"));
  EXPECT_TRUE(parsed.ok()) << kind_and_name;
  return parsed.ok() ? *parsed : Json();
}

PrintedTable KubectlTest::table(const std::string& command) {
  return PrintedTable(ok(command));
}

std::string KubectlTest::file(const std::string& name, const std::string& text) {
  const fs::path path = folder_.path() / name;
  write_file(path, text);
  return path;
}

void KubectlTest::editor(const std::string& line) {
  fs::permissions(file("editor", "#!/bin/sh\n" + line + "\n"), fs::perms::owner_all);
}

std::string KubectlTest::job_file(const JobSpec& job) {
  std::ostringstream text;
  text << "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: " << job.name
       << (job.labels.empty() ? "" : ", labels: " + job.labels)
       << "}\nspec:\n  nodes: " << job.nodes
       << "\n  processesPerNode: 1\n  threadsPerProcess: 1\n  terminationGracePeriodSeconds: 5\n"
       << "  train:\n    model: {layers: 1, width: 16, heads: 2, context: 16}\n    data: {path: "
       << (cluster().folder.path() / "text.txt").string()
       << ", validationFraction: 0.05}\n    steps: " << job.steps
       << "\n    batch: {global: 4, micro: 2}\n"
       << job.more;
  return file(job.name + ".yaml", text.str());
}

std::string KubectlTest::waiting_job_file(const std::string& name, int nodes) {
  return file(name + ".yaml",
              "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: " + name +
                  "}\nspec:\n  nodes: " + std::to_string(nodes) +
                  "\n  terminationGracePeriodSeconds: 5\n  command: [sh, -c, 'until [ -s " +
                  file("mark", "") + " ]; do sleep 0.05; done']\n");
}

int KubectlTest::minor_version() const {
  const std::string version = version_of(GetParam());
  return std::atoi(version.substr(version.find('_') + 1).c_str());
}

testing::AssertionResult has(const std::string& text, const std::string& words) {
  if (text.find(words) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected `" << words << "` in\n" << text;
}

}  // namespace lockstep::test
