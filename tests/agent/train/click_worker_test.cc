// Real processes of workers and servers, without a controller.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/model/clicks/click_layers.h"
#include "agent/model/init.h"
#include "agent/optim/schedule.h"
#include "agent/server/rows_state.h"
#include "agent/train/clicks/click_log.h"
#include "agent/train/clicks/click_step.h"
#include "agent/train/servers/round_plan.h"
#include "common/crypto/aead.h"
#include "tests/agent/train/click_world.h"
#include "tests/agent/train/fewer_bits.h"
#include "tests/agent/train/worker_world.h"

namespace lockstep::train {
namespace {

WorkerWorld::Options click_job(const TemporaryFolder& folder, const std::string& family) {
  WorkerWorld::Options options = click_world(folder, family);
  if (!click_hidden(options.train.model).empty()) {
    options.train.model.hidden = {8, 5};
    options.train.optimizer.epsilon = 1e-3;  // above the rounding errors of gradients
  }
  return options;
}

struct Curve {
  std::vector<double> losses;
  double validation_loss = 0;
  double auc = 0;
};

// A program of one process that knows no servers: a map of parameters in double precision.
class Reference {
 public:
  explicit Reference(const TrainSpec& train)
      : train_(train),
        factors_(static_cast<size_t>(click_factors(train.model))),
        layers_(click_layers(train.model)) {
    if (layers_) draw_layers();
  }

  Curve run() {
    const auto log = ClickLog::open(train_.data);
    EXPECT_TRUE(log.ok());
    ClickReader reader(*log, (*log)->training());
    Curve curve;
    const optim::LearningRateSchedule schedule{.kind = optim::ScheduleKind::kLinear,
                                               .peak = train_.optimizer.learningRate,
                                               .steps = train_.steps};
    for (int64_t step = 1; step <= train_.steps; ++step) {
      ClickRows rows;
      EXPECT_TRUE(reader.read(train_.batch.global, 0, train_.batch.global, rows).ok());
      curve.losses.push_back(learn(rows, optim::learning_rate(schedule, step)));
    }
    ClickReader held_back(*log, (*log)->validation());
    ClickRows rows;
    EXPECT_TRUE(held_back.read_on(kClickRows, rows).ok());
    std::vector<double> logits;
    for (size_t row = 0; row < rows.size(); ++row) logits.push_back(logit(rows, row));
    curve.validation_loss =
        model::log_loss_sum(rows.labels, logits) / static_cast<double>(rows.size());
    curve.auc = model::auc(rows.labels, logits);
    return curve;
  }

 private:
  struct Number {
    double value = 0;
    double squares = 0;
    double gradient = 0;
  };

  // As nn.Linear does, from the job's seed.
  void draw_layers() {
    for (const model::ClickLayers::Tensor& shape : layers_->tensors()) {
      const auto id = static_cast<int64_t>(kFirstLayerTensor + tensors_.size());
      const Parameter parameter{.id = id,
                                .name = {},
                                .dims = {shape.outputs, shape.inputs},
                                .init = Init::kUniform,
                                .fan_in = shape.fan_in};
      const ArenaEntry entry{.id = id, .dims = parameter.dims, .count = parameter.count()};
      std::vector<float> values(shape.count());
      model::initialise({.parameter = parameter,
                         .entry = entry,
                         .shard = {},
                         .seed = static_cast<uint64_t>(train_.seed)},
                        0, values);
      tensors_.emplace_back(values.size());
      for (size_t i = 0; i < values.size(); ++i) tensors_.back()[i].value = values[i];
    }
  }

