#include "local/store/selector.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "local/store/object_rules.h"

namespace lockstep::local {
namespace {

constexpr size_t kTermsMax = 64;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<int64_t> number_of(const std::string& text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Splits at commas outside parentheses.
std::vector<std::string_view> terms_of(std::string_view text) {
  std::vector<std::string_view> terms;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '(') ++depth;
    if (i < text.size() && text[i] == ')') --depth;
    if (i == text.size() || (text[i] == ',' && depth <= 0)) {
      terms.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  return terms;
}

// Selectable fields in addition to metadata.name and metadata.namespace, which every type has.
struct FieldLabel {
  std::string_view plural;
  std::string_view path;
};
constexpr std::array kFieldLabels = {
    FieldLabel{"pods", "spec.nodeName"},
    FieldLabel{"pods", "spec.restartPolicy"},
    FieldLabel{"pods", "status.phase"},
    FieldLabel{"pods", "status.podIP"},
    FieldLabel{"events", "involvedObject.kind"},
    FieldLabel{"events", "involvedObject.name"},
    FieldLabel{"events", "involvedObject.namespace"},
    FieldLabel{"events", "involvedObject.uid"},
    FieldLabel{"events", "involvedObject.apiVersion"},
    FieldLabel{"events", "involvedObject.fieldPath"},
    FieldLabel{"events", "involvedObject.resourceVersion"},
    FieldLabel{"events", "reportingComponent"},
    FieldLabel{"nodes", "spec.unschedulable"},
    FieldLabel{"pods", "spec.schedulerName"},
    FieldLabel{"pods", "spec.serviceAccountName"},
    FieldLabel{"pods", "status.nominatedNodeName"},
    FieldLabel{"events", "reason"},
    FieldLabel{"events", "type"},
    FieldLabel{"secrets", "type"},
    FieldLabel{"namespaces", "status.phase"},
};

bool is_field_of(const ResourceType& type, std::string_view path) {
  if (path == "metadata.name" || path == "metadata.namespace") return true;
  return std::any_of(kFieldLabels.begin(), kFieldLabels.end(), [&](const FieldLabel& label) {
    return !type.custom && label.plural == type.plural && label.path == path;
  });
}

// Returns the text at the path as field selectors compare it; booleans are "true" and "false". Null
// if there is none.
const std::string* text_at(const Json& object, std::string_view path) {
  static const std::string kTrue = "true", kFalse = "false";
  const Json* at = &object;
  while (at != nullptr && !path.empty()) {
    size_t dot = std::min(path.find('.'), path.size());
    at = find_member(*at, path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  if (at == nullptr) return nullptr;
  if (at->is_boolean()) return at->get<bool>() ? &kTrue : &kFalse;
  return at->get_ptr<const std::string*>();
}

}  // namespace

Result<Selector::Requirement> Selector::parse_label(std::string_view term) {
  auto refused = [&] {
    return invalid("unable to parse requirement: found '" + std::string(term) + "'");
  };
  Requirement requirement;
  auto finish = [&](std::string_view key) -> Result<Requirement> {
    requirement.key = trimmed(key);
    if (!is_qualified_name(requirement.key)) return refused();
    return requirement;
  };
  if (term.empty()) return refused();
  if (size_t open = term.find('('); open != std::string_view::npos) {
    if (term.back() != ')') return refused();
    std::string_view head = trimmed(term.substr(0, open));
    size_t space = head.find(' ');
    if (space == std::string_view::npos) return refused();
    std::string_view word = trimmed(head.substr(space));
    if (word != "in" && word != "notin") return refused();
    requirement.op = word == "in" ? Operator::kIn : Operator::kNotIn;
    for (std::string_view value : terms_of(term.substr(open + 1, term.size() - open - 2)))
      requirement.values.emplace_back(value);
    return finish(head.substr(0, space));
  }
  if (size_t sign = term.find_first_of("<>"); sign != std::string_view::npos) {
    requirement.op = term[sign] == '>' ? Operator::kGreater : Operator::kLess;
    requirement.values.emplace_back(trimmed(term.substr(sign + 1)));
    if (!number_of(requirement.values[0])) return refused();
    return finish(term.substr(0, sign));
  }
  size_t equals = term.find('=');
  if (equals == std::string_view::npos) {
    requirement.op = term.front() == '!' ? Operator::kAbsent : Operator::kExists;
    return finish(term.substr(term.front() == '!' ? 1 : 0));
  }
  bool negated = equals > 0 && term[equals - 1] == '!';
  bool doubled = equals + 1 < term.size() && term[equals + 1] == '=';
  requirement.op = negated ? Operator::kNotIn : Operator::kIn;
  requirement.values.emplace_back(trimmed(term.substr(equals + (doubled ? 2 : 1))));
  return finish(term.substr(0, negated ? equals - 1 : equals));
}

Result<Selector> Selector::parse(const ResourceType& type, std::string_view labels,
                                 std::string_view fields) {
  Selector selector;
  if (!trimmed(labels).empty()) {
    for (std::string_view term : terms_of(labels)) {
      TRY_ASSIGN(Requirement requirement, parse_label(term));
      for (const std::string& value : requirement.values) {
        if (!value.empty() && !is_label_text(value))
          return invalid("unable to parse requirement: a label can't have the value '" + value +
                         "'");
      }
      selector.labels_.push_back(std::move(requirement));
    }
  }
  if (!trimmed(fields).empty()) {
    for (std::string_view term : terms_of(fields)) {
      size_t equals = term.find('=');
      if (equals == std::string_view::npos || term.find_first_of("<>") != std::string_view::npos)
        return invalid("invalid field selector: '" + std::string(term) + "'");
      TRY_ASSIGN(Requirement requirement, parse_label(term));
      if (!is_field_of(type, requirement.key))
        return invalid("field label not supported: " + requirement.key);
      selector.fields_.push_back(std::move(requirement));
    }
  }
  if (selector.labels_.size() + selector.fields_.size() > kTermsMax)
    return invalid("expected a selector of at most " + std::to_string(kTermsMax) + " terms");
  return selector;
}

bool Selector::holds(const Requirement& requirement, const std::string* value) {
  auto listed = [&](const std::string& text) {
    return std::find(requirement.values.begin(), requirement.values.end(), text) !=
           requirement.values.end();
  };
  switch (requirement.op) {
    case Operator::kIn:
      return value != nullptr && listed(*value);
    case Operator::kNotIn:
      return value == nullptr || !listed(*value);
    case Operator::kExists:
      return value != nullptr;
    case Operator::kAbsent:
      return value == nullptr;
    case Operator::kGreater:
    case Operator::kLess: {
      const std::optional<int64_t> number = value == nullptr ? std::nullopt : number_of(*value);
      if (!number) return false;
      const int64_t bound = *number_of(requirement.values[0]);  // checked when it was parsed
      return requirement.op == Operator::kGreater ? *number > bound : *number < bound;
    }
  }
  return false;
}

bool Selector::matches(const Json& object) const {
  const Json* metadata = find_member(object, "metadata");
  const Json* labels = metadata == nullptr ? nullptr : find_member(*metadata, "labels");
  for (const Requirement& requirement : labels_) {
    const Json* value = labels == nullptr ? nullptr : find_member(*labels, requirement.key);
    if (!holds(requirement, value == nullptr ? nullptr : value->get_ptr<const std::string*>()))
      return false;
  }
  static const std::string kEmpty;
  for (const Requirement& requirement : fields_) {
    const std::string* value = text_at(object, requirement.key);
    if (!holds(requirement, value == nullptr ? &kEmpty : value)) return false;
  }
  return true;
}

}  // namespace lockstep::local
