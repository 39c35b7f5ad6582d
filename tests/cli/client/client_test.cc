// The parts of the client tool that need no cluster.
#include <gtest/gtest.h>

#include "cli/client/aligned.h"
#include "cli/client/completion.h"
#include "cli/client/job_documents.h"
#include "cli/client/log_follower.h"
#include "cli/client/output.h"
#include "cli/client/status_page.h"
#include "cli/run/progress_line.h"
#include "tests/common/api/every_number.h"
#include "tests/support/job_run.h"

namespace lockstep::cli {
namespace {

using std::chrono::seconds;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ClientDuration, ReadsWhatPeopleWrite) {
  EXPECT_EQ(*parse_duration("30s"), seconds(30));
  EXPECT_EQ(*parse_duration("1h30m"), seconds(5400));
  EXPECT_EQ(*parse_duration("45"), seconds(45));
  EXPECT_EQ(*parse_duration("0"), seconds(0));
  EXPECT_EQ(*parse_duration("500ms"), std::chrono::milliseconds(500));
  for (const char* bad : {"", "s", "-1s", "5x", "1m 2s", "1e9h", "nan", "inf", "5m3"}) {
    EXPECT_FALSE(parse_duration(bad).ok()) << bad;
  }
}

TEST(ClientAge, IsWrittenAsKubectlDoes) {
  const std::vector<std::pair<int64_t, const char*>> cases = {
      {0, "0s"},      {119, "119s"},    {120, "2m"},     {200, "3m20s"}, {601, "10m"},
      {7500, "125m"}, {10800, "3h"},    {18180, "5h3m"}, {90000, "25h"}, {273600, "3d4h"},
      {700000, "8d"}, {63072000, "2y"}, {-5, "0s"}};
  for (const auto& [age, text] : cases) EXPECT_EQ(age_text(seconds(age)), text) << age;
  EXPECT_EQ(age_of("yesterday", WallTime()), "<unknown>");
}

TEST(ClientTable, ShowsTheColumnsOfTheServer) {
  const Json table = Json::parse(R"({"kind":"Table","columnDefinitions":[
    {"name":"Name","priority":0},{"name":"STATE","priority":0},{"name":"Round","priority":1}],
    "rows":[{"cells":["a","Running",3],"object":{"metadata":{"namespace":"n"}}},
            {"cells":["longer\nname",null,12],"object":{"metadata":{"namespace":"m"}}}]})");
  EXPECT_EQ(aligned(table_rows(table, {})),
            "NAME          STATE\na             Running\nlonger name   \n");
  EXPECT_EQ(aligned(table_rows(table, {.is_wide = true, .with_namespace = true})),
            "NAMESPACE   NAME          STATE     ROUND\n"
            "n           a             Running   3\n"
            "m           longer name             12\n");
  EXPECT_TRUE(table_rows(Json::parse(R"({"rows":3})"), {}).empty());
}

TEST(ClientOutput, NamesObjectsAsKubectlDoes) {
  const Json job = {{"apiVersion", "lockstep.dev/v1alpha1"},
                    {"kind", "TrainingJob"},
                    {"metadata", {{"name", "a"}}}};
  EXPECT_EQ(document_text(job, OutputFormat::kName), "trainingjob.lockstep.dev/a\n");
  EXPECT_EQ(document_text({{"items", {job}}}, OutputFormat::kName), "trainingjob.lockstep.dev/a\n");
  EXPECT_TRUE(has(document_text(job, OutputFormat::kYaml), "metadata:\n  name: a\n"));
  EXPECT_FALSE(output_format("xml").ok());
}

TEST(ClientWait, ReadsWhatIsWaitedFor) {
  EXPECT_EQ(parse_wait_condition("Complete")->type, "Complete");
  EXPECT_EQ(parse_wait_condition("condition=Ready=False")->status, "False");
  EXPECT_EQ(parse_wait_condition("Ready=false")->type, "Ready");
  EXPECT_TRUE(parse_wait_condition("delete")->deletion);
  for (const char* bad : {"", "condition=", "a b", "Ready="})
    EXPECT_FALSE(parse_wait_condition(bad).ok());
}