  // Returns what the hidden layers add to the logit. With an error, adds gradients.
  double deep(const ClickRows& rows, size_t row, std::optional<double> error = {}) {
    if (!layers_) return 0;
    const std::vector<model::ClickLayers::Tensor>& shapes = layers_->tensors();
    std::vector<std::vector<double>> values(1, std::vector<double>(kCriteoColumns * factors_));
    for (uint32_t i = rows.row_begin[row]; i < rows.row_begin[row + 1]; ++i) {
      for (size_t f = 0; f < factors_; ++f) {
        values[0][rows.columns[i] * factors_ + f] += at(rows.keys[i])[1 + f].value * rows.values[i];
      }
    }
    for (size_t t = 0; t < shapes.size(); t += 2) {
      const bool is_last = t + 1 == shapes.size();
      std::vector<double> out;
      for (size_t o = 0; o < static_cast<size_t>(shapes[t].outputs); ++o) {
        double sum = is_last ? 0 : tensors_[t + 1][o].value;
        const std::vector<double>& in = values.back();
        for (size_t i = 0; i < in.size(); ++i) sum += tensors_[t][o * in.size() + i].value * in[i];
        out.push_back(is_last ? sum : std::max(sum, 0.0));
      }
      values.push_back(out);
    }
    const double logit = values.back()[0];
    if (!error) return logit;
    std::vector<double> delta = {*error};
    for (size_t layer = values.size() - 1; layer-- > 0;) {
      const std::vector<double>& in = values[layer];
      std::vector<double> before(in.size());
      for (size_t o = 0; o < delta.size(); ++o) {
        const bool is_hidden = 2 * layer + 1 < shapes.size();
        if (is_hidden && values[layer + 1][o] <= 0) continue;
        if (is_hidden) tensors_[2 * layer + 1][o].gradient += delta[o];
        for (size_t i = 0; i < in.size(); ++i) {
          Number& weight = tensors_[2 * layer][o * in.size() + i];
          weight.gradient += delta[o] * in[i];
          before[i] += delta[o] * weight.value;
        }
      }
      delta = before;
    }
    for (uint32_t i = rows.row_begin[row]; i < rows.row_begin[row + 1]; ++i) {
      for (size_t f = 0; f < factors_; ++f) {
        at(rows.keys[i])[1 + f].gradient += delta[rows.columns[i] * factors_ + f] * rows.values[i];
      }
    }
    return logit;
  }

  // The weight, then the factors.
  std::vector<Number>& at(uint64_t key) {
    std::vector<Number>& numbers = keys_[key];
    if (!numbers.empty()) return numbers;
    numbers.resize(1 + factors_);
    if (factors_ == 0) return numbers;
    server::TableSpec table{
        .name = "factors", .dim = static_cast<uint32_t>(factors_), .deviation = kFactorDeviation};
    server::RowStore store(table,
                           {.seed = static_cast<uint64_t>(train_.seed), .table = kFactorsTable});
    EXPECT_TRUE(store.use(std::span(&key, 1), 0).ok());
    std::vector<float> values(factors_);
    store.read(std::span(&key, 1), 0, values);
    for (size_t f = 0; f < factors_; ++f) numbers[1 + f].value = values[f];
    return numbers;
  }

  double logit(const ClickRows& rows, size_t row) {
    double logit = bias_.value + deep(rows, row);
    std::vector<double> sums(factors_);
    for (uint32_t i = rows.row_begin[row]; i < rows.row_begin[row + 1]; ++i) {
      const std::vector<Number>& numbers = at(rows.keys[i]);
      logit += numbers[0].value * rows.values[i];
      if (!has_click_pairs(train_.model)) continue;
      for (size_t f = 0; f < factors_; ++f) {
        const double term = numbers[1 + f].value * rows.values[i];
        sums[f] += term;
        logit -= 0.5 * term * term;
      }
    }
    for (const double sum : sums) logit += 0.5 * sum * sum;
    return logit;
  }

  double learn(const ClickRows& rows, double rate) {
    double loss = 0;
    const auto count = static_cast<double>(rows.size());
    for (size_t row = 0; row < rows.size(); ++row) {
      const double z = logit(rows, row);
      loss += std::log1p(std::exp(rows.labels[row] > 0 ? -z : z));
      const double error = (1 / (1 + std::exp(-z)) - rows.labels[row]) / count;
      bias_.gradient += error;
      deep(rows, row, error);
      for (size_t f = 0; f <= (has_click_pairs(train_.model) ? factors_ : 0); ++f) {
        double sum = 0;
        for (uint32_t i = rows.row_begin[row]; i < rows.row_begin[row + 1]; ++i) {
          sum += at(rows.keys[i])[f].value * rows.values[i];
        }
        for (uint32_t i = rows.row_begin[row]; i < rows.row_begin[row + 1]; ++i) {
          Number& number = at(rows.keys[i])[f];
          const double x = rows.values[i];
          number.gradient += error * x * (f == 0 ? 1 : sum - number.value * x);
        }
      }
    }
    update(bias_, rate);
    for (const uint64_t key : rows.keys) {
      for (Number& number : at(key)) update(number, rate);
    }
    for (std::vector<Number>& tensor : tensors_) {
      for (Number& number : tensor) update(number, rate);
    }
    return loss / count;
  }

