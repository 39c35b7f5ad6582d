// The pure parts of `lockstep run`: parsing, messages and drawing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "cli/run/job_file.h"
#include "cli/run/loss_curve.h"
#include "cli/run/metrics_reader.h"
#include "cli/run/progress_line.h"
#include "cli/run/rank_lines.h"
#include "cli/run/reporter.h"
#include "common/base/base64.h"
#include "tests/common/api/every_number.h"

namespace lockstep::cli {
namespace {

class MetricsReaderTest : public testing::Test {
 protected:
  MetricsReaderTest()
      : file_(testing::TempDir() + "metrics-" + std::to_string(getpid()) + ".jsonl") {}
  ~MetricsReaderTest() override { std::filesystem::remove(file_); }
  void append(const std::string& text) { std::ofstream(file_, std::ios::app) << text; }
  static std::string step(int n, double loss) {
    return "{\"step\":" + std::to_string(n) + ",\"loss\":" + std::to_string(loss) +
           ",\"tokensPerSecond\":" + std::to_string(100 * n) + "}\n";
  }
  std::string file_;
};

TEST_F(MetricsReaderTest, ReadsWhatIsAddedLineByLine) {
  MetricsReader reader(file_);
  reader.poll();
  EXPECT_EQ(reader.newest(), StepNumbers{});
  append(step(1, 5.5) + step(2, 5.0) + "{\"step\":2,\"validationLoss\":4.5}\n" +
         "{\"step\":3,\"lo");
  reader.poll();
  EXPECT_EQ(reader.newest().step, 2);
  EXPECT_EQ(reader.validation_losses().at(2), 4.5);
  append("ss\":4.0,\"tokensPerSecond\":7}\n");
  reader.poll();
  EXPECT_EQ(reader.losses().at(3), 4.0);
  EXPECT_EQ(reader.newest().tokens_per_second, 7);
  EXPECT_EQ(reader.median_tokens_per_second(), 100);
}

TEST_F(MetricsReaderTest, StartsAnewWhereTheFileWasCutBack) {
  MetricsReader reader(file_);
  append(step(1, 5) + step(2, 4) + step(3, 3));
  reader.poll();
  std::filesystem::resize_file(file_, step(1, 5).size());
  reader.poll();
  EXPECT_EQ(reader.newest().step, 1);
  append(step(2, 3.5));
  reader.poll();
  EXPECT_EQ(reader.losses().at(2), 3.5);
  EXPECT_FALSE(reader.losses().contains(3));
}

TEST_F(MetricsReaderTest, AStepDoneAgainReplacesWhatCameAfterIt) {
  MetricsReader reader(file_);
  append(step(1, 5) + step(2, 4) + step(3, 3) + step(2, 4.25));
  reader.poll();
  EXPECT_EQ(reader.newest().step, 2);
  EXPECT_EQ(reader.losses().at(2), 4.25);
}

TEST_F(MetricsReaderTest, HasTheNewestAccuracy) {
  MetricsReader reader(file_);
  append("{\"step\":2,\"validationLoss\":4.5,\"validationAccuracy\":0.75}\n");
  reader.poll();
  EXPECT_EQ(reader.newest().validation_accuracy, 0.75);
}

TEST_F(MetricsReaderTest, PassesOverWhatIsNoMetric) {
  MetricsReader reader(file_);
  append(
      "garbage\n[1]\n{\"loss\":1}\n{\"step\":\"x\",\"loss\":1}\n{\"step\":4,\"loss\":\"NaN\"}\n" +
      std::string(200'000, 'x') + "\n" + step(5, 2));
  reader.poll();
  EXPECT_EQ(reader.losses().size(), 1u);
  EXPECT_EQ(reader.losses().at(5), 2);
}

TEST(ProgressLine, FitsItsWidth) {
  ProgressSnapshot snapshot{
      .name = "kjv-gpt",
      .state = "Running",
      .numbers = {.step = 620, .steps = 1500, .loss = 1.93412, .tokens_per_second = 23100},
      .step_size = {.tokens = 4096},
      .restarts = 1};
  EXPECT_EQ(progress_line(snapshot, 120),
            "kjv-gpt [################........................]  620/1500  loss 1.934  "
            "23.1k tok/s  2:36 left  restarts 1");
  for (int width = 1; width < 130; ++width)
    EXPECT_LE(progress_line(snapshot, width).size(), static_cast<size_t>(width));
  EXPECT_EQ(progress_log_line(snapshot),
            "0:00  step 620/1500  loss 1.934  23.1k tok/s  2:36 left  restarts 1");
}

TEST(ProgressLine, TellsTheTimeLeftFromSamplesWhereNoTokensAreCounted) {
  const StepNumbers numbers{.step = 100, .steps = 400, .samples_per_second = 160};
  EXPECT_EQ(time_left(numbers, {.samples = 32}), "1:00 left");
  EXPECT_EQ(time_left(numbers, {}), "");
  EXPECT_EQ(time_left({.step = 100, .steps = 400}, {.samples = 32}), "");
}

TEST(ProgressLine, HasTheUtilisationBehindTheSpeed) {
  const ProgressSnapshot snapshot{
      .name = "a",
      .state = "Running",
      .numbers = {.step = 1, .tokens_per_second = 412'000, .palm_mfu = 0.4125}};
  EXPECT_EQ(progress_log_line(snapshot), "0:00  step 1  412k tok/s  MFU 41.2 %");
}

TEST(ProgressLine, HasEveryNumberThatTheTablePutsThere) {
  const StepNumbers numbers = every_number();
  const std::string line = progress_log_line({.numbers = numbers});
  for (const StepNumber& number : step_number_table()) {
    if (number.run.text.empty()) continue;
    const std::string text = number_text(number, numbers, number.run);
    EXPECT_NE(line.find("  " + text), std::string::npos) << text << " in " << line;
  }
}

TEST(LocalJob, ItsScratchFolderIsRelativeToItsFileAndIsThere) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("scratch-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder / "here");
  std::ofstream(folder / "text") << "some text";
  const auto read_with = [&](const std::string& path) {
    std::ofstream(folder / "job.yaml")
        << "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: a}\nspec:\n"
        << "  parallelism: {offload: optimizer, offloadPath: " << path << "}\n"
        << "  train: {model: {preset: gpt2-124m}, data: {path: text}}\n";
    return read_local_job(folder / "job.yaml", "/no/programs");
  };
  const Result<LocalJob> here = read_with("here");
  ASSERT_TRUE(here.ok()) << here.error().message;
  EXPECT_EQ(here->job.spec.parallelism.offloadPath, folder / "here");
  EXPECT_EQ(read_with("text").error().message,
            "spec.parallelism.offloadPath: " + (folder / "text").string() +
                " is not a folder, expected one");
  std::filesystem::remove_all(folder);
}

TEST(LocalJob, AsksForNoMoreGpusThanTheMachineHas) {
  struct Case {
    int64_t nodes, gpus_per_node, gpus;
    Problems problems;
  };
  const Case cases[] = {
      {4, 0, 0, {}},
      {2, 4, 8, {}},
      {1, 1, 0, {"spec.gpusPerNode: 1, but this machine has no GPU, expected 0 (the CPU)"}},
      {1, 4, 1, {"spec.gpusPerNode: 4, but this machine has 1 GPU, expected at most 1"}},
      {3,
       4,
       8,
       {"spec.gpusPerNode: 4 for each of 3 nodes are 12, but this machine has 8 GPUs, expected at "
        "most 2"}},
      {3,
       1,
       2,
       {"spec.gpusPerNode: 1 for each of 3 nodes are 3, but this machine has 2 GPUs, expected 0 "
        "(the CPU)"}},
  };
  for (const Case& one : cases) {
    TrainingJobSpec spec;
    spec.nodes = one.nodes;
    spec.gpusPerNode = one.gpus_per_node;
    EXPECT_EQ(gpu_problems(spec, one.gpus), one.problems);
  }
}

TEST(ProgressLine, SaysWhatItDoesNotKnowByLeavingItOut) {
  ProgressSnapshot snapshot{.name = "a", .state = "Forming", .numbers = {.steps = 10}};
  EXPECT_EQ(progress_log_line(snapshot), "0:00  Forming  step 0/10");
  snapshot = {.name = "program", .elapsed_seconds = 3};
  EXPECT_EQ(progress_log_line(snapshot), "0:03  Pending");
  snapshot.state = "Running";
  EXPECT_EQ(progress_log_line(snapshot), "0:03  Running");
  snapshot.numbers.step = 7;
  snapshot.numbers.samples_per_second = 1250;
  EXPECT_EQ(progress_log_line(snapshot), "0:03  step 7  1.25k samples/s");
}

class RankLinesTest : public testing::Test {
 protected:
  RankLinesTest() : folder_(testing::TempDir() + "rank-lines-" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~RankLinesTest() override { std::filesystem::remove_all(folder_); }
  void append(const std::string& file, const std::string& text) {
    std::ofstream(folder_ + "/" + file, std::ios::app) << text;
  }
  std::string folder_;
};

TEST_F(RankLinesTest, AreTheWholeLinesThatTheRanksPrinted) {
  RankLines lines(folder_, "job-worker-");
  EXPECT_EQ(lines.poll(), "");
  append("job-worker-0-1.log", "2026 INFO message=x\n[rank 0] one\n[rank 1] tw");
  append("job-worker-1-1.log", "[rank 2] three\n");
  append("other-worker-0-1.log", "[rank 0] of another job\n");
  EXPECT_EQ(lines.poll(), "[rank 0] one\n[rank 2] three\n");
  EXPECT_EQ(lines.poll(), "");
  append("job-worker-0-1.log", "o\n");
  append("job-worker-1-2.log", "[rank 3] of the next pod\n");
  EXPECT_EQ(lines.poll(), "[rank 1] two\n[rank 3] of the next pod\n");
}

TEST_F(RankLinesTest, GoOnInAFileThatWasCutBackOrBeginsWithAHole) {
  RankLines lines(folder_, "job-");
  append("job-0.log", std::string(5000, '\0') + "\n[rank 0] one\n");
  EXPECT_EQ(lines.poll(), "[rank 0] one\n");
  std::ofstream(folder_ + "/job-0.log") << "[rank 0] one\n";
  EXPECT_EQ(lines.poll(), "");
  append("job-0.log", "[rank 0] two\n");
  EXPECT_EQ(lines.poll(), "[rank 0] two\n");
}

TEST_F(RankLinesTest, KnowWhichLinesOfALogWerePassedOn) {
  RankLines lines(folder_, "job-");
  EXPECT_EQ(lines.new_to_user(1, "Error: no\n"), "Error: no\n");
  append("job-0.log", "[rank 1] begin\n[rank 1] \n[rank 1] Error: no\n[rank 2] Error: two\n");
  lines.poll();
  EXPECT_EQ(lines.new_to_user(1, "gin\n\nError: no\n"), "") << "a log's end is cut anywhere";
  EXPECT_EQ(lines.new_to_user(1, "Error: no\nit stood still\n"), "it stood still\n");
  EXPECT_EQ(lines.new_to_user(2, "Error: no\n"), "Error: no\n") << "another rank's";
  append("job-0.log", "[rank 1] " + std::string(30'000, 'x') + "\n");
  lines.poll();
  EXPECT_EQ(lines.new_to_user(1, "Error: no\n"), "Error: no\n") << "too long ago";
}

TEST(ProgressLine, WritesTimesAndRates) {
  EXPECT_EQ(clock_text(0), "0:00");
  EXPECT_EQ(clock_text(59.6), "1:00");
  EXPECT_EQ(clock_text(3723), "1:02:03");
  EXPECT_EQ(rate_text(7), "7.00");
  EXPECT_EQ(rate_text(1234), "1.23k");
  EXPECT_EQ(rate_text(412345), "412k");
  EXPECT_EQ(rate_text(2.5e6), "2.50M");
}

TEST(StatusEvents, TellsWhatHappenedBetweenTwoLooks) {
  TrainingJobStatus before, after;
  EXPECT_TRUE(status_events(before, after).empty());
  after.round = 1;
  after.rendezvous = RendezvousStatus{.host = "127.5.6.7", .port = 29500, .worldSize = 2};
  EXPECT_EQ(status_events(before, after),
            std::vector<std::string>{"round 1: 2 processes, rank 0 at 127.5.6.7:29500"});
  before = after;
  after.restarts = 1;
  after.lastFailure = FailureStatus{.rank = 1,
                                    .nodeIndex = 1,
                                    .exitCode = 137,
                                    .reason = "Signal",
                                    .message = "the end of the log",
                                    .action = "RestartInPlace",
                                    .round = 1,
                                    .time = "now"};
  EXPECT_EQ(status_events(before, after),
            (std::vector<std::string>{
                "failure: rank 1: Signal on node 1, exit code 137 (SIGKILL) -> RestartInPlace",
                "the end of the log", "restart 1"}));
  before = after;
  after.lastFailure->recoverySeconds = 1.5;
  after.lastCheckpoint = CheckpointStatus{.step = 500, .path = "/x"};
  EXPECT_EQ(status_events(before, after),
            (std::vector<std::string>{"running again, 1.50 s after the failure",
                                      "checkpoint of step 500"}));
  before = after;
  after.conditions.push_back({.type = "PrecisionReduced", .status = "True", .message = "in fp32"});
  EXPECT_EQ(status_events(before, after), std::vector<std::string>{"warning: in fp32"});
  EXPECT_TRUE(status_events(after, after).empty());
}

TEST(StatusEvents, WarnOfFailedSavesOnceAndOfEachCheckpointThatIsSetAside) {
  const auto events = [](const std::string& type, const std::string& before_message,
                         const std::string& message, const std::string& value = "True") {
    TrainingJobStatus before;
    if (!before_message.empty())
      before.conditions.push_back({.type = type, .status = "True", .message = before_message});
    TrainingJobStatus after;
    after.conditions.push_back({.type = type, .status = value, .message = message});
    return status_events(before, after);
  };
  const std::vector<std::string> none;
  for (const std::string type :
       {"CheckpointFailing", "CheckpointSetAside", "NetworkPolicyFailing"}) {
    EXPECT_EQ(events(type, "", "step 500"), std::vector<std::string>{"warning: step 500"});
    EXPECT_EQ(events(type, "step 500", "step 500"), none);
    EXPECT_EQ(events(type, "step 500", "", "False"), none);
  }
  EXPECT_EQ(events("CheckpointFailing", "step 400", "step 500"), none);
  EXPECT_EQ(events("CheckpointSetAside", "step 400", "step 500"),
            std::vector<std::string>{"warning: step 500"});
}

TEST(StatusEvents, LeavesOutWhatEndsTheRunBecauseTheResultSaysIt) {
  const TrainingJobStatus before;
  for (const FailureStatus& last :
       {FailureStatus{.rank = 1, .reason = "Error", .message = "log", .action = "Fail"},
        FailureStatus{.reason = "NoAddress", .message = "port 1", .action = "RecreatePod"}}) {
    TrainingJobStatus after;
    after.lastFailure = last;
    EXPECT_TRUE(status_events(before, after).empty()) << last.reason;
  }
  TrainingJobStatus refused;
  refused.conditions.push_back({.type = "Valid", .status = "False", .message = "no"});
  EXPECT_TRUE(status_events(before, refused).empty());
}

TEST(FailedMessage, HasTheLinesOfTheLogThatTheUserHasNotSeen) {
  const std::string sentence = "rank 1 failed: Error; no restart is left; really";
  const std::string message = sentence + "; the end of its log:\none\ntwo\n";
  EXPECT_EQ(failed_message(message, {.log = "one\ntwo\n", .unseen = "one\ntwo\n"}), message);
  EXPECT_EQ(failed_message(message, {.log = "one\ntwo\n", .unseen = "two\n"}),
            sentence + "; the end of its log:\ntwo\n");
  EXPECT_EQ(failed_message(message, {.log = "one\ntwo\n", .unseen = ""}), sentence);
  EXPECT_EQ(failed_message("the deadline has passed", {.log = "one\n", .unseen = ""}),
            "the deadline has passed");
  EXPECT_EQ(failed_message(sentence, {}), sentence);
}

TEST(LossCurve, TicksAreRoundAndCoverTheRange) {
  EXPECT_EQ(round_ticks(0, 1500, 8),
            (std::vector<double>{0, 200, 400, 600, 800, 1000, 1200, 1400, 1600}));
  std::vector<double> ticks = round_ticks(1.43, 5.7, 6);
  EXPECT_EQ(ticks.front(), 1);
  EXPECT_EQ(ticks.back(), 6);
  EXPECT_GE(round_ticks(3, 3, 6).size(), 2u);
  EXPECT_GE(round_ticks(0, 0, 6).size(), 2u);
}

TEST(LossCurve, DrawsWhatIsThere) {
  LossCurve curve{.title = "a <b> & c", .train = {}, .validation = {{250, 2.0}, {500, 1.7351}}};
  for (int step = 1; step <= 5000; ++step) curve.train[step] = 5.5 - step * 0.0005;
  curve.train[77] = std::numeric_limits<double>::quiet_NaN();
  std::string svg = loss_curve_svg(curve);
  EXPECT_NE(svg.find("a &lt;b&gt; &amp; c"), std::string::npos);
  EXPECT_NE(svg.find("1.735"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_LT(svg.size(), 100'000u);
  size_t circles = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1))
    ++circles;
  EXPECT_EQ(circles, 3u);  // two points and one in the legend
  for (const LossCurve& odd :
       {LossCurve{}, LossCurve{.title = "", .train = {{1, 2.0}}, .validation = {}}}) {
    std::string picture = loss_curve_svg(odd);
    EXPECT_EQ(picture.find("nan"), std::string::npos);
    EXPECT_EQ(picture.find("inf"), std::string::npos);
    EXPECT_TRUE(picture.ends_with("</svg>\n"));
  }
}

TEST(Base64, GoesThereAndBack) {
  // Source: RFC 4648, section 10.
  const std::vector<std::pair<std::string, std::string>> vectors = {{"", ""},
                                                                    {"f", "Zg=="},
                                                                    {"fo", "Zm8="},
                                                                    {"foo", "Zm9v"},
                                                                    {"foob", "Zm9vYg=="},
                                                                    {"fooba", "Zm9vYmE="},
                                                                    {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, coded] : vectors) {
    EXPECT_EQ(base64_encode(plain), coded);
    Result<std::string> back = base64_decode(coded);
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(*back, plain);
  }
  for (const char* bad : {"Zg", "Zg=", "Z===", "Zg==Zg==", "Zm9*", "=Zm9"})
    EXPECT_FALSE(base64_decode(bad).ok()) << bad;
}

}  // namespace
}  // namespace lockstep::cli
