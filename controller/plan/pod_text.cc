#include "controller/plan/pod_text.h"

#include <algorithm>

#include "controller/plan/pod_template.h"

namespace lockstep::plan {
namespace {

// Returns the first number from `number` on whose digits are not in the text.
int64_t first_absent(const std::string& text, int64_t number) {
  while (text.find(std::to_string(number)) != std::string::npos) ++number;
  return number;
}

}  // namespace

PodText::PodText(const Json& pod, std::string_view job, MemberRole role) {
  const std::string any = dump_json(pod);
  const int64_t index = first_absent(any, 1'000'000'000'000'000);
  const int64_t incarnation = first_absent(any, 2'000'000'000'000'000);
  const std::string text = dump_json(pod_like(pod, job, {role, index, incarnation}));
  const std::string index_digits = std::to_string(index);
  const std::string incarnation_digits = std::to_string(incarnation);
  size_t from = 0;
  while (from <= text.size()) {
    const size_t at_index = text.find(index_digits, from);
    const size_t at_incarnation = text.find(incarnation_digits, from);
    const size_t at = std::min({at_index, at_incarnation, text.size()});
    const Number next = at == at_index         ? Number::kIndex
                        : at == at_incarnation ? Number::kIncarnation
                                               : Number::kNone;
    pieces_.push_back({text.substr(from, at - from), next});
    if (next == Number::kNone) break;
    from = at + index_digits.size();  // both have as many
  }
}

std::string PodText::of(int64_t index, int64_t incarnation) const {
  std::string text;
  size_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += piece.text.size() + 20;
  text.reserve(bytes);
  for (const Piece& piece : pieces_) {
    text += piece.text;
    if (piece.next == Number::kIndex) text += std::to_string(index);
    if (piece.next == Number::kIncarnation) text += std::to_string(incarnation);
  }
  return text;
}

}  // namespace lockstep::plan
