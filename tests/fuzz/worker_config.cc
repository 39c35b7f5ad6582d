// The configuration file that an agent writes for a worker.
#include "common/api/worker_config.h"
#include "common/base/check.h"
#include "tests/fuzz/fit_hash.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Result<Json> document = parse_json(fuzz::fuzz_text(data, size));
  if (!document.ok()) return 0;
  fuzz::fit_hash(*document);
  const Result<WorkerConfig> config = worker_config_from_json(*document);
  if (config.ok()) {
    CHECK(config->rank >= 0 && config->rank < config->world.world_size());
    const Result<WorkerConfig> again = worker_config_from_json(to_json(*config));
    CHECK(again.ok() && *again == *config);
  }
  return 0;
}
