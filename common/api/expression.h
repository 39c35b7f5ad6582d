#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"

namespace lockstep {

// A regular expression for an API server and the same test for us, which a test compares.
struct Pattern {
  std::string_view regex;  // RE2; does not match the empty text
  bool (*matches)(std::string_view text);
};

// A value or condition over an object of a TrainingJob's document. It is written once in C++, and
// both evaluates itself here and prints itself in CEL, the language of an API server's rules
// (https://kubernetes.io/docs/reference/using-api/cel/). Immutable.
class Expression {
 public:
  using Evaluate = std::function<Json(const Json& self)>;

  // Literals.
  Expression(int value) : Expression(static_cast<int64_t>(value)) {}
  Expression(int64_t value) : Expression(Json(value)) {}
  Expression(double value) : Expression(Json(value)) {}
  Expression(const char* value) : Expression(Json(value)) {}
  explicit Expression(const Json& literal);

  // `level` is CEL's precedence of the outermost operator; `reads` are the paths below self.
  Expression(std::string cel, int level, Evaluate evaluate, std::vector<std::string> reads)
      : node_(new Node{std::move(cel), level, std::move(evaluate), std::move(reads)}) {}

  const std::string& cel() const { return node_->cel; }
  Json value(const Json& self) const { return node_->evaluate(self); }
  bool holds(const Json& self) const { return value(self).get<bool>(); }
  const std::vector<std::string>& reads() const { return node_->reads; }

  // Returns the CEL text as an operand of an operator of this precedence.
  std::string operand(int level) const { return node_->level < level ? "(" + cel() + ")" : cel(); }

 private:
  struct Node {
    std::string cel;
    int level;
    Evaluate evaluate;
    std::vector<std::string> reads;
  };
  std::shared_ptr<const Node> node_;
};

Expression operator!(const Expression& a);
// These two evaluate `b` only if `a` does not decide, as CEL does.
Expression operator&&(const Expression& a, const Expression& b);
Expression operator||(const Expression& a, const Expression& b);
Expression operator==(const Expression& a, const Expression& b);
Expression operator!=(const Expression& a, const Expression& b);
Expression operator<=(const Expression& a, const Expression& b);
Expression operator>=(const Expression& a, const Expression& b);
Expression operator>(const Expression& a, const Expression& b);
// Integers that do not overflow. A rule must not divide by 0, for which a server refuses the
// object; here the result is 0.
Expression operator+(const Expression& a, const Expression& b);
Expression operator-(const Expression& a, const Expression& b);
Expression operator*(const Expression& a, const Expression& b);
Expression operator/(const Expression& a, const Expression& b);
Expression operator%(const Expression& a, const Expression& b);
// `yes` if the condition holds, else `no`.
Expression either(const Expression& condition, const Expression& yes, const Expression& no);
// Whether the text is one of "a b c".
Expression is_one_of(const Expression& text, std::string_view words);

// The fields of the object at a path: "" (the job), "spec.train", "spec.failure.rules[]". Which of
// them are required, and the defaults of the others, is in the list of training_job_fields.h.
class Scope {
 public:
  explicit Scope(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }

  // The field's value or its default. CEL takes the lengths of strings only from fields themselves,
  // so two strings with defaults must not be compared with each other: the cost would be unbounded.
  Expression operator[](const std::string& field) const;
  // Whether the document has the field, other than as an empty text or list. It does not read the
  // value: no limit of the field matters.
  Expression given(const std::string& field) const;
  // The number if it is above 0, else `otherwise`.
  Expression positive_or(const std::string& field, const Expression& otherwise) const;
  // Whether the text matches.
  Expression matches(const std::string& field, const Pattern& pattern) const;
  // Whether the list has the word.
  Expression contains(const std::string& field, const std::string& word) const;
  // The first word of a list that is given.
  Expression first(const std::string& field) const;
  // Whether the value is the field's default.
  Expression is_default(const std::string& field) const;

  // Returns the CEL condition that `root`, which is such an object, has the field; "" if it always
  // has.
  std::string has(const std::string& root, const std::string& field) const;
  // Returns the default of a field that is not an object: an empty value if there is no other.
  Json fallback(const std::string& field) const;

 private:
  // Returns CEL's "it has the field, and `cel`", with `evaluate`, which does the same.
  Expression if_present(const std::string& field, const std::string& cel,
                        Expression::Evaluate evaluate, std::vector<std::string> reads) const;

  std::string path_;
};

}  // namespace lockstep
