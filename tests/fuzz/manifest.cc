// The manifest of a checkpoint: parsed, written and parsed again. Once as it is, and once with the
// digest in its first line made right, so that the text behind it is reached.
#include <algorithm>
#include <string>

#include "agent/train/checkpoint/manifest.h"
#include "common/base/check.h"
#include "common/base/sha256.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

std::string sealed(std::string_view text) {
  const std::string rest(text.substr(std::min(text.find('\n'), text.size() - 1) + 1));
  return "{\"sha256\": \"" + hex(sha256(rest)) + "\",\n" + rest;
}

void check_files(const std::vector<train::ManifestFile>& files) {
  for (const train::ManifestFile& file : files) {
    CHECK(!file.name.empty() && file.name.find('/') == std::string::npos);
  }
}

void parse(std::string_view text) {
  const Result<train::Manifest> manifest = train::parse_manifest(text);
  if (!manifest.ok()) {
    CHECK(manifest.error().code == Code::kCorrupt);
    return;
  }
  check_files(manifest->files);
  if (manifest->files[0].sha256) return;  // format 1, which is not written any more
  const Result<train::Manifest> again = train::parse_manifest(train::format_manifest(*manifest));
  CHECK(again.ok() && *again == *manifest);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::fuzz_text(data, size);
  parse(text);
  if (!text.empty()) parse(sealed(text));
  const Result<std::vector<train::ManifestFile>> files = train::parse_files(text);
  if (files.ok()) {
    check_files(*files);
    CHECK(train::parse_files(train::format_files(*files)).value() == *files);
  }
  return 0;
}
