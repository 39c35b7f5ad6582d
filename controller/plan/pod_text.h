#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/world_assignment.h"
#include "common/base/json.h"

namespace lockstep::plan {

// The pods of one role of a job, as they are POSTed, which differ only in their node. Holds the
// text of one and the places of the numbers in it: with the largest template, a document takes six
// times the memory, and half a millisecond for each pod.
class PodText {
 public:
  // `pod`: of any node of the job with this role.
  PodText(const Json& pod, std::string_view job, MemberRole role = MemberRole::kWorker);

  std::string of(int64_t index, int64_t incarnation) const;

 private:
  enum class Number { kNone, kIndex, kIncarnation };
  struct Piece {
    std::string text;
    Number next = Number::kNone;  // what follows the text
  };

  std::vector<Piece> pieces_;
};

}  // namespace lockstep::plan
