#include "agent/node/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/api/step_number_table.h"
#include "tests/agent/node/metrics_text.h"
#include "tests/common/api/every_number.h"

namespace lockstep::node {
namespace {

ProgressNumbers some_numbers() {
  ProgressNumbers numbers;
  numbers.round = 1;
  numbers.phase = WorkerPhase::kTraining;
  numbers.step = 12;
  numbers.loss = 2.5;
  numbers.gradient_norm = 0.75;
  numbers.learning_rate = 6e-4;
  numbers.tokens_per_second = 3000;
  numbers.data_seconds = 0.01;
  numbers.forward_seconds = 0.02;
  numbers.backward_seconds = 0.04;
  numbers.communication_seconds = 0.08;
  numbers.update_seconds = 0.16;
  return numbers;
}

MetricsInput some_input() {
  MetricsInput input;
  input.job = "gpt";
  input.job_namespace = "team";
  input.node_index = 1;
  input.round = 3;
  input.workers_running = 2;
  input.worker_restarts = 4;
  input.counts = {{"lockstep_train_tokens_total", 4096}, {"lockstep_train_samples_total", 64}};
  input.share = 0.5;
  input.ranks = {{2, some_numbers()}, {3, some_numbers()}};
  return input;
}

TEST(Metrics, ShowEveryNumberOfTheWorkersWithItsLabels) {
  const MetricsText text(render_metrics(some_input()));
  const std::string labels = "{job=\"gpt\",namespace=\"team\",node_index=\"1\"";
  const std::pair<const char*, double> values[] = {
      {"lockstep_train_tokens_total", 4096},
      {"lockstep_train_samples_total", 64},
      {"lockstep_train_step", 12},
      {"lockstep_train_loss", 2.5},
      {"lockstep_train_gradient_norm", 0.75},
      {"lockstep_train_learning_rate", 6e-4},
      {"lockstep_train_tokens_per_second", 1500},
      {"lockstep_agent_round", 3},
      {"lockstep_agent_workers_running", 2},
      {"lockstep_agent_worker_restarts_total", 4},
  };
  for (const auto& [name, value] : values) {
    EXPECT_DOUBLE_EQ(text.value(name + labels + "}"), value) << name;
  }
  const std::pair<const char*, double> parts[] = {{"data", 0.01},
                                                  {"forward", 0.02},
                                                  {"backward", 0.04},
                                                  {"communication", 0.08},
                                                  {"update", 0.16}};
  for (const auto& [part, seconds] : parts) {
    for (const char* rank : {"2", "3"}) {
      EXPECT_DOUBLE_EQ(text.value("lockstep_train_step_seconds" + labels + ",rank=\"" + rank +
                                  "\",part=\"" + part + "\"}"),
                       seconds);
    }
  }
  EXPECT_EQ(text.type("lockstep_train_tokens_total"), "counter");
  EXPECT_EQ(text.type("lockstep_train_loss"), "gauge");
  EXPECT_DOUBLE_EQ(text.value("lockstep_build_info" + labels + ",version=\"0.1.0\"}"), 1);
  EXPECT_GT(text.value("process_resident_memory_bytes" + labels + "}"), 1e5);
  EXPECT_GT(text.value("process_open_fds" + labels + "}"), 2);
  EXPECT_GT(text.value("process_cpu_seconds_total" + labels + "}"), 0);
}

// Returns the name and labels of a row's series, with the rank's label if it has one.
std::string series_of(const StepNumber& number, const std::string& rank) {
  std::string text =
      std::string(number.metric.name) + "{job=\"gpt\",namespace=\"team\",node_index=\"1\"" + rank;
  for (const MetricLabel& label : number.metric.labels) {
    if (label.name != nullptr) text += std::string(",") + label.name + "=\"" + label.value + "\"";
  }
  return text + "}";
}

TEST(Metrics, HaveASeriesForEveryRowOfTheTableThatNamesOne) {
  MetricsInput input = some_input();
  input.ranks = {{2, ProgressNumbers{every_number()}}};
  for (const StepNumber& number : step_number_table()) {
    if (number.metric.scope == MetricScope::kCount) input.counts[number.metric.name] = 7;
  }
  const MetricsText built_in(render_metrics(input));
  input.ranks.clear();
  input.programs = {{.rank = 3, .numbers = every_number()}};
  const MetricsText command(render_metrics(input));
  for (const StepNumber& number : step_number_table()) {
    const StepMetric& metric = number.metric;
    const double value = *value_of(number, every_number());
    if (metric.help != nullptr) {
      const bool is_ranks = metric.scope == MetricScope::kRank;
      const double expected = metric.scope == MetricScope::kCount  ? 7
                              : metric.scope == MetricScope::kNode ? value * input.share
                                                                   : value;
      EXPECT_DOUBLE_EQ(built_in.value(series_of(number, is_ranks ? ",rank=\"2\"" : "")), expected)
          << metric.name;
    }
    if (metric.command_help != nullptr) {
      EXPECT_DOUBLE_EQ(command.value(series_of(number, ",rank=\"3\"")), value) << metric.name;
    }
  }
}

TEST(Metrics, ShowFlopsByFormulaAndUtilisationByPeakWhereOneIsKnown) {
  MetricsInput input = some_input();
  EXPECT_FALSE(MetricsText(render_metrics(input)).has("lockstep_train_m"));
  ProgressNumbers& numbers = input.ranks[0].numbers;
  numbers.palm_flops_per_second = 8e14;
  numbers.causal_flops_per_second = 7e14;
  const std::string labels = "{job=\"gpt\",namespace=\"team\",node_index=\"1\",formula=\"";
  const std::string flops = "lockstep_train_model_flops_per_second" + labels;
  const std::string mfu = "lockstep_train_mfu_ratio" + labels;
  EXPECT_DOUBLE_EQ(MetricsText(render_metrics(input)).value(flops + "palm\"}"), 4e14);
  EXPECT_DOUBLE_EQ(MetricsText(render_metrics(input)).value(flops + "causal\"}"), 3.5e14);
  EXPECT_FALSE(MetricsText(render_metrics(input)).has("lockstep_train_mfu_ratio"));
  numbers.palm_mfu = 0.4;
  numbers.causal_mfu_of_measured = 0.4375;
  const MetricsText text(render_metrics(input));
  EXPECT_DOUBLE_EQ(text.value(mfu + "palm\",peak=\"datasheet\"}"), 0.4) << "of the whole job";
  EXPECT_DOUBLE_EQ(text.value(mfu + "causal\",peak=\"measured\"}"), 0.4375);
}

TEST(Metrics, ShowTheCheckpointsOfAllRoundsWhereARankZeroSaves) {
  MetricsInput input = some_input();
  EXPECT_FALSE(MetricsText(render_metrics(input)).has("lockstep_checkpoint"));
  const std::string labels = "{job=\"gpt\",namespace=\"team\",node_index=\"1\"}";
  const std::string prefix = "lockstep_checkpoint_";
  input.storage.emplace();
  const MetricsText begun(render_metrics(input));
  EXPECT_EQ(begun.value(prefix + "save_failures_total" + labels), 0) << "a rise can be seen";
  EXPECT_FALSE(begun.has(prefix + "save_seconds"));
  add_notes({.saved = 3, .failed = 1, .save_seconds = 9, .blocked_seconds = 0.5, .set_aside = 2},
            *input.storage);
  add_notes({.saved = 1, .failed = 1, .save_seconds = 0.25, .blocked_seconds = 0.25},
            *input.storage);
  add_notes({.failed = -7, .blocked_seconds = std::nan("")}, *input.storage);
  const MetricsText text(render_metrics(input));
  EXPECT_EQ(text.value(prefix + "saves_total" + labels), 4);
  EXPECT_EQ(text.value(prefix + "save_failures_total" + labels), 2);
  EXPECT_EQ(text.value(prefix + "set_aside_total" + labels), 2);
  EXPECT_EQ(text.value(prefix + "blocked_seconds_total" + labels), 0.75);
  EXPECT_EQ(text.value(prefix + "save_seconds" + labels), 0.25) << "of the newest";
  EXPECT_EQ(text.type(prefix + "saves_total"), "counter");
  EXPECT_EQ(text.type(prefix + "save_seconds"), "gauge");
}

TEST(Metrics, ShowTheStatesInMemory) {
  MetricsInput input = some_input();
  input.storage.emplace();
  EXPECT_FALSE(MetricsText(render_metrics(input)).has("lockstep_checkpoint_memory"));
  add_notes({.kept_step = 40, .kept_bytes = 1000, .kept_blocked_seconds = 0.5}, *input.storage);
  add_notes({.kept_step = 52, .kept_bytes = 2000, .kept_blocked_seconds = 0.25}, *input.storage);
  const MetricsText text(render_metrics(input));
  const std::string labels = "{job=\"gpt\",namespace=\"team\",node_index=\"1\"}";
  EXPECT_EQ(text.value("lockstep_checkpoint_memory_step" + labels), 52);
  EXPECT_EQ(text.value("lockstep_checkpoint_memory_bytes" + labels), 2000);
  EXPECT_EQ(text.value("lockstep_checkpoint_memory_blocked_seconds_total" + labels), 0.75);
  EXPECT_EQ(text.type("lockstep_checkpoint_memory_blocked_seconds_total"), "counter");
}

TEST(Metrics, CountXidsThatDoNotFitAsOthers) {
  MetricsInput input = some_input();
  GpuNumbers gpu;
  for (const uint64_t number : {1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 1}) count_xid(gpu, number);
  input.gpus = {{.rank = 2}};
  add_xids(gpu, input.gpus[0].xids);
  add_xids(gpu, input.gpus[0].xids);  // from another round
  const MetricsText text(render_metrics(input));
  const std::string begin =
      "lockstep_gpu_xid_errors_total{job=\"gpt\",namespace=\"team\",node_index=\"1\","
      "rank=\"2\",bus=\"\",xid=\"";
  EXPECT_EQ(text.value(begin + "1\"}"), 4);
  EXPECT_EQ(text.value(begin + "7\"}"), 2);
  EXPECT_EQ(text.value(begin + "other\"}"), 6);
  EXPECT_FALSE(text.has("lockstep_gpu_busy_ratio"));
}

TEST(Metrics, HaveNoSeriesForWhatIsNotKnown) {
  MetricsInput input = some_input();
  EXPECT_FALSE(MetricsText(render_metrics(input)).has("lockstep_train_validation_loss"));
  input.ranks[0].numbers.validation_loss = 1.75;
  EXPECT_TRUE(MetricsText(render_metrics(input)).has("lockstep_train_validation_loss"));
  input.ranks[0].numbers = {};
  input.ranks[0].numbers.step = 0;  // nothing is trained yet
  EXPECT_FALSE(MetricsText(render_metrics(input)).has("lockstep_train_loss"));
  EXPECT_TRUE(MetricsText(render_metrics(input)).has("lockstep_train_step"));
  input.ranks.clear();
  EXPECT_FALSE(MetricsText(render_metrics(input)).has("lockstep_train_step"));
}

TEST(Metrics, StayReadableWithLabelsThatAreNoText) {
  MetricsInput input = some_input();
  input.job = "a\xFF\"\\\nb";
  const MetricsText text(render_metrics(input));
  EXPECT_DOUBLE_EQ(text.value("lockstep_train_step{job=\"a\xEF\xBF\xBD\\\"\\\\\\nb\","
                              "namespace=\"team\",node_index=\"1\"}"),
                   12);
}

ProgressNumbers at(uint64_t round, WorkerPhase phase, int64_t tokens) {
  ProgressNumbers numbers;
  numbers.round = round;
  numbers.phase = phase;
  numbers.tokens = tokens;
  numbers.samples = tokens / 10;
  return numbers;
}

double tokens(const TrainCounters& counters) {
  return counters.counts().at("lockstep_train_tokens_total");
}
double samples(const TrainCounters& counters) {
  return counters.counts().at("lockstep_train_samples_total");
}

TEST(TrainCounters, CountThisNodesShareOfWhatWasTrained) {
  TrainCounters counters;
  counters.observe(at(1, WorkerPhase::kForming, 0), 0.5);
  counters.observe(at(1, WorkerPhase::kTraining, 1000), 0.5);
  counters.observe(at(1, WorkerPhase::kSaving, 3000), 0.5);
  EXPECT_DOUBLE_EQ(tokens(counters), 1500);
  EXPECT_DOUBLE_EQ(samples(counters), 150);
}

TEST(TrainCounters, NeverFallAndDoNotCountACheckpointsTokensAsTrained) {
  TrainCounters counters;
  counters.observe(at(1, WorkerPhase::kLoading, 50'000), 1);  // from an earlier pod
  counters.observe(at(1, WorkerPhase::kTraining, 53'000), 1);
  EXPECT_DOUBLE_EQ(tokens(counters), 3000);
  counters.observe(at(2, WorkerPhase::kForming, 0), 1);
  counters.observe(at(2, WorkerPhase::kLoading, 52'000), 1);
  EXPECT_DOUBLE_EQ(tokens(counters), 3000);
  counters.observe(at(2, WorkerPhase::kTraining, 53'000), 1);
  EXPECT_DOUBLE_EQ(tokens(counters), 4000) << "done again counts again";
}

// charts/lockstep/values.yaml limits what Prometheus takes from a pod.
TEST(Metrics, OfTheLargestNodeFitIntoTheLimitOfTheChart) {
  constexpr int64_t kRanksMax = 64;  // processesPerNode
  constexpr size_t kSampleLimit = 5000;
  MetricsInput input = some_input();
  input.storage.emplace();
  input.storage->save_seconds = 1;
  input.storage->kept_step = 1;
  for (int64_t rank = 0; rank < kRanksMax; ++rank) {
    input.ranks.push_back({rank, ProgressNumbers{every_number()}});
    input.programs.push_back({.rank = rank, .numbers = every_number()});
    input.usage.push_back({.rank = rank, .tree = TreeUsage{}});
    RankGpu gpu{.rank = rank, .now = GpuNumbers{}, .xids = {}};
    for (uint32_t xid = 0; xid < GpuNumbers{}.xids.size(); ++xid)
      gpu.xids[{"0000:01:00.0", xid}] = 1;
    input.gpus.push_back(gpu);
  }
  const std::string text = render_metrics(input);
  size_t samples = 0;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) samples += text[at] != '#';
  EXPECT_GT(samples, 1500U);
  EXPECT_LT(samples, kSampleLimit);
}

}  // namespace
}  // namespace lockstep::node
