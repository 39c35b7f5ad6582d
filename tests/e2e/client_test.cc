// The client tool against a cluster, as users have it: `lockstep up` and the commands for it.
#include "cli/client/connection.h"
#include "tests/e2e/client_fixture.h"

namespace lockstep::test {
namespace {

class ClientTest : public ClientFixture {
 protected:
  static void SetUpTestSuite() {
    start(1);
    make_namespace("team");
  }

  static void make_namespace(const std::string& name) {
    const SystemClock clock;
    const cli::ClientEnvironment environment{.kubeconfig = path("up/kubeconfig")};
    auto connection = cli::Connection::open(environment, {}, clock);
    ASSERT_TRUE(connection.ok()) << connection.error().message;
    const Result<Json> made = (*connection)
                                  ->call({.method = "POST",
                                          .path = "/api/v1/namespaces",
                                          .body = {{"apiVersion", "v1"},
                                                   {"kind", "Namespace"},
                                                   {"metadata", {{"name", name}}}}});
    ASSERT_TRUE(made.ok()) << made.error().message;
  }
};

TEST_F(ClientTest, TakesAJobFromItsFileToItsEnd) {
  const std::string file = job("tiny");
  Outcome outcome = tool({"submit", file});
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, "trainingjob.lockstep.dev/tiny created\n");
  outcome = tool({"wait", "tiny", "--timeout", "3m"});
  ASSERT_EQ(outcome.code, 0) << outcome.errors << tool({"status", "tiny"}).output;
  EXPECT_EQ(outcome.output, "trainingjob.lockstep.dev/tiny condition met\n");

  const std::string page = tool({"status", "tiny"}).output;
  for (const char* part : {"Name:          tiny\n", "State:         Complete", "5/5 (100 %",
                           "Each rank holds: parameters ", "Conditions:\n", "Pods:\n  NAME",
                           "tiny-worker-1-1", "Events:\n"}) {
    EXPECT_TRUE(has(page, part)) << part << "\n" << page;
  }
  const Result<Json> object = parse_json(tool({"status", "tiny", "-o", "json"}).output);
  ASSERT_TRUE(object.ok());
  EXPECT_EQ((*object)["status"]["state"], "Complete");
  EXPECT_TRUE(has(tool({"status", "tiny", "-o", "yaml"}).output, "\n  state: Complete\n"));
  EXPECT_EQ(tool({"status", "tiny", "-o", "name"}).output, "trainingjob.lockstep.dev/tiny\n");

  outcome = tool({"wait", "tiny", "--for", "Failed"});
  EXPECT_EQ(outcome.code, 3) << "it can never be";
  EXPECT_EQ(outcome.errors, "error: tiny is Complete\n");

  outcome = tool({"submit", file});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(has(outcome.errors, "Error from server (AlreadyExists)")) << outcome.errors;
  EXPECT_TRUE(has(outcome.errors, "lockstep delete tiny -n default")) << outcome.errors;

