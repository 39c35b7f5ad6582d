// A TrainingJob as the API server stores it; another version may have written it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/api/reread.h"
#include "tests/common/api/training_jobs.h"

namespace lockstep {
namespace {

TEST(StoredTrainingJob, PassesOverUnknownFieldsButNotOverRefusedOnes) {
  Json document = good_document();
  document["spec"]["later"] = 3;
  document["spec"]["train"]["later"] = 3;
  document["metadata"]["managedFields"] = Json::array();
  EXPECT_TRUE(stored_training_job_from_json(document).ok());
  document["spec"]["scheduling"] = Json::object();
  EXPECT_EQ(stored_training_job_from_json(document).error().message,
            "spec.scheduling: not in this version");
}

TEST(StoredTrainingJob, AStatusThatCannotBeReadIsAsIfAbsent) {
  Json document = good_document();
  document["status"] = {{"round", "three"},
                        {"restarts", 2},
                        {"progress", 7},
                        {"lastFailure", {{"rank", "x"}, {"reason", "Error"}}},
                        {"conditions", {7, {{"type", "Valid"}}}}};
  const Result<TrainingJob> job = stored_training_job_from_json(document);
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->status.round, 0);
  EXPECT_EQ(job->status.restarts, 2);
  EXPECT_FALSE(job->status.progress.has_value());
  EXPECT_EQ(job->status.lastFailure->rank, -1);
  EXPECT_EQ(job->status.lastFailure->reason, "Error");
  ASSERT_EQ(job->status.conditions.size(), 1u);
  EXPECT_EQ(job->status.conditions[0].type, "Valid");
  document["status"] = 7;
  EXPECT_EQ(stored_training_job_from_json(document)->status, TrainingJobStatus{});
}

TEST(StoredTrainingJob, IsReadAgainWithoutItsSpecAsLongAsItsGenerationIsTheSame) {
  Json document = good_document();
  document["metadata"].update({{"uid", "u"}, {"generation", 3}, {"resourceVersion", "10"}});
  document["status"] = {{"round", 1}, {"message", "from a later version"}};
  TrainingJob job = *stored_training_job_from_json(document);

  document["metadata"]["resourceVersion"] = "11";
  document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  document["metadata"]["managedFields"] = Json::array();
  document["status"]["round"] = 2;
  ASSERT_TRUE(reread_stored_job(document, job));
  EXPECT_EQ(job, *stored_training_job_from_json(document));
  EXPECT_EQ(job.status.round, 2);
  document.erase("status");
  ASSERT_TRUE(reread_stored_job(document, job));
  EXPECT_EQ(job.status, TrainingJobStatus{});

  const TrainingJob known = job;
  const auto expect_refused = [&](const char* pointer, Json value) {
    SCOPED_TRACE(pointer);
    Json changed = document;
    changed[Json::json_pointer(pointer)] = std::move(value);
    EXPECT_FALSE(reread_stored_job(changed, job));
    EXPECT_EQ(job, known);
  };
  expect_refused("/metadata/generation", 4);
  expect_refused("/metadata/generation", nullptr);
  expect_refused("/metadata/uid", "another");
  expect_refused("/metadata/name", 7);
  document.erase("spec");
  EXPECT_FALSE(reread_stored_job(document, job));
}

}  // namespace
}  // namespace lockstep
