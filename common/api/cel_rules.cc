#include "common/api/cel_rules.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

#include "common/api/rules.h"
#include "common/api/schema.h"
#include "common/base/check.h"

namespace lockstep {
namespace {

// A fixed field may change if this holds. The controller compares the spec with status.fixed, which
// describes the spec that the pods were made from. The rules compare with the spec before the
// change, which is the same if the controller found it valid. Changes are allowed in an update that
// suspends the job, and once the job is suspended, complete or failed.
constexpr char kMayChange[] =
    "!has(oldSelf.status) || !has(oldSelf.status.fixed) || oldSelf.status.fixed == '' || "
    "(has(self.spec.suspend) && self.spec.suspend) || !has(oldSelf.status.conditions) || "
    "!oldSelf.status.conditions.exists(c, c.type == 'Valid' && c.status == 'True') || "
    "oldSelf.status.conditions.exists(c, c.status == 'True' && "
    "(c.type == 'Suspended' || c.type == 'Complete' || c.type == 'Failed'))";

// CEL: the field is unchanged; a missing field equals its default.
std::string is_unchanged(const std::string& path) {
  static const Scope kSpec("spec");
  const std::string before = "oldSelf.spec." + path;
  const std::string after = "self.spec." + path;
  const std::string had = kSpec.has("oldSelf.spec", path);
  const std::string has = kSpec.has("self.spec", path);
  const std::string fallback = Expression(kSpec.fallback(path)).cel();
  return "(" + has + " ? (" + had + " ? " + after + " == " + before + " : " + after +
         " == " + fallback + ") : (!(" + had + ") || " + before + " == " + fallback + "))";
}

// CEL: what servers compare of the field is unchanged.
std::string is_unchanged(const FixedField& field) {
  std::string all = field.name == "train" ? "has(self.spec.train) == has(oldSelf.spec.train)" : "";
  for (std::string_view words = field.on_server; !words.empty();) {
    const size_t space = std::min(words.find(' '), words.size());
    all += (all.empty() ? "" : " && ") + is_unchanged(std::string(words.substr(0, space)));
    words.remove_prefix(std::min(space + 1, words.size()));
  }
  return all;
}

// Returns the names of the members of self that the CEL text mentions, each once.
std::set<std::string> members_of_self(const std::string& cel) {
  static const std::string kSelf = "self.";
  const auto is_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  std::set<std::string> names;
  for (size_t at = cel.find(kSelf); at != std::string::npos; at = cel.find(kSelf, at)) {
    at += kSelf.size();
    const auto end =
        std::find_if_not(cel.begin() + static_cast<std::ptrdiff_t>(at), cel.end(), is_name);
    names.emplace(cel.begin() + static_cast<std::ptrdiff_t>(at), end);
  }
  return names;
}

// CEL: an update that changes nothing that the rule reads, or the rule. A job's name never changes.
std::string unless_unchanged(const Rule& rule) {
  std::string unchanged = "oldSelf.hasValue()";
  if (!rule.scope.empty()) {
    for (const std::string& name : members_of_self(rule.holds->cel())) {
      const std::string after = "self." + name;
      const std::string before = "oldSelf.value()." + name;
      unchanged += " && (has(" + after + ") ? has(" + before + ") && " + after + " == " + before +
                   " : !has(" + before + "))";
    }
  }
  return unchanged + " || (" + rule.holds->cel() + ")";
}

// Whether servers cannot compare all of the object at this path.
bool is_uncomparable(const std::string& scope) {
  return scope.empty() || scope == "spec";
}

std::vector<CelRule> make_rules() {
  std::vector<CelRule> rules;
  for (const Rule& rule : spec_rules()) {
    if (!rule.holds) continue;
    const bool compares = is_uncomparable(rule.scope);
    rules.push_back({rule.scope, compares ? unless_unchanged(rule) : rule.holds->cel(),
                     server_message(rule), &rule, compares});
  }
  for (const FixedField& field : fixed_rules()) {
    if (field.on_server.empty()) continue;
    rules.push_back({"", std::string(kMayChange) + " || " + is_unchanged(field),
                     "spec." + std::string(field.name) + ": " + std::string(kFixedText)});
  }
  return rules;
}

}  // namespace

std::span<const CelRule> cel_rules() {
  static const std::vector<CelRule> kRules = make_rules();
  return kRules;
}

Json with_cel_rules(Json schema) {
  for (const CelRule& rule : cel_rules()) {
    const Json::json_pointer at = schema_pointer(rule.path);
    CHECK(schema.contains(at));
    Json validation = {{"rule", rule.rule}, {"message", rule.message}};
    if (rule.is_old_optional) validation["optionalOldSelf"] = true;
    schema[at]["x-kubernetes-validations"].push_back(std::move(validation));
  }
  return schema;
}

}  // namespace lockstep