TEST(ClientWait, KnowsWhatCanNeverBe) {
  TrainingJobStatus status;
  const WaitCondition complete = *parse_wait_condition("complete");
  EXPECT_EQ(wait_state(complete, status), WaitState::kNotYet);
  status.conditions = {{.type = "Failed", .status = "True", .reason = "R", .message = "m"}};
  EXPECT_EQ(wait_state(complete, status), WaitState::kNever);
  EXPECT_EQ(wait_state(*parse_wait_condition("Failed"), status), WaitState::kMet);
  EXPECT_EQ(wait_state(*parse_wait_condition("Ready"), status), WaitState::kNever);
  EXPECT_EQ(wait_state(*parse_wait_condition("Running"), status), WaitState::kNever);
  EXPECT_EQ(wait_state(*parse_wait_condition("Ready=False"), status), WaitState::kNotYet);
  EXPECT_EQ(ending_of(status), "Failed: R: m");
}

Json pod(const std::string& name, const std::string& node, const std::string& incarnation) {
  return {{"metadata",
           {{"name", name},
            {"uid", name},
            {"labels",
             {{"lockstep.dev/node-index", node}, {"lockstep.dev/incarnation", incarnation}}}}},
          {"status", {{"phase", "Running"}}}};
}

TEST(ClientLogs, AreThoseOfTheNewestPodOfEachNode) {
  const Json list = {{"items",
                      {pod("j-0-1", "0", "1"), pod("j-1-9", "1", "9"), pod("j-0-2", "0", "2"),
                       pod("j-1-10", "1", "10")}}};
  const auto names = [&](const LogFollowOptions& options) {
    std::string text;
    for (const JobPod& one : chosen_pods(list, options)) text += one.name + " ";
    return text;
  };
  EXPECT_EQ(names({}), "j-0-2 j-1-10 ");
  EXPECT_EQ(names({.previous = true}), "j-0-1 j-1-9 ");
  EXPECT_EQ(names({.node = 1}), "j-1-10 ");
  EXPECT_EQ(names({.node = 7}), "");
}

TEST(ClientLogs, AreMergedInTheOrderOfTime) {
  const std::vector<PodText> texts = {
      {"[0] ", "2026-01-01T00:00:01Z a\n2026-01-01T00:00:03.5Z c\nno time\n"},
      {"[1] ", "2026-01-01T00:00:02Z b\n2026-01-01T00:00:03.25Z \n"}};
  EXPECT_EQ(merged_logs(texts, false), "[0] a\n[1] b\n[1] \n[0] c\n[0] no time\n");
  EXPECT_EQ(merged_logs({{"", "2026-01-01T00:00:01Z a"}}, true), "2026-01-01T00:00:01Z a\n");
  EXPECT_EQ(merged_logs({{"", "x\ny\n"}, {"", "z"}}, false), "x\ny\nz\n");
}

