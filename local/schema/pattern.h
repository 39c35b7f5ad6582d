#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace re2 {
class RE2;
}

namespace lockstep::local {

// The `pattern` of a schema: a regular expression in Go's syntax, which is RE2's. It matches
// anywhere in the text unless anchored, in time linear in the text. Immutable; threads may share
// it.
class Pattern {
 public:
  // kInvalid with RE2's message, or if the expression is longer than 4096 bytes or compiles to more
  // than about a megabyte.
  static Result<std::shared_ptr<const Pattern>> compile(const std::string& expression);
  ~Pattern();

  bool matches(std::string_view text) const;

 private:
  explicit Pattern(std::unique_ptr<re2::RE2> expression);

  std::unique_ptr<re2::RE2> expression_;
};

}  // namespace lockstep::local
