#include "controller/plan/fixed_fields.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "common/api/rules.h"
#include "common/base/sha256.h"
#include "controller/plan/names.h"

namespace lockstep::plan {
namespace {

constexpr char kNodes[] = "nodes";
constexpr char kServers[] = "parameterServers";
constexpr size_t kHexDigits = 8;

using Fingerprints = std::map<std::string, std::string>;  // by path below spec

// Returns the members that differ from the defaults; null if none do.
Json without_defaults(const Json& value, const Json& defaults) {
  if (value == defaults) return nullptr;
  if (!value.is_object() || !defaults.is_object()) return value;
  Json rest = Json::object();
  for (const auto& [key, member] : value.items()) {
    const Json* fallback = find_member(defaults, key);
    Json differs = fallback == nullptr ? member : without_defaults(member, *fallback);
    if (!differs.is_null()) rest[key] = std::move(differs);
  }
  return rest;
}

void add(const std::string& path, const Json& value, Fingerprints& prints) {
  if (!value.is_null()) prints[path] = hex(sha256(dump_json(value))).substr(0, kHexDigits);
}

std::string schedule_of(const TrainingJobSpec& spec) {
  return spec.parallelism.pipeline > 1 ? spec.parallelism.pipelineSchedule : "";
}

// Returns the spec without a member of `security` that neither pods nor assignments depend on, and
// without the number of servers.
Json fixed_part(const TrainingJobSpec& spec) {
  Json document = spec_to_json(spec);
  document["security"].erase("networkPolicy");
  if (spec.parameterServers) document[kServers].erase(kNodes);
  return document;
}

// Returns the fingerprint that earlier versions took of servers: their number could not change.
std::string older_print_of_servers(const TrainingJobSpec& spec) {
  TrainingJobSpec defaults;
  defaults.parameterServers.emplace();
  Fingerprints prints;
  add(kServers, without_defaults(spec_to_json(spec)[kServers], spec_to_json(defaults)[kServers]),
      prints);
  return prints[kServers];
}

Fingerprints fingerprints(const TrainingJobSpec& spec) {
  Fingerprints prints;
  Json document = fixed_part(spec);
  // Our own name means the same as an empty managedBy.
  if (spec.managedBy == kControllerName) document.erase("managedBy");
  // Both none and auto are the default here: earlier versions had none.
  if (spec.train) {
    const std::string recompute = recompute_of(spec.train->recompute, schedule_of(spec));
    document["train"]["recompute"] = recompute == "none" ? TrainSpec{}.recompute : recompute;
  }
  // The node indices of servers follow those of workers.
  if (spec.parameterServers) add(kNodes, document[kNodes], prints);
  TrainingJobSpec with_all;
  with_all.parameterServers.emplace();
  const Json defaults = fixed_part(with_all);
  const Json train_defaults = train_to_json(TrainSpec{});
  for (const FixedField& field : fixed_rules()) {
    const Json* value = find_member(document, field.name);
    if (value == nullptr) continue;
    const std::string path(field.name);
    if (path == "train") {
      prints[path] = "is";  // present, even with only defaults
      for (const auto& [key, member] : value->items()) {
        const Json* fallback = find_member(train_defaults, key);
        add(path + "." + key, fallback == nullptr ? member : without_defaults(member, *fallback),
            prints);
      }
      continue;
    }
    if (path == kServers) prints[path] = "is";  // likewise
    const Json* fallback = find_member(defaults, field.name);
    add(path, fallback == nullptr ? *value : without_defaults(*value, *fallback), prints);
  }
  return prints;
}

Fingerprints read(const std::string& text) {
  Fingerprints prints;
  size_t from = 0;
  while (from < text.size()) {
    const size_t to = std::min(text.find(',', from), text.size());
    const std::string one = text.substr(from, to - from);
    const size_t equals = std::min(one.find('='), one.size());
    prints[one.substr(0, equals)] = one.substr(std::min(equals + 1, one.size()));
    from = to + 1;
  }
  return prints;
}

}  // namespace

std::string fixed_fields(const TrainingJobSpec& spec) {
  std::string text;
  for (const auto& [path, print] : fingerprints(spec)) {
    text += (text.empty() ? "" : ",") + path + "=" + print;
  }
  return text;
}

Problems changed_fields(const std::string& fixed, const TrainingJobSpec& spec) {
  if (fixed.empty()) return {};
  Fingerprints before = read(fixed);
  Problems problems;
  const auto add_problem = [&problems](const std::string& path) {
    problems.push_back("spec." + path + ": " + std::string(kFixedText));
  };
  Fingerprints now = fingerprints(spec);
  // They are among the fields of a job with servers alone; then parameterServers has changed.
  if (now.contains(kNodes) != before.contains(kNodes)) {
    now.erase(kNodes);
    before.erase(kNodes);
  }
  for (const auto& [path, print] : now) {
    const auto known = before.find(path);
    const bool is_same = known != before.end() &&
                         (known->second == print ||
                          (path == kServers && known->second == older_print_of_servers(spec)));
    if (!is_same) add_problem(path);
    if (known != before.end()) before.erase(known);
  }
  for (const auto& [path, print] : before) add_problem(path);
  return problems;
}

}  // namespace lockstep::plan
