#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep {

// The part of CEL (https://github.com/google/cel-spec) that the TrainingJob's rules use, for tests:
// no server here knows CEL. Literals, self and oldSelf, members, has(), size(), matches(),
// exists(), ! && || ?: == != < <= > >= + * % and in. It is stricter than a server: what a server
// forgives (an error on the other side of || or &&) is an error.
class Cel {
 public:
  static Result<Cel> parse(std::string_view text);

  // What a server checks when the CRD is written: every member is a field of the schema, operands
  // have the same type, the whole is a boolean. Returns the server's estimate of the most that one
  // evaluation costs, after cel-go's checker/cost.go and its sizes in apiextensions-apiserver;
  // kInvalid where it has no bound.
  Result<double> check(const Json& schema) const;

  // `before`: oldSelf, or nullptr.
  Result<bool> evaluate(const Json& self, const Json* before) const;

  bool is_transition() const;  // mentions oldSelf

  struct Node;

 private:
  std::shared_ptr<const Node> root_;
};

}  // namespace lockstep
