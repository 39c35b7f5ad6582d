#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/problems.h"
#include "common/api/step_numbers.h"
#include "common/base/json.h"
#include "common/layout/model_design.h"

namespace lockstep {

inline constexpr char kApiVersion[] = "lockstep.dev/v1alpha1";
inline constexpr char kKind[] = "TrainingJob";

// A TrainingJob: plain values with defaults in the initialisers, so that TrainingJob{} is the same
// as an empty spec. Members are named as in the document. docs/trainingjob.md describes every field
// for users; a test keeps the two consistent.

struct WeightsSpec {
  std::string path;  // a safetensors file; empty: draw the parameters from train.seed

  bool operator==(const WeightsSpec&) const = default;
};

// 0: the preset's value, else the defaults of RotaryScaling (Llama 3.1's, factor 1: no stretching).
struct RopeScalingSpec {
  double factor = 0;
  double lowFrequencyFactor = 0;
  double highFrequencyFactor = 0;
  int64_t originalContext = 0;

  bool operator==(const RopeScalingSpec&) const = default;
};

struct ModelSpec {
  std::string preset;  // gpt2-124m, bert-base, resnet20, ...; empty: use the dimensions below
  // gpt2, llama, bert, mlp, convnet, logisticRegression, factorizationMachine, wideAndDeep,
  // deepFactorizationMachine; empty: the preset's, else gpt2
  std::string family;
  int64_t layers = 0;  // of a transformer, as all up to the weights; 0: from the preset
  int64_t width = 0;
  int64_t heads = 0;
  int64_t context = 0;     // tokens in a sequence
  int64_t vocabulary = 0;  // 0: from the preset, else from the tokenizer (bytes: 256, bert: 257)
  int64_t hiddenWidth = 0;
  std::string head;     // tied, untied; empty: the preset's, else untied for llama, tied for others
  int64_t kvHeads = 0;  // this and the rope, norm fields below: only for llama,
  // but normEpsilon also for bert
  double ropeBase = 0;
  RopeScalingSpec ropeScaling;
  double normEpsilon = 0;
  WeightsSpec weights;          // initial weights
  int64_t inputs = 0;           // this and the fields below: of an mlp (MlpConfig)
  std::vector<int64_t> hidden;  // widths; also of a click model with hidden layers
  int64_t outputs = 0;          // also a convnet's classes; 0: the preset's
  std::string activation;       // relu, gelu, tanh; empty: relu
  std::string task;             // classification, regression; empty: classification
  int64_t imageHeight = 0;      // this and the fields below: of a convnet; 0: the preset's
  int64_t imageWidth = 0;
  int64_t imageChannels = 0;
  std::string batchNorm;  // synchronized, local; empty: synchronized
  int64_t factors = 0;    // of a click model but a logistic regression; 0: kDefaultFactors

  bool operator==(const ModelSpec&) const = default;
};

struct DataSpec {
  std::string path;                 // a text: a file, or a folder of files in name order
  std::string tokenizer = "bytes";  // bytes: one token a byte; u16, u32: the file holds token ids
  std::string pieces;               // the table of what the token ids stand for; empty: unknown
  std::string features;             // an mlp's or convnet's samples: files with a row for each
  std::string targets;
  int64_t maskToken = 0;     // of a bert; 0: the vocabulary's last id
  std::string format;        // of a click log: criteo, libsvm
  bool flip = false;         // this and the fields below: of a convnet's images
  int64_t cropPadding = 0;   // pixels; 0: no crops
  std::vector<double> mean;  // of the channels, or of all; empty: not normalised
  std::vector<double> deviation;
  double validationFraction = 0;  // the last part of the data, never trained on; [0, 0.5]
  int64_t seed = 1;               // for the order of samples

  bool operator==(const DataSpec&) const = default;
};

struct BatchSpec {
  int64_t global = 8;  // samples (sequences, rows) per optimizer step, over all ranks
  int64_t micro = 0;   // samples per forward pass on one rank; 0: a rank's whole share