TEST(ClientStatusPage, SaysWhereTheJobIsAndWhatWentWrong) {
  StatusInput input;
  input.now = *wall_time_from_rfc3339("2026-01-01T01:00:00Z");
  input.job.metadata.name = "gpt";
  input.job.metadata.creationTimestamp = "2026-01-01T00:00:00Z";
  input.job.spec.nodes = 2;
  input.job.spec.processesPerNode = 2;
  input.job.spec.train.emplace();
  input.job.spec.train->batch.global = 10;
  input.job.spec.train->model.context = 100;
  TrainingJobStatus& status = input.job.status;
  status.state = "Running";
  status.round = 2;
  status.restarts = 1;
  status.nodes = {.desired = 2, .ready = 1};
  status.progress =
      ProgressStatus{{.step = 25, .steps = 100, .loss = 1.5, .tokens_per_second = 1000}};
  status.lastFailure = FailureStatus{.rank = 3,
                                     .node = "m-1",
                                     .exitCode = 9,
                                     .reason = "Error",
                                     .message = "first\nsecond \x1b[31m\n",
                                     .action = "RestartInPlace",
                                     .round = 1,
                                     .step = 20,
                                     .recoverySeconds = 1.84,
                                     .time = "2026-01-01T00:59:00Z"};
  status.failures = {{.number = 11,
                      .reason = "PodDeleted",
                      .action = "RecreatePod",
                      .time = "2026-01-01T00:58:00Z"},
                     {.number = 12,
                      .rank = 3,
                      .node = "m-1",
                      .exitCode = 9,
                      .reason = "Error",
                      .action = "RestartInPlace",
                      .recovery = {.detectSeconds = 0.125, .waitSeconds = 1},
                      .time = "2026-01-01T00:59:00Z"}};
  status.lost = {.seconds = 61.25, .steps = 7};
  status.conditions = {{.type = "Running",
                        .status = "True",
                        .reason = "AllRanks",
                        .message = "",
                        .lastTransitionTime = "2026-01-01T00:59:30Z"}};
  input.pods = Json::parse(R"([{"metadata":{"name":"gpt-worker-0-1"},"spec":{"nodeName":"m-0"},
    "status":{"phase":"Running","podIP":"127.0.0.5"}}])");
  input.events =
      Json::parse(R"([{"reason":"Later","message":"b","lastTimestamp":"2026-01-01T00:50:00Z",
    "type":"Normal","count":3},{"reason":"Earlier","message":"a\nc","type":"Warning",
    "eventTime":"2026-01-01T00:40:00.000001Z"}])");
  input.trouble = "events are forbidden";
  const std::string page = status_page(input);
  for (const char* part :
       {"Name:          gpt\n", "State:         Running, round 2, 1 restart\n",
        "1 of 2 ready, 2 processes each: ranks 0 to 3",
        "[##########..............................] 25/100 (25 %, 1:15 left)\n",
        "Speed:         1.00k tokens/s\n", "Loss:          1.5",
        "rank 3 on m-1: Error (exit code 9) in round 1 at step 20, 60s ago",
        "RestartInPlace, running again after 1.8 s", "  | first\n  | second  [31m\n",
        "Lost:          61.2 s, 7 steps repeated\n",
        "NUMBER   SINCE   RANK   NODE   REASON       EXIT   ACTION           DETECT",
        "12       60s     3      m-1    Error        9      RestartInPlace   0.12     -        "
        "1.00",
        "  Running   True     AllRanks   30s", "  gpt-worker-0-1   Running   m-0    127.0.0.5",
        "10m (x3)   Normal    Later     b", "Not shown: events are forbidden"}) {
    EXPECT_TRUE(has(page, part)) << part << "\n" << page;
  }
  const std::string cause(250, 'x');  // as long as a failed save's
  input.job.status.conditions = {{.type = "CheckpointFailing",
                                  .status = "True",
                                  .reason = "SaveFailed",
                                  .message = cause + "; training continues"},
                                 {.type = "Failed", .message = std::string(319, 'y') + "\u00e9"}};
  EXPECT_TRUE(has(status_page(input), cause + "; training continues\n"));
  EXPECT_TRUE(has(status_page(input), "yyy\n")) << "cut between characters";
  input.job.status.rendezvous = RendezvousStatus{.worldSize = 2, .nodeIndices = "1"};
  EXPECT_TRUE(has(status_page(input), "2 processes each: ranks 0 to 1 on nodes 1\n"));
  input.job.status.progress->palm_mfu = 0.4125;
  EXPECT_TRUE(has(status_page(input), "Speed:         1.00k tokens/s, MFU 41.2 % (PaLM)\n"));
  input.job.status.progress->precision = "fp32";
  EXPECT_FALSE(has(status_page(input), "computed in")) << "as the job asks";
  input.job.spec.train.emplace().precision = "bf16";
  EXPECT_TRUE(has(status_page(input), "(PaLM), computed in fp32 (bf16 was asked for)\n"));
  EXPECT_LT(page.find("Earlier"), page.find("Later"));
  EXPECT_FALSE(has(page, "\x1b")) << "a log can't steer the terminal";
}

