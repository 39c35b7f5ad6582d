// The CRD's rules and the controller's own checks agree: what a rule refuses, the controller
// refuses too. tests/controller/plan/cel.h evaluates the rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "common/api/cel_rules.h"
#include "common/api/schema.h"
#include "common/api/yaml.h"
#include "common/base/random.h"
#include "tests/controller/plan/cel.h"
#include "tests/controller/support/scene.h"

namespace lockstep::plan {
namespace {

// apiextensions-apiserver, pkg/apis/apiextensions/validation: StaticEstimatedCostLimit and
// StaticEstimatedCRDCostLimit; ours must stay far below them.
constexpr double kRuleCostMax = 1e7 / 4;
constexpr double kCostMax = 1e8 / 10;
constexpr size_t kAnnotationBytesMax = 262144;
constexpr char kCharts[] = LOCKSTEP_SOURCE_DIR "/charts/lockstep/files/";
constexpr char kFileName[] = "/trainingjobs.lockstep.dev.yaml";

Json definition(const std::string& folder) {
  const Result<Json> document = read_document(kCharts + folder + kFileName);
  EXPECT_TRUE(document.ok()) << document.error().message;
  return document.ok() ? *document : Json();
}

// Calls `use` with each value at a rule's path and with its old value. There is no old value
// (nullptr) for items of lists.
using Use = std::function<void(const Json& self, const Json* before)>;
void each_at(const Json& self, const Json* before, std::string_view path, const Use& use) {
  if (path.empty()) return use(self, before);
  const size_t dot = std::min(path.find('.'), path.size());
  std::string_view name = path.substr(0, dot);
  path.remove_prefix(std::min(dot + 1, path.size()));
  const bool is_list = name.ends_with("[]");
  if (is_list) name.remove_suffix(2);
  const Json* member = find_member(self, name);
  const Json* old_member = before == nullptr ? nullptr : find_member(*before, name);
  if (member == nullptr) return;
  if (!is_list) return each_at(*member, old_member, path, use);
  for (const Json& item : *member) each_at(item, nullptr, path, use);
}

std::vector<Cel> parsed_rules() {
  std::vector<Cel> parsed;
  for (const CelRule& rule : cel_rules()) {
    Result<Cel> cel = Cel::parse(rule.rule);
    EXPECT_TRUE(cel.ok()) << cel.error().message;
    parsed.push_back(cel.ok() ? *std::move(cel) : Cel());
  }
  return parsed;
}

// Returns the messages of the rules that refuse the document.
std::set<std::string> refusing(const Json& document, const Json* before = nullptr) {
  static const std::vector<Cel> kParsed = parsed_rules();
  std::set<std::string> messages;
  for (size_t i = 0; i < kParsed.size(); ++i) {
    const CelRule& rule = cel_rules()[i];
    const Use use = [&](const Json& self, const Json* old_self) {
      if (kParsed[i].is_transition() && old_self == nullptr) return;
      const Result<bool> holds = kParsed[i].evaluate(self, old_self);
      ASSERT_TRUE(holds.ok()) << holds.error().message << ": " << rule.rule << "\n" << document;
      if (!*holds) messages.insert(rule.message);
    };
    each_at(document, before, rule.path, use);
  }
  return messages;
}

// Returns the problems that the controller finds, each with its path.
Problems controller_problems(const Json& document) {
  const Result<TrainingJob> job = stored_training_job_from_json(document);
  return job.ok() ? validate(*job) : Problems{job.error().message};
}

Json job_of(const std::string& spec) {
  const Result<Json> document = json_from_yaml(
      "{apiVersion: lockstep.dev/v1alpha1, kind: TrainingJob, metadata: {name: j}, "
      "spec: " +
      spec + "}");
  EXPECT_TRUE(document.ok()) << document.error().message << spec;
  return document.ok() ? *document : Json();
}

const std::string kTrain = "train: {data: {path: /d}, model: {preset: gpt2-124m}";

TEST(CrdRules, AreWellTypedOverTheSchemaAndOfBoundedCost) {
  Json schema = training_job_schema();
  // The server uses its own type for the name, without a maxLength.
  schema["properties"]["metadata"]["properties"]["name"].erase("maxLength");
  double sum = 0;
  for (const CelRule& rule : cel_rules()) {
    double count = 1;
    const Json* at = &schema;
    std::istringstream parts(rule.path);
    for (std::string part; std::getline(parts, part, '.');) {
      const bool is_list = part.ends_with("[]");
      if (is_list) part.resize(part.size() - 2);
      at = &at->at("properties").at(part);
      if (!is_list) continue;
      count *= at->at("maxItems").get<double>();
      at = &at->at("items");
    }
    const Result<Cel> cel = Cel::parse(rule.rule);
    ASSERT_TRUE(cel.ok()) << cel.error().message;
    const Result<double> cost = cel->check(*at);
    ASSERT_TRUE(cost.ok()) << cost.error().message << ": " << rule.rule;
    EXPECT_LT(*cost * count, kRuleCostMax) << rule.rule;
    EXPECT_FALSE(rule.message.empty());
    EXPECT_EQ(rule.message.find('\n'), std::string::npos);
    sum += *cost * count;
  }
  EXPECT_LT(sum, kCostMax);
}

TEST(CrdRules, AreAllThatTheTwoDefinitionsDifferIn) {
  const Json plain = definition("crds");
  const Json with_rules = definition("crds-cel");
  Json expected = plain;
  Json& schema = expected["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
  schema = with_cel_rules(schema);
  EXPECT_EQ(with_rules, expected) << Json::diff(with_rules, expected).dump(1);
  EXPECT_EQ(dump_json(plain).find("x-kubernetes-validations"), std::string::npos);
  EXPECT_LT(dump_json(with_rules).size(), kAnnotationBytesMax);
}

struct Case {
  std::string message;  // prefix of the rule's message
  std::string spec;     // a spec that the rule refuses
  std::string problem;  // prefix of the controller's message
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"expected exactly one of train and command", "{}", "spec: "},
      {"expected exactly one of", "{" + kTrain + "}, command: [a]}", "spec: "},
      {"successPolicy: RankZero is only valid", "{" + kTrain + "}, successPolicy: RankZero}",
       "spec.successPolicy: "},
      {"nodes x processes", "{command: [a], nodes: 4096, processesPerNode: 64}", "spec.nodes: "},
      {"parallelism: pipeline x tensor", "{" + kTrain + "}, parallelism: {tensor: 2}}",
       "spec.parallelism: "},
      {"processesPerNode: expected 0", "{" + kTrain + "}, gpusPerNode: 4, processesPerNode: 2}",
       "spec.processesPerNode: "},
      {"rendezvous.port leaves no room",
       "{command: [a], processesPerNode: 4, rendezvous: {port: 65530}}", "spec.rendezvous.port: "},
      {"rendezvous.port: the processes' ports", "{command: [a], rendezvous: {port: 29393}}",
       "spec.rendezvous.port: "},
      {"rendezvous.port: the processes' ports", "{command: [a], rendezvous: {port: 29400}}",
       "spec.rendezvous.port: "},
      {"rendezvous.variables are only valid", "{" + kTrain + "}, rendezvous: {variables: [mpi]}}",
       "spec.rendezvous.variables: "},
      {"parallelism.tensor is only valid with train",
       "{command: [a], nodes: 2, parallelism: {tensor: 2}}", "spec.parallelism.tensor: "},
      {"parallelism.pipeline is only valid with train",
       "{command: [a], nodes: 2, parallelism: {pipeline: 2}}", "spec.parallelism.pipeline: "},
      {"parallelism.sharding is only valid with train",
       "{command: [a], parallelism: {sharding: optimizer}}", "spec.parallelism.sharding: "},
      {"checkpoint.everySteps is only valid with train",
       "{command: [a], checkpoint: {everySteps: 5}}", "spec.checkpoint.everySteps: "},
      {"checkpoint.atEnd is only valid with train", "{command: [a], checkpoint: {atEnd: false}}",
       "spec.checkpoint.atEnd: "},
      {"checkpoint.keep is only valid with train", "{command: [a], checkpoint: {keep: 5}}",
       "spec.checkpoint.keep: "},
      {"rendezvous.timeoutSeconds is only valid with train",
       "{command: [a], rendezvous: {timeoutSeconds: 5}}", "spec.rendezvous.timeoutSeconds: "},
      {"train.batch.global is not a multiple", "{nodes: 3, " + kTrain + "}}",
       "spec.train.batch.global: "},
      {"train.attention: cudnn needs", "{" + kTrain + ", precision: bf16, attention: cudnn}}",
       "spec.train.attention: "},
      {"train.attention: cudnn needs", "{gpusPerNode: 1, " + kTrain + ", attention: cudnn}}",
       "spec.train.attention: "},
      {"model: expected a preset", "{train: {data: {path: /d}, model: {layers: 2, width: 8}}}",
       "spec.train.model.heads: "},
      {"model: expected a preset", "{train: {data: {path: /d}}}", "spec.train.model.layers: "},
      {"model.vocabulary: expected the number",
       "{train: {data: {path: /d, tokenizer: u16}, model: {layers: 2, width: 8, heads: 2, context: "
       "8}}}",
       "spec.train.model.vocabulary: "},
      {"model.vocabulary: expected 256",
       "{train: {data: {path: /d}, model: {preset: gpt2-124m, vocabulary: 200}}}",
       "spec.train.model.vocabulary: "},
      {"rounding: stochastic needs", "{" + kTrain + ", rounding: stochastic}}",
       "spec.train.rounding: "},
      {"optimizer.warmupSteps", "{" + kTrain + ", optimizer: {warmupSteps: 1001}}}",
       "spec.train.optimizer.warmupSteps: "},
      {"optimizer.minimumLearningRate", "{" + kTrain + ", optimizer: {minimumLearningRate: 0.5}}}",
       "spec.train.optimizer.minimumLearningRate: "},
      {"validation.everySteps", "{" + kTrain + ", validation: {everySteps: 5}}}",
       "spec.train.validation.everySteps: "},
      {"micro does not divide", "{" + kTrain + ", batch: {global: 8, micro: 3}}}",
       "spec.train.batch.micro: "},
      {"path: expected a file", "{train: {data: {path: ''}, model: {preset: gpt2-124m}}}",
       "spec.train.data.path: "},
      {"heads does not divide width",
       "{train: {data: {path: /d}, model: {preset: gpt2-124m, heads: 7, width: 100}}}",
       "spec.train.model.heads: "},
      {"kvHeads does not divide heads",
       "{train: {data: {path: /d}, model: {preset: llama-3.2-1b, heads: 16, kvHeads: 3}}}",
       "spec.train.model.kvHeads: "},
      {"family is not the preset's family",
       "{train: {data: {path: /d}, model: {preset: llama-3.2-1b, family: gpt2}}}",
       "spec.train.model.family: "},
      {"expected a program", "{command: ['', a]}", "spec.command[0]: "},
      {"expected exitCodes or event",
       "{command: [a], failure: {rules: [{action: Fail, exitCodes: []}]}}",
       "spec.failure.rules[0]: "},
      {"action: RestartInPlace cannot",
       "{command: [a], failure: {rules: [{action: RestartInPlace, event: Evicted}]}}",
       "spec.failure.rules[0].action: "},
      {"after is only valid",
       "{command: [a], failure: {rules: [{action: Fail, event: Error, after: 5m}]}}",
       "spec.failure.rules[0].after: "},
      {"after: expected a whole number",
       "{command: [a], failure: {rules: [{action: Fail, event: Hang, after: '5'}]}}",
       "spec.failure.rules[0].after: "},
      {"name: expected lower-case letters",
       "{command: [a], processGroups: [{name: a-, ranks: '0'}]}", "spec.processGroups[0].name: "},
      {"name: world, pipeline", "{command: [a], processGroups: [{name: world, ranks: '0'}]}",
       "spec.processGroups[0].name: "},
      {"expected domain/path", "{command: [a], managedBy: somebody}", "spec.managedBy: "},
  };
  return kCases;
}

TEST(CrdRules, RefuseWhatTheControllerRefusesByItsPath) {
  std::set<std::string> untested;
  for (const CelRule& rule : cel_rules()) untested.insert(rule.message);
  for (const Case& one : cases()) {
    const Json document = job_of(one.spec);
    std::set<std::string> messages = refusing(document);
    std::erase_if(messages,
                  [&](const std::string& text) { return !text.starts_with(one.message); });
    EXPECT_EQ(messages.size(), 1u) << one.message << " does not refuse " << one.spec;
    for (const std::string& message : messages) untested.erase(message);
    const Problems problems = controller_problems(document);
    EXPECT_TRUE(
        std::any_of(problems.begin(), problems.end(),
                    [&](const std::string& problem) { return problem.starts_with(one.problem); }))
        << one.spec << ": " << (problems.empty() ? "no problem" : problems.front());
  }
  Json dotted = job_of("{command: [a]}");
  dotted["metadata"]["name"] = "a.b";
  EXPECT_EQ(refusing(dotted).size(), 1u);
  EXPECT_TRUE(controller_problems(dotted).at(0).starts_with("metadata.name: "));
  for (const std::string& message : refusing(dotted)) untested.erase(message);
  ASSERT_EQ(untested.size(), 1u) << "rules without a case";
  EXPECT_TRUE(untested.begin()->starts_with("cannot change while the job has pods"));
}

// Returns a random value that the schema allows. Objects without declared properties stay empty.
Json any_value(const Json& schema, Random& random) {
  static const std::vector<std::string> kWords = {"",    "a",    "/data", "team/x", "A-b", "world",
                                                  "0-1", "0::2", "a-",    "a/b/c",  "10m", "0s"};
  const std::string type = schema.at("type");
  const auto pick = [&random](size_t size) { return static_cast<size_t>(random.below(size)); };
  if (const Json* choices = find_member(schema, "enum")) return choices->at(pick(choices->size()));
  if (type == "boolean") return pick(2) == 0;
  if (type == "string") return kWords[pick(kWords.size())];
  if (type == "integer" || type == "number") {
    const double low = schema.value("minimum", 0.0);
    const double high = schema.value("maximum", 1e9);
    const double values[] = {low, high, 1, 2, 3, 8, 256, 29500};
    double value = std::clamp(values[pick(std::size(values))], low, high);
    if (schema.contains("exclusiveMinimum")) value = std::max(value, low + 1e-4);
    return type == "integer" ? Json(static_cast<int64_t>(value)) : Json(value);
  }
  if (type == "array") {
    Json list = Json::array();
    const size_t size = pick(std::min<size_t>(3, schema.at("maxItems").get<size_t>()) + 1);
    for (size_t i = 0; i < size; ++i) list.push_back(any_value(schema.at("items"), random));
    return list;
  }
  Json object = Json::object();
  if (!schema.contains("properties")) return object;
  const Json required = schema.value("required", Json::array());
  for (const auto& [name, member] : schema.at("properties").items()) {
    const bool must = std::find(required.begin(), required.end(), name) != required.end();
    if (must || pick(4) == 0) object[name] = any_value(member, random);
  }
  return object;
}

// Changes or removes one random field of `value`, possibly a nested one.
void change(Json& value, const Json& schema, Random& random) {
  const Json* properties = find_member(schema, "properties");
  if (properties == nullptr) return;
  auto chosen = properties->begin();
  std::advance(chosen, static_cast<std::ptrdiff_t>(random.below(properties->size())));
  const Json* inner = find_member(chosen.value(), "properties");
  const bool is_there = value.contains(chosen.key());
  if (inner != nullptr && is_there && random.below(8) != 0) {
    return change(value[chosen.key()], chosen.value(), random);
  }
  const Json required = schema.value("required", Json::array());
  const bool must = std::find(required.begin(), required.end(), chosen.key()) != required.end();
  if (is_there && !must && random.below(3) == 0) {
    value.erase(chosen.key());
  } else {
    value[chosen.key()] = any_value(chosen.value(), random);
  }
}

const std::vector<Json>& good_documents() {
  static const std::vector<Json> kDocuments = {
      job_of("{" + kTrain + "}}"),
      job_of("{nodes: 2, command: [a, b]}"),
      job_of("{nodes: 4, train: {data: {path: /d, tokenizer: u16, validationFraction: 0.1}, model: "
             "{layers: 2, width: 64, heads: 4, context: 8, vocabulary: 1000}, batch: {global: 16, "
             "micro: 2}, optimizer: {warmupSteps: 10, minimumLearningRate: 1.0e-5}, precision: "
             "bf16, rounding: stochastic, validation: {everySteps: 10}}, managedBy: a.b/c, "
             "failure: {rules: [{action: RestartInPlace, "
             "event: Signal}, {action: Fail, exitCodes: [3]}]}}"),
      job_of("{gpusPerNode: 1, " + kTrain + ", precision: bf16, attention: cudnn}}"),
      job_of("{" + kTrain + ", attention: auto}}"),
      job_of("{train: {data: {path: /d}, model: {preset: llama-3.2-1b, family: llama, heads: 16, "
             "kvHeads: 4, context: 64, ropeScaling: {factor: 2}}}}"),
      job_of("{processesPerNode: 8, command: [a], rendezvous: {port: 29336, variables: [jax]}, "
             "processGroups: [{name: a-b, ranks: '0::2'}], parallelism: {tensor: 1}, checkpoint: "
             "{atEnd: true, keep: 3}, successPolicy: RankZero, suspend: true}")};
  return kDocuments;
}

TEST(CrdRules, AcceptWhatTheControllerAccepts) {
  for (const Json& document : good_documents()) {
    EXPECT_EQ(controller_problems(document), Problems{});
    EXPECT_EQ(refusing(document), std::set<std::string>{}) << document;
  }
  constexpr uint64_t kSeed = 11;
  Random random(kSeed);
  const Json spec_schema = training_job_schema().at("properties").at("spec");
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    Json document = good_documents()[random.below(good_documents().size())];
    const uint64_t changes = 1 + random.below(3);
    for (uint64_t j = 0; j < changes; ++j) change(document["spec"], spec_schema, random);
    const std::set<std::string> messages = refusing(document);
    const Problems problems = controller_problems(document);
    ++(messages.empty() ? accepted : refused);
    ASSERT_FALSE(problems.empty() && !messages.empty())
        << "seed " << kSeed << ", " << i << ": " << *messages.begin() << "\n"
        << document.dump(1);
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 500);
}