  // Adagrad; a second call has no gradient.
  void update(Number& number, double rate) {
    number.squares += number.gradient * number.gradient;
    if (number.gradient != 0) {
      number.value -=
          rate * number.gradient / (std::sqrt(number.squares) + train_.optimizer.epsilon);
    }
    number.gradient = 0;
  }

  TrainSpec train_;
  size_t factors_;
  std::optional<model::ClickLayers> layers_;
  Number bias_;
  std::vector<std::vector<Number>> tensors_;  // of the layers
  std::map<uint64_t, std::vector<Number>> keys_;
};

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 1e-5 * std::abs(expected[i])) << "step " << i + 1;
  }
}

TEST(ClickWorkers, AreTheSingleProcessIfTheyAreSynchronous) {
  const TemporaryFolder folder;
  for (const char* family :
       {kLogisticRegression, kFactorizationMachine, kWideAndDeep, kDeepFactorizationMachine}) {
    SCOPED_TRACE(family);
    WorkerWorld::Options options = click_job(folder, family);
    const Curve expected = Reference(options.train).run();
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    struct Shape {
      int64_t nodes, per_node, servers;
    };
    for (const Shape& shape : {Shape{1, 1, 1}, Shape{2, 1, 2}, Shape{2, 2, 1}}) {
      SCOPED_TRACE(testing::Message() << shape.nodes << " x " << shape.per_node << ", "
                                      << shape.servers << " servers");
      options.nodes = shape.nodes;
      options.per_node = shape.per_node;
      options.servers->nodes = shape.servers;
      WorkerWorld world(options);
      ASSERT_NO_FATAL_FAILURE(world.run());
      expect_near(world.metric("loss"), expected.losses);
      const std::vector<double> validation = world.metric("validationLoss");
      ASSERT_EQ(validation.size(), 2u);
      EXPECT_NEAR(validation.back(), expected.validation_loss, 1e-5);
      EXPECT_NEAR(world.metric("validationAuc").back(), expected.auc, 1e-5);
      const ProgressNumbers numbers = world.progress(0);
      EXPECT_EQ(numbers.step, 24);
      EXPECT_EQ(numbers.samples, 24 * 128);
      EXPECT_EQ(numbers.phase, WorkerPhase::kDone);
      EXPECT_EQ(world.progress(world.size() - 1).phase, WorkerPhase::kDone);
      EXPECT_GT(world.progress(world.size() - 1).holdings.parameters_bytes, 0u);
    }
  }
}

// Reads what tests/golden/make_clicks_golden.py wrote.
TEST(ClickWorkers, FitTheLogisticRegressionOfScikitLearn) {
  const std::string golden = std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/";
  WorkerWorld::Options options{.nodes = 2};
  options.servers = ParameterServersSpec{.nodes = 1};
  TrainSpec& train = options.train;
  train.model.family = kLogisticRegression;
  train.data.path = golden + "clicks.libsvm";
  train.data.format = "libsvm";
  train.steps = 400;
  train.batch.global = 240;  // all of them
  train.optimizer = {
      .name = "sgd", .learningRate = 2, .schedule = "constant", .weightDecay = 0.01, .clipNorm = 0};
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  // docs/formats.md, "State of a parameter server": the bias is a range, and each weight a row.
  const std::string state = read_file(world.checkpoint_folder(400) + "/server-2.state");
  constexpr size_t kHead = 48;
  constexpr size_t kUnitHead = 40;
  constexpr size_t kRow = 24 + 4;
  ASSERT_EQ(state.size(), kHead + kUnitHead + 4 + kUnitHead + 6 * kRow);
  const auto number_at = [&](size_t at) {
    float number = 0;
    std::memcpy(&number, state.data() + at, sizeof number);
    return number;
  };
  std::map<uint64_t, float> found = {{0, number_at(kHead + kUnitHead)}};
  for (size_t at = kHead + kUnitHead + 4 + kUnitHead; at < state.size(); at += kRow) {
    uint64_t key = 0;
    std::memcpy(&key, state.data() + at, sizeof key);
    found[key] = number_at(at + 24);
  }
  std::ifstream expected(golden + "clicks.txt");
  for (uint64_t key = 0; key <= 6; ++key) {
    double number = 0;
    ASSERT_TRUE(expected >> number);
    EXPECT_NEAR(found[key], number, 1e-3) << "index " << key << "; 0: the bias";
  }
}

