#include "tests/controller/plan/cel.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <regex>

namespace lockstep::plan {

struct Cel::Node {
  std::string op;    // literal, list, name, member, has, index, size, matches, exists, hasValue,
                     // value, ?:, ! or a binary operator
  std::string text;  // identifier of a name or member; the variable of exists
  Json value{};      // of a literal
  std::vector<std::shared_ptr<const Node>> of{};
};

namespace {

using Node = Cel::Node;
using NodePtr = std::shared_ptr<const Node>;

constexpr double kNoBound = std::numeric_limits<double>::infinity();
constexpr double kRequestBytesMax = 3 << 20;  // bytes of a string without maxLength

NodePtr node(std::string op, std::vector<NodePtr> of, std::string text = "", Json value = {}) {
  return std::make_shared<Node>(
      Node{.op = std::move(op), .text = std::move(text), .value = std::move(value), .of = of});
}

// By precedence, lowest first.
const std::vector<std::vector<std::string>> kOperators = {
    {"||"}, {"&&"}, {"==", "!=", "<=", ">=", "<", ">", "in"}, {"+"}, {"*", "/", "%"}};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<NodePtr> all() {
    NodePtr root = ternary();
    skip();
    if (!error_.empty() || at_ != text_.size()) {
      return invalid("[cel] " + (error_.empty() ? std::string("more text") : error_) + " at " +
                     std::to_string(at_) + " of " + std::string(text_));
    }
    return root;
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view token) {
    skip();
    if (!error_.empty() || text_.substr(at_, token.size()) != token) return false;
    const size_t after = at_ + token.size();
    const bool is_word = std::isalpha(static_cast<unsigned char>(token[0])) != 0;
    if (is_word && after < text_.size() && std::isalnum(text_[after]) != 0) return false;
    at_ = after;
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token) && error_.empty()) error_ = "expected " + std::string(token);
  }
  std::string word() {
    skip();
    const size_t from = at_;
    while (at_ < text_.size() && std::isalnum(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    if (from == at_ && error_.empty()) error_ = "expected a name";
    return std::string(text_.substr(from, at_ - from));
  }

  NodePtr ternary() {
    NodePtr condition = binary(0);
    if (!take("?")) return condition;
    NodePtr yes = ternary();
    expect(":");
    NodePtr no = ternary();
    return node("?:", {condition, yes, no});
  }

  NodePtr binary(size_t level) {
    if (level == kOperators.size()) return unary();
    NodePtr left = binary(level + 1);
    for (bool again = true; again;) {
      again = false;
      for (const std::string& op : kOperators[level]) {
        if (!take(op)) continue;
        left = node(op, {left, binary(level + 1)});
        again = true;
        break;
      }
    }
    return left;
  }

  NodePtr unary() {
    if (take("!")) return node("!", {unary()});
    NodePtr value = primary();
    while (error_.empty()) {
      if (take("[")) {
        value = node("index", {value, ternary()});
        expect("]");
      } else if (take(".")) {
        value = member(value);
      } else {
        break;
      }
    }
    return value;
  }

  NodePtr member(const NodePtr& of) {
    std::string name = word();
    if (!take("(")) return node("member", {of}, name);
    NodePtr call;
    if (name == "size" || name == "hasValue" || name == "value") {
      call = node(name, {of});
    } else if (name == "matches") {
      call = node("matches", {of, ternary()});
    } else if (name == "exists") {
      std::string variable = word();
      expect(",");
      call = node("exists", {of, ternary()}, variable);
    } else {
      error_ = "unknown function " + name;
    }
    expect(")");
    return call;
  }

  NodePtr primary() {
    if (take("(")) {
      NodePtr inner = ternary();
      expect(")");
      return inner;
    }
    if (take("[")) return list();
    if (take("'")) return string();
    if (take("true")) return node("literal", {}, "", true);
    if (take("false")) return node("literal", {}, "", false);
    skip();
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      return number();
    }
    if (!take("has")) return node("name", {}, word());
    expect("(");
    NodePtr of = unary();
    expect(")");
    if (error_.empty() && of->op != "member") error_ = "has() takes a member";
    return node("has", {of});
  }

  NodePtr list() {
    std::vector<NodePtr> items;
    do items.push_back(ternary());
    while (take(","));
    expect("]");
    return node("list", items);
  }
  NodePtr string() {
    const size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos ||
        text_.substr(at_, end - at_).find('\\') != std::string::npos) {
      error_ = "a string without an end, or with escapes";
      return nullptr;
    }
    const std::string value(text_.substr(at_, end - at_));
    at_ = end + 1;
    return node("literal", {}, "", value);
  }
  NodePtr number() {
    size_t end = at_;
    // An exponent may have a sign: 1e-08.
    const auto belongs = [&] {
      const char c = text_[end];
      return std::isdigit(c) != 0 || c == '.' || c == 'e' || (c == '-' && text_[end - 1] == 'e');
    };
    while (end < text_.size() && belongs()) ++end;
    const std::string digits(text_.substr(at_, end - at_));
    at_ = end;
    const bool is_double = digits.find_first_of(".e") != std::string::npos;
    return node("literal", {}, "", is_double ? Json(std::stod(digits)) : Json(std::stoll(digits)));
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string error_;
};