  bool operator==(const BatchSpec&) const = default;
};

struct OptimizerSpec {
  std::string name = "adamw";  // adamw, sgd, adagrad, muon
  double learningRate = 3e-4;
  // constant, linear, cosine, warmupStableDecay, step
  std::string schedule = "cosine";
  int64_t warmupSteps = 0;
  double minimumLearningRate = 0;   // the lowest rate after the warm-up
  int64_t decaySteps = 0;           // the last ones; only for warmupStableDecay
  std::vector<int64_t> milestones;  // steps after which the rate falls; only for step
  double factor = 0.1;              // by which it is multiplied then; only for step
  double beta1 = 0.9;               // this and beta2: only for adamw and muon
  double beta2 = 0.95;
  double epsilon = 1e-8;  // not for sgd
  double momentum = 0;    // this and nesterov: only for sgd
  bool nesterov = false;
  double matrixLearningRate = 0.02;  // this and matrixMomentum: only for muon
  double matrixMomentum = 0.95;
  double weightDecay = 0.1;  // decoupled with adamw and muon only; applied to matrices only
  double clipNorm = 1.0;     // bound of the norm of all gradients together; 0: none

  bool operator==(const OptimizerSpec&) const = default;
};

struct ValidationSpec {
  int64_t everySteps = 0;  // 0: only at the end (and only if data.validationFraction > 0)

  bool operator==(const ValidationSpec&) const = default;
};

struct TimelineSpec {
  int64_t everySteps = 0;  // 0: nothing is recorded
  int64_t steps = 1;       // the last ones of each everySteps are recorded

  bool operator==(const TimelineSpec&) const = default;
};

struct SampleSpec {
  int64_t tokens = 0;  // generated after the last step; 0: none
  std::string prompt = "\n";
  double temperature = 0.8;
  int64_t topK = 40;
  int64_t seed = 1;

  bool operator==(const SampleSpec&) const = default;
};

struct TrainSpec {
  ModelSpec model;
  DataSpec data;
  int64_t steps = 1000;
  BatchSpec batch;
  OptimizerSpec optimizer;
  double dropout = 0;              // probability that a value is dropped in training
  double ema = 0;                  // decay of the moving average of the parameters; 0: none
  std::string precision = "fp32";  // fp32, bf16
  // Rounding of the bf16 copies of the parameters, which products read: nearest, stochastic.
  std::string rounding = "nearest";
  // Recomputed activations in backward: auto, none, ops, blocks; see recompute_of().
  std::string recompute = "auto";
  std::string attention = "own";  // kernels on GPUs: own, cudnn, auto
  int64_t seed = 1;               // for the initial weights, stochastic rounding and dropout
  int64_t bucketBytes = 4 << 20;  // bytes of gradients that are all-reduced together
  ValidationSpec validation;
  TimelineSpec timeline;
  SampleSpec sample;

  bool operator==(const TrainSpec&) const = default;
};

// How the ranks share activations and the model's state, and how data-parallel ranks bring their
// gradients together. A job's spec and the layout of its rounds have these fields.
// common/layout/sharding.h explains the values.
struct StateSharing {
  bool sequenceParallel = false;       // ActivationOptions::splits_rows
  std::string sharding = "none";       // none, optimizer, gradients, parameters
  std::string shardingGroup = "data";  // data, node: the ranks that divide the state
  bool reshardAfterForward = true;     // this and the two below: only with parameters
  bool prefetch = true;
  std::string gatherPrecision = "fp32";    // fp32, bf16
  std::string reducePrecision = "fp32";    // fp32, bf16
  std::string transferPrecision = "auto";  // auto, fp32, bf16: of activations between stages
  std::string offload = "none";            // none, optimizer, parameters
  std::string offloadPath;                 // folder of the scratch file
  std::string exchange = "allReduce";      // allReduce, firstRank, host
  std::vector<int64_t> stages;             // Mesh::part_layers
  bool weightStashing = true;              // this and the one below: only with pipedream
  bool verticalSync = false;

  bool operator==(const StateSharing&) const = default;
};

struct ParallelismSpec : StateSharing {
  int64_t tensor = 1;
  int64_t pipeline = 1;
  std::string pipelineSchedule = "1f1b";  // parse_pipeline_kind()
  int64_t virtualStages = 1;              // Mesh::virtual_stages

  bool operator==(const ParallelismSpec&) const = default;
};

struct ProcessGroupSpec {
  std::string name;
  std::string ranks;  // "0,7", "0-3", "0::2"

  bool operator==(const ProcessGroupSpec&) const = default;
};

struct RendezvousSpec {
  int64_t port = 29500;         // rank 0's port on each node; local rank i listens on port + i
  int64_t timeoutSeconds = 60;  // from the assignment until all ranks are connected
  // For a command, in addition to torchrun's: jax, tensorflow, mpi.
  std::vector<std::string> variables;