  outcome = tool({"delete", "tiny", "--timeout", "1m"});
  EXPECT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, "trainingjob.lockstep.dev \"tiny\" deleted\n");
  outcome = tool({"status", "tiny"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(has(outcome.errors, "Error from server (NotFound): ")) << outcome.errors;
  EXPECT_EQ(tool({"delete", "tiny"}).code, 1);
  EXPECT_EQ(tool({"delete", "tiny", "--ignore-not-found"}).code, 0);
}

TEST_F(ClientTest, FollowsTheLogsOfAllRanksAndEndsAsTheJobDoes) {
  const Outcome outcome = tool({"submit", job("followed"), "--follow"});
  EXPECT_EQ(outcome.code, 0) << outcome.errors;
  for (const char* part : {"[node 0] [rank 0] ", "[node 1] ", "message=leaving",
                           "trainingjob.lockstep.dev/followed is Complete\n"}) {
    EXPECT_TRUE(has(outcome.output, part)) << part << "\n" << outcome.output;
  }
  const std::string all = tool({"logs", "followed"}).output;
  EXPECT_TRUE(has(all, "[node 0] [rank 0] ") && has(all, "[node 1] ")) << all;
  const std::string one = tool({"logs", "followed", "--rank", "0"}).output;
  EXPECT_TRUE(one.starts_with("[rank 0] ")) << one;
  EXPECT_FALSE(has(one, "message=leaving")) << "the agent is no rank\n" << one;
  const Outcome beyond = tool({"logs", "followed", "--rank", "2"});
  EXPECT_EQ(beyond.code, 1);
  EXPECT_TRUE(has(beyond.errors, "expected less than 2")) << beyond.errors;
}

TEST_F(ClientTest, SaysOfAFailedJobWhatWentWrong) {
  const Outcome outcome = tool({"submit", job("broken", "no-such-file"), "--wait"});
  EXPECT_EQ(outcome.code, 3) << outcome.errors;
  EXPECT_TRUE(has(outcome.errors, "error: broken is Failed: ")) << outcome.errors;
  const std::string page = tool({"status", "broken"}).output;
  EXPECT_TRUE(has(page, "Last failure:  rank ")) << page;
  EXPECT_TRUE(has(page, "  | ")) << "the end of its log\n" << page;
  EXPECT_TRUE(has(page, "no-such-file")) << page;
}

TEST_F(ClientTest, ListsInTheColumnsOfTheServer) {
  ASSERT_EQ(tool({"submit", job("here"), "-o", "name"}).output, "trainingjob.lockstep.dev/here\n");
  ASSERT_EQ(tool({"submit", job("there"), "-n", "team"}).code, 0);
  const std::string table = tool({"list"}).output;
  EXPECT_TRUE(table.starts_with("NAME ")) << table;
  EXPECT_TRUE(has(table.substr(0, table.find('\n')), "STATE")) << table;
  EXPECT_TRUE(has(table, "\nhere ")) << table;
  EXPECT_FALSE(has(table, "there")) << table;
  const std::string all = tool({"list", "-A", "--no-headers"}).output;
  EXPECT_TRUE(has(all, "default ") && has(all, "team ")) << all;
  EXPECT_EQ(tool({"list", "-n", "team", "-o", "name"}).output, "trainingjob.lockstep.dev/there\n");
  EXPECT_EQ(tool({"list", "-l", "suite=none"}).errors,
            "No resources found in default namespace.\n");
  const Result<Json> list = parse_json(tool({"list", "-n", "team", "-o", "json"}).output);
  ASSERT_TRUE(list.ok());
  EXPECT_EQ((*list)["items"].size(), 1u);
  EXPECT_EQ(tool({"delete", "-n", "team", "-l", "suite=client"}).output,
            "trainingjob.lockstep.dev \"there\" deleted\n");
}

TEST_F(ClientTest, ChecksFilesBeforeItAsksAnybody) {
  const std::string file = path("bad.yaml");
  write_file(file,
             "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: x}\n"
             "spec: {nodez: 2}\n");
  const Outcome outcome = tool({"submit", file}, path("none"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(has(outcome.errors, "spec.nodez")) << outcome.errors;
}

TEST_F(ClientTest, GoesWhereTheContextSays) {
  const std::string text = read_file(path("up/kubeconfig"));
  write_file(
      path("contexts"),
      "contexts:\n- name: of-team\n  context: {cluster: lockstep, user: lockstep, namespace: "
      "team}\n");
  const std::string both = path("contexts") + ":" + path("up/kubeconfig");
  ASSERT_EQ(tool({"submit", job("elsewhere"), "--context", "of-team"}, both).code, 0);
  EXPECT_EQ(tool({"list", "-o", "name", "--context=of-team"}, both).output,
            "trainingjob.lockstep.dev/elsewhere\n");
  const Outcome none = tool({"list", "--context", "nowhere"}, both);
  EXPECT_EQ(none.code, 1);
  EXPECT_EQ(none.errors,
            "error: context \"nowhere\" does not exist (available: lockstep, of-team)\n");
  EXPECT_EQ(tool({"delete", "--all", "--context", "of-team"}, both).code, 0);
}

TEST_F(ClientTest, SaysWhatToDoWithoutACluster) {
  const Outcome outcome = tool({"list"}, path("none"));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(has(outcome.errors, "`lockstep up`") && has(outcome.errors, "KUBECONFIG"))
      << outcome.errors;
}

TEST_F(ClientTest, SpeaksAsAPluginOfKubectl) {
  const Outcome help = tool({"--help"}, path("none"), "kubectl-lockstep");
  EXPECT_EQ(help.code, 0);
  EXPECT_TRUE(has(help.output, "Usage: kubectl lockstep ")) << help.output;
  const Outcome none = tool({"list"}, path("none"), "kubectl-lockstep");
  EXPECT_TRUE(has(none.errors, "`kubectl lockstep up`")) << none.errors;
}

TEST_F(ClientTest, CompletesInARealBash) {
  ASSERT_EQ(tool({"submit", job("complete-me")}).code, 0);
  const auto complete = [](const std::string& line) {
    const std::string script = "PATH=" + kBin +
                               ":$PATH; source <(lockstep completion bash); set -- " + line +
                               "; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _lockstep_complete; "
                               "printf '%s\\n' \"${COMPREPLY[@]}\"";
    return run_program({.arguments = {"bash", "-c", script},
                        .environment = {{"KUBECONFIG", path("up/kubeconfig")}},
                        .folder = folder_->path()})
        .output;
  };
  EXPECT_EQ(complete("lockstep sub"), "submit\n");
  EXPECT_EQ(complete("lockstep logs compl"), "complete-me\n");
  EXPECT_EQ(complete("lockstep list -n tea"), "team\n");
  EXPECT_EQ(complete("lockstep list --context ''"), "lockstep\n");
  EXPECT_EQ(complete("lockstep list --all-n"), "--all-namespaces\n");
  EXPECT_EQ(complete("lockstep submit complete-me.y"), "complete-me.yaml\n");
  EXPECT_EQ(complete("lockstep completion f"), "fish\n");
}

// Runs `script` in a real shell with the tool on its PATH.
Outcome in_shell(const std::string& shell, const std::vector<std::string>& flags,
                 const std::string& script, const std::filesystem::path& folder) {
  std::vector<std::string> arguments = {shell};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {"-c", script});
  const char* path = std::getenv("PATH");
  return run_program({.arguments = arguments,
                      .environment = {{"PATH", kBin + ":" + (path == nullptr ? "" : path)},
                                      {"KUBECONFIG", (folder / "up/kubeconfig").string()},
                                      {"HOME", folder.string()}},
                      .folder = folder});
}

bool is_installed(const std::string& shell) {
  return run_program({.arguments = {"sh", "-c", "command -v " + shell}}).code == 0;
}

// zsh only completes on a terminal, so its completion builtins are replaced by ones that print.
TEST_F(ClientTest, CompletesInARealZsh) {
  if (!is_installed("zsh")) GTEST_SKIP() << "no zsh on this machine";
  write_file(path("zsh-file.yaml"), "");
  const auto complete = [](const std::string& line, int current) {
    const Outcome outcome =
        in_shell("zsh", {"-f"},
                 "compdef() {}; compadd() { print -l -- ${(P)2} }; _files() { print files }\n"
                 "source <(lockstep completion zsh)\nwords=(" +
                     line + "); CURRENT=" + std::to_string(current) + "; _lockstep",
                 folder_->path());
    EXPECT_EQ(outcome.errors, "");
    return outcome.output;
  };
  EXPECT_EQ(complete("lockstep sub", 2), "submit\n");
  EXPECT_EQ(complete("lockstep list -n tea", 4), "team\n");
  EXPECT_EQ(complete("lockstep list --all-n", 3), "--all-namespaces\n");
  EXPECT_EQ(complete("lockstep submit zsh-", 3), "files\n");
}

TEST_F(ClientTest, CompletesInARealFish) {
  if (!is_installed("fish")) GTEST_SKIP() << "no fish on this machine";
  write_file(path("fish-file.yaml"), "");
  const auto complete = [](const std::string& line) {
    const Outcome outcome =
        in_shell("fish", {"--no-config"},
                 "lockstep completion fish | source; complete -C '" + line + "'", folder_->path());
    EXPECT_EQ(outcome.errors, "");
    return outcome.output;
  };
  EXPECT_EQ(complete("lockstep sub"), "submit\n");
  EXPECT_EQ(complete("lockstep list -n tea"), "team\n");
  EXPECT_EQ(complete("lockstep list --all-n"), "--all-namespaces\n");
  EXPECT_TRUE(complete("lockstep submit fish-").starts_with("fish-file.yaml"));
}

}  // namespace
}  // namespace lockstep::test