// Static properties of an expression.
struct Known {
  std::string type;              // boolean, integer, number, string, array, object
  const Json* schema = nullptr;  // of a field, else nullptr
  double size = kNoBound;        // maximum number of characters or items
  double cost = 0;
};

using Names = std::map<std::string, const Json*>;

double size_of(const Json& schema) {
  const std::string type = schema.at("type");
  if (type == "array")
    return schema.contains("maxItems") ? schema["maxItems"].get<double>() : kNoBound;
  if (type != "string") return 1;
  // A character may take four bytes.
  return schema.contains("maxLength") ? 4 * schema["maxLength"].get<double>() : kRequestBytesMax;
}

Known of_field(const Json& schema, double cost) {
  return {.type = schema.at("type"), .schema = &schema, .size = size_of(schema), .cost = cost};
}

Error wrong(const std::string& what) {
  return invalid("[cel] " + what);
}

Result<Known> known(const Node& expression, const Names& names);

Result<Known> known_of_two(const Node& expression, const Known& left, const Known& right) {
  const std::string& op = expression.op;
  Known result{.type = "boolean", .size = 1, .cost = left.cost + right.cost};
  if (op == "in") {
    if (right.type != "array") return wrong("in takes a list");
    result.cost += right.size;
    return result;
  }
  if (left.type != right.type) return wrong(left.type + " " + op + " " + right.type);
  if (op == "&&" || op == "||") {
    if (left.type != "boolean") return wrong(op + " takes booleans");
    return result;
  }
  if (op == "+" || op == "*" || op == "/" || op == "%") {
    if (left.type != "integer") return wrong(op + " takes integers");
    result.type = "integer";
    result.cost += 1;
    return result;
  }
  result.cost += std::ceil(0.1 * std::max(1.0, std::min(left.size, right.size)));
  return result;
}

Result<Known> known_member(const Node& expression, const Names& names) {
  TRY_ASSIGN(Known of, known(*expression.of[0], names));
  const Json* properties = of.schema == nullptr ? nullptr : find_member(*of.schema, "properties");
  const Json* field = properties == nullptr ? nullptr : find_member(*properties, expression.text);
  if (field == nullptr) return wrong("no field " + expression.text);
  return of_field(*field, of.cost + 1);
}

Result<Known> known_exists(const Node& expression, const Names& names) {
  TRY_ASSIGN(Known list, known(*expression.of[0], names));
  if (list.type != "array" || list.schema == nullptr) return wrong("exists() takes a list");
  Names inner = names;
  inner[expression.text] = &list.schema->at("items");
  TRY_ASSIGN(Known each, known(*expression.of[1], inner));
  if (each.type != "boolean") return wrong("exists() takes a condition");
  return Known{.type = "boolean", .size = 1, .cost = list.cost + list.size * (each.cost + 4)};
}