constexpr char kFixedMessage[] = "cannot change while the job has pods";

bool refuses_change(const Json& after, const Json& before) {
  const std::set<std::string> messages = refusing(after, &before);
  return std::any_of(messages.begin(), messages.end(),
                     [](const std::string& text) { return text.starts_with(kFixedMessage); });
}

// Returns whether the controller refuses the scene's job with this spec in place of its own.
bool controller_refuses(Scene scene, const Json& spec) {
  Json document = to_json(scene.seen.job);
  document["spec"] = spec;
  const Result<TrainingJob> job = stored_training_job_from_json(document);
  if (!job.ok()) return true;
  scene.seen.job.spec = job->spec;
  ++scene.seen.job.metadata.generation;
  const Plan plan = scene.plan();
  return condition(written(scene, plan), kValid).status == "False";
}

TEST(CrdRules, RefuseChangesOfFixedFieldsAsTheControllerDoes) {
  Scene scene(2);
  scene.train();
  const Json before = to_json(scene.seen.job);
  ASSERT_FALSE(scene.status().fixed.empty());
  const std::pair<const char*, Json> changes[] = {{"/processesPerNode", 2},
                                                  {"/threadsPerProcess", 3},
                                                  {"/image", "other"},
                                                  {"/rendezvous/port", 30000},
                                                  {"/checkpoint/path", "/elsewhere"},
                                                  {"/train/data/path", "/other"},
                                                  {"/train/steps", 77},
                                                  {"/train/batch/global", 256},
                                                  {"/train/precision", "bf16"},
                                                  {"/train/model/preset", "gpt2-350m"}};
  for (const auto& [pointer, value] : changes) {
    Json after = before;
    after["spec"][Json::json_pointer(pointer)] = value;
    EXPECT_TRUE(refuses_change(after, before)) << pointer;
    EXPECT_TRUE(controller_refuses(scene, after["spec"])) << pointer;
    after["spec"]["suspend"] = true;
    EXPECT_FALSE(refuses_change(after, before)) << pointer;
  }
  Json resized = before;
  resized["spec"]["failure"]["maxRestarts"] = 3;
  resized["spec"]["suspend"] = false;
  EXPECT_FALSE(refuses_change(resized, before));
  EXPECT_FALSE(controller_refuses(scene, resized["spec"]));
}

