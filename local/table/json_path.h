#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"

namespace lockstep::local {

// A compiled JSON path of the simple kind that printer columns use:
//   .status.state                             members; a dot in a name is escaped: .a\.b
//   ['quoted.key']                            members with any name
//   [0]  [-1]                                 elements, from the end if negative
//   [*]  .*                                   all elements, or all members by name
//   [?(@.type=="Ready")]  [?(@.done)]         elements for which a comparison holds (== != < <= >
//                                             >=, with a string, number, true or false), or that
//                                             have the member
// Source: Kubernetes, "JSONPath support". Unsupported: recursive descent, slices, unions, range.
class JsonPath {
 public:
  // kInvalid names the position and what was expected. At most 1024 characters and 64 steps.
  static Result<JsonPath> parse(std::string_view text);

  // Returns the values at the path in document order, at most `results_max`; none if a member or
  // element does not exist. The pointers are into `document`.
  std::vector<const Json*> find(const Json& document, size_t results_max = 1000) const;

 private:
  friend class JsonPathReader;

  enum class Kind { kMember, kElement, kAll, kFilter };
  struct Step {
    Kind kind = Kind::kMember;
    std::string name;
    int64_t index = 0;
    std::vector<std::string> left;  // of a filter: the members below @
    std::string comparison;         // "": the member must exist
    Json right;
  };

  static bool passes(const Step& step, const Json& element);
  static void follow(const Step& step, const Json& value, std::vector<const Json*>& results);

  std::vector<Step> steps_;
};

}  // namespace lockstep::local