Result<Known> known_conditional(const Node& expression, const Names& names) {
  TRY_ASSIGN(Known condition, known(*expression.of[0], names));
  TRY_ASSIGN(Known yes, known(*expression.of[1], names));
  TRY_ASSIGN(Known no, known(*expression.of[2], names));
  if (condition.type != "boolean" || yes.type != no.type) return wrong("?: of " + yes.type);
  const bool is_scalar = yes.type != "string" && yes.type != "array";
  return Known{.type = yes.type,
               .size = is_scalar ? 1 : kNoBound,
               .cost = condition.cost + std::max(yes.cost, no.cost)};
}

Result<Known> known_list(const Node& expression, const Names& names) {
  for (const NodePtr& item : expression.of) {
    TRY_ASSIGN(Known one, known(*item, names));
    if (one.type != "string") return wrong("a list of " + one.type);
  }
  return Known{.type = "array", .size = static_cast<double>(expression.of.size()), .cost = 10};
}

Known known_literal(const Json& value) {
  if (value.is_string()) {
    return {.type = "string", .size = static_cast<double>(value.get<std::string>().size())};
  }
  if (value.is_boolean()) return {.type = "boolean", .size = 1};
  return {.type = value.is_number_integer() ? "integer" : "number", .size = 1};
}

Result<Known> known_matches(const Known& text, const Node& pattern) {
  if (text.type != "string" || !pattern.value.is_string()) return wrong("matches() of a literal");
  const double states =
      std::ceil(0.25 * static_cast<double>(pattern.value.get<std::string>().size()));
  return Known{
      .type = "boolean", .size = 1, .cost = text.cost + std::ceil((text.size + 1) * 0.1) * states};
}

Result<Known> known(const Node& expression, const Names& names) {
  const std::string& op = expression.op;
  if (op == "literal") return known_literal(expression.value);
  if (op == "list") return known_list(expression, names);
  if (op == "member") return known_member(expression, names);
  if (op == "exists") return known_exists(expression, names);
  if (op == "?:") return known_conditional(expression, names);
  if (op == "name") {
    const auto found = names.find(expression.text);
    if (found == names.end()) return wrong("unknown name " + expression.text);
    return of_field(*found->second, 1);
  }
  TRY_ASSIGN(Known first, known(*expression.of[0], names));
  if (op == "hasValue") return Known{.type = "boolean", .size = 1, .cost = first.cost + 1};
  if (op == "value") return of_field(*first.schema, first.cost + 1);
  if (op == "has") return Known{.type = "boolean", .size = 1, .cost = first.cost};
  if (op == "matches") return known_matches(first, *expression.of[1]);
  if (op == "size") {
    if (first.type != "string" && first.type != "array") return wrong("size() of " + first.type);
    return Known{.type = "integer", .size = 1, .cost = first.cost + 1};
  }
  if (op == "!") {
    if (first.type != "boolean") return wrong("! takes a boolean");
    return Known{.type = "boolean", .size = 1, .cost = first.cost + 1};
  }
  TRY_ASSIGN(Known second, known(*expression.of[1], names));
  if (op != "index") return known_of_two(expression, first, second);
  if (first.type != "array" || second.type != "integer") return wrong("[] takes a list");
  return of_field(first.schema->at("items"), first.cost + 1);
}

using Values = std::map<std::string, const Json*>;

Result<Json> value(const Node& expression, const Values& names);

Result<Json> compare(const std::string& op, const Json& left, const Json& right) {
  if (op == "==") return Json(left == right);
  if (op == "!=") return Json(left != right);
  if (op == "<") return Json(left < right);
  if (op == "<=") return Json(left <= right);
  if (op == ">") return Json(left > right);
  if (op == ">=") return Json(left >= right);
  if (op == "in") return Json(std::find(right.begin(), right.end(), left) != right.end());
  const auto a = left.get<int64_t>();
  const auto b = right.get<int64_t>();
  if (op == "+") return Json(a + b);
  if (op == "*") return Json(a * b);
  if (b == 0) return wrong("division by zero");
  return Json(op == "/" ? a / b : a % b);
}