  bool operator==(const RendezvousSpec&) const = default;
};

// States of the model in memory of a pod that outlives the processes of its ranks.
struct MemoryStatesSpec {
  int64_t everySteps = 1;
  int64_t copies = 0;  // of each state, on other nodes: 0 or 1

  bool operator==(const MemoryStatesSpec&) const = default;
};

struct CheckpointSpec {
  std::string path;  // empty: none is written (lockstep run sets it to a path in its output folder)
  int64_t everySteps = 0;    // 0: none before the end
  bool atEnd = true;         // false: the last step writes none unless everySteps divides it
  int64_t keep = 3;          // how many of the newest ones
  std::string onPreemption;  // "60s", "10m", "1h": time to save when a pod is stopped; empty: none
  std::optional<MemoryStatesSpec> memory;

  bool operator==(const CheckpointSpec&) const = default;
};

// Applies to failures with one of the exit codes (any, if empty) and with this event.
struct FailureRule {
  std::vector<int64_t> exitCodes;  // 128 + signal if a signal ended the process
  std::string event;               // a reason as in status.lastFailure; empty: any
  std::string action;              // Fail, RestartInPlace, RecreatePod, Ignore, or as in LossRules
  std::string after;       // for events Hang and Straggler: "90s", "10m", "1h"; empty: the default
  int64_t deviations = 0;  // for event LossSpike; 0: kLossDeviations

  bool operator==(const FailureRule&) const = default;
};

struct FailureSpec {
  int64_t maxRestarts = 10;
  std::vector<FailureRule> rules;     // the first rule that applies decides
  int64_t pendingTimeoutSeconds = 0;  // until a pod not running is a failure; 0: never
  int64_t avoidNodes = 0;  // failures on one node until the job's pods avoid it; 0: never avoid

  bool operator==(const FailureSpec&) const = default;
};

// The event of a hang in the built-in loop, and how long the other ranks wait for a rank in a step
// before it counts as hung: longer than an agent is silent by default before its node counts as
// lost.
inline constexpr char kHang[] = "Hang";
inline constexpr int64_t kHangSeconds = 18;
inline constexpr int64_t kCommandHangSeconds = 600;
// The event of a rank that computes for longer than its peers, and how long it may do so.
inline constexpr char kStraggler[] = "Straggler";
inline constexpr int64_t kStragglerSeconds = 300;
inline constexpr int64_t kHangSecondsMin = 5;  // several heartbeats
inline constexpr int64_t kHangSecondsMax = 86400;

// Events of the built-in loop, and what the ranks do about them without ending the round.
inline constexpr char kLossNotFinite[] = "LossNotFinite";
inline constexpr char kLossSpike[] = "LossSpike";
inline constexpr char kFailAction[] = "Fail";
inline constexpr char kRollBack[] = "RollBack";    // go back to the newest checkpoint
inline constexpr char kSkipBatch[] = "SkipBatch";  // go back to the state before the step
inline constexpr int64_t kLossDeviations = 10;

// The ranks' actions about losses.
struct LossRules {
  std::string not_finite = kFailAction;  // Fail, RollBack, SkipBatch
  std::string spike;                     // the same; empty: nothing looks for spikes
  int64_t deviations = kLossDeviations;  // standard deviations above the mean that are a spike

  bool operator==(const LossRules&) const = default;
};

inline constexpr int64_t kGraceSecondsMax = 86400;

inline constexpr char kRankZero[] = "RankZero";  // a value of successPolicy

struct SecuritySpec {
  std::string encryption = "none";  // none, required: of what controller, agents and workers send
  std::string networkPolicy = "auto";  // auto, job, none: which connections the pods accept

  bool operator==(const SecuritySpec&) const = default;
};

// How many nodes the job may train with, when pods are lost or spec.nodes changes.
struct ElasticSpec {
  int64_t min = 1;
  int64_t max = 4096;

  bool operator==(const ElasticSpec&) const = default;
};

// How long the rows of a click model's tables live (agent/server/catalog.h, RowLife), and which
// gradients of rows are sent.
struct ServerRowsSpec {
  int64_t idleSteps = 0;  // 0: rows live forever
  double minFrequency = 0;
  double halfLifeSteps = 0;
  double decay = 0;
  double pushThreshold = 0;

