// The table of rules, and what follows from it: an API server and the controller find the same
// problems. tests/controller/plan/cel.h evaluates the rules' text as a server does.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "common/api/cel_rules.h"
#include "common/api/rules.h"
#include "common/api/schema.h"
#include "common/api/training_job_fields.h"
#include "common/api/yaml.h"
#include "common/base/random.h"
#include "controller/plan/fixed_fields.h"
#include "tests/controller/plan/cel.h"
#include "tests/controller/plan/ratcheting.h"
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

// Calls `use` with each value at a rule's path, with its old value and its own path. There is no
// old value (nullptr) for items of lists.
using Use = std::function<void(const Json& self, const Json* before, const std::string& at)>;
void each_at(const Json& self, const Json* before, const std::string& at, std::string_view path,
             const Use& use) {
  if (path.empty()) return use(self, before, at);
  const size_t dot = std::min(path.find('.'), path.size());
  std::string_view name = path.substr(0, dot);
  path.remove_prefix(std::min(dot + 1, path.size()));
  const bool is_list = name.ends_with("[]");
  if (is_list) name.remove_suffix(2);
  const Json* member = find_member(self, name);
  const Json* old_member = before == nullptr ? nullptr : find_member(*before, name);
  if (member == nullptr) return;
  const std::string inside = join_path(at, name);
  if (!is_list) return each_at(*member, old_member, inside, path, use);
  for (size_t i = 0; i < member->size(); ++i) {
    each_at((*member)[i], nullptr, inside + "[" + std::to_string(i) + "]", path, use);
  }
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

struct Refusals {
  std::set<std::string> messages;    // of the server
  std::set<std::string> problems;    // as validate() words them
  std::set<const Rule*> violated{};  // of the table
  std::set<const Rule*> satisfied{};
};

// Returns what a server says of the document. Expects that our evaluation of each rule agrees.
Refusals refusals(const Json& document, const Json* before = nullptr) {
  static const std::vector<Cel> kParsed = parsed_rules();
  Refusals refusals;
  for (size_t i = 0; i < kParsed.size(); ++i) {
    const CelRule& cel = cel_rules()[i];
    const Use use = [&](const Json& self, const Json* old_self, const std::string& at) {
      const bool may_lack_old = cel.is_old_optional;
      if (kParsed[i].is_transition() && !may_lack_old && old_self == nullptr) return;
      const Result<bool> holds = kParsed[i].evaluate(self, old_self);
      ASSERT_TRUE(holds.ok()) << holds.error().message << ": " << cel.rule << "\n" << document;
      if (!*holds) refusals.messages.insert(cel.message);
      if (cel.from == nullptr) return;
      // An update may hold because nothing changed that the rule reads.
      const bool expected = cel.from->holds->holds(self);
      EXPECT_TRUE(*holds == expected || (*holds && may_lack_old && old_self != nullptr))
          << cel.rule << "\n"
          << document;
      (*holds ? refusals.satisfied : refusals.violated).insert(cel.from);
      if (!*holds) refusals.problems.insert(problem_of(*cel.from, at, self));
    };
    each_at(document, before, "", cel.path, use);
  }
  return refusals;
}

std::set<std::string> refusing(const Json& document, const Json* before = nullptr) {
  return refusals(document, before).messages;
}

// Returns for what a server refuses to write `after` over `before`. It evaluates all rules at a
// write of the status too, and forgives what is unchanged. Source: apiextensions-apiserver,
// pkg/registry/customresource/status_strategy.go (ValidateUpdate).
std::set<std::string> refusals_of_write(const Json& after, const Json& before) {
  static const std::vector<Cel> kParsed = parsed_rules();
  static const Json kSchema = training_job_schema();
  std::set<std::string> messages;
  for (size_t i = 0; i < kParsed.size(); ++i) {
    const CelRule& cel = cel_rules()[i];
    const bool is_forgiven =
        !kParsed[i].is_transition() && server_sees_unchanged(kSchema, cel.path, before, after);
    const Use use = [&](const Json& self, const Json* old_self, const std::string&) {
      if (kParsed[i].is_transition() && !cel.is_old_optional && old_self == nullptr) return;
      const Result<bool> holds = kParsed[i].evaluate(self, old_self);
      if (!holds.ok() || (!*holds && !is_forgiven)) messages.insert(cel.message);
    };
    each_at(after, &before, "", cel.path, use);
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
const std::string kVersions = "}, parallelism: {pipeline: 2, pipelineSchedule: pipedream, ";
const std::string kTable = "data: {features: /x.npy, targets: /y.npy}";
const std::string kMlpModel = "family: mlp, inputs: 4, outputs: 3";

// The spec of a valid job, but for what is added to its model and to `train`.
std::string mlp_spec(const std::string& of_model, const std::string& of_train = kTable) {
  return "{train: {model: {" + kMlpModel + of_model + "}, " + of_train + "}}";
}

const std::string kClickData = "data: {path: /d, format: criteo}";
const std::string kNoClip = ", optimizer: {clipNorm: 0}";

// A job of 2 workers with a click model and servers.
std::string click_spec(const std::string& of_train, const std::string& of_servers = "",
                       const std::string& of_spec = "",
                       const std::string& family = "logisticRegression") {
  return "{nodes: 2, train: {model: {family: " + family + "}, " + of_train +
         "}, parameterServers: {" + of_servers + "}" + of_spec + "}";
}

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
  EXPECT_TRUE(with_rules == expected)
      << "files/crds-cel differs from files/crds with the rules; "
      << "tools/fields writes both. The difference: " << Json::diff(with_rules, expected).dump(1);
  EXPECT_EQ(dump_json(plain).find("x-kubernetes-validations"), std::string::npos);
  EXPECT_LT(dump_json(with_rules).size(), kAnnotationBytesMax);
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
      job_of("{train: {data: {path: /d, tokenizer: u16, pieces: /p}, model: {preset: gpt2-124m}}}"),
      job_of("{" + kTrain + ", timeline: {everySteps: 100, steps: 2}}, checkpoint: {path: /c}}"),
      job_of("{train: {data: {path: /d}, model: {preset: llama-3.2-1b, family: llama, heads: 16, "
             "kvHeads: 4, context: 64, ropeScaling: {factor: 2}}}}"),
      job_of(mlp_spec(
          ", hidden: [16, 8], activation: tanh, task: classification",
          kTable + ", batch: {global: 16, micro: 4}, precision: bf16, rounding: stochastic")),
      job_of("{nodes: 2, train: {data: {features: /x.npy, targets: /y.npy, validationFraction: "
             "0.2}, model: {family: mlp, inputs: 10, outputs: 1, task: regression}, validation: "
             "{everySteps: 10}}}"),
      job_of("{nodes: 2, train: {data: {features: /x.npy, targets: /y.npy, flip: true, "
             "cropPadding: 2, mean: [0.5], deviation: [0.2]}, model: {preset: resnet20, "
             "family: convnet, imageHeight: 8, imageWidth: 9, imageChannels: 1, outputs: 5, "
             "batchNorm: local}}}"),
      job_of("{train: {data: {path: /cifar}, model: {preset: vgg11}}}"),
      job_of("{nodes: 2, processesPerNode: 4, " + kTrain +
             "}, parallelism: {sharding: parameters, shardingGroup: node, reshardAfterForward: "
             "false, prefetch: false, gatherPrecision: bf16, reducePrecision: bf16, offload: "
             "parameters, offloadPath: /s}}"),
      job_of("{" + kTrain + "}, parallelism: {exchange: host}}"),
      job_of("{" + kTrain +
             ", optimizer: {schedule: warmupStableDecay, decaySteps: 900, warmupSteps: 100}}}"),
      job_of("{" + kTrain +
             ", optimizer: {schedule: step, milestones: [10, 20, 999], factor: 0.5}}}"),
      job_of("{nodes: 4, " + kTrain +
             ", optimizer: {name: muon, matrixLearningRate: 0.01, matrixMomentum: 0.9, beta1: "
             "0.8, beta2: 0.99, epsilon: 1.0e-7}}, gpusPerNode: 1, parallelism: {pipeline: 2}}"),
      job_of("{processesPerNode: 8, command: [a], rendezvous: {port: 29336, variables: [jax]}, "
             "processGroups: [{name: a-b, ranks: '0::2'}], parallelism: {tensor: 2, pipeline: 2}, "
             "checkpoint: "
             "{atEnd: true, keep: 3, path: /c, onPreemption: 5m}, successPolicy: RankZero, "
             "suspend: true}"),
      job_of(click_spec(kClickData + kNoClip, "nodes: 2, backupWorkers: 1")),
      job_of(click_spec("data: {path: /d, format: libsvm, validationFraction: 0.1}" + kNoClip,
                        "consistency: boundedStaleness, staleness: 4", "",
                        "factorizationMachine, factors: 16")),
      job_of(click_spec(kClickData + kNoClip, "consistency: asynchronous")),
      job_of(click_spec(kClickData + kNoClip,
                        "pushPrecision: int8, pullPrecision: bf16, rows: {idleSteps: 100, "
                        "minFrequency: 2, halfLifeSteps: 50, decay: 0.001, pushThreshold: 0.1}")),
      job_of(click_spec(kClickData + kNoClip, "", "", "wideAndDeep")),
      job_of(click_spec(kClickData + kNoClip, "", "",
                        "deepFactorizationMachine, factors: 4, hidden: [16, 8]")),
      job_of("{nodes: 2, " + kTrain + kNoClip +
             ", batch: {global: 8, micro: 2}}, parameterServers: {nodes: 2}}"),
      job_of("{train: {model: {" + kMlpModel +
             "}, data: {features: /x.npy, targets: /y.npy, "
             "seed: 3}" +
             kNoClip + "}, parameterServers: {consistency: asynchronous}}")};
  return kDocuments;
}

// A spec that some rule refuses although every field is in its range, and the path of a problem.
struct Case {
  std::string path;
  std::string spec;
};

// A convnet with a field that only others have, others with its fields, and one without what it
// needs.
std::vector<Case> convnet_cases() {
  const auto spec = [](const std::string& model, const std::string& data) {
    return "{train: {model: {" + model + "}, data: {" + data + "}}}";
  };
  const std::string net = "preset: resnet20", files = "features: /x.npy, targets: /y.npy";
  std::vector<Case> cases = {
      {"spec.train.model.preset", spec("family: convnet", files)},
      {"spec.train.model.family", spec("preset: resnet20, family: gpt2", files)},
      {"spec.train.model.family", spec("preset: gpt2-124m, family: convnet", files)},
      {"spec.train.data.features", spec(net, "flip: true")},
      {"spec.train.data.targets", spec(net, "features: /x.npy")},
      {"spec.train.data.path", spec(net, "path: /c, " + files)},
      {"spec.train.data.path", spec(net, "path: /c, targets: /y.npy")},
      {"spec.train.data.tokenizer", spec(net, "tokenizer: u16, " + files)},
      {"spec.train.data.deviation", spec(net, "mean: [0.5], " + files)},
      {"spec.train.data.mean", spec(net, "mean: [0.5, 0.5], deviation: [1.5, 1.5], " + files)},
      {"spec.train.model.outputs", spec(net + ", outputs: 1", files)},
      {"spec.train.model.imageHeight", spec("preset: lenet5, imageHeight: 8", files)},
      {"spec.train.model.layers", spec(net + ", layers: 2", files)},
      {"spec.train.model.hidden", spec(net + ", hidden: [8]", files)},
      {"spec.train.recompute",
       "{train: {model: {preset: resnet20}, data: {" + files + "}, recompute: blocks}}"},
      {"spec.parallelism.tensor",
       "{nodes: 2, parallelism: {tensor: 2}, " + spec(net, files).substr(1)},
      {"spec.parallelism.pipeline",
       "{nodes: 12, parallelism: {pipeline: 12}, " + spec(net, files).substr(1)},
  };
  for (const char* field :
       {"imageHeight: 8", "imageWidth: 8", "imageChannels: 1", "batchNorm: local"}) {
    const std::string name(field, std::string_view(field).find(':'));
    cases.push_back({"spec.train.model." + name, mlp_spec(std::string(", ") + field)});
  }
  for (const char* field : {"flip: true", "cropPadding: 1", "mean: [0.5]", "deviation: [0.5]"}) {
    const std::string name(field, std::string_view(field).find(':'));
    cases.push_back(
        {"spec.train.data." + name, mlp_spec("", "data: {" + files + ", " + field + "}")});
  }
  return cases;
}

// Each family with a field that only another one has, and an mlp without what it needs.
std::vector<Case> family_cases() {
  const std::string table = "features: /x.npy, targets: /y.npy";
  std::vector<Case> cases = {
      {"spec.train.data.path", mlp_spec("", "data: {path: /d, " + table + "}")},
      {"spec.train.data.tokenizer", mlp_spec("", "data: {tokenizer: u16, " + table + "}")},
      {"spec.train.data.pieces", mlp_spec("", "data: {pieces: /p, " + table + "}")},
      {"spec.train.data.pieces",
       "{train: {data: {path: /d, pieces: /p}, model: {preset: gpt2-124m}}}"},
      {"spec.train.recompute", mlp_spec("", kTable + ", recompute: ops")},
      {"spec.train.attention", mlp_spec("", kTable + ", attention: auto")},
      {"spec.train.sample.tokens", mlp_spec("", kTable + ", sample: {tokens: 5}")},
      {"spec.train.data.features",
       "{train: {model: {preset: gpt2-124m}, data: {path: /d, features: /x.npy}}}"},
      {"spec.train.data.targets",
       "{train: {model: {preset: gpt2-124m}, data: {path: /d, targets: /y.npy}}}"},
      {"spec.train.data.features", mlp_spec("", "data: {targets: /y.npy}")},
      {"spec.train.data.targets", mlp_spec("", "data: {features: /x.npy, targets: ''}")},
      {"spec.train.model.inputs", "{train: {" + kTable + ", model: {family: mlp, outputs: 3}}}"},
      {"spec.train.model.outputs", "{train: {" + kTable + ", model: {family: mlp, inputs: 3}}}"},
      {"spec.train.model.outputs",
       "{train: {" + kTable + ", model: {family: mlp, inputs: 3, outputs: 1}}}"},
      {"spec.parallelism.pipeline",
       "{nodes: 2, parallelism: {pipeline: 2}, " + mlp_spec("").substr(1)},
      {"spec.parallelism.tensor", "{nodes: 2, parallelism: {tensor: 2}, " + mlp_spec("").substr(1)},
  };
  for (const char* field :
       {"preset: llama-2-7b", "layers: 2", "width: 8", "heads: 2", "context: 8", "vocabulary: 300",
        "hiddenWidth: 8", "head: tied", "kvHeads: 2", "ropeBase: 500.5", "normEpsilon: 0.5"}) {
    const std::string name(field, std::string_view(field).find(':'));
    cases.push_back({"spec.train.model." + name, mlp_spec(std::string(", ") + field)});
  }
  for (const char* field :
       {"factor: 2", "lowFrequencyFactor: 2", "highFrequencyFactor: 3", "originalContext: 8"}) {
    const std::string name(field, std::string_view(field).find(':'));
    cases.push_back({"spec.train.model.ropeScaling." + name,
                     mlp_spec(std::string(", ropeScaling: {") + field + "}")});
  }
  cases.push_back({"spec.train.model.weights.path", mlp_spec(", weights: {path: /w}")});
  for (Case& each : convnet_cases()) cases.push_back(std::move(each));
  for (const char* field :
       {"inputs: 4", "hidden: [8]", "outputs: 3", "activation: relu", "task: regression"}) {
    const std::string name(field, std::string_view(field).find(':'));
    cases.push_back(
        {"spec.train.model." + name,
         std::string("{train: {data: {path: /d}, model: {preset: gpt2-124m, ") + field + "}}}"});
  }
  return cases;
}

// Jobs whose matrices no rank has as a whole, or that have none.
std::vector<Case> muon_cases() {
  const std::string train = kTrain + ", optimizer: {name: muon, clipNorm: 0}}";
  return {
      {"spec.parameterServers", "{" + train + ", parameterServers: {nodes: 1}}"},
      {"spec.parallelism.offload", "{" + train + ", parallelism: {offload: optimizer}}"},
      {"spec.parallelism.exchange",
       "{nodes: 2, " + train + ", parallelism: {exchange: firstRank}}"},
      {"spec.train.model.hidden",
       "{train: {data: {features: /x.npy, targets: /y.npy}, model: {family: mlp, inputs: 3, "
       "outputs: 2, hidden: [8]}, optimizer: {name: muon}}}"},
  };
}

// Jobs with click models or servers.
std::vector<Case> server_cases() {
  const std::string train = kClickData + kNoClip;
  std::vector<Case> cases = {
      {"spec.train.data.format", click_spec("data: {path: /d}" + kNoClip)},
      {"spec.train.data.format", "{train: {model: {preset: gpt2-124m}, " + kClickData + "}}"},
      {"spec.train.model.factors", click_spec(train, "", "", "logisticRegression, factors: 4")},
      {"spec.train.model.hidden", click_spec(train, "", "", "factorizationMachine, hidden: [4]")},
      {"spec.train.data.format",
       click_spec("data: {path: /d, format: libsvm}" + kNoClip, "", "", "wideAndDeep")},
      {"spec.train.model.layers", click_spec(train, "", "", "logisticRegression, layers: 4")},
      {"spec.train.recompute", click_spec(train + ", recompute: ops")},
      {"spec.train.optimizer.clipNorm", click_spec(kClickData)},
      {"spec.train.dropout", click_spec(train + ", dropout: 0.1")},
      {"spec.train.model.preset",
       click_spec(train, "", "", "logisticRegression, preset: resnet20")},
      {"spec.train.model.batchNorm",
       click_spec(train, "", "", "logisticRegression, batchNorm: local")},
      {"spec.train.model.family",
       "{train: {model: {family: logisticRegression}, " + kClickData + "}}"},
      {"spec.parameterServers", "{command: [a], parameterServers: {nodes: 1}}"},
      {"spec.train.model.batchNorm",
       "{nodes: 2, train: {model: {preset: resnet20}, data: {features: /x.npy, targets: /y.npy}" +
           kNoClip + "}, parameterServers: {nodes: 1}}"},
      {"spec.parameterServers.rows.idleSteps", click_spec(train, "rows: {idleSteps: 9}")},
      {"spec.parameterServers.rows.minFrequency", click_spec(train, "rows: {minFrequency: 9}")},
      {"spec.parameterServers.rows.halfLifeSteps", click_spec(train, "rows: {halfLifeSteps: 9}")},
      {"spec.parameterServers.rows.idleSteps",
       "{" + kTrain + kNoClip +
           "}, parameterServers: {rows: {idleSteps: 9, minFrequency: 1, halfLifeSteps: 3}}}"},
      {"spec.parameterServers.rows.decay",
       "{" + kTrain + kNoClip + "}, parameterServers: {rows: {decay: 0.1}}}"},
      {"spec.parameterServers.rows.pushThreshold",
       click_spec(train, "backupWorkers: 1, rows: {pushThreshold: 0.1}")},
      {"spec.parameterServers.rows.pushThreshold",
       "{" + kTrain + kNoClip + "}, parameterServers: {rows: {pushThreshold: 0.1}}}"},
      {"spec.train.ema", "{" + kTrain + kNoClip + ", ema: 0.9}, parameterServers: {nodes: 1}}"},
      {"spec.train.optimizer.clipNorm", "{" + kTrain + "}, parameterServers: {nodes: 1}}"},
      {"spec.parameterServers.staleness", click_spec(train, "staleness: 2")},
      {"spec.parameterServers.backupWorkers",
       click_spec(train, "consistency: asynchronous, backupWorkers: 1")},
      {"spec.parameterServers.backupWorkers", click_spec(train, "backupWorkers: 2")},
      {"spec.parameterServers.nodes", click_spec(train, "nodes: 4096", ", processesPerNode: 16")},
      {"spec.parameterServers.nodes", click_spec(train, "nodes: 1025")},
      {"spec.parameterServers.copies", click_spec(train, "copies: 1")},
      {"spec.parameterServers.copies",
       click_spec(train, "nodes: 2, copies: 1", ", processesPerNode: 2")},
  };
  const std::pair<const char*, const char*> of_spec[] = {
      {"spec.gpusPerNode", "gpusPerNode: 1"},
      {"spec.elastic", "elastic: {min: 1}, checkpoint: {memory: {}}"},
      {"spec.checkpoint.memory", "checkpoint: {memory: {}}"},
      {"spec.parallelism.tensor", "parallelism: {tensor: 2}"},
      {"spec.parallelism.pipeline", "parallelism: {pipeline: 2}"},
      {"spec.parallelism.sharding", "parallelism: {sharding: optimizer}"},
      {"spec.parallelism.offload", "parallelism: {offload: optimizer}"},
      {"spec.parallelism.exchange", "parallelism: {exchange: firstRank}"},
      {"spec.parallelism.reducePrecision", "parallelism: {reducePrecision: bf16}"},
      {"spec.failure.rules", "failure: {rules: [{event: LossSpike, action: Fail}]}"}};
  for (const auto& [path, field] : of_spec) {
    cases.push_back({path, click_spec(train, "", std::string(", ") + field)});
  }
  const std::pair<const char*, const char*> of_train[] = {
      {"spec.train.batch.micro", "batch: {micro: 4}"},
      {"spec.train.bucketBytes", "bucketBytes: 1048576"},
      {"spec.train.ema", "ema: 0.9"},
      {"spec.train.precision", "precision: bf16"}};
  for (const auto& [path, field] : of_train) {
    cases.push_back({path, click_spec(train + ", " + field)});
  }
  cases.push_back(
      {"spec.train.data.seed", click_spec("data: {path: /d, format: libsvm, seed: 2}" + kNoClip)});
  cases.push_back(
      {"spec.train.timeline.everySteps",
       click_spec(train + ", timeline: {everySteps: 10}", "", ", checkpoint: {path: /c}")});
  return cases;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases = {
      {"spec", "{}"},
      {"spec", "{" + kTrain + "}, command: [a]}"},
      {"spec.successPolicy", "{" + kTrain + "}, successPolicy: RankZero}"},
      {"spec.nodes", "{command: [a], nodes: 4096, processesPerNode: 64}"},
      {"spec.parallelism", "{" + kTrain + "}, parallelism: {tensor: 2}}"},
      {"spec.parallelism.pipelineSchedule",
       "{" + kTrain + "}, parallelism: {pipelineSchedule: gpipe}}"},
      {"spec.parallelism.pipelineSchedule",
       "{command: [a], nodes: 2, parallelism: {pipelineSchedule: gpipe}}"},
      {"spec.parallelism.virtualStages",
       "{nodes: 2, " + kTrain + "}, parallelism: {pipeline: 2, virtualStages: 2}}"},
      {"spec.parallelism.virtualStages",
       "{nodes: 2, " + kTrain + "}, parallelism: {pipeline: 2, pipelineSchedule: interleaved}}"},
      {"spec.parallelism.virtualStages",
       "{command: [a], nodes: 2, parallelism: {virtualStages: 2}}"},
      {"spec.parallelism.virtualStages",
       "{nodes: 2, " + kTrain +
           "}, parallelism: {pipeline: 2, pipelineSchedule: interleaved, virtualStages: 7}}"},
      {"spec.train.batch.global",
       "{nodes: 3, " + kTrain +
           "}, parallelism: {pipeline: 3, pipelineSchedule: interleaved, virtualStages: 2}}"},
      {"spec.train.batch.micro", "{nodes: 2, " + kTrain +
                                     ", batch: {global: 12, micro: 4}}, parallelism: {pipeline: 2, "
                                     "pipelineSchedule: interleaved, virtualStages: 2}}"},
      {"spec.parallelism.stages", "{" + kTrain + "}, parallelism: {stages: [2]}}"},
      {"spec.parallelism.stages", "{command: [a], nodes: 2, parallelism: {stages: [1, 1]}}"},
      {"spec.parallelism.stages",
       "{nodes: 2, " + kTrain + "}, parallelism: {pipeline: 2, stages: [1, 2, 3]}}"},
      {"spec.parallelism.weightStashing",
       "{nodes: 2, " + kTrain + "}, parallelism: {pipeline: 2, weightStashing: false}}"},
      {"spec.parallelism.verticalSync",
       "{nodes: 2, " + kTrain + "}, parallelism: {pipeline: 2, verticalSync: true}}"},
      {"spec.parallelism.verticalSync",
       "{nodes: 2, " + kTrain + kVersions + "weightStashing: false, verticalSync: true}}"},
      {"spec.parallelism.weightStashing",
       "{command: [a], nodes: 2, parallelism: {pipeline: 2, weightStashing: false}}"},
      {"spec.parallelism.verticalSync",
       "{command: [a], nodes: 2, parallelism: {pipeline: 2, verticalSync: true}}"},
      {"spec.security.encryption", "{command: [a], security: {encryption: required}}"},
      {"spec.train.recompute",
       "{nodes: 2, " + kTrain + ", recompute: blocks" + kVersions + "weightStashing: false}}"},
      {"spec.parallelism.sharding", "{nodes: 2, " + kTrain + kVersions + "sharding: optimizer}}"},
      {"spec.train.optimizer.clipNorm", "{nodes: 2, " + kTrain + kVersions + "}}"},
      {"spec.parallelism.pipelineSchedule", "{nodes: 2, " + kTrain + kVersions + "}}"},
      {"spec.parallelism.sharding",
       "{nodes: 2, " + kTrain +
           "}, parallelism: {pipeline: 2, pipelineSchedule: zerobubble, sharding: gradients}}"},
      {"spec.train.recompute",
       "{nodes: 2, " + kTrain +
           ", recompute: ops}, parallelism: {pipeline: 2, pipelineSchedule: zerobubble}}"},
      {"spec.parallelism.exchange",
       "{processesPerNode: 2, " + kTrain + "}, parallelism: {tensor: 2, exchange: host}}"},
      {"spec.parallelism.pipeline",
       "{nodes: 16, " + kTrain + "}, parallelism: {pipeline: 16}, processesPerNode: 1}"},
      {"spec.parallelism.sequenceParallel",
       "{" + kTrain + "}, parallelism: {sequenceParallel: true}}"},
      {"spec.train.model.context",
       "{nodes: 3, " + kTrain + "}, parallelism: {tensor: 3, sequenceParallel: true}}"},
      {"spec.parallelism.shardingGroup", "{" + kTrain + "}, parallelism: {shardingGroup: node}}"},
      {"spec.parallelism.shardingGroup",
       "{nodes: 2, " + kTrain + "}, parallelism: {sharding: optimizer, shardingGroup: node}}"},
      {"spec.parallelism.shardingGroup",
       "{nodes: 2, processesPerNode: 3, " + kTrain +
           "}, parallelism: {tensor: 2, sharding: optimizer, shardingGroup: node}}"},
      {"spec.parallelism.reshardAfterForward",
       "{" + kTrain + "}, parallelism: {sharding: gradients, reshardAfterForward: false}}"},
      {"spec.parallelism.prefetch", "{" + kTrain + "}, parallelism: {prefetch: false}}"},
      {"spec.parallelism.gatherPrecision",
       "{" + kTrain + "}, parallelism: {sharding: gradients, gatherPrecision: bf16}}"},
      {"spec.parallelism.offload", "{" + kTrain + "}, parallelism: {offload: parameters}}"},
      {"spec.parallelism.offloadPath", "{" + kTrain + "}, parallelism: {offloadPath: /s}}"},
      {"spec.parallelism.exchange",
       "{" + kTrain + "}, parallelism: {exchange: host, sharding: optimizer}}"},
      {"spec.parallelism.exchange",
       "{" + kTrain + "}, parallelism: {exchange: firstRank, offload: optimizer}}"},
      {"spec.parallelism.exchange",
       "{" + kTrain + "}, parallelism: {exchange: firstRank, reducePrecision: bf16}}"},
      {"spec.parallelism.exchange", "{nodes: 2, " + kTrain + "}, parallelism: {exchange: host}}"},
      {"spec.processesPerNode", "{" + kTrain + "}, gpusPerNode: 4, processesPerNode: 2}"},
      {"spec.rendezvous.port", "{command: [a], processesPerNode: 4, rendezvous: {port: 65530}}"},
      {"spec.rendezvous.port", "{command: [a], rendezvous: {port: 29393}}"},
      {"spec.rendezvous.port", "{command: [a], rendezvous: {port: 29400}}"},
      {"spec.rendezvous.variables", "{" + kTrain + "}, rendezvous: {variables: [mpi]}}"},
      {"spec.rendezvous.variables",
       "{nodes: 2049, command: [a], rendezvous: {variables: [tensorflow]}}"},
      {"spec.rendezvous.variables[1]", "{command: [a], rendezvous: {variables: [mpi, mpi]}}"},
      {"spec.parallelism", "{command: [a], nodes: 3, parallelism: {tensor: 2}}"},
      {"spec.parallelism.sequenceParallel",
       "{command: [a], nodes: 2, parallelism: {tensor: 2, sequenceParallel: true}}"},
      {"spec.parallelism.sharding", "{command: [a], parallelism: {sharding: optimizer}}"},
      {"spec.parallelism.shardingGroup", "{command: [a], parallelism: {shardingGroup: node}}"},
      {"spec.parallelism.reshardAfterForward",
       "{command: [a], parallelism: {reshardAfterForward: false}}"},
      {"spec.parallelism.prefetch", "{command: [a], parallelism: {prefetch: false}}"},
      {"spec.parallelism.gatherPrecision", "{command: [a], parallelism: {gatherPrecision: bf16}}"},
      {"spec.parallelism.reducePrecision", "{command: [a], parallelism: {reducePrecision: bf16}}"},
      {"spec.parallelism.transferPrecision",
       "{command: [a], nodes: 2, parallelism: {pipeline: 2, transferPrecision: bf16}}"},
      {"spec.parallelism.transferPrecision",
       "{" + kTrain + "}, parallelism: {transferPrecision: fp32}}"},
      {"spec.parallelism.offload", "{command: [a], parallelism: {offload: optimizer}}"},
      {"spec.parallelism.offloadPath",
       "{command: [a], parallelism: {offload: optimizer, offloadPath: /s}}"},
      {"spec.parallelism.exchange", "{command: [a], parallelism: {exchange: firstRank}}"},
      {"spec.elastic.min", "{command: [a], nodes: 2, elastic: {min: 3}}"},
      {"spec.train.batch.global",
       "{" + kTrain + "}, nodes: 20, elastic: {}, checkpoint: {memory: {}}}"},
      {"spec.checkpoint.memory", "{" + kTrain + "}, nodes: 2, elastic: {}}"},
      {"spec.elastic.max", "{command: [a], nodes: 3, elastic: {max: 2}}"},
      {"spec.elastic",
       "{command: [a], nodes: 2, elastic: {}, processGroups: [{name: a, ranks: '0'}]}"},
      {"spec.checkpoint.everySteps", "{command: [a], checkpoint: {everySteps: 5}}"},
      {"spec.checkpoint.atEnd", "{command: [a], checkpoint: {atEnd: false}}"},
      {"spec.checkpoint.keep", "{command: [a], checkpoint: {keep: 5}}"},
      {"spec.checkpoint.memory", "{command: [a], checkpoint: {memory: {}}}"},
      {"spec.checkpoint.onPreemption", "{command: [a], checkpoint: {onPreemption: 60s}}"},
      {"spec.checkpoint.onPreemption",
       "{command: [a], checkpoint: {path: /c, onPreemption: '60'}}"},
      {"spec.checkpoint.onPreemption",
       "{" + kTrain + "}, checkpoint: {path: /c, onPreemption: 25h}}"},
      {"spec.rendezvous.timeoutSeconds", "{command: [a], rendezvous: {timeoutSeconds: 5}}"},
      {"spec.train.batch.global", "{nodes: 3, " + kTrain + "}}"},
      {"spec.train.batch.micro", "{" + kTrain + ", batch: {global: 8, micro: 3}}}"},
      {"spec.train.batch.micro", "{nodes: 2, " + kTrain + ", batch: {global: 8, micro: 8}}}"},
      {"spec.train.timeline.everySteps", "{" + kTrain + ", timeline: {everySteps: 100}}}"},
      {"spec.train.timeline.everySteps",
       "{" + kTrain + ", steps: 99, timeline: {everySteps: 100}}, checkpoint: {path: /c}}"},
      {"spec.train.timeline.steps",
       "{" + kTrain + ", timeline: {everySteps: 2, steps: 3}}, checkpoint: {path: /c}}"},
      {"spec.train.timeline.steps", "{" + kTrain + ", timeline: {steps: 2}}}"},
      {"spec.train.attention", "{" + kTrain + ", precision: bf16, attention: cudnn}}"},
      {"spec.train.attention", "{gpusPerNode: 1, " + kTrain + ", attention: cudnn}}"},
      {"spec.train.model.heads", "{train: {data: {path: /d}, model: {layers: 2, width: 8}}}"},
      {"spec.train.model.layers", "{train: {data: {path: /d}}}"},
      {"spec.train.model.vocabulary",
       "{train: {data: {path: /d, tokenizer: u16}, model: {layers: 2, width: 8, heads: 2, context: "
       "8}}}"},
      {"spec.train.model.vocabulary",
       "{train: {data: {path: /d}, model: {preset: gpt2-124m, vocabulary: 200}}}"},
      {"spec.train.model.heads",
       "{train: {data: {path: /d}, model: {preset: gpt2-124m, heads: 7, width: 100}}}"},
      {"spec.train.model.heads",
       "{train: {data: {path: /d}, model: {preset: gpt2-124m, heads: 7}}}"},
      {"spec.train.model.kvHeads",
       "{train: {data: {path: /d}, model: {preset: llama-3.2-1b, heads: 16, kvHeads: 3}}}"},
      {"spec.train.model.family",
       "{train: {data: {path: /d}, model: {preset: llama-3.2-1b, family: gpt2}}}"},
      {"spec.train.model.family",
       "{train: {data: {path: /d}, model: {preset: bert-base, family: gpt2}}}"},
      {"spec.train.data.maskToken",
       "{train: {data: {path: /d, maskToken: 5}, model: {preset: "
       "gpt2-124m}}}"},
      {"spec.train.sample.tokens",
       "{train: {data: {path: /d}, model: {preset: bert-base}, sample: {tokens: 5}}}"},
      {"spec.train.data.maskToken",
       "{train: {data: {path: /d, maskToken: 30522}, model: {preset: bert-base}}}"},
      {"spec.train.data.maskToken",
       "{train: {data: {path: /d}, model: {preset: bert-base, weights: {path: /w}}}}"},
      {"spec.train.data.maskToken",
       "{train: {data: {path: /d, tokenizer: bytes}, model: {preset: bert-base, vocabulary: "
       "256}}}"},
      {"spec.train.attention",
       "{train: {data: {path: /d}, model: {preset: bert-base}, attention: cudnn}}"},
      {"spec.train.rounding", "{" + kTrain + ", rounding: stochastic}}"},
      {"spec.train.optimizer.warmupSteps", "{" + kTrain + ", optimizer: {warmupSteps: 1001}}}"},
      {"spec.train.optimizer.decaySteps", "{" + kTrain + ", optimizer: {decaySteps: 10}}}"},
      {"spec.train.optimizer.decaySteps",
       "{" + kTrain + ", optimizer: {schedule: warmupStableDecay}}}"},
      {"spec.train.optimizer.decaySteps",
       "{" + kTrain +
           ", optimizer: {schedule: warmupStableDecay, decaySteps: 901, warmupSteps: 100}}}"},
      {"spec.train.optimizer.milestones", "{" + kTrain + ", optimizer: {milestones: [1]}}}"},
      {"spec.train.optimizer.milestones", "{" + kTrain + ", optimizer: {schedule: step}}}"},
      {"spec.train.optimizer.factor", "{" + kTrain + ", optimizer: {factor: 0.5}}}"},
      {"spec.train.optimizer.milestones[1]",
       "{" + kTrain + ", optimizer: {schedule: step, milestones: [20, 10]}}}"},
      {"spec.train.optimizer.minimumLearningRate",
       "{" + kTrain + ", optimizer: {minimumLearningRate: 0.5}}}"},
      {"spec.train.optimizer.beta1", "{" + kTrain + ", optimizer: {name: sgd, beta1: 0.5}}}"},
      {"spec.train.optimizer.beta2", "{" + kTrain + ", optimizer: {name: adagrad, beta2: 0.5}}}"},
      {"spec.train.optimizer.epsilon", "{" + kTrain + ", optimizer: {name: sgd, epsilon: 0.5}}}"},
      {"spec.train.optimizer.momentum", "{" + kTrain + ", optimizer: {momentum: 0.5}}}"},
      {"spec.train.optimizer.nesterov", "{" + kTrain + ", optimizer: {nesterov: true}}}"},
      {"spec.train.optimizer.nesterov",
       "{" + kTrain + ", optimizer: {name: sgd, nesterov: true}}}"},
      {"spec.train.optimizer.matrixLearningRate",
       "{" + kTrain + ", optimizer: {matrixLearningRate: 0.5}}}"},
      {"spec.train.optimizer.matrixMomentum",
       "{" + kTrain + ", optimizer: {name: sgd, matrixMomentum: 0.5}}}"},
      {"spec.train.validation.everySteps", "{" + kTrain + ", validation: {everySteps: 5}}}"},
      {"spec.train.steps",
       "{train: {data: {path: /d}, model: {preset: gpt2-124m, context: 1048576}, batch: {global: "
       "1048576}, steps: 1000000000}}"},
      {"spec.train.data.path", "{train: {data: {path: ''}, model: {preset: gpt2-124m}}}"},
      {"spec.command[0]", "{command: ['', a]}"},
      {"spec.command", "{command: [" + std::string(60'000, 'x') + ", " + std::string(60'000, 'x') +
                           ", " + std::string(60'000, 'x') + "]}"},
      {"spec.failure.rules[0]",
       "{command: [a], failure: {rules: [{action: Fail, exitCodes: []}]}}"},
      {"spec.failure.rules[0].action",
       "{command: [a], failure: {rules: [{action: RestartInPlace, event: Evicted}]}}"},
      {"spec.failure.rules[0].event",
       "{command: [a], failure: {rules: [{action: Fail, event: Straggler}]}}"},
      {"spec.failure.rules[0].event",
       "{command: [a], failure: {rules: [{action: Fail, event: LossSpike}]}}"},
      {"spec.failure.rules[0].action",
       "{" + kTrain + "}, failure: {rules: [{action: Ignore, event: LossSpike}]}}"},
      {"spec.failure.rules[0].action",
       "{" + kTrain + "}, failure: {rules: [{action: SkipBatch, event: Error}]}}"},
      {"spec.failure.rules[0].exitCodes",
       "{" + kTrain + "}, failure: {rules: [{action: Fail, event: LossSpike, exitCodes: [6]}]}}"},
      {"spec.failure.rules[0].action",
       "{" + kTrain + "}, failure: {rules: [{action: Ignore, event: Straggler}]}}"},
      {"spec.failure.rules[0].deviations",
       "{" + kTrain + "}, failure: {rules: [{action: Fail, event: Error, deviations: 3}]}}"},
      {"spec.failure.rules[0].action",
       "{" + kTrain + "}, failure: {rules: [{action: RollBack, event: LossSpike}]}}"},
      {"spec.failure.rules[0].after",
       "{command: [a], failure: {rules: [{action: Fail, event: Error, after: 5m}]}}"},
      {"spec.failure.rules[0].after",
       "{" + kTrain + "}, failure: {rules: [{action: Fail, event: Hang, after: '5'}]}}"},
      {"spec.failure.rules[0].after",
       "{" + kTrain + "}, failure: {rules: [{action: Fail, event: Hang, after: 4s}]}}"},
      {"spec.processGroups[0].name", "{command: [a], processGroups: [{name: a-, ranks: '0'}]}"},
      {"spec.processGroups[0].name", "{command: [a], processGroups: [{name: world, ranks: '0'}]}"},
      {"spec.processGroups[0].ranks", "{command: [a], processGroups: [{name: a, ranks: '1'}]}"},
      {"spec.managedBy", "{command: [a], managedBy: somebody}"},
  };
  for (Case& one : family_cases()) cases.push_back(std::move(one));
  for (Case& one : muon_cases()) cases.push_back(std::move(one));
  for (Case& one : server_cases()) cases.push_back(std::move(one));
  return cases;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = all_cases();
  return kCases;
}

// Adds the rules that only we check to those that the job violates or satisfies.
void add_checks(const TrainingJob& job, Refusals& refusals) {
  for (const Rule& rule : spec_rules()) {
    if (rule.holds) continue;
    Problems found;
    rule.check(job, found);
    (found.empty() ? refusals.satisfied : refusals.violated).insert(&rule);
    refusals.problems.insert(found.begin(), found.end());
  }
}

TEST(CrdRules, AreEachViolatedByOneJobAndSatisfiedByAnother) {
  std::vector<Json> documents = good_documents();
  for (const Case& one : cases()) documents.push_back(job_of(one.spec));
  for (const char* name : {"a.b", ""}) {
    documents.push_back(job_of("{command: [a]}"));
    documents.back()["metadata"]["name"] = name;
  }
  Refusals all;
  for (const Json& document : documents) {
    const Result<TrainingJob> job = stored_training_job_from_json(document);
    ASSERT_TRUE(job.ok()) << job.error().message;
    Problems out_of_range;
    check_ranges(job->spec, "spec", out_of_range);
    EXPECT_EQ(out_of_range, Problems{}) << "a rule that repeats the limits of a field";
    Refusals refused = refusals(document);
    add_checks(*job, refused);
    all.violated.merge(refused.violated);
    all.satisfied.merge(refused.satisfied);
  }
  std::set<std::string> messages;
  for (const Rule& rule : spec_rules()) {
    const std::string name = rule.holds ? rule.holds->cel() : "a check of " + rule.reads.front();
    EXPECT_TRUE(all.violated.contains(&rule)) << "no job violates " << name;
    EXPECT_TRUE(all.satisfied.contains(&rule)) << "no job satisfies " << name;
    if (!rule.holds) continue;
    EXPECT_TRUE(messages.insert(rule.scope + server_message(rule)).second) << name;
  }
}

// The jobs that break a rule which was installed after them.
TEST(CrdRules, LeaveStoredJobsManageable) {
  const Json pod_template = {{"spec", {{"priorityClassName", "high"}}}};
  const std::set<std::string> none;
  std::vector<Json> stored;
  for (const Case& one : cases()) stored.push_back(job_of(one.spec));
  stored.push_back(job_of("{command: [a]}"));
  stored.back()["metadata"]["name"] = "a.b";
  for (Json& job : stored) {
    job["spec"]["podTemplate"] = pod_template;
    job["status"] = {{"state", "Running"}};
    Json reported = job;
    reported["status"]["state"] = "Pending";
    EXPECT_EQ(refusals_of_write(reported, job), none) << "status: " << job;
    Json unguarded = job;  // a finalizer is removed
    unguarded["metadata"]["resourceVersion"] = "2";
    EXPECT_EQ(refusals_of_write(unguarded, job), none) << "metadata: " << job;
    Json suspended = job;
    suspended["spec"]["suspend"] = true;
    EXPECT_EQ(refusals_of_write(suspended, job), none) << "suspend: " << job;
  }
}

TEST(CrdRules, RefuseAnUpdateThatBreaksThem) {
  const Json valid = job_of("{" + kTrain + "}, podTemplate: {spec: {priorityClassName: high}}}");
  Json both = valid;
  both["spec"]["command"] = {"a"};
  EXPECT_EQ(refusals_of_write(both, valid),
            std::set<std::string>{"found both train and command, expected exactly one of them"});
  EXPECT_EQ(refusals_of_write(both, both), std::set<std::string>());
  Json neither = both;
  neither["spec"].erase("train");
  neither["spec"].erase("command");
  EXPECT_TRUE(refusals_of_write(neither, both)
                  .contains("found neither train nor command, expected exactly one of them"));
}

TEST(CrdRules, SayWhichOfThemAreEvaluatedForNewObjects) {
  for (const CelRule& rule : cel_rules()) {
    const Result<Cel> cel = Cel::parse(rule.rule);
    ASSERT_TRUE(cel.ok()) << cel.error().message;
    EXPECT_EQ(cel->is_old_optional(), rule.is_old_optional) << rule.rule;
  }
}

TEST(CrdRules, NameTheProblemByItsPath) {
  for (const Case& one : cases()) {
    const Problems problems = controller_problems(job_of(one.spec));
    EXPECT_TRUE(std::any_of(
        problems.begin(), problems.end(),
        [&](const std::string& problem) { return problem.starts_with(one.path + ": "); }))
        << one.path << ": " << (problems.empty() ? "no problem" : problems.front());
  }
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

TEST(CrdRules, FindTheSameProblemsInAnyDocumentAsTheController) {
  for (const Json& document : good_documents()) {
    EXPECT_EQ(controller_problems(document), Problems{});
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
    Refusals found = refusals(document);
    const Result<TrainingJob> job = stored_training_job_from_json(document);
    if (!job.ok()) continue;  // a field that is not in this version
    ++(found.messages.empty() ? accepted : refused);
    add_checks(*job, found);
    const Problems problems = validate(*job);
    ASSERT_EQ(found.problems, std::set<std::string>(problems.begin(), problems.end()))
        << "seed " << kSeed << ", " << i << "\n"
        << document.dump(1);
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 500);
}

bool refuses_change(const Json& after, const Json& before) {
  const std::set<std::string> messages = refusing(after, &before);
  return std::any_of(messages.begin(), messages.end(), [](const std::string& text) {
    return text.find(kFixedText) != std::string::npos;
  });
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
  const std::pair<std::string, Json> changes[] = {
      {"gpusPerNode", 1},
      {"processesPerNode", 2},
      {"threadsPerProcess", 3},
      {"image", "other"},
      {"command", {"a"}},
      {"parallelism.tensor", 2},
      {"parallelism.pipeline", 2},
      {"parallelism.pipelineSchedule", "gpipe"},
      {"parallelism.virtualStages", 2},
      {"parallelism.sequenceParallel", true},
      {"parallelism.sharding", "optimizer"},
      {"parallelism.shardingGroup", "node"},
      {"parallelism.reshardAfterForward", false},
      {"parallelism.prefetch", false},
      {"parallelism.gatherPrecision", "bf16"},
      {"parallelism.transferPrecision", "bf16"},
      {"parallelism.reducePrecision", "bf16"},
      {"parallelism.offload", "optimizer"},
      {"parallelism.offloadPath", "/scratch"},
      {"parallelism.exchange", "firstRank"},
      {"parallelism.weightStashing", false},
      {"parallelism.verticalSync", true},
      {"security.encryption", "required"},
      {"processGroups", {{{"name", "a"}, {"ranks", "0"}}}},
      {"rendezvous.port", 30000},
      {"checkpoint.path", "/elsewhere"},
      {"podTemplate", {{"metadata", {{"labels", {{"a", "b"}}}}}}},
      {"successPolicy", "RankZero"},
      {"parameterServers", {{"nodes", 2}}},
      {"managedBy", "a.b/c"},
      {"train.model.preset", "gpt2-350m"},
      {"train.model.family", "llama"},
      {"train.data.path", "/other"},
      {"train.data.features", "/features.npy"},
      {"train.data.targets", "/targets.npy"},
      {"train.steps", 77},
      {"train.batch.global", 256},
      {"train.precision", "bf16"}};
  std::string untested;
  for (const FixedField& field : fixed_rules()) {
    untested += " " + std::string(field.on_server.empty() ? field.name : field.on_server);
  }
  for (const auto& [path, value] : changes) {
    std::string pointer = "/spec/" + path;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    const auto row = std::find_if(
        fixed_rules().begin(), fixed_rules().end(), [&path = path](const FixedField& field) {
          return path == field.name || path.starts_with(std::string(field.name) + ".");
        });
    ASSERT_NE(row, fixed_rules().end()) << path;
    Json after = before;
    after[Json::json_pointer(pointer)] = value;
    EXPECT_EQ(refuses_change(after, before), !row->on_server.empty()) << path;
    const Problems problems =
        changed_fields(scene.status().fixed, stored_training_job_from_json(after)->spec);
    ASSERT_EQ(problems.size(), 1u) << path << ": " << problems.back();
    EXPECT_EQ(problems[0].find("spec." + path.substr(0, path.rfind('.'))), 0u) << problems[0];
    after["spec"]["suspend"] = true;
    EXPECT_FALSE(refuses_change(after, before)) << path;
    ASSERT_NE(untested.find(" " + path), std::string::npos) << path;
    untested.erase(untested.find(" " + path), path.size() + 1);
  }
  EXPECT_EQ(untested, "") << "no test changes these fields";
  Json other_program = before;
  other_program["spec"].erase("train");
  EXPECT_TRUE(refuses_change(other_program, before));
  Json resized = before;
  resized["spec"]["failure"]["maxRestarts"] = 3;
  resized["spec"]["suspend"] = false;
  resized["spec"]["security"]["networkPolicy"] = "none";
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
