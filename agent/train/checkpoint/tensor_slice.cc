#include "agent/train/checkpoint/tensor_slice.h"

#include <charconv>

namespace lockstep::train {
namespace {

constexpr int64_t kEndMax = int64_t{1} << 40;

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

std::string text_of(int64_t begin, int64_t end) {
  return std::to_string(begin) + ":" + std::to_string(end);
}

// Takes `BEGIN:END` from the front of the text.
std::optional<Range> take_range(std::string_view& text) {
  Range range;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, range.begin);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ':') return {};
  const auto second = std::from_chars(first.ptr + 1, end, range.end);
  if (second.ec != std::errc() || range.begin < 0 || range.end <= range.begin ||
      range.end > kEndMax) {
    return {};
  }
  text.remove_prefix(static_cast<size_t>(second.ptr - text.data()));
  return range;
}

std::optional<TensorSlice> whole(std::string_view name, const std::vector<int64_t>& shape) {
  if (shape.empty() || shape.size() > 2) return {};
  return TensorSlice{.tensor = std::string(name),
                     .rank = static_cast<int>(shape.size()),
                     .box = {0, shape[0], 0, shape.size() == 2 ? shape[1] : 1}};
}

}  // namespace

std::vector<int64_t> TensorSlice::shape() const {
  if (rank == 1) return {box.rows()};
  return {box.rows(), box.columns()};
}

std::string slice_name(const TensorSlice& slice, const std::vector<int64_t>& shape) {
  if (slice.shape() == shape) return slice.tensor;
  const TensorBox& box = slice.box;
  const std::string rows = text_of(box.row_begin, box.row_end);
  if (slice.rank == 1) return slice.tensor + "[" + rows + "]";
  return slice.tensor + "[" + rows + "," + text_of(box.column_begin, box.column_end) + "]";
}

std::optional<TensorSlice> parse_slice(std::string_view name, const std::vector<int64_t>& shape) {
  if (!name.ends_with(']')) return whole(name, shape);
  const size_t bracket = name.rfind('[');
  if (bracket == std::string_view::npos || bracket == 0) return {};
  std::string_view text = name.substr(bracket + 1);
  TensorSlice slice{.tensor = std::string(name.substr(0, bracket)), .box = {0, 0, 0, 1}};
  const std::optional<Range> rows = take_range(text);
  if (!rows) return {};
  slice.box.row_begin = rows->begin;
  slice.box.row_end = rows->end;
  if (text.starts_with(',')) {
    text.remove_prefix(1);
    const std::optional<Range> columns = take_range(text);
    if (!columns) return {};
    slice.rank = 2;
    slice.box.column_begin = columns->begin;
    slice.box.column_end = columns->end;
  }
  if (text != "]" || slice.shape() != shape) return {};
  return slice;
}

}  // namespace lockstep::train
