#include "agent/train/data/token_bytes.h"

#include <algorithm>
#include <span>
#include <vector>

namespace lockstep::train {
namespace {

constexpr int64_t kTokensAtOnce = 1 << 18;

}  // namespace

Result<std::optional<int64_t>> validation_bytes(const OpenedData& data) {
  const BatchDesign& design = data.samples->design();
  const bool predicts_all = design.counted == design.tensors.front().values;
  if (!data.text || !predicts_all || data.validation_begin == data.text->count())
    return std::optional<int64_t>();
  const int64_t end = data.text->count();
  if (data.text->options().width == TokenWidth::kByte) {
    return std::optional(end - data.validation_begin);
  }
  if (!data.pieces) return std::optional<int64_t>();
  std::vector<int64_t> sizes(static_cast<size_t>(data.text->options().vocabulary));
  for (int64_t id = 0; id < data.pieces->count(); ++id) {
    sizes[static_cast<size_t>(id)] = static_cast<int64_t>(data.pieces->piece(id).size());
  }
  std::vector<int32_t> tokens(static_cast<size_t>(kTokensAtOnce));
  int64_t bytes = 0;
  for (int64_t begin = data.validation_begin; begin < end; begin += kTokensAtOnce) {
    const auto now = static_cast<size_t>(std::min(kTokensAtOnce, end - begin));
    TRY(data.text->read(begin, std::span(tokens).first(now)));
    for (size_t i = 0; i < now; ++i) bytes += sizes[static_cast<size_t>(tokens[i])];
  }
  return bytes > 0 ? std::optional(bytes) : std::nullopt;
}

}  // namespace lockstep::train