TEST(ClientStatusPage, SaysWhatEachRankHoldsAndItsPartOfTheWhole) {
  StatusInput input;
  EXPECT_FALSE(has(status_page(input), "Each rank holds"));
  HoldingsStatus& holdings = input.job.status.holdings.emplace();
  holdings = {.sharding = "parameters",
              .shardingRanks = 8,
              .parametersBytes = 65'000'000,
              .gradientsBytes = 64 << 20,
              .optimizerBytes = 512,
              .gatheredBytes = int64_t{3} << 29,
              .activationsBytes = 2048};
  const auto line = [&] {
    const std::string page = status_page(input);
    const size_t at = page.find("Each rank holds: ");
    return page.substr(at, page.find('\n', at) - at);
  };
  EXPECT_EQ(line(),
            "Each rank holds: parameters 62.0 MiB (1/8), gradients 64.0 MiB (1/8), optimizer 512 "
            "bytes (1/8), gathered 1.5 GiB, activations 2.0 KiB");
  holdings = {.sharding = "optimizer",
              .shardingRanks = 2,
              .parametersBytes = 10,
              .gradientsBytes = 10,
              .optimizerBytes = 10,
              .offloadedBytes = 20};
  EXPECT_EQ(line(),
            "Each rank holds: parameters 10 bytes, gradients 10 bytes, optimizer 10 bytes (1/2), "
            "offloaded 20 bytes");
  holdings.shardingRanks = 1;
  holdings.sharding = "gradients";
  EXPECT_FALSE(has(line(), "(1/")) << "one rank divides nothing";
  holdings.shardingRanks = 4;
  holdings.sharding = "of a later version";
  EXPECT_FALSE(has(line(), "(1/"));
}

TEST(ClientLogs, ARankIsOnTheNodeThatHasItsPlaceInTheRound) {
  TrainingJob job;
  job.metadata.name = "gpt";
  job.spec.nodes = 4;
  job.spec.processesPerNode = 2;
  EXPECT_EQ(node_of_rank(job, 7).value(), 3);
  EXPECT_EQ(node_of_rank(job, 8).error().message,
            "--rank: found 8, expected less than 8, the world size of gpt");
  job.status.rendezvous = RendezvousStatus{.worldSize = 4, .nodeIndices = "0,3"};
  EXPECT_EQ(node_of_rank(job, 1).value(), 0);
  EXPECT_EQ(node_of_rank(job, 2).value(), 3);
  EXPECT_EQ(node_of_rank(job, 4).error().message,
            "--rank: found 4, expected less than 4, the world size of gpt");
}

TEST(ClientStatusPage, HasEveryNumberThatTheTablePutsThere) {
  StatusInput input;
  input.job.status.progress = ProgressStatus{every_number()};
  const std::string page = status_page(input);
  for (const StepNumber& number : step_number_table()) {
    if (number.page_row.empty()) continue;
    const std::string text = number_text(number, every_number(), number.page);
    const size_t row = page.find("\n" + std::string(number.page_row) + ": ");
    ASSERT_NE(row, std::string::npos) << number.page_row << " in " << page;
    const std::string line = page.substr(row + 1, page.find('\n', row + 1) - row - 1);
    EXPECT_TRUE(has(line, text)) << text << " in " << line;
  }
}

TEST(ClientStatusPage, HasSomethingToSayOfAJobThatNobodyHasSeenYet) {
  EXPECT_TRUE(has(status_page({}), "the controller has not seen it yet"));
}

class Words : public testing::Test {
 protected:
  Words() {
    CLI::App* list = app_.add_subcommand("list", "");
    list->add_option("-n,--namespace", text_);
    list->add_option("--context", text_);
    list->add_option("-o,--output", text_);
    list->add_flag("-w,--watch", flag_);
    CLI::App* logs = app_.add_subcommand("logs", "");
    logs->add_option("-n,--namespace", text_);
    logs->add_option("NAME", text_);
    app_.add_subcommand("submit", "")->add_option("FILE", text_);
  }
  CompletionRequest ask(const std::vector<std::string>& words) const {
    return completion_request(app_, words);
  }

  CLI::App app_;
  std::string text_;
  bool flag_ = false;
};

