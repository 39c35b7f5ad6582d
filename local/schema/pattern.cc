#include "local/schema/pattern.h"

#include <re2/re2.h>

#include <cstdint>

namespace lockstep::local {
namespace {

constexpr size_t kExpressionBytesMax = 4096;
constexpr int64_t kMemoryBytesMax = 1 << 20;

}  // namespace

Pattern::Pattern(std::unique_ptr<re2::RE2> expression) : expression_(std::move(expression)) {}

Pattern::~Pattern() = default;

Result<std::shared_ptr<const Pattern>> Pattern::compile(const std::string& expression) {
  if (expression.size() > kExpressionBytesMax) {
    return invalid("expected a pattern of at most " + std::to_string(kExpressionBytesMax) +
                   " bytes, found " + std::to_string(expression.size()));
  }
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMemoryBytesMax);
  auto compiled = std::make_unique<re2::RE2>(expression, options);
  if (!compiled->ok()) return invalid("expected a regular expression: " + compiled->error());
  return std::shared_ptr<const Pattern>(new Pattern(std::move(compiled)));
}

bool Pattern::matches(std::string_view text) const {
  return re2::RE2::PartialMatch(re2::StringPiece(text.data(), text.size()), *expression_);
}

}  // namespace lockstep::local
