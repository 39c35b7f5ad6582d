// The text of a view: one line for each fact, in a fixed order.
#include <charconv>
#include <cstdio>
#include <optional>

#include "agent/server/limits.h"
#include "agent/server/view.h"

namespace lockstep::server {
namespace {

constexpr std::string_view kFirstLine = "lockstep-view 1";

void append(std::string& out, uint64_t number) {
  out += ' ';
  out += std::to_string(number);
}

void append(std::string& out, const Chain& ranks) {
  for (const uint32_t rank : ranks) append(out, rank);
}

void append_holders(std::string& out, const Chain& chain, std::optional<uint32_t> joining) {
  append(out, chain);
  if (joining) out += " +" + std::to_string(*joining);
}

// Reads the lines and words of a text. Words are separated by one space.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  // Goes to the next line; false at the end of the text.
  bool next_line() {
    if (text_.empty()) return false;
    const size_t end = text_.find('\n');
    line_ = text_.substr(0, end);
    text_ = end == std::string_view::npos ? std::string_view() : text_.substr(end + 1);
    ++number_;
    return true;
  }
  // Takes the line's first word if it is this one.
  bool take(std::string_view word) {
    if (!line_.starts_with(word)) return false;
    if (line_.size() > word.size() && line_[word.size()] != ' ') return false;
    line_ = line_.substr(std::min(line_.size(), word.size() + 1));
    return true;
  }
  template <class T>
  std::optional<T> take_number(int base = 10) {
    const std::string_view word = line_.substr(0, line_.find(' '));
    T value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
    if (word.empty() || error != std::errc() || end != word.data() + word.size()) return {};
    line_ = line_.substr(std::min(line_.size(), word.size() + 1));
    return value;
  }
  // Takes the rest of the line, or what comes before a word with a plus.
  std::optional<std::vector<uint32_t>> take_ranks(size_t max) {
    std::vector<uint32_t> ranks;
    while (!line_.empty() && !line_.starts_with('+')) {
      const auto rank = take_number<uint32_t>();
      if (!rank || ranks.size() == max) return {};
      ranks.push_back(*rank);
    }
    return ranks;
  }
  // Takes the rest of the line, ranks and a rank that joins.
  bool take_holders(Chain& chain, std::optional<uint32_t>& joining) {
    auto ranks = take_ranks(kChainMax);
    if (!ranks) return false;
    chain = *std::move(ranks);
    if (line_.empty()) return true;
    line_ = line_.substr(1);
    joining = take_number<uint32_t>();
    return joining && line_.empty();
  }
  std::string_view line() const { return line_; }
  Error expected(const std::string& what) const {
    return invalid("[server] view, line " + std::to_string(number_) + ": expected " + what);
  }

 private:
  std::string_view text_;
  std::string_view line_;
  size_t number_ = 0;
};

Result<uint64_t> parse_number(Reader& reader, std::string_view name) {
  if (reader.next_line() && reader.take(name)) {
    if (const auto number = reader.take_number<uint64_t>()) return *number;
  }
  return reader.expected(std::string(name) + " and a number");
}

Result<Digest> parse_digest(Reader& reader) {
  Digest digest{};
  if (!reader.next_line() || !reader.take("catalog") || reader.line().size() != 64) {
    return reader.expected("catalog and 64 hexadecimal digits");
  }
  for (size_t i = 0; i < digest.size(); ++i) {
    const char* const at = reader.line().data() + 2 * i;
    if (std::from_chars(at, at + 2, digest[i], 16).ptr != at + 2) {
      return reader.expected("hexadecimal digits");
    }
  }
  return digest;
}

Status parse_range(Reader& reader, View& view) {
  const auto tensor = reader.take_number<uint32_t>();
  const auto begin = reader.take_number<uint64_t>();
  const auto end = reader.take_number<uint64_t>();
  DenseRange range;
  if (!tensor || !begin || !end || !reader.take_holders(range.chain, range.joining) ||
      view.ranges.size() == kRangesMax) {
    return reader.expected("range, a tensor, begin, end and servers");
  }
  range.tensor = *tensor;
  range.begin = *begin;
  range.end = *end;
  view.ranges.push_back(std::move(range));
  return {};
}

Status parse_slot(Reader& reader, View& view) {
  Holders slot;
  if (!reader.take_holders(slot.chain, slot.joining) || view.slots.size() == kSlotsMax) {
    return reader.expected("slot and servers");
  }
  view.slots.push_back(std::move(slot));
  return {};
}

Status parse_arc(Reader& reader, View& view) {
  const auto first = reader.take_number<uint64_t>(16);
  const auto slot = reader.take_number<uint32_t>();
  if (!first || !slot || view.arcs.size() == kArcsMax) {
    return reader.expected("arc, a position and a slot");
  }
  view.arcs.push_back({*first, *slot});
  return {};
}

}  // namespace

std::string text_of(const View& view) {
  std::string out(kFirstLine);
  out += "\nround";
  append(out, view.round);
  out += "\nnumber";
  append(out, view.number);
  out += "\ncatalog " + hex(view.catalog) + "\nworkers";
  append(out, view.workers);
  for (const DenseRange& range : view.ranges) {
    out += "\nrange";
    for (const uint64_t number : {uint64_t{range.tensor}, range.begin, range.end}) {
      append(out, number);
    }
    append_holders(out, range.chain, range.joining);
  }
  for (const Holders& slot : view.slots) {
    out += "\nslot";
    append_holders(out, slot.chain, slot.joining);
  }
  for (const Arc& arc : view.arcs) {
    char position[32];
    std::snprintf(position, sizeof position, "%016llx", static_cast<unsigned long long>(arc.first));
    out += std::string("\narc ") + position;
    append(out, arc.slot);
  }
  return out + '\n';
}

Result<View> parse_view(std::string_view text) {
  Reader reader(text.substr(0, kViewTextMax));
  if (!reader.next_line() || reader.line() != kFirstLine) {
    return reader.expected("\"" + std::string(kFirstLine) + "\"");
  }
  View view;
  TRY_ASSIGN(view.round, parse_number(reader, "round"));
  TRY_ASSIGN(view.number, parse_number(reader, "number"));
  TRY_ASSIGN(view.catalog, parse_digest(reader));
  if (!reader.next_line() || !reader.take("workers")) return reader.expected("workers");
  auto workers = reader.take_ranks(kWorkersMax);
  if (!workers) return reader.expected("ranks");
  view.workers = *std::move(workers);
  while (reader.next_line()) {
    if (reader.take("range")) {
      TRY(parse_range(reader, view));
    } else if (reader.take("slot")) {
      TRY(parse_slot(reader, view));
    } else if (reader.take("arc")) {
      TRY(parse_arc(reader, view));
    } else {
      return reader.expected("range, slot or arc");
    }
  }
  if (text_of(view) != text) return invalid("[server] view: the text is not in canonical form");
  return view;
}

}  // namespace lockstep::server
