// Times in what servers, plugins and users send: RFC 3339 and Retry-After.
#include "common/base/check.h"
#include "common/base/clock.h"
#include "controller/kube/retry_after.h"
#include "local/schema/format.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

void check_rfc3339(std::string_view text) {
  const Result<WallTime> time = wall_time_from_rfc3339(text);
  if (!time.ok()) {
    CHECK(time.error().code == Code::kInvalid && !time.error().message.empty());
    return;
  }
  // The embedded server accepts every time that the controller understands.
  CHECK(local::has_format("date-time", text));
  const std::string written = rfc3339_micro(*time);
  const Result<WallTime> again = wall_time_from_rfc3339(written);
  // An offset can move a time out of the years that are read.
  const bool is_in_range = written >= "1970" && written < "2201" && *time >= WallTime();
  CHECK(again.ok() == is_in_range);
  if (again.ok()) CHECK(*again == std::chrono::floor<std::chrono::microseconds>(*time));
}

void check_retry_after(const std::string& text) {
  for (const char* now :
       {"1970-01-01T00:00:00Z", "2026-11-21T06:00:00.5Z", "2200-12-31T23:59:59Z"}) {
    const Duration wait = kube::retry_after(text, *wall_time_from_rfc3339(now));
    CHECK(wait >= Duration{0} && wait <= std::chrono::minutes(5));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::fuzz_text(data, size);
  check_rfc3339(text);
  check_retry_after(std::string(text));
  return 0;
}