TEST(ClickWorkers, ResumeWithTheSameBitsOnAnyNumberOfServers) {
  const TemporaryFolder folder;
  WorkerWorld world(click_job(folder, kDeepFactorizationMachine));
  ASSERT_NO_FATAL_FAILURE(world.run());
  const std::vector<double> losses = world.metric("loss");
  const std::vector<double> validation = world.metric("validationLoss");
  ASSERT_EQ(world.checkpoint_folders().size(), 3u);
  for (const int64_t servers : {3, 1, 2}) {
    SCOPED_TRACE(servers);
    std::filesystem::remove_all(world.checkpoint_folder(24));
    std::filesystem::remove_all(world.checkpoint_folder(16));
    world.change_servers({.nodes = servers});
    ASSERT_NO_FATAL_FAILURE(world.run());
    EXPECT_EQ(world.storage_notes(0).resumed_step, 8);
    EXPECT_EQ(world.metric("loss"), losses);
    EXPECT_EQ(world.metric("validationLoss"), validation);
  }
}

TEST(ClickWorkers, SetACorruptCheckpointAside) {
  const TemporaryFolder folder;
  WorkerWorld world(click_job(folder, kLogisticRegression));
  ASSERT_NO_FATAL_FAILURE(world.run());
  const std::vector<double> losses = world.metric("loss");
  std::filesystem::remove_all(world.checkpoint_folder(24));
  std::filesystem::resize_file(world.checkpoint_folder(16) + "/server-2.state", 100);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_EQ(world.storage_notes(0).resumed_step, 8);
  EXPECT_EQ(world.storage_notes(0).set_aside_step, 16);
  EXPECT_EQ(world.metric("loss"), losses);
}

TEST(ClickWorkers, LearnWithEveryConsistency) {
  const TemporaryFolder folder;
  WorkerWorld::Options options = click_job(folder, kLogisticRegression);
  options.train.steps = 60;
  const Curve expected = Reference(options.train).run();
  const ParameterServersSpec kinds[] = {
      {.nodes = 2, .consistency = "asynchronous"},
      {.nodes = 2, .consistency = "boundedStaleness", .staleness = 2},
      {.nodes = 2, .consistency = "synchronous", .backupWorkers = 1}};
  options.nodes = 3;
  options.train.batch.global = 129;
  for (const ParameterServersSpec& kind : kinds) {
    SCOPED_TRACE(kind.consistency);
    options.servers = kind;
    WorkerWorld world(options);
    ASSERT_NO_FATAL_FAILURE(world.run());
    EXPECT_EQ(world.progress(0).step, 60);
    EXPECT_NEAR(world.metric("validationLoss").back(), expected.validation_loss, 0.03);
  }
}

TEST(ClickWorkers, SendFewerBits) {
  const TemporaryFolder folder;
  WorkerWorld::Options options = click_job(folder, kFactorizationMachine);
  options.train.steps = 60;
  expect_near_with_fewer_bits(options, 5e-3);
}

TEST(ClickWorkers, KeepBackRowsThatChangeLittle) {
  const TemporaryFolder folder;
  WorkerWorld::Options options = click_job(folder, kFactorizationMachine);
  options.train.steps = 60;
  WorkerWorld plain(options);
  ASSERT_NO_FATAL_FAILURE(plain.run());
  options.servers->rows.pushThreshold = 1e-3;
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  EXPECT_NE(world.metric("loss"), plain.metric("loss"));
  EXPECT_NEAR(world.metric("validationLoss").back(), plain.metric("validationLoss").back(), 0.02);
  const std::string log = world.log(0);
  const size_t at = log.find("rowsKeptBack=");
  ASSERT_NE(at, std::string::npos) << log;
  EXPECT_GT(std::stoll(log.substr(at + 13)), 0);
  EXPECT_NE(plain.log(0).find("rowsKeptBack=0"), std::string::npos);
}