  bool operator==(const ServerRowsSpec&) const = default;
};

// Nodes that hold the parameters (docs/servers.md).
struct ParameterServersSpec {
  int64_t nodes = 1;
  std::string consistency = "synchronous";  // synchronous, asynchronous, boundedStaleness
  int64_t staleness = 0;                    // clocks; only for boundedStaleness
  int64_t backupWorkers = 0;                // only for synchronous
  int64_t copies = 0;                       // further servers that hold each parameter
  std::string pushPrecision = "fp32";       // fp32, bf16, int8: of gradients on their way
  std::string pullPrecision = "fp32";       // likewise, of parameters
  ServerRowsSpec rows;                      // only for click models

  bool operator==(const ParameterServersSpec&) const = default;
};

inline constexpr char kRequiredEncryption[] = "required";  // a value of security.encryption
inline constexpr char kJobNetworkPolicy[] = "job";         // a value of security.networkPolicy

struct TrainingJobSpec {
  int64_t nodes = 1;
  std::optional<ElasticSpec> elastic;  // none: every round has all nodes
  int64_t gpusPerNode = 0;
  int64_t processesPerNode = 0;   // 0: gpusPerNode, else 1
  int64_t threadsPerProcess = 0;  // 0: the pod's CPUs divided by its processes
  std::string image;
  std::optional<TrainSpec> train;  // exactly one of train and command
  std::vector<std::string> command;
  std::optional<ParameterServersSpec> parameterServers;  // none: workers hold the parameters
  ParallelismSpec parallelism;
  std::vector<ProcessGroupSpec> processGroups;
  RendezvousSpec rendezvous;
  CheckpointSpec checkpoint;
  FailureSpec failure;
  SecuritySpec security;
  std::string successPolicy = "AllRanks";  // RankZero: a command is complete when rank 0 ends
  bool suspend = false;
  int64_t terminationGracePeriodSeconds = 30;
  int64_t activeDeadlineSeconds = 0;     // 0: none
  int64_t ttlSecondsAfterFinished = -1;  // -1: never deleted
  std::string managedBy;
  Json podTemplate = Json::object();

  bool operator==(const TrainingJobSpec&) const = default;
};

struct ObjectMeta {
  std::string name;
  std::string namespace_ = "default";
  std::string uid;
  std::string resourceVersion;
  int64_t generation = 0;
  std::string creationTimestamp;
  std::string deletionTimestamp;  // empty: not being deleted
  std::vector<std::string> finalizers;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;

  bool operator==(const ObjectMeta&) const = default;
};

// metav1.Condition.
struct Condition {
  std::string type;
  std::string status = "Unknown";  // True, False, Unknown
  std::string reason;
  std::string message;
  std::string lastTransitionTime;
  int64_t observedGeneration = 0;

  bool operator==(const Condition&) const = default;
};

struct NodesStatus {
  int64_t desired = 0;
  int64_t ready = 0;

  bool operator==(const NodesStatus&) const = default;
};

struct RendezvousStatus {
  std::string host;
  int64_t port = 0;
  int64_t worldSize = 0;
  std::string nodeIndices;  // see round_members.h

  bool operator==(const RendezvousStatus&) const = default;
};

// Has the numbers whose row in step_number_table.h has a field of the status.
struct ProgressStatus : StepNumbers {
  std::string precision;  // "fp32" or "bf16"; empty while unknown
  std::string updatedAt;

  bool operator==(const ProgressStatus&) const = default;
};

// How long each part of a recovery took; absent until that part is over.
struct RecoveryStatus {
  std::optional<double> detectSeconds;
  std::optional<double> decideSeconds;
  std::optional<double> waitSeconds;
  std::optional<double> podsSeconds;
  std::optional<double> abortSeconds;
  std::optional<double> respawnSeconds;
  std::optional<double> formSeconds;
  std::optional<double> restoreSeconds;
  std::optional<double> recomputeSeconds;  // while all ranks train again

