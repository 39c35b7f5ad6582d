#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::plan {

// The subset of CEL (https://github.com/google/cel-spec) that the TrainingJob's rules use, for
// tests: no server here evaluates CEL. Supports literals, self and oldSelf, members, has(), size(),
// matches(), exists(), hasValue() and value() of an optional oldSelf, ! && || ?: == != < <= > >= +
// * / % and in. Stricter than a server, which ignores an error in one operand of || or && if the
// other operand decides.
class Cel {
 public:
  static Result<Cel> parse(std::string_view text);

  // Checks what a server checks when the CRD is written: every member is a field of the schema,
  // operands have the same type, the whole is a boolean. Returns the server's estimate of the
  // maximum cost of one evaluation, after cel-go's checker/cost.go with the sizes of
  // apiextensions-apiserver. Returns kInvalid if a check fails or the cost has no bound.
  Result<double> check(const Json& schema) const;

  // Evaluates the rule. `before` is oldSelf, or nullptr.
  Result<bool> evaluate(const Json& self, const Json* before) const;

  bool is_transition() const;  // mentions oldSelf
  // Whether oldSelf is an optional value, as the rule's optionalOldSelf must say.
  bool is_old_optional() const;

  struct Node;

 private:
  std::shared_ptr<const Node> root_;
};

}  // namespace lockstep::plan