TEST(ClickWorkers, ForgetRowsThatAreNotUsed) {
  const TemporaryFolder folder;
  WorkerWorld::Options options = click_job(folder, kLogisticRegression);
  options.train.steps = 100;  // less than an epoch
  options.train.batch.global = 16;
  const auto rows_at_the_end = [&] {
    WorkerWorld world(options);
    world.run();
    EXPECT_NE(world.log(2).find("message=\"hottest rows\""), std::string::npos) << world.log(2);
    return world.progress(2).server_rows.value_or(0) + world.progress(3).server_rows.value_or(0);
  };
  const int64_t all = rows_at_the_end();
  options.servers->rows = {.idleSteps = 5, .minFrequency = 5};
  const int64_t some = rows_at_the_end();
  EXPECT_LT(some, all * 9 / 10);
  options.checkpoint_every = 50;
  WorkerWorld resumed(options);
  ASSERT_NO_FATAL_FAILURE(resumed.run());
  std::filesystem::remove_all(resumed.checkpoint_folder(100));
  resumed.change_servers({.nodes = 2, .rows = {.decay = 0.001}});
  ASSERT_NO_FATAL_FAILURE(resumed.run());
  EXPECT_EQ(resumed.storage_notes(0).resumed_step, 50);
  EXPECT_GT(some, 0);
}

TEST(ClickWorkers, SaveTheSameStepWhenAnyOfThemOrAServerIsStopped) {
  const TemporaryFolder folder;
  for (const int64_t stopped : {1, 3}) {
    SCOPED_TRACE(stopped);
    WorkerWorld::Options options = click_job(folder, kLogisticRegression);
    options.train.steps = 100000;
    options.train.validation.everySteps = 0;
    options.checkpoint_every = 0;
    WorkerWorld world(options);
    world.start();
    world.wait_until(0, [](const ProgressNumbers& numbers) { return numbers.step > 3; });
    world.kill(stopped, SIGTERM);
    EXPECT_EQ(world.wait(), std::vector<int>(4, kExitStopped)) << world.log(0);
    const int64_t step = *world.progress(0).step;
    EXPECT_EQ(world.progress(1).step, step);
    EXPECT_EQ(world.checkpoint_folders(), std::vector<std::string>{world.checkpoint_folder(step)});
  }
}

TEST(ClickWorkers, BlameAServerThatDied) {
  const TemporaryFolder folder;
  WorkerWorld::Options options = click_job(folder, kLogisticRegression);
  options.train.steps = 100000;
  options.train.validation.everySteps = 0;
  WorkerWorld world(options);
  world.start();
  world.wait_until(0, [](const ProgressNumbers& numbers) { return numbers.step > 3; });
  world.kill(3, SIGKILL);
  // The other one may wait for its peer at the first server, until a controller ends the round.
  world.wait_until(0, [&](const ProgressNumbers&) { return !world.runs(1); });
  const int64_t ended = world.runs(0) ? 1 : 0;
  for (const int64_t rank : {1 - ended, int64_t{2}}) world.kill(rank, SIGKILL);
  EXPECT_EQ(world.wait()[static_cast<size_t>(ended)], kExitPeerLost) << world.log(ended);
  EXPECT_EQ(world.progress(ended).suspect_rank, 3) << world.log(ended);
}

// Lets the job train until the servers know how long a step takes (they look five times a second),
// and stops a rank with SIGSTOP.
void stop_a_rank(WorkerWorld& world, int64_t rank) {
  world.start();
  const auto begin = std::chrono::steady_clock::now();
  world.wait_until(0, [&](const ProgressNumbers& numbers) {
    return numbers.step > 8 && std::chrono::steady_clock::now() - begin > std::chrono::seconds(3);
  });
  world.kill(rank, SIGSTOP);
}

TEST(ClickWorkers, NameAWorkerThatHangs) {
  for (const char* consistency : {"synchronous", "boundedStaleness"}) {
    SCOPED_TRACE(consistency);
    const TemporaryFolder folder;
    WorkerWorld::Options options = click_job(folder, kLogisticRegression);
    options.train.steps = 100000;
    options.train.validation.everySteps = 0;
    options.checkpoint_every = 0;
    options.hang_seconds = 2;
    options.servers->consistency = consistency;
    WorkerWorld world(options);
    stop_a_rank(world, 1);
    world.wait_until(0, [&](const ProgressNumbers&) { return false; });
    world.wait_until(2, [&](const ProgressNumbers&) { return false; });
    for (const int64_t rank : {1, 3}) world.kill(rank, SIGKILL);
    EXPECT_EQ(world.wait()[0], kExitPeerHung) << world.log(0);
    EXPECT_EQ(world.progress(0).suspect_rank, 1);
    EXPECT_EQ(world.progress(2).suspect_rank, 1);
    EXPECT_NE(world.log(2).find("rank 1 is missing from step #"), std::string::npos)
        << world.log(2);
  }
}