  bool operator==(const RecoveryStatus&) const = default;
};

struct FailureStatus {
  int64_t number = 0;  // number among the job's failures, from 1
  int64_t rank = -1;
  int64_t nodeIndex = -1;
  std::string node;            // spec.nodeName of the pod
  int64_t exitCode = -1;       // 128 + signal if a signal ended it
  std::string reason;          // Error, Signal, OOMKilled, PodLost, ...
  std::string message;         // the end of its log
  std::string action;          // RestartInPlace, RecreatePod, Fail
  int64_t round = 0;           // the round in which it happened
  int64_t generation = 0;      // of the job then; 0: unknown
  int64_t step = 0;            // reached since training last began
  int64_t resumedStep = -1;    // the step from which training resumed
  std::string resumedFrom;     // memory, storage; empty: not known, or training started over
  int64_t furthestStep = 0;    // over the consecutive attempts
  int64_t attempt = 1;         // consecutive failures without a step beyond that of the first
  double recoverySeconds = 0;  // from the failure to all ranks running again; 0 until then
  RecoveryStatus recovery;     // the parts of recoverySeconds, and what came after it
  std::string time;

  bool operator==(const FailureStatus&) const = default;
};

struct CheckpointStatus {
  int64_t step = 0;
  std::string path;

  bool operator==(const CheckpointStatus&) const = default;
};

// Memory that one rank has allocated, in bytes; the largest of each over the ranks.
struct HoldingsStatus {
  std::string sharding;       // as spec.parallelism.sharding
  int64_t shardingRanks = 1;  // ranks that divide what is sharded
  int64_t parametersBytes = 0;
  int64_t gradientsBytes = 0;
  int64_t optimizerBytes = 0;
  int64_t gatheredBytes = 0;
  int64_t activationsBytes = 0;
  int64_t offloadedBytes = 0;

  bool operator==(const HoldingsStatus&) const = default;
};

// The total cost of failures and drains.
struct LostStatus {
  double seconds = 0;  // from each until all ranks trained again
  int64_t steps = 0;   // repeated

  bool operator==(const LostStatus&) const = default;
};

struct TrainingJobStatus {
  int64_t observedGeneration = 0;
  std::string state;  // Pending, Forming, Running, Restarting, Suspended, Complete, Failed; display
  int64_t round = 0;  // 0: no round yet
  std::string members;  // incarnation of each node index, "1,1,2,1"
  std::string worldHash;
  std::string fixed;       // fingerprints of the fields that cannot change while the job has pods
  std::string agentImage;  // image of Lockstep's agent in the members' pods
  int64_t restarts = 0;
  NodesStatus nodes;                   // those of workers
  std::optional<NodesStatus> servers;  // only with spec.parameterServers
  std::string serversView;             // of the round (servers_view.h); empty: the first one
  std::optional<RendezvousStatus> rendezvous;
  std::optional<ProgressStatus> progress;
  std::optional<HoldingsStatus> holdings;
  std::optional<FailureStatus> lastFailure;
  std::vector<FailureStatus> failures;  // the newest ones, lastFailure last
  LostStatus lost;
  double trainedSeconds = 0;  // time in which all ranks trained, without a period still in progress
  double longestRunSeconds = 0;  // the longest of these periods
  std::optional<CheckpointStatus> lastCheckpoint;
  std::string startTime;
  std::string completionTime;
  std::vector<Condition> conditions;

  bool operator==(const TrainingJobStatus&) const = default;
};

struct TrainingJob {
  ObjectMeta metadata;
  TrainingJobSpec spec;
  TrainingJobStatus status;