// Returns the value of a name or of its members, without copying it; nullptr if there is none.
const Json* place(const Node& expression, const Values& names) {
  if (expression.op == "name") return names.at(expression.text);
  if (expression.op == "value") return place(*expression.of[0], names);
  if (expression.op != "member") return nullptr;
  const Json* of = place(*expression.of[0], names);
  return of == nullptr ? nullptr : find_member(*of, expression.text);
}

Result<Json> value_of_member(const Node& expression, const Values& names) {
  const Json* member = place(expression, names);
  if (member == nullptr) return wrong("no such key: " + expression.text);
  return *member;
}

Result<Json> value_of_exists(const Node& expression, const Values& names) {
  TRY_ASSIGN(Json list, value(*expression.of[0], names));
  Values inner = names;
  for (const Json& item : list) {
    inner[expression.text] = &item;
    TRY_ASSIGN(Json found, value(*expression.of[1], inner));
    if (found.get<bool>()) return Json(true);
  }
  return Json(false);
}

Result<Json> value_of_list(const Node& expression, const Values& names) {
  Json list = Json::array();
  for (const NodePtr& item : expression.of) {
    TRY_ASSIGN(Json one, value(*item, names));
    list.push_back(std::move(one));
  }
  return list;
}

Result<Json> value(const Node& expression, const Values& names) {
  const std::string& op = expression.op;
  if (op == "literal") return expression.value;
  if (op == "list") return value_of_list(expression, names);
  if (op == "member") return value_of_member(expression, names);
  if (op == "exists") return value_of_exists(expression, names);
  if (op == "name") return *names.at(expression.text);
  if (op == "hasValue") return Json(names.contains(expression.of[0]->text));
  if (op == "has") {
    const Json* of = place(*expression.of[0]->of[0], names);
    if (of == nullptr) return wrong("has() of an absent value");
    return Json(of->contains(expression.of[0]->text));
  }
  TRY_ASSIGN(Json first, value(*expression.of[0], names));
  if (op == "!") return Json(!first.get<bool>());
  if (op == "?:") return value(*expression.of[first.get<bool>() ? 1 : 2], names);
  if (op == "&&" && !first.get<bool>()) return Json(false);
  if (op == "||" && first.get<bool>()) return Json(true);
  if (op == "size") {
    return Json(first.is_string() ? first.get<std::string>().size() : first.size());
  }
  TRY_ASSIGN(Json second, value(*expression.of[1], names));
  if (op == "&&" || op == "||") return second;
  if (op == "matches") {
    return Json(std::regex_search(first.get<std::string>(), std::regex(second.get<std::string>())));
  }
  if (op != "index") return compare(op, first, second);
  const auto index = second.get<size_t>();
  if (index >= first.size()) return wrong("index out of bounds");
  return first[index];
}

bool mentions_call(const Node& expression, std::string_view function) {
  if (expression.op == function) return true;
  return std::any_of(expression.of.begin(), expression.of.end(),
                     [&](const NodePtr& part) { return mentions_call(*part, function); });
}

bool mentions(const Node& expression, std::string_view name) {
  if (expression.op == "name" && expression.text == name) return true;
  return std::any_of(expression.of.begin(), expression.of.end(),
                     [&](const NodePtr& part) { return mentions(*part, name); });
}

}  // namespace

Result<Cel> Cel::parse(std::string_view text) {
  Cel cel;
  TRY_ASSIGN(cel.root_, Parser(text).all());
  return cel;
}

Result<double> Cel::check(const Json& schema) const {
  TRY_ASSIGN(Known whole, known(*root_, {{"self", &schema}, {"oldSelf", &schema}}));
  if (whole.type != "boolean") return wrong("the rule is no condition");
  if (!std::isfinite(whole.cost)) return wrong("the cost has no bound");
  return whole.cost;
}

Result<bool> Cel::evaluate(const Json& self, const Json* before) const {
  Values names = {{"self", &self}};
  if (before != nullptr) names["oldSelf"] = before;
  TRY_ASSIGN(Json whole, value(*root_, names));
  return whole.get<bool>();
}

bool Cel::is_old_optional() const {
  return mentions_call(*root_, "hasValue");
}

bool Cel::is_transition() const {
  return mentions(*root_, "oldSelf");
}

}  // namespace lockstep::plan