TEST(ClickWorkers, NameAServerThatHangs) {
  const TemporaryFolder folder;
  WorkerWorld::Options options = click_job(folder, kLogisticRegression);
  options.train.steps = 100000;
  options.train.validation.everySteps = 0;
  options.checkpoint_every = 0;
  options.hang_seconds = 60;
  WorkerWorld world(options);
  stop_a_rank(world, 3);
  // The other one may wait for its peer at the first server, until a controller ends the round.
  world.wait_until(0, [&](const ProgressNumbers&) { return !world.runs(1); });
  const int64_t ended = world.runs(0) ? 1 : 0;
  for (const int64_t rank : {1 - ended, int64_t{2}, int64_t{3}}) world.kill(rank, SIGKILL);
  EXPECT_EQ(world.wait()[static_cast<size_t>(ended)], kExitPeerLost) << world.log(ended);
  EXPECT_EQ(world.progress(ended).suspect_rank, 3) << world.log(ended);
}

// A server that can open no file fails its part of a checkpoint, and training goes on.
TEST(ClickWorkers, GoOnIfAServerCannotSave) {
  const TemporaryFolder folder;
  WorkerWorld::Options options = click_job(folder, kLogisticRegression);
  options.train.steps = 100000;
  options.train.validation.everySteps = 0;
  options.checkpoint_every = 20;
  WorkerWorld world(options);
  world.start();
  world.wait_until(0, [](const ProgressNumbers& numbers) { return numbers.step > 3; });
  rlimit before{};
  ASSERT_EQ(prlimit(world.pid(3), RLIMIT_NOFILE, nullptr, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(prlimit(world.pid(3), RLIMIT_NOFILE, &none, nullptr), 0);
  world.wait_until(0, [&](const ProgressNumbers&) { return world.storage_notes(0).failed > 0; });
  ASSERT_EQ(prlimit(world.pid(3), RLIMIT_NOFILE, &before, nullptr), 0);
  const int64_t saved = world.storage_notes(0).saved;
  world.wait_until(0, [&](const ProgressNumbers&) { return world.storage_notes(0).saved > saved; });
  EXPECT_NE(world.log(0).find("the checkpoint could not be saved"), std::string::npos);
  world.kill(0, SIGTERM);
  EXPECT_EQ(world.wait(), std::vector<int>(4, kExitStopped)) << world.log(0);
}

TEST(ClickWorkers, NameTheBrokenLine) {
  const TemporaryFolder folder;
  WorkerWorld::Options options = click_job(folder, kLogisticRegression);
  options.train.data.path = folder.write("broken", "1 1:1\n0 2:1\n1 x\n0 1:1\n");
  options.train.data.format = "libsvm";
  options.train.data.validationFraction = 0;
  options.train.validation.everySteps = 0;
  options.train.batch.global = 4;
  WorkerWorld world(options);
  world.start();
  world.wait_until(1, [](const ProgressNumbers&) { return false; });
  for (const int64_t rank : {0, 2, 3}) world.kill(rank, SIGKILL);
  EXPECT_EQ(world.wait()[1], kExitDataError);
  EXPECT_NE(world.log(1).find("line 3: found \\\"x\\\""), std::string::npos) << world.log(1);
}

TEST(ClickWorkers, EncryptWhatTheySend) {
  if (!can_encrypt().ok()) GTEST_SKIP() << can_encrypt().error().message;
  const TemporaryFolder folder;
  WorkerWorld::Options options = click_job(folder, kLogisticRegression);
  options.encrypts = true;
  const Curve expected = Reference(options.train).run();
  WorkerWorld world(options);
  ASSERT_NO_FATAL_FAILURE(world.run());
  expect_near(world.metric("loss"), expected.losses);
}

}  // namespace
}  // namespace lockstep::train