TEST_F(Words, KnowsWhatComesNext) {
  EXPECT_EQ(ask({""}).choices, (std::vector<std::string>{"list", "logs", "submit"}));
  EXPECT_EQ(ask({"logs", ""}).kind, CompletionKind::kJob);
  EXPECT_EQ(ask({"submit", "a"}).kind, CompletionKind::kFile);
  EXPECT_EQ(ask({"list", "-n", ""}).kind, CompletionKind::kNamespace);
  EXPECT_EQ(ask({"list", "--context=a"}).kind, CompletionKind::kContext);
  EXPECT_EQ(ask({"list", "-o", ""}).choices.size(), 4u);
  EXPECT_TRUE(has(ask({"list", "--w"}).choices.back(), "watch"));
  EXPECT_EQ(ask({"list", "-w", ""}).kind, CompletionKind::kNothing);
  EXPECT_EQ(ask({}).kind, CompletionKind::kChoices);
}

TEST_F(Words, AsksTheClusterOfTheFlagsBefore) {
  const CompletionRequest request = ask({"logs", "-n", "team", ""});
  EXPECT_EQ(request.kind, CompletionKind::kJob);
  EXPECT_EQ(request.flags.namespace_, "team");
  EXPECT_EQ(ask({"logs", "--namespace=other", ""}).flags.namespace_, "other");
}

class Documents : public testing::Test {
 protected:
  std::string read(const std::string& text) {
    const std::filesystem::path file = folder_.path() / "job.yaml";
    test::write_file(file, text);
    const auto jobs = read_job_documents({file.string()});
    if (!jobs.ok()) return jobs.error().message;
    return std::to_string(jobs->size()) + " jobs";
  }
  static std::string job(const std::string& name) {
    return "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: " + name +
           "}\nspec:\n  train:\n    model: {preset: gpt2-124m}\n    data: {path: /data}\n";
  }
  test::TemporaryFolder folder_;
};

TEST_F(Documents, MayBeSeveralInAFile) {
  EXPECT_EQ(read(job("a")), "1 jobs");
  EXPECT_EQ(read("# first\n---\n" + job("a") + "---\n" + job("b") + "---\n# nothing\n"), "2 jobs");
}

TEST_F(Documents, AreNamedWithWhatIsWrong) {
  EXPECT_TRUE(has(read(job("a") + "  nodez: 3\n"), "nodez")) << read(job("a") + "  nodez: 3\n");
  EXPECT_TRUE(has(read("kind: Pod\napiVersion: v1\n"), "expected TrainingJob"));
  EXPECT_TRUE(has(read(job("a") + "---\nkind: Pod\napiVersion: v1\n"), "document 2"));
  EXPECT_TRUE(has(read(""), "no document"));
  EXPECT_TRUE(has(read(job("a") + "---\na: [\n"), "document 2: line"));
}

TEST(ClientStuck, SaysWhoHoldsUpTheOthersOrWhyThatIsNotKnown) {
  const WallTime now = *wall_time_from_rfc3339("2026-01-01T01:00:00Z");
  TrainingJob job;
  job.metadata.name = "gpt";
  job.spec.command = {"python"};
  EXPECT_TRUE(has(stuck_page(job, now), "gpt runs its own program"));
  job.spec.command.clear();
  job.spec.train.emplace();
  EXPECT_EQ(
      stuck_page(job, now),
      "gpt is not started: its ranks are not training yet, and no rank is known to be stuck.\n");
  job.status.state = "Running";
  job.status.round = 2;
  job.status.progress = ProgressStatus{{.step = 25, .steps = 100}};
  job.status.conditions = {{.type = "Running", .status = "True"},
                           {.type = "Stuck", .status = "False", .reason = "Moving"}};
  EXPECT_EQ(
      stuck_page(job, now),
      "gpt: no rank is known to be stuck. No agent reports a rank that has waited for another "
      "rank for 10 seconds, except perhaps for one that saves a checkpoint or validates "
      "(round 2, step 25).\n");
  job.status.conditions[1] = {.type = "Stuck",
                              .status = "True",
                              .reason = "RankMissing",
                              .message = "rank 3 is missing\x1b\xc2\x9b",
                              .lastTransitionTime = "2026-01-01T00:59:00Z"};
  EXPECT_EQ(stuck_page(job, now), "gpt: rank 3 is missing   (noticed 60s ago).\n");
  job.status.state = "Complete";
  job.status.conditions.push_back({.type = "Complete", .status = "True"});
  EXPECT_EQ(stuck_page(job, now), "gpt is Complete: no rank is stuck.\n");
}

}  // namespace
}  // namespace lockstep::cli
