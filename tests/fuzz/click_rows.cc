// A line of a click log; the first byte chooses the format.
#include "agent/train/clicks/click_rows.h"
#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto format = data[0] % 2 == 0 ? train::ClickFormat::kCriteo : train::ClickFormat::kLibsvm;
  train::ClickRows rows;
  CHECK(train::add_click_row(train::ClickFormat::kLibsvm, "1 5:2", rows).ok());
  const Status added = add_click_row(format, fuzz::fuzz_text(data + 1, size - 1), rows);
  CHECK(rows.size() == (added.ok() ? 2u : 1u));
  CHECK(rows.row_begin.size() == rows.size() + 1 && rows.row_begin.back() == rows.keys.size());
  CHECK(rows.keys.size() == rows.values.size());
  if (added.ok()) return 0;
  CHECK(added.error().code == Code::kInvalid && !added.error().message.empty());
  CHECK(rows.keys.size() == 1);
  return 0;
}
