#include "common/base/json_cut.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Walks through a text once. The functions return whether they could follow it, and leave `at_`
// behind what they have walked through.
class Cutter {
 public:
  Cutter(std::string_view text, const JsonCut& cut) : text_(text), cut_(cut) {}

  std::string run() {
    if (!value(0)) return std::string(text_);
    copy_up_to(text_.size());
    return std::move(out_);
  }

 private:
  bool is_at(char c) const { return at_ < text_.size() && text_[at_] == c; }
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool take(char c) {
    skip_space();
    if (!is_at(c)) return false;
    ++at_;
    return true;
  }

  void copy_up_to(size_t end) {
    out_ += text_.substr(copied_, end - copied_);
    copied_ = end;
  }

  // `level`: of nesting.
  bool value(int level) {
    skip_space();
    const bool may_have_parts = level <= cut_.objects_at;
    if (may_have_parts && is_at('{')) {
      return members([&](std::string_view key) {
        if (level < cut_.objects_at) return value(level + 1);
        skip_space();
        return key == cut_.part && is_at('{') ? cut_part() : skip_value();
      });
    }
    if (level < cut_.objects_at && is_at('[')) return elements(level + 1);
    return skip_value();
  }

  // Calls `walk` behind the colon of each member.
  template <typename Walk>
  bool members(const Walk& walk) {
    if (!take('{')) return false;
    if (take('}')) return true;
    do {
      skip_space();
      const size_t begin = at_;
      if (!skip_string()) return false;
      const std::string_view key = text_.substr(begin + 1, at_ - begin - 2);
      if (!take(':') || !walk(key)) return false;
    } while (take(','));
    return take('}');
  }

  bool elements(int level) {
    if (!take('[')) return false;
    if (take(']')) return true;
    do {
      if (!value(level)) return false;
    } while (take(','));
    return take(']');
  }

  bool cut_part() {
    copy_up_to(at_ + 1);
    std::string_view kept;
    const bool is_good = members([&](std::string_view key) {
      skip_space();
      const size_t begin = at_;
      if (!skip_value()) return false;
      if (key == cut_.kept) kept = text_.substr(begin, at_ - begin);
      return true;
    });
    if (!is_good) return false;
    if (!kept.empty()) out_.append("\"").append(cut_.kept).append("\":").append(kept);
    copied_ = at_ - 1;
    return true;
  }

  bool skip_string() {
    if (!is_at('"')) return false;
    const size_t begin = ++at_;
    while (true) {
      const size_t quote = text_.find('"', at_);
      if (quote == std::string_view::npos) return false;
      at_ = quote + 1;
      size_t backslashes = 0;
      while (quote - backslashes > begin && text_[quote - backslashes - 1] == '\\') ++backslashes;
      if (backslashes % 2 == 0) return true;
    }
  }

  bool skip_value() {
    skip_space();
    if (is_at('"')) return skip_string();
    if (!is_at('{') && !is_at('[')) {
      const size_t begin = at_;
      at_ = std::min(text_.find_first_of(",]} \t\r\n", at_), text_.size());
      return at_ > begin;
    }
    size_t open = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        if (!skip_string()) return false;
        continue;
      }
      ++at_;
      if (c == '{' || c == '[') ++open;
      if ((c == '}' || c == ']') && --open == 0) return true;
    }
    return false;
  }

  const std::string_view text_;
  const JsonCut cut_;
  size_t at_ = 0;
  size_t copied_ = 0;  // how much of the text was copied or cut out
  std::string out_;
};

}  // namespace

std::string cut_json(std::string_view text, const JsonCut& cut) {
  return Cutter(text, cut).run();
}

}  // namespace lockstep
