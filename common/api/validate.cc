#include <algorithm>

#include "common/api/rules.h"
#include "common/api/training_job_fields.h"

namespace lockstep {
namespace {

// Returns whether one path is the other or contains it: "spec.train" and "spec.train.steps".
bool is_within(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  return b.starts_with(a) && (a.size() == b.size() || b[a.size()] == '.' || b[a.size()] == '[');
}

// Calls `use` with each object at the scope and its path: "spec.failure.rules[0]".
template <class Use>
void each_object(const Json& self, const std::string& path, std::string_view scope,
                 const Use& use) {
  if (scope.empty()) return use(self, path);
  const size_t dot = std::min(scope.find('.'), scope.size());
  std::string_view name = scope.substr(0, dot);
  const std::string_view rest = scope.substr(std::min(dot + 1, scope.size()));
  const bool is_list = name.ends_with("[]");
  if (is_list) name.remove_suffix(2);
  const Json* member = find_member(self, name);
  if (member == nullptr) return;
  const std::string member_path = join_path(path, name);
  if (!is_list) return each_object(*member, member_path, rest, use);
  for (size_t i = 0; i < member->size(); ++i) {
    each_object((*member)[i], member_path + "[" + std::to_string(i) + "]", rest, use);
  }
}

// Applies the rules to a job. A rule about a field that is out of its range is left out: the field
// has a problem already, and the rule may rely on the range.
class Validation {
 public:
  explicit Validation(const TrainingJob& job) : job_(job) {
    check_ranges(job.spec, "spec", problems_);
    for (const std::string& problem : problems_) {
      out_of_range_.push_back(problem.substr(0, problem.find(": ")));
    }
  }

  Problems problems() {
    const Json document = {{"metadata", {{"name", job_.metadata.name}}},
                           {"spec", spec_to_json(job_.spec)}};
    for (const Rule& rule : spec_rules()) {
      if (rule.holds) {
        each_object(document, "", rule.scope, [&](const Json& self, const std::string& path) {
          if (!can_judge(rule.holds->reads(), path) || rule.holds->holds(self)) return;
          add(problem_of(rule, path, self));
        });
      } else if (can_judge(rule.reads, "")) {
        Problems found;
        rule.check(job_, found);
        for (std::string& problem : found) add(std::move(problem));
      }
    }
    return std::move(problems_);
  }

 private:
  bool can_judge(const std::vector<std::string>& reads, const std::string& path) const {
    return std::none_of(out_of_range_.begin(), out_of_range_.end(), [&](const std::string& bad) {
      return std::any_of(reads.begin(), reads.end(), [&](const std::string& field) {
        return is_within(path.empty() ? field : path + "." + field, bad);
      });
    });
  }
  // Some rules about the model hold for given dimensions, and again with those of the preset.
  void add(std::string problem) {
    if (std::find(problems_.begin(), problems_.end(), problem) != problems_.end()) return;
    problems_.push_back(std::move(problem));
  }

  const TrainingJob& job_;
  Problems problems_;
  std::vector<std::string> out_of_range_;
};

}  // namespace

Problems validate(const TrainingJob& job) {
  return Validation(job).problems();
}

}  // namespace lockstep
