#include "agent/train/data/table_samples.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "agent/train/data/batch_loader.h"
#include "agent/train/data/windows.h"
#include "tests/agent/train/temporary_folder.h"
#include "tests/support/npy_bytes.h"

namespace lockstep::train {
namespace {

constexpr int64_t kSamples = 10;

// Sample i has the features (i, -i), the class i % 3 and the values (i, 2 i, 3 i).
class TableSamplesTest : public testing::Test {
 protected:
  Result<std::unique_ptr<TableSamples>> opened(MlpTask task, double fraction) {
    std::vector<float> features, values;
    std::vector<int32_t> classes;
    for (int i = 0; i < kSamples; ++i) {
      const auto number = static_cast<float>(i);
      features.insert(features.end(), {number, -number});
      values.insert(values.end(), {number, 2 * number, 3 * number});
      classes.push_back(i % 3);
    }
    const std::string targets =
        task == MlpTask::kClassification
            ? folder_.write("classes.npy", npy_array("<i4", "(10,)", classes))
            : folder_.write("values.npy", npy_array("<f4", "(10, 3)", values));
    TRY_ASSIGN(TableSource table,
               TableSource::open(
                   {.features = folder_.write("x.npy", npy_array("<f4", "(10, 2)", features)),
                    .targets = targets,
                    .model = {.inputs = 2, .outputs = 3, .task = task}}));
    return TableSamples::create(std::move(table), fraction);
  }

  TemporaryFolder folder_;
};

TEST_F(TableSamplesTest, FillsTheTensorsOfBothTasks) {
  for (const MlpTask task : {MlpTask::kClassification, MlpTask::kRegression}) {
    const auto samples = opened(task, 0.3).value();
    EXPECT_EQ(samples->size(), "10 samples");
    EXPECT_EQ(samples->training_samples(), 7);
    EXPECT_EQ(samples->validation_samples(), 3);
    SampleBatch batch;
    ASSERT_TRUE(samples->read_validation(1, 4, batch).ok());
    ASSERT_EQ(batch.rows(), 2) << "those before the end";
    const std::span<const float> features = std::as_const(batch).values<float>(0);
    EXPECT_EQ(std::vector<float>(features.begin(), features.end()),
              (std::vector<float>{8, -8, 9, -9}));
    if (task == MlpTask::kClassification) {
      EXPECT_EQ(batch.counted(), 2);
      EXPECT_EQ(batch.row<int32_t>(TableSamples::kTargets, 0)[0], 2);
    } else {
      EXPECT_EQ(batch.counted(), 6);
      EXPECT_EQ(batch.row<float>(TableSamples::kTargets, 1)[2], 27);
    }
  }
}

TEST_F(TableSamplesTest, TrainsOnEveryRowOnceAnEpochInAnotherOrder) {
  const auto samples = opened(MlpTask::kClassification, 0.3).value();
  std::vector<std::vector<float>> epochs(2);
  SampleBatch batch;
  for (int64_t index = 0; index < 14; ++index) {
    batch.reset(samples->design(), 1);
    ASSERT_TRUE(samples->read_training({.index = index, .seed = 5}, 0, batch).ok());
    epochs[static_cast<size_t>(index / 7)].push_back(batch.row<float>(0, 0)[0]);
  }
  for (const std::vector<float>& epoch : epochs) {
    EXPECT_EQ(std::set<float>(epoch.begin(), epoch.end()), (std::set<float>{0, 1, 2, 3, 4, 5, 6}));
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

// The row of a sample depends on its index and the seed alone, so a run can go on anywhere.
TEST_F(TableSamplesTest, AreLoadedInTheSameOrderFromAnyPosition) {
  const auto samples = opened(MlpTask::kRegression, 0).value();
  const BatchLoaderOptions options{.shape = {.micro = 4}, .seed = 3};
  BatchLoader whole(*samples, options);
  BatchLoaderOptions later = options;
  later.position = 8;
  BatchLoader rest(*samples, later);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(whole.next().ok());
  for (int i = 0; i < 3; ++i) {
    const SampleBatch* a = whole.next().value();
    const SampleBatch* b = rest.next().value();
    EXPECT_TRUE(std::ranges::equal(a->bytes(), b->bytes())) << i;
    EXPECT_EQ(a->counted(), 12);
  }
}

TEST_F(TableSamplesTest, RefusesAFractionThatHoldsNothingBack) {
  const auto samples = opened(MlpTask::kRegression, 0.01);
  ASSERT_FALSE(samples.ok());
  EXPECT_EQ(samples.error().blame, Blame::kData);
  EXPECT_NE(samples.error().message.find("10 samples are too few"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::train