  bool operator==(const TrainingJob&) const = default;
};

// Reads an object stored on a server, as the controller does. Unknown fields are ignored (the
// server pruned them, or a newer version wrote them). Wrong types, and fields that this version
// does not support, are problems. Defaults are filled in. Status is read leniently: what cannot be
// read counts as absent. Never throws; parse_json or the YAML codec has already bounded the
// document.
Result<TrainingJob> stored_training_job_from_json(const Json& document);

// Writes all fields, including defaults; from_json(to_json(job)) == job.
Json to_json(const TrainingJob& job);
Json spec_to_json(const TrainingJobSpec& spec);
Json status_to_json(const TrainingJobStatus& status);
Json train_to_json(const TrainSpec& train);

// Checks ranges and cross-field rules; empty if the job is valid.
Problems validate(const TrainingJob& job);

// Reads a user's document strictly: unknown fields are problems too, reported with the nearest
// known name. Runs validate() and returns all problems together. Rules about fields that could not
// be read are left out.
Result<TrainingJob> valid_training_job_from_json(const Json& document);

// Values of model.family.
inline constexpr char kMlp[] = "mlp";
inline constexpr char kConvnet[] = "convnet";
inline constexpr char kBert[] = "bert";
inline constexpr char kLogisticRegression[] = "logisticRegression";
inline constexpr char kFactorizationMachine[] = "factorizationMachine";
inline constexpr char kWideAndDeep[] = "wideAndDeep";
inline constexpr char kDeepFactorizationMachine[] = "deepFactorizationMachine";
inline constexpr int64_t kDefaultFactors = 8;
inline constexpr int64_t kDefaultClickHidden[] = {64, 32};

// Returns whether the family is given so, or is the preset's.
bool is_convnet(const ModelSpec& model);
bool is_bert(const ModelSpec& model);

// Returns whether the family reads click logs and has sparse parameters.
bool is_click_family(std::string_view family);
// Returns the numbers of a factor of a click model, or of an embedding: 0 for a logistic
// regression.
int64_t click_factors(const ModelSpec& model);
// Returns whether a click model adds up the products of all pairs of factors.
bool has_click_pairs(const ModelSpec& model);
// Returns the widths of the hidden layers of a click model; none without such layers.
std::vector<int64_t> click_hidden(const ModelSpec& model);
// Returns the pods of the job: workers' and servers'. The node indices of servers follow those of
// workers.
int64_t pod_count(const TrainingJobSpec& spec);

// Returns the model to build, which is not of a click family. Dimensions that are given nowhere
// stay 0, which validate() refuses.
ModelDesign model_design(const TrainSpec& train);
// Returns the token that stands for masked ones in a model that predicts them.
int64_t mask_token(const DataSpec& data, const ModelConfig& model);
// Returns a transformer's dimensions: the preset's, overridden by the given ones, with the
// tokenizer's vocabulary if none is given.
ModelConfig model_config(const TrainSpec& train);
// Returns an MLP's dimensions.
MlpConfig mlp_config(const ModelSpec& model);
// Returns a convolutional network's: the preset's, overridden by the given ones.
ConvnetConfig convnet_config(const ModelSpec& model);
// Tokens of the global batch; 0 if the model's dimensions are not known, or it has no tokens.
double tokens_per_step(const TrainSpec& train);
// Processes on each node, with defaults applied.
int64_t processes_per_node(const TrainingJobSpec& spec);

// Returns what backward recomputes: none, ops or blocks. auto is blocks with the schedule gpipe,
// which keeps all micro-batches of a step in flight.
std::string recompute_of(std::string_view recompute, std::string_view schedule);
// Returns whether ranks take the action themselves, about a loss (LossRules).
bool is_about_loss(std::string_view action);
// Returns what the first rule about each of the events says.
LossRules loss_rules(const TrainingJobSpec& spec);

// Returns the limit of the first rule about hangs, or kHangSeconds.
int64_t hang_seconds(const TrainingJobSpec& spec);
// Returns how long a command's rank may be silent in its progress file before it counts as hung:
// the limit of the first rule about hangs, or kCommandHangSeconds if it has none; 0 without a rule,
// and with train.
int64_t command_hang_seconds(const TrainingJobSpec& spec);
// Parses "10m" as 600: a whole number and s, m or h. nullopt for other text, or outside
// kHangSecondsMin to kHangSecondsMax.
std::optional<int64_t> hang_seconds_from_text(std::string_view text);
// Parses "10m" as 600, as the function above, but from 1 second on.
std::optional<int64_t> preemption_seconds_from_text(std::string_view text);
// Returns the time from SIGTERM to SIGKILL of the ranks: the longer one of
// terminationGracePeriodSeconds and checkpoint.onPreemption.
int64_t grace_seconds(const TrainingJobSpec& spec);
// Ranks listen on port_count() ports starting at rendezvous.port. Built-in training needs one per
// rank. A command has kPortRounds windows of one port per rank, and its rounds use them in turn. So
// a rank of the previous round that has not been killed yet cannot reach the store of a new round,
// and a connection in TIME_WAIT cannot block its port.
inline constexpr int64_t kPortRounds = 8;
int64_t port_count(const TrainingJobSpec& spec);
// Returns the port of local rank 0 in a round; rounds count from 1.
int64_t round_port(const TrainingJobSpec& spec, int64_t round);
// Size of the data axis: world / (pipeline x tensor).
int64_t data_parallel_size(const TrainingJobSpec& spec);
// Takes the larger one of each number. `one` is another rank's, or of other ranks.
void take_largest(const HoldingsStatus& one, std::optional<HoldingsStatus>& largest);
// Samples per forward pass on one rank, with the default applied.
int64_t micro_batch(const TrainingJobSpec& spec);

}  // namespace lockstep
