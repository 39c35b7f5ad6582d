#include "agent/train/data/token_check.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "common/base/check.h"

namespace lockstep::train {
namespace {

constexpr int64_t kTokensAtOnce = 1 << 18;

Status check_range(const TokenSource& source, int64_t begin, int64_t end) {
  std::vector<int32_t> tokens(static_cast<size_t>(std::min(kTokensAtOnce, end - begin)));
  while (begin < end) {
    const int64_t now = std::min(end - begin, kTokensAtOnce);
    TRY(source.read(begin, std::span(tokens).first(static_cast<size_t>(now))));
    begin += now;
  }
  return {};
}

std::string mebibytes(int64_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

}  // namespace

Status check_tokens(const TokenSource& source, const TokenCheckLimits& limits) {
  CHECK(limits.blocks > 1);
  const auto width = static_cast<int64_t>(source.options().width);
  if (source.options().vocabulary >= int64_t{1} << 8 * width) return {};
  const int64_t tokens_max = limits.bytes_max / width;
  if (source.count() <= tokens_max) return check_range(source, 0, source.count());
  const int64_t block = std::max<int64_t>(tokens_max / limits.blocks, 1);
  const int64_t last = source.count() - block;
  for (int64_t i = 0; i < limits.blocks; ++i) {
    const int64_t begin = last * i / (limits.blocks - 1);
    const Status status = check_range(source, begin, begin + block);
    if (status.ok()) continue;
    return status.error().with_message(status.error().message + " (in a sample of " +
                                       mebibytes(limits.blocks * block * width) + " of the " +
                                       mebibytes(source.count() * width) + ")");
  }
  return {};
}

}  // namespace lockstep::train
