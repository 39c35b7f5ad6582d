// JSON text, then read and validated as a job; a valid job is stored and read again.
#include "common/api/training_job.h"
#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<Json> document = parse_json(fuzz::fuzz_text(data, size));
  if (!document.ok()) {
    CHECK(document.error().code == Code::kInvalid && !document.error().message.empty());
    return 0;
  }
  const Result<Json> again = parse_json(dump_json(*document));
  CHECK(again.ok() && *again == *document);

  const Result<TrainingJob> job = valid_training_job_from_json(*document);
  const Result<TrainingJob> stored = stored_training_job_from_json(*document);
  if (stored.ok()) {
    (void)validate(*stored);
    (void)micro_batch(stored->spec);
  }
  if (!job.ok()) return 0;
  const Result<TrainingJob> read =
      valid_training_job_from_json(*parse_json(dump_json(to_json(*job))));
  CHECK(read.ok() && *read == *job);
  return 0;
}
