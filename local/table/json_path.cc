#include "local/table/json_path.h"

#include <array>
#include <charconv>

namespace lockstep::local {
namespace {

constexpr size_t kLengthMax = 1024;
constexpr size_t kStepsMax = 64;
// Longer ones first, so that "<=" is not read as "<".
constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", "<=", ">=", "<", ">"};

bool ends_name(char c) {
  return c == '.' || c == '[' || c == ']' || c == ')' || c == '=' || c == '!' || c == '<' ||
         c == '>' || c == ' ';
}

// Sets `order` to -1, 0 or 1. Returns false if the two can't be compared.
bool compare(const Json& left, const Json& right, int& order) {
  bool numbers = left.is_number() && right.is_number();
  if (!numbers && left.type() != right.type()) return false;
  if (!numbers && !left.is_string() && !left.is_boolean()) return false;
  order = left < right ? -1 : right < left ? 1 : 0;
  return true;
}

}  // namespace

// Reads one path from left to right.
class JsonPathReader {
 public:
  explicit JsonPathReader(std::string_view text) : text_(text) {}

  Result<JsonPath> read() {
    if (text_.size() > kLengthMax)
      return invalid("expected a path of at most " + std::to_string(kLengthMax) +
                     " characters, found " + std::to_string(text_.size()));
    JsonPath path;
    while (at_ < text_.size()) {
      if (path.steps_.size() == kStepsMax)
        return expected("at most " + std::to_string(kStepsMax) + " steps");
      TRY_ASSIGN(JsonPath::Step step, read_step());
      path.steps_.push_back(std::move(step));
    }
    if (path.steps_.empty()) return expected("a path such as .spec.nodes");
    return path;
  }

 private:
  using Kind = JsonPath::Kind;

  Error expected(const std::string& what) const {
    std::string found =
        at_ < text_.size() ? "`" + std::string(text_.substr(at_)) + "`" : std::string("the end");
    return invalid("character " + std::to_string(at_ + 1) + ": expected " + what + ", found " +
                   found);
  }

  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  void skip_spaces() {
    while (take(" ")) continue;
  }

  Result<JsonPath::Step> read_step() {
    if (take(".*")) return JsonPath::Step{.kind = Kind::kAll};
    if (take(".")) {
      TRY_ASSIGN(std::string name, read_name());
      return JsonPath::Step{.kind = Kind::kMember, .name = std::move(name)};
    }
    if (take("[")) return read_brackets();
    return expected("`.` or `[`");
  }

  Result<std::string> read_name() {
    std::string name;
    while (at_ < text_.size() && !ends_name(text_[at_])) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      name += text_[at_++];
    }
    if (name.empty()) return expected("the name of a member");
    return name;
  }

  Result<JsonPath::Step> read_brackets() {
    JsonPath::Step step;
    if (take("*")) {
      step.kind = Kind::kAll;
    } else if (take("?(")) {
      TRY_ASSIGN(step, read_filter());
    } else if (at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"')) {
      TRY_ASSIGN(step.name, read_quoted());
    } else {
      step.kind = Kind::kElement;
      const char* begin = text_.data() + at_;
      auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), step.index);
      if (error != std::errc()) return expected("a number, a quoted name, `*` or `?(`");
      at_ += static_cast<size_t>(end - begin);
    }
    if (!take("]")) return expected("`]`");
    return step;
  }

  Result<std::string> read_quoted() {
    const char quote = text_[at_++];
    std::string value;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      value += text_[at_++];
    }
    if (at_++ >= text_.size()) return expected("a closing quote");
    return value;
  }

  Result<JsonPath::Step> read_filter() {
    JsonPath::Step step{.kind = Kind::kFilter};
    skip_spaces();
    if (!take("@")) return expected("`@`");
    while (take(".")) {
      TRY_ASSIGN(std::string name, read_name());
      step.left.push_back(std::move(name));
    }
    skip_spaces();
    for (std::string_view comparison : kComparisons) {
      if (!take(comparison)) continue;
      step.comparison = comparison;
      skip_spaces();
      TRY_ASSIGN(step.right, read_literal());
      break;
    }
    skip_spaces();
    if (!take(")")) return expected("`)`");
    return step;
  }

  Result<Json> read_literal() {
    if (take("true")) return Json(true);
    if (take("false")) return Json(false);
    if (at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"')) {
      TRY_ASSIGN(std::string value, read_quoted());
      return Json(std::move(value));
    }
    double number = 0;
    const char* begin = text_.data() + at_;
    auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), number);
    if (error != std::errc()) return expected("a quoted string, a number, true or false");
    at_ += static_cast<size_t>(end - begin);
    return Json(number);
  }

  std::string_view text_;
  size_t at_ = 0;
};

Result<JsonPath> JsonPath::parse(std::string_view text) {
  return JsonPathReader(text).read();
}

bool JsonPath::passes(const Step& step, const Json& element) {
  const Json* left = &element;
  for (const std::string& name : step.left) {
    left = find_member(*left, name);
    if (left == nullptr) return false;
  }
  if (step.comparison.empty()) return true;
  int order = 0;
  if (!compare(*left, step.right, order)) return false;
  if (step.comparison == "==") return order == 0;
  if (step.comparison == "!=") return order != 0;
  if (step.comparison == "<=") return order <= 0;
  if (step.comparison == ">=") return order >= 0;
  return step.comparison == "<" ? order < 0 : order > 0;
}

void JsonPath::follow(const Step& step, const Json& value, std::vector<const Json*>& results) {
  if (step.kind == Kind::kMember) {
    if (const Json* member = find_member(value, step.name)) results.push_back(member);
    return;
  }
  if (step.kind == Kind::kAll && value.is_object()) {
    for (const Json& member : value) results.push_back(&member);
    return;
  }
  if (!value.is_array()) return;
  if (step.kind == Kind::kElement) {
    int64_t size = static_cast<int64_t>(value.size());
    int64_t index = step.index < 0 ? size + step.index : step.index;
    if (index >= 0 && index < size) results.push_back(&value[static_cast<size_t>(index)]);
    return;
  }
  for (const Json& element : value)
    if (step.kind == Kind::kAll || passes(step, element)) results.push_back(&element);
}

std::vector<const Json*> JsonPath::find(const Json& document, size_t results_max) const {
  std::vector<const Json*> found = {&document};
  for (const Step& step : steps_) {
    std::vector<const Json*> next;
    for (const Json* value : found) {
      follow(step, *value, next);
      if (next.size() >= results_max) break;
    }
    if (next.size() > results_max) next.resize(results_max);
    found = std::move(next);
  }
  return found;
}

}  // namespace lockstep::local
