// Progress that programs report, whole and in two pieces, which must give the same result.
#include <algorithm>

#include "agent/node/program_progress.h"
#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

void check_bounds(const node::ProgressLines& lines, size_t input_bytes) {
  const StepNumbers& last = lines.last();
  for (const auto& count : {last.step, last.steps, last.samples, last.tokens}) {
    CHECK(!count || (*count >= 0 && *count <= int64_t{1} << 53));
  }
  for (const auto& loss : {last.loss, last.validation_loss}) CHECK(!loss || *loss - *loss == 0);
  CHECK(lines.accepted() + lines.rejected() <= input_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::fuzz_text(data, size);
  node::ProgressLines whole;
  whole.append(text);
  check_bounds(whole, size);
  node::ProgressLines pieces;
  const size_t cut = size == 0 ? 0 : data[0] * size / 256;
  pieces.append(text.substr(0, cut));
  pieces.append(text.substr(cut));
  CHECK(whole.last() == pieces.last());
  CHECK(whole.accepted() == pieces.accepted() && whole.rejected() == pieces.rejected());
  return 0;
}
