// A user's file: YAML to JSON within limits, then read and validated as a job.
#include "common/api/yaml.h"
#include "common/api/training_job.h"
#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const YamlLimits limits{.bytes_max = 65536, .depth_max = 16, .values_max = 5000};
  const Result<Json> document = json_from_yaml(fuzz::fuzz_text(data, size), limits);
  if (!document.ok()) {
    CHECK(document.error().code == Code::kInvalid && !document.error().message.empty());
    return 0;
  }
  // The resulting JSON reads back as the same.
  const std::string text = dump_json(*document);
  const Result<Json> again = parse_json(text);
  CHECK(again.ok() && *again == *document);
  const Result<TrainingJob> job = valid_training_job_from_json(*document);
  CHECK(job.ok() || !job.error().message.empty());
  return 0;
}
