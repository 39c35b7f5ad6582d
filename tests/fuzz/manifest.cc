// The manifest of a checkpoint: parsed, written and parsed again.
#include "agent/train/checkpoint/manifest.h"
#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<train::Manifest> manifest = train::parse_manifest(fuzz::fuzz_text(data, size));
  if (!manifest.ok()) {
    CHECK(manifest.error().code == Code::kCorrupt);
    return 0;
  }
  for (const train::ManifestFile& file : manifest->files) {
    CHECK(!file.name.empty() && file.name.find('/') == std::string::npos);
  }
  const Result<train::Manifest> again = train::parse_manifest(train::format_manifest(*manifest));
  CHECK(again.ok() && *again == *manifest);
  return 0;
}
