#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"
#include "local/store/resources.h"

namespace lockstep::local {

// Selects the objects of a list or a watch. Source: Kubernetes, "Labels and Selectors" and "Field
// Selectors".
class Selector {
 public:
  // Parses selectors. `labels`: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2`; `fields`:
  // `metadata.name=x,spec.nodeName!=y`. Empty text selects everything. kInvalid: a syntax error, or
  // a field that the type can't be selected by.
  static Result<Selector> parse(const ResourceType& type, std::string_view labels,
                                std::string_view fields);

  bool matches(const Json& object) const;
  bool selects_all() const { return labels_.empty() && fields_.empty(); }

 private:
  enum class Operator { kIn, kNotIn, kExists, kAbsent, kGreater, kLess };
  struct Requirement {
    std::string key;  // a label's key, or the dotted path of a field
    Operator op = Operator::kIn;
    std::vector<std::string> values;
  };

  static Result<Requirement> parse_label(std::string_view term);
  static bool holds(const Requirement& requirement, const std::string* value);

  std::vector<Requirement> labels_;
  std::vector<Requirement> fields_;
};

}  // namespace lockstep::local
