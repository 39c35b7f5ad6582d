#include "common/text/piece_merger.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <queue>
#include <tuple>

#include "common/base/utf8.h"

namespace lockstep {
namespace {

// A piece of the text, in a list of those that are next to each other. Indices are -1 past an end.
struct Part {
  size_t begin = 0;
  size_t bytes = 0;  // 0: it has become a part of the one before
  int64_t before = -1;
  int64_t after = -1;
  int32_t id = -1;
};

// The piece that two adjacent parts make. Sorted by id, then by place.
struct Merge {
  int32_t id = -1;
  int64_t left = -1;
  size_t bytes = 0;  // of both parts; others: one of them has changed since

  bool operator>(const Merge& other) const {
    return std::tie(id, left) > std::tie(other.id, other.left);
  }
};

using Merges = std::priority_queue<Merge, std::vector<Merge>, std::greater<>>;

}  // namespace

// The later of two pieces with the same bytes counts: in sentencepiece's models the earlier one is
// a byte that replaces missing characters.
PieceMerger::PieceMerger(const PieceTable& table) {
  for (int64_t id = 0; id < table.count(); ++id) {
    const std::string_view piece = table.piece(id);
    if (!piece.empty()) ids_[piece] = static_cast<int32_t>(id);
  }
}

int32_t PieceMerger::id_of(std::string_view piece) const {
  const auto found = ids_.find(piece);
  return found == ids_.end() ? -1 : found->second;
}

PieceMerger::Encoded PieceMerger::encode(std::string_view text) const {
  Encoded encoded;
  std::vector<Part> parts;
  for (size_t at = 0; at < text.size();) {
    size_t bytes = std::max<size_t>(utf8_character_bytes(text.substr(at)), 1);
    int32_t id = id_of(text.substr(at, bytes));
    if (id < 0) {
      bytes = 1;
      id = id_of(text.substr(at, 1));
    }
    const auto index = static_cast<int64_t>(parts.size());
    if (id >= 0) parts.push_back({at, bytes, index - 1, index + 1, id});
    encoded.dropped += id < 0 ? 1 : 0;
    at += bytes;
  }
  if (parts.empty()) return encoded;
  parts.back().after = -1;

  const auto part = [&parts](int64_t index) -> Part& { return parts[static_cast<size_t>(index)]; };
  Merges merges;
  const auto offer = [&](int64_t left) {
    if (left < 0 || part(left).after < 0) return;
    const Part& first = part(left);
    const Part& second = part(first.after);
    if (first.begin + first.bytes != second.begin) return;  // something was dropped between them
    const size_t bytes = first.bytes + second.bytes;
    const int32_t id = id_of(text.substr(first.begin, bytes));
    if (id >= 0) merges.push({id, left, bytes});
  };
  for (int64_t index = 0; index < std::ssize(parts); ++index) offer(index);
  while (!merges.empty()) {
    const Merge best = merges.top();
    merges.pop();
    Part& left = part(best.left);
    if (left.bytes == 0 || left.after < 0) continue;
    Part& right = part(left.after);
    if (left.bytes + right.bytes != best.bytes) continue;
    left.bytes = best.bytes;
    left.id = best.id;
    left.after = right.after;
    right.bytes = 0;
    if (left.after >= 0) part(left.after).before = best.left;
    offer(left.before);
    offer(best.left);
  }
  for (int64_t index = 0; index >= 0; index = part(index).after) {
    encoded.ids.push_back(part(index).id);
  }
  return encoded;
}

}  // namespace lockstep
