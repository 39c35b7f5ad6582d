#include "common/api/rank_list.h"

#include <algorithm>
#include <charconv>

#include "common/api/problems.h"
#include "common/api/training_job_fields.h"

namespace lockstep {
namespace {

// Splits off the text before the next `separator` and removes both.
std::string_view take_part(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

bool read_rank(std::string_view text, int64_t& value) {
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  return !text.empty() && text[0] != '-' && read.ec == std::errc{} && read.ptr == end;
}

struct RankRange {
  int64_t start = 0;
  int64_t stop = 0;  // exclusive
  int64_t step = 1;
};

// Parses one item of a list: "7", "0-3", "0::2", "1:7:2".
bool read_range(std::string_view item, int64_t world_size, RankRange& range) {
  range = {.start = 0, .stop = world_size, .step = 1};
  if (item.find(':') != std::string_view::npos) {
    const std::string_view start = take_part(item, ':');
    const std::string_view stop = take_part(item, ':');
    return (start.empty() || read_rank(start, range.start)) &&
           (stop.empty() || read_rank(stop, range.stop)) &&
           (item.empty() || read_rank(item, range.step)) && range.step > 0;
  }
  const bool is_span = item.find('-') != std::string_view::npos;
  if (!read_rank(take_part(item, '-'), range.start)) return false;
  int64_t last = range.start;
  if (is_span && !read_rank(item, last)) return false;
  range.stop = last < INT64_MAX ? last + 1 : last;
  return last >= range.start;
}

Status add_range(const RankRange& range, int64_t world_size, std::vector<bool>& seen,
                 std::vector<int64_t>& ranks) {
  for (int64_t rank = range.start; rank < range.stop; rank += range.step) {
    if (rank >= world_size) {
      return invalid("rank " + std::to_string(rank) + " is not in the world, expected 0 to " +
                     std::to_string(world_size - 1));
    }
    if (seen[static_cast<size_t>(rank)]) {
      return invalid("rank " + std::to_string(rank) + " is listed twice");
    }
    seen[static_cast<size_t>(rank)] = true;
    ranks.push_back(rank);
    if (range.step >= range.stop - rank) break;
  }
  return {};
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

Result<std::vector<int64_t>> parse_ranks(std::string_view text, int64_t world_size) {
  if (world_size < 1 || world_size > kWorldSizeMax) {
    return invalid("a world of " + std::to_string(world_size) + " ranks, expected 1 to " +
                   std::to_string(kWorldSizeMax));
  }
  std::vector<int64_t> ranks;
  std::vector<bool> seen(static_cast<size_t>(world_size));
  for (size_t at = 0;;) {
    const size_t comma = text.find(',', at);
    const std::string_view item = without_blanks(text.substr(at, comma - at));
    RankRange range;
    if (!read_range(item, world_size, range)) {
      return invalid("found " + in_quotes(item) + ", expected ranks such as 0,7 or 0-3 or 0::2");
    }
    const size_t before = ranks.size();
    TRY(add_range(range, world_size, seen, ranks));
    if (ranks.size() == before) {
      return invalid(in_quotes(item) + " matches no rank of the world, expected 0 to " +
                     std::to_string(world_size - 1));
    }
    if (comma == std::string_view::npos) return ranks;
    at = comma + 1;
  }
}

std::string rank_list_text(std::span<const int64_t> ascending) {
  std::string text;
  for (size_t i = 0; i < ascending.size();) {
    size_t last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    if (last < i + 2) last = i;
    text += (text.empty() ? "" : ",") + std::to_string(ascending[i]);
    if (last > i) text += "-" + std::to_string(ascending[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace lockstep
