#include "common/api/expression.h"

#include <algorithm>

#include "common/api/schema.h"
#include "common/api/training_job.h"
#include "common/base/check.h"

namespace lockstep {
namespace {

// CEL's precedence of operators, lowest first.
enum Level { kConditional, kOr, kAnd, kRelation, kSum, kProduct, kUnary, kMember };

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

template <class Combine>
Expression binary(const Expression& a, const char* op, int level, const Expression& b,
                  Combine combine) {
  const int left = level == kRelation ? level + 1 : level;  // a == b == c is hard to read
  return {a.operand(left) + " " + op + " " + b.operand(level + 1), level,
          [=](const Json& self) { return Json(combine(a.value(self), b.value(self))); },
          joined(a.reads(), b.reads())};
}

template <class Combine>
Expression arithmetic(const Expression& a, const char* op, int level, const Expression& b,
                      Combine combine) {
  return binary(a, op, level, b, [combine](const Json& x, const Json& y) {
    return combine(x.get<int64_t>(), y.get<int64_t>());
  });
}

std::string in_cel_quotes(std::string_view word) {
  CHECK(word.find_first_of("'\\") == std::string_view::npos);
  return "'" + std::string(word) + "'";
}

// Calls `use` with each name of a path.
template <class Use>
void each_name(std::string_view path, Use use) {
  while (!path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    use(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
}

// Returns the member at a path without lists, or nullptr.
const Json* member_at(const Json& self, std::string_view path) {
  const Json* at = &self;
  each_name(path, [&at](std::string_view name) {
    if (at != nullptr) at = find_member(*at, name);
  });
  return at;
}

const Json& job_schema() {
  static const Json kSchema = [] {
    Json schema = training_job_schema();
    // A server gives every job a name before it evaluates rules.
    schema["required"].push_back("metadata");
    schema["properties"]["metadata"]["required"] = {"name"};
    return schema;
  }();
  return kSchema;
}

const Json& job_defaults() {
  static const Json kDefaults = [] {
    TrainingJobSpec defaults;
    defaults.elastic.emplace();
    defaults.checkpoint.memory.emplace();
    defaults.parameterServers.emplace();
    Json spec = spec_to_json(defaults);
    spec["train"] = train_to_json(TrainSpec{});
    return Json{{"spec", std::move(spec)}};
  }();
  return kDefaults;
}

bool is_required(const Json& object, std::string_view name) {
  const Json* required = find_member(object, "required");
  return required != nullptr &&
         std::find(required->begin(), required->end(), name) != required->end();
}

}  // namespace

Expression::Expression(const Json& literal)
    : Expression(
          literal.is_string() ? in_cel_quotes(literal.get<std::string>()) : dump_json(literal),
          kMember, [literal](const Json&) { return literal; }, {}) {}

Expression operator!(const Expression& a) {
  return {"!" + a.operand(kUnary), kUnary, [a](const Json& self) { return Json(!a.holds(self)); },
          a.reads()};
}

Expression operator&&(const Expression& a, const Expression& b) {
  return {a.operand(kAnd) + " && " + b.operand(kAnd), kAnd,
          [=](const Json& self) { return Json(a.holds(self) && b.holds(self)); },
          joined(a.reads(), b.reads())};
}
Expression operator||(const Expression& a, const Expression& b) {
  return {a.operand(kOr) + " || " + b.operand(kOr), kOr,
          [=](const Json& self) { return Json(a.holds(self) || b.holds(self)); },
          joined(a.reads(), b.reads())};
}

Expression operator==(const Expression& a, const Expression& b) {
  return binary(a, "==", kRelation, b, [](const Json& x, const Json& y) { return x == y; });
}
Expression operator!=(const Expression& a, const Expression& b) {
  return binary(a, "!=", kRelation, b, [](const Json& x, const Json& y) { return x != y; });
}
Expression operator<=(const Expression& a, const Expression& b) {
  return binary(a, "<=", kRelation, b, [](const Json& x, const Json& y) { return x <= y; });
}
Expression operator>=(const Expression& a, const Expression& b) {
  return binary(a, ">=", kRelation, b, [](const Json& x, const Json& y) { return x >= y; });
}
Expression operator>(const Expression& a, const Expression& b) {
  return binary(a, ">", kRelation, b, [](const Json& x, const Json& y) { return x > y; });
}

Expression operator+(const Expression& a, const Expression& b) {
  return arithmetic(a, "+", kSum, b, std::plus<int64_t>());
}
Expression operator-(const Expression& a, const Expression& b) {
  return arithmetic(a, "-", kSum, b, std::minus<int64_t>());
}
Expression operator*(const Expression& a, const Expression& b) {
  return arithmetic(a, "*", kProduct, b, std::multiplies<int64_t>());
}
Expression operator/(const Expression& a, const Expression& b) {
  return arithmetic(a, "/", kProduct, b, [](int64_t x, int64_t y) { return y == 0 ? 0 : x / y; });
}
Expression operator%(const Expression& a, const Expression& b) {
  return arithmetic(a, "%", kProduct, b, [](int64_t x, int64_t y) { return y == 0 ? 0 : x % y; });
}

Expression either(const Expression& condition, const Expression& yes, const Expression& no) {
  return {
      condition.operand(kOr) + " ? " + yes.operand(kOr) + " : " + no.cel(), kConditional,
      [=](const Json& self) { return condition.holds(self) ? yes.value(self) : no.value(self); },
      joined(joined(condition.reads(), yes.reads()), no.reads())};
}

Expression is_one_of(const Expression& text, std::string_view words) {
  std::vector<std::string> list;
  std::string cel;
  while (!words.empty()) {
    const size_t space = std::min(words.find(' '), words.size());
    list.emplace_back(words.substr(0, space));
    cel += (cel.empty() ? "" : ", ") + in_cel_quotes(list.back());
    words.remove_prefix(std::min(space + 1, words.size()));
  }
  return {text.operand(kRelation) + " in [" + cel + "]", kRelation,
          [=](const Json& self) {
            const Json value = text.value(self);
            return Json(std::ranges::any_of(list, [&](const Json& word) { return word == value; }));
          },
          text.reads()};
}

std::string Scope::has(const std::string& root, const std::string& field) const {
  std::string at = root;
  std::string path = path_;
  std::string all;
  each_name(field, [&](std::string_view name) {
    const Json& object = job_schema().at(schema_pointer(path));
    at += "." + std::string(name);
    path = join_path(path, name);
    if (!is_required(object, name)) all += (all.empty() ? "has(" : " && has(") + at + ")";
  });
  return all;
}

Json Scope::fallback(const std::string& field) const {
  const std::string path = path_.empty() ? field : path_ + "." + field;
  if (const Json* value = member_at(job_defaults(), path)) return *value;
  const Json& type = job_schema().at(schema_pointer(path)).at("type");
  if (type == "string") return "";
  if (type == "array") return Json::array();
  return 0;
}

Expression Scope::operator[](const std::string& field) const {
  const Json none = fallback(field);
  const std::string present = has("self", field);
  std::string cel = "self." + field;
  if (!present.empty()) cel = present + " ? " + cel + " : " + Expression(none).cel();
  const auto evaluate = [field, none](const Json& self) {
    const Json* value = member_at(self, field);
    return value == nullptr ? none : *value;
  };
  return {cel, present.empty() ? kMember : kConditional, evaluate, {field}};
}

Expression Scope::if_present(const std::string& field, const std::string& cel,
                             Expression::Evaluate evaluate, std::vector<std::string> reads) const {
  std::string all = has("self", field);
  all += (all.empty() || cel.empty() ? "" : " && ") + cel;
  const bool is_one = all.find(" && ") == std::string::npos;
  return {all,
          !is_one       ? kAnd
          : cel.empty() ? kMember
                        : kRelation,
          std::move(evaluate), std::move(reads)};
}

Expression Scope::given(const std::string& field) const {
  const Json none = fallback(field);
  const std::string cel = none.is_string()  ? "self." + field + " != ''"
                          : none.is_array() ? "self." + field + ".size() > 0"
                                            : "";
  const auto evaluate = [field](const Json& self) {
    const Json* value = member_at(self, field);
    return Json(value != nullptr && *value != "" && *value != Json::array());
  };
  return if_present(field, cel, evaluate, {});
}

Expression Scope::positive_or(const std::string& field, const Expression& otherwise) const {
  const Expression number = (*this)[field];
  return {
      has("self", field) + " && self." + field + " > 0 ? self." + field + " : " + otherwise.cel(),
      kConditional,
      [=](const Json& self) {
        const Json value = number.value(self);
        return value > 0 ? value : otherwise.value(self);
      },
      joined(number.reads(), otherwise.reads())};
}

Expression Scope::matches(const std::string& field, const Pattern& pattern) const {
  const std::string cel = "self." + field + ".matches(" + in_cel_quotes(pattern.regex) + ")";
  return if_present(field, cel,
                    [value = (*this)[field], pattern](const Json& self) {
                      return Json(pattern.matches(value.value(self).get<std::string>()));
                    },
                    {field});
}

Expression Scope::contains(const std::string& field, const std::string& word) const {
  const auto evaluate = [list = (*this)[field], word](const Json& self) {
    const Json words = list.value(self);
    return Json(std::find(words.begin(), words.end(), word) != words.end());
  };
  return if_present(field, in_cel_quotes(word) + " in self." + field, evaluate, {field});
}

Expression Scope::first(const std::string& field) const {
  const auto evaluate = [list = (*this)[field]](const Json& self) {
    const Json words = list.value(self);
    return words.empty() ? Json("") : words.front();
  };
  return {"self." + field + "[0]", kMember, evaluate, {field}};
}

Expression Scope::is_default(const std::string& field) const {
  const Json none = fallback(field);
  const Expression value = (*this)[field];
  if (none.is_boolean()) return none.get<bool>() ? value : !value;
  return value == Expression(none);
}

}  // namespace lockstep