TEST(CrdRules, RefuseNoChangeOfAJobThatIsSuspendedOverOrInvalid) {
  Scene scene(2);
  scene.train();
  Json before = to_json(scene.seen.job);
  Json after = before;
  after["spec"]["image"] = "other";
  ASSERT_TRUE(refuses_change(after, before));
  for (const char* type : {kSuspended, kComplete, kFailed}) {
    Json resting = before;
    resting["status"]["conditions"].push_back({{"type", type}, {"status", "True"}});
    EXPECT_FALSE(refuses_change(after, resting)) << type;
  }
  Json invalid_before = before;
  for (Json& one : invalid_before["status"]["conditions"]) {
    if (one["type"] == kValid) one["status"] = "False";
  }
  EXPECT_FALSE(refuses_change(after, invalid_before));
  for (const char* part : {"fixed", "conditions"}) {
    Json young = before;
    young["status"].erase(part);
    EXPECT_FALSE(refuses_change(after, young)) << part;
  }
  before.erase("status");
  EXPECT_FALSE(refuses_change(after, before));
}

TEST(CrdRules, AcceptChangesThatTheControllerAccepts) {
  constexpr uint64_t kSeed = 5;
  Random random(kSeed);
  const Json spec_schema = training_job_schema().at("properties").at("spec");
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < 1500; ++i) {
    Scene scene(2);
    scene.train();
    const Json before = to_json(scene.seen.job);
    Json after = before;
    change(after["spec"], spec_schema, random);
    if (!controller_problems(after).empty()) continue;
    const bool is_refused = refuses_change(after, before);
    ++(is_refused ? refused : accepted);
    ASSERT_FALSE(is_refused && !controller_refuses(scene, after["spec"]))
        << "seed " << kSeed << ", " << i << "\n"
        << after["spec"].dump(1);
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 20);
}

TEST(Cel, FindsWhatIsWrongWithAnExpression) {
  const Json schema = training_job_schema().at("properties").at("spec");
  const auto is_wrong = [&](const std::string& text) {
    const Result<Cel> cel = Cel::parse(text);
    return !cel.ok() || !cel->check(schema).ok();
  };
  EXPECT_FALSE(is_wrong("!has(self.train) || self.train.steps > 3"));
  for (const char* text :
       {"self.nodes > 0 &&", "(self.nodes > 0", "has(self)", "self.nodez > 0", "self.nodes",
        "self.nodes > 0.5", "self.image.length() > 0", "other.nodes > 0",
        "self.command.exists(c, d)", "self.nodes ? true : false", "self.image == 'a",
        "self.nodes == 'a'",
        "(has(self.image) ? self.image : '') == (has(self.managedBy) ? self.managedBy : '')"}) {
    EXPECT_TRUE(is_wrong(text)) << text;
  }
}

}  // namespace
}  // namespace lockstep::plan
