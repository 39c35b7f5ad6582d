#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "common/api/training_job.h"
#include "common/api/yaml.h"

namespace lockstep {

inline Json document_of(const std::string& yaml) {
  const Result<Json> document = json_from_yaml(yaml);
  EXPECT_TRUE(document.ok()) << document.error().message;
  return document.ok() ? *document : Json();
}

// A valid job with all fields that the tests change.
inline Json good_document() {
  return document_of(R"(
apiVersion: lockstep.dev/v1alpha1
kind: TrainingJob
metadata: {name: gpt, labels: {team: a}, creationTimestamp: null}
spec:
  nodes: 2
  processesPerNode: 2
  train:
    model: {layers: 4, width: 128, heads: 4, context: 128}
    data: {path: /data/text, validationFraction: 0.05}
    steps: 100
    batch: {global: 32, micro: 4}
    optimizer: {learningRate: 2.0e-3, warmupSteps: 10}
)");
}

// Returns the whole error of the good document with one value changed.
inline std::string error_with(const std::string& pointer, Json value) {
  Json document = good_document();
  document[Json::json_pointer(pointer)] = std::move(value);
  const Result<TrainingJob> job = valid_training_job_from_json(document);
  return job.ok() ? "no error" : job.error().message;
}

inline std::string error_without(const std::string& pointer) {
  const Json patch = {{{"op", "remove"}, {"path", pointer}}};
  const Result<TrainingJob> job = valid_training_job_from_json(good_document().patch(patch));
  return job.ok() ? "no error" : job.error().message;
}

// A value and the error that error_with() returns for it.
struct Refusal {
  const char* pointer;
  Json value;
  const char* error;
};

}  // namespace lockstep
