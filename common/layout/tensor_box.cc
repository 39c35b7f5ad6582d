#include "common/layout/tensor_box.h"

#include <algorithm>

namespace lockstep {
namespace {

// Appends rows to the rectangle above where they continue it.
void add(std::vector<TensorBox>& boxes, const TensorBox& box) {
  if (!boxes.empty()) {
    TensorBox& last = boxes.back();
    if (last.row_end == box.row_begin && last.column_begin == box.column_begin &&
        last.column_end == box.column_end) {
      last.row_end = box.row_end;
      return;
    }
  }
  boxes.push_back(box);
}

void add_run(std::vector<TensorBox>& boxes, int64_t begin, int64_t end, int64_t columns) {
  while (begin < end) {
    const int64_t row = begin / columns;
    const int64_t column = begin % columns;
    const bool is_part = column > 0 || end - begin < columns;
    const int64_t rows = is_part ? 1 : (end - begin) / columns;
    const int64_t width = is_part ? std::min(columns - column, end - begin) : columns;
    add(boxes, {row, row + rows, column, column + width});
    begin += rows * width;
  }
}

bool overlap(const TensorBox& a, const TensorBox& b) {
  return a.row_begin < b.row_end && b.row_begin < a.row_end && a.column_begin < b.column_end &&
         b.column_begin < a.column_end;
}

bool is_within(const TensorBox& box, int64_t rows, int64_t columns) {
  return box.row_begin >= 0 && box.row_begin < box.row_end && box.row_end <= rows &&
         box.column_begin >= 0 && box.column_begin < box.column_end && box.column_end <= columns;
}

}  // namespace

std::vector<TensorBox> boxes_of(std::span<const ShardRun> runs, int64_t columns) {
  std::vector<TensorBox> boxes;
  for (size_t i = 0; i < runs.size();) {
    int64_t end = runs[i].global + runs[i].count;
    size_t next = i + 1;
    for (; next < runs.size() && runs[next].global == end; ++next) end += runs[next].count;
    add_run(boxes, runs[i].global, end, columns);
    i = next;
  }
  return boxes;
}

bool covers_once(std::span<const TensorBox> boxes, int64_t rows, int64_t columns) {
  int64_t covered = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (!is_within(boxes[i], rows, columns)) return false;
    if (boxes[i].count() > rows * columns - covered) return false;
    covered += boxes[i].count();
    for (size_t j = 0; j < i; ++j) {
      if (overlap(boxes[i], boxes[j])) return false;
    }
  }
  return covered == rows * columns;
}

}  // namespace lockstep
