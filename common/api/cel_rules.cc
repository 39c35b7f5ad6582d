#include "common/api/cel_rules.h"

#include <string_view>
#include <vector>

#include "common/api/agent_messages.h"
#include "common/api/training_job.h"
#include "common/api/training_job_fields.h"
#include "common/base/check.h"

namespace lockstep {
namespace {

std::string text(int64_t value) {
  return std::to_string(value);
}

// CEL: the document has the path ("train.batch.global") below `root`.
std::string is_given(const std::string& root, const std::string& path) {
  std::string all;
  size_t dot = 0;
  while (dot != std::string::npos) {
    dot = path.find('.', dot + 1);
    all += (all.empty() ? "has(" : " && has(") + root + "." + path.substr(0, dot) + ")";
  }
  return all;
}

// CEL: the value in the document, or the default. Two such expressions must not be compared with
// each other if they are strings: the server's cost estimate would be unbounded, since it takes
// string lengths only from fields.
std::string of_self(const std::string& path, const std::string& fallback) {
  return "(" + is_given("self", path) + " ? self." + path + " : " + fallback + ")";
}

// CEL: the field of spec is unchanged; a missing field equals its default.
std::string is_unchanged(const std::string& path, const std::string& fallback) {
  const std::string before = "oldSelf.spec." + path;
  const std::string after = "self.spec." + path;
  const std::string had = is_given("oldSelf.spec", path);
  return "(" + is_given("self.spec", path) + " ? (" + had + " ? " + after + " == " + before +
         " : " + after + " == " + fallback + ") : (!(" + had + ") || " + before +
         " == " + fallback + "))";
}

std::string quoted(std::string_view word) {
  return "'" + std::string(word) + "'";
}

// Converts "a b" to ['a', 'b'].
std::string list_of(std::string_view words) {
  std::string list;
  while (!words.empty()) {
    const size_t space = std::min(words.find(' '), words.size());
    list += (list.empty() ? "" : ", ") + quoted(words.substr(0, space));
    words.remove_prefix(std::min(space + 1, words.size()));
  }
  return "[" + list + "]";
}

// CEL on a spec; the same as processes_per_node(), port_count() and data_parallel_size().
std::string processes() {
  return "(has(self.processesPerNode) && self.processesPerNode > 0 ? self.processesPerNode : "
         "has(self.gpusPerNode) && self.gpusPerNode > 0 ? self.gpusPerNode : 1)";
}
std::string world() {
  return "(" + of_self("nodes", "1") + " * " + processes() + ")";
}
std::string ports() {
  return "(" + processes() + " * (has(self.train) ? 1 : " + text(kPortRounds) + "))";
}
std::string port() {
  return of_self("rendezvous.port", "29500");
}
std::string tensor() {
  return of_self("parallelism.tensor", "1");
}
std::string pipeline() {
  return of_self("parallelism.pipeline", "1");
}
constexpr char kIsCommand[] = "has(self.command) && self.command.size() > 0";

// A scalar of spec that cannot change while the job has pods, and its default.
struct Fixed {
  const char* path;
  const char* fallback;
};
constexpr Fixed kFixed[] = {{"gpusPerNode", "0"},
                            {"processesPerNode", "0"},
                            {"threadsPerProcess", "0"},
                            {"image", "''"},
                            {"successPolicy", "'AllRanks'"},
                            {"parallelism.tensor", "1"},
                            {"parallelism.pipeline", "1"},
                            {"parallelism.sharding", "'none'"},
                            {"rendezvous.port", "29500"},
                            {"checkpoint.path", "''"},
                            {"train.model.preset", "''"},
                            {"train.data.path", "''"},
                            {"train.steps", "1000"},
                            {"train.batch.global", "8"},
                            {"train.precision", "'fp32'"}};

// The controller compares the spec with status.fixed, which describes the spec that the pods were
// made from. This rule compares with the spec before the change, which is the same if the
// controller found it valid. Changes are allowed in an update that suspends the job, and once the
// job is suspended, complete or failed.
std::string fixed_rule() {
  std::string rule =
      "!has(oldSelf.status) || !has(oldSelf.status.fixed) || oldSelf.status.fixed == '' || "
      "(has(self.spec.suspend) && self.spec.suspend) || !has(oldSelf.status.conditions) || "
      "!oldSelf.status.conditions.exists(c, c.type == 'Valid' && c.status == 'True') || "
      "oldSelf.status.conditions.exists(c, c.status == 'True' && "
      "(c.type == 'Suspended' || c.type == 'Complete' || c.type == 'Failed')) || "
      "(has(self.spec.train) == has(oldSelf.spec.train)";
  for (const Fixed& field : kFixed) rule += " && " + is_unchanged(field.path, field.fallback);
  return rule + ")";
}

std::string fixed_message() {
  std::string names = "train or command";
  for (const Fixed& field : kFixed) names += std::string(", ") + field.path;
  return "cannot change while the job has pods, except together with spec.suspend: true: " + names;
}

// Fields that only spec.train supports must be left out or have their defaults.
CelRule train_alone_unless(const std::string& is_default, const std::string& path) {
  return {"spec", std::string("!(") + kIsCommand + ") || " + is_default,
          path + " is only valid with train; omit the field, because a command does this itself"};
}
CelRule train_alone(const std::string& path, const std::string& fallback) {
  return train_alone_unless(of_self(path, fallback) + " == " + fallback, path);
}

void add_rules_of_spec(std::vector<CelRule>& rules) {
  rules.push_back({"spec", std::string("has(self.train) != (") + kIsCommand + ")",
                   "expected exactly one of train and command"});
  rules.push_back(
      {"spec",
       "!has(self.train) || !has(self.successPolicy) || self.successPolicy != " + quoted(kRankZero),
       "successPolicy: RankZero is only valid with command, expected AllRanks"});
  rules.push_back({"spec", world() + " <= " + text(kWorldSizeMax),
                   "nodes x processesPerNode: expected at most " + text(kWorldSizeMax) + " ranks"});
  rules.push_back({"spec", world() + " % (" + pipeline() + " * " + tensor() + ") == 0",
                   "parallelism: pipeline x tensor does not divide the number of ranks"});
  rules.push_back({"spec",
                   "!has(self.train) || " + of_self("gpusPerNode", "0") + " == 0 || " +
                       processes() + " % self.gpusPerNode == 0",
                   "processesPerNode: expected 0 (one rank per GPU) or a multiple of gpusPerNode"});
  rules.push_back({"spec", port() + " + " + ports() + " <= 65536",
                   "rendezvous.port leaves no room for the ports of all processes of a node (a "
                   "command uses 8 ports per process)"});
  rules.push_back(
      {"spec",
       port() + " > " + text(kAgentPort) + " || " + port() + " + " + ports() +
           " <= " + text(kAgentPort),
       "rendezvous.port: the processes' ports include the agent's port " + text(kAgentPort)});
  rules.push_back({"spec",
                   "!has(self.train) || !has(self.rendezvous) || "
                   "!has(self.rendezvous.variables) || self.rendezvous.variables.size() == 0",
                   "rendezvous.variables are only valid with command"});
  rules.push_back(train_alone("parallelism.tensor", "1"));
  rules.push_back(train_alone("parallelism.pipeline", "1"));
  rules.push_back(train_alone("parallelism.sharding", "'none'"));
  rules.push_back(train_alone("checkpoint.everySteps", "0"));
  rules.push_back(
      train_alone_unless("!has(self.checkpoint) || !has(self.checkpoint.atEnd) || "
                         "self.checkpoint.atEnd",
                         "checkpoint.atEnd"));
  rules.push_back(train_alone("checkpoint.keep", "3"));
  rules.push_back(train_alone("rendezvous.timeoutSeconds", "60"));
  rules.push_back({"spec",
                   "!has(self.train) || " + tensor() + " * " + pipeline() + " > 1 || " +
                       of_self("train.batch.global", "8") + " % " + world() + " == 0",
                   "train.batch.global is not a multiple of the number of ranks"});
  rules.push_back({"spec",
                   "!has(self.train) || " + of_self("train.attention", "'own'") +
                       " != 'cudnn' || (" + of_self("gpusPerNode", "0") + " > 0 && " +
                       of_self("train.precision", "'fp32'") + " == 'bf16')",
                   "train.attention: cudnn needs gpusPerNode: 1 or more and train.precision: bf16; "
                   "expected own or auto"});
}

void add_rules_of_train(std::vector<CelRule>& rules) {
  const std::string has_preset = "has(self.model) && has(self.model.preset)";
  const auto positive = [](const char* field) {
    return of_self(std::string("model.") + field, "0") + " > 0";
  };
  rules.push_back({"spec.train",
                   "(" + has_preset + ") || (" + positive("layers") + " && " + positive("width") +
                       " && " + positive("heads") + " && " + positive("context") + ")",
                   "model: expected a preset, or layers, width, heads and context"});
  const std::string is_bytes = of_self("data.tokenizer", "'bytes'") + " == 'bytes'";
  rules.push_back({"spec.train",
                   "(" + has_preset + ") || " + is_bytes + " || " + positive("vocabulary"),
                   "model.vocabulary: expected the number of token ids, which data.tokenizer does "
                   "not determine"});
  const std::string vocabulary = of_self("model.vocabulary", "0");
  rules.push_back({"spec.train",
                   "!(" + is_bytes + ") || " + vocabulary + " == 0 || " + vocabulary + " >= 256",
                   "model.vocabulary: expected 256 or more for tokenizer: bytes"});
  rules.push_back({"spec.train",
                   of_self("optimizer.warmupSteps", "0") + " <= " + of_self("steps", "1000"),
                   "optimizer.warmupSteps is more than steps"});
  rules.push_back({"spec.train",
                   of_self("optimizer.minimumLearningRate", "0.0") +
                       " <= " + of_self("optimizer.learningRate", "0.0003"),
                   "optimizer.minimumLearningRate is more than optimizer.learningRate"});
  rules.push_back({"spec.train",
                   of_self("validation.everySteps", "0") + " == 0 || " +
                       of_self("data.validationFraction", "0.0") + " > 0.0",
                   "validation.everySteps needs data.validationFraction above 0"});
  rules.push_back({"spec.train",
                   of_self("rounding", "'nearest'") + " == 'nearest' || " +
                       of_self("precision", "'fp32'") + " == 'bf16'",
                   "rounding: stochastic needs precision: bf16"});
  const std::string micro = of_self("micro", "0");
  rules.push_back({"spec.train.batch",
                   micro + " == 0 || " + of_self("global", "8") + " % " + micro + " == 0",
                   "micro does not divide global"});
  rules.push_back({"spec.train.data", "self.path.size() > 0", "path: expected a file or a folder"});
  rules.push_back({"spec.train.model",
                   "!has(self.width) || !has(self.heads) || self.width == 0 || self.heads == 0 || "
                   "self.width % self.heads == 0",
                   "heads does not divide width"});
  rules.push_back({"spec.train.model",
                   "!has(self.heads) || !has(self.kvHeads) || self.heads == 0 || self.kvHeads == 0 "
                   "|| self.heads % self.kvHeads == 0",
                   "kvHeads does not divide heads"});
  rules.push_back({"spec.train.model",
                   "!has(self.preset) || !has(self.family) || "
                   "(self.family == 'llama') == self.preset.matches('^llama-')",
                   "family is not the preset's family"});
}

void add_rules_of_lists(std::vector<CelRule>& rules) {
  rules.push_back({"spec.command", "self.size() == 0 || self[0] != ''",
                   "expected a program as the first word"});
  rules.push_back({"spec.failure.rules[]",
                   "has(self.event) || (has(self.exitCodes) && self.exitCodes.size() > 0)",
                   "expected exitCodes or event"});
  rules.push_back({"spec.failure.rules[]",
                   "self.action != 'RestartInPlace' || !has(self.event) || self.event in " +
                       list_of(kProcessEvents),
                   "action: RestartInPlace cannot follow an event that removes the pod; expected "
                   "RecreatePod, Ignore or Fail"});
  rules.push_back({"spec.failure.rules[]",
                   "!has(self.after) || self.after == '' || (has(self.event) && self.event == " +
                       quoted(kHang) + ")",
                   "after is only valid with event: Hang"});
  rules.push_back({"spec.failure.rules[]",
                   "!has(self.after) || self.after == '' || "
                   "self.after.matches('^0*[1-9][0-9]*[smh]$')",
                   "after: expected a whole number with unit s, m or h"});
  rules.push_back({"spec.processGroups[]", "self.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                   "name: expected lower-case letters, digits and hyphens, starting with a letter "
                   "and ending with a letter or digit"});
  rules.push_back({"spec.processGroups[]",
                   "!(self.name in ['world', 'pipeline', 'data', 'tensor'])",
                   "name: world, pipeline, data and tensor are reserved for the mesh"});
  rules.push_back(
      {"spec.managedBy", "self == '' || self.matches('^[^/]+/[^/]+$')", "expected domain/path"});
}

std::vector<CelRule> make_rules() {
  std::vector<CelRule> rules;
  rules.push_back(
      {"", "self.metadata.name.matches('^[a-z][-a-z0-9]*$')",
       "metadata.name: expected lower-case letters, digits and hyphens, starting with a letter"});
  rules.push_back({"", fixed_rule(), fixed_message()});
  add_rules_of_spec(rules);
  add_rules_of_train(rules);
  add_rules_of_lists(rules);
  return rules;
}

// Returns the schema at a rule's path, which must exist.
Json& schema_at(Json& schema, std::string_view path) {
  Json* at = &schema;
  while (!path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    std::string_view name = path.substr(0, dot);
    path.remove_prefix(std::min(dot + 1, path.size()));
    const bool is_item = name.ends_with("[]");
    if (is_item) name.remove_suffix(2);
    CHECK((*at)["properties"].contains(std::string(name)));
    at = &(*at)["properties"][std::string(name)];
    if (is_item) at = &(*at)["items"];
  }
  return *at;
}

}  // namespace

std::span<const CelRule> cel_rules() {
  static const std::vector<CelRule> kRules = make_rules();
  return kRules;
}

Json with_cel_rules(Json schema) {
  for (const CelRule& rule : cel_rules()) {
    schema_at(schema, rule.path)["x-kubernetes-validations"].push_back(
        {{"rule", rule.rule}, {"message", rule.message}});
  }
  return schema;
}

}  // namespace lockstep
