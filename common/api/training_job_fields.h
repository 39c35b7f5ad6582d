#pragma once

#include "common/api/codec.h"
#include "common/api/training_job.h"

namespace lockstep {

// The one list of a TrainingJob's fields: names, meanings and ranges. The codec, validate(), the
// CRD and docs/trainingjob.md all follow it (schema.h).

inline constexpr double kNodesMax = 4096;
inline constexpr double kProcessesMax = 64;  // of one node
inline constexpr int64_t kWorldSizeMax = 65536;
inline constexpr double kBatchMax = 1 << 20;
inline constexpr double kStepsMax = 1e9;
inline constexpr size_t kPathBytesMax = 1024;
inline constexpr size_t kCommandWordBytesMax = 64 << 10;
inline constexpr size_t kCommandBytesMax = 128 << 10;
inline constexpr double kDayMax = 365 * 86400;  // seconds

template <>
struct Schema<WeightsSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "path",
                .meaning = "A safetensors file of a GPT-2 or Llama as Hugging Face stores it, with "
                           "the model's dimensions, or the index of several "
                           "(model.safetensors.index.json); in the pod, or relative to the YAML's "
                           "folder with lockstep run. Empty: train.seed makes the parameters.",
                .bytes_max = kPathBytesMax},
          &WeightsSpec::path);
  }
};

template <>
struct Schema<RopeScalingSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "factor",
                .meaning = "By how much low frequencies are slowed down; 0 takes the preset's, "
                           "else 1 (not at all).",
                .minimum = 0,
                .maximum = 1e6},
          &RopeScalingSpec::factor);
    visit(Field{.name = "lowFrequencyFactor",
                .meaning = "Frequencies that turn less often than this within originalContext are "
                           "slowed down by all of the factor; 0 takes the preset's, else 1.",
                .minimum = 0,
                .maximum = 1e6},
          &RopeScalingSpec::lowFrequencyFactor);
    visit(Field{.name = "highFrequencyFactor",
                .meaning = "Those that turn more often than this stay as they are; 0 takes the "
                           "preset's, else 4.",
                .minimum = 0,
                .maximum = 1e6},
          &RopeScalingSpec::highFrequencyFactor);
    visit(Field{.name = "originalContext",
                .meaning = "The context before the frequencies were stretched; 0 takes the "
                           "preset's, else 8192.",
                .minimum = 0,
                .maximum = 1 << 20},
          &RopeScalingSpec::originalContext);
  }
};

template <>
struct Schema<ModelSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "preset",
                .meaning = "A known size; the fields below then override single dimensions of it.",
                .choices = "gpt2-124m gpt2-350m gpt2-774m gpt2-1.5b llama-2-7b llama-2-13b "
                           "llama-2-70b llama-3-8b llama-3-70b llama-3.1-8b llama-3.1-70b "
                           "llama-3.1-405b llama-3.2-1b llama-3.2-3b"},
          &ModelSpec::preset);
    visit(Field{.name = "family",
                .meaning = "The architecture of the model. Empty takes the preset's, else gpt2.",
                .choices = "gpt2 llama"},
          &ModelSpec::family);
    visit(Field{.name = "layers",
                .meaning = "Transformer blocks; 0 takes the preset's.",
                .minimum = 0,
                .maximum = 1024},
          &ModelSpec::layers);
    visit(Field{.name = "width",
                .meaning = "Channels of the residual stream; 0 takes the preset's. A multiple of "
                           "heads.",
                .minimum = 0,
                .maximum = 65536},
          &ModelSpec::width);
    visit(Field{.name = "heads",
                .meaning = "Attention heads; 0 takes the preset's. A multiple of "
                           "parallelism.tensor.",
                .minimum = 0,
                .maximum = 1024},
          &ModelSpec::heads);
    visit(Field{.name = "context",
                .meaning = "Tokens in a sequence; 0 takes the preset's.",
                .minimum = 0,
                .maximum = 1 << 20},
          &ModelSpec::context);
    visit(Field{.name = "vocabulary",
                .meaning = "Token ids; 0 takes the preset's, else what the tokenizer needs (bytes: "
                           "256).",
                .minimum = 0,
                .maximum = 1 << 24},
          &ModelSpec::vocabulary);
    visit(
        Field{.name = "hiddenWidth",
              .meaning = "Values between the MLP's products; 0 takes the preset's, else 4 x width "
                         "of a gpt2, and of a llama 8/3 x width, up to a multiple of 256.",
              .minimum = 0,
              .maximum = 1 << 18},
        &ModelSpec::hiddenWidth);
    visit(Field{.name = "head",
                .meaning = "Whether the head's weights are the token embedding (tied) or its own. "
                           "Empty takes the preset's, else tied of a gpt2, untied of a llama.",
                .choices = "tied untied"},
          &ModelSpec::head);
    visit(
        Field{.name = "kvHeads",
              .meaning = "Heads of keys and values, each shared by heads / kvHeads of queries, of "
                         "a llama; 0 takes the preset's, else heads. A multiple of "
                         "parallelism.tensor.",
              .minimum = 0,
              .maximum = 1024},
        &ModelSpec::kvHeads);
    visit(Field{.name = "ropeBase",
                .meaning = "Base of the rotary frequencies of a llama (rope_theta); 0 takes the "
                           "preset's, else 10000.",
                .minimum = 0,
                .maximum = 1e12},
          &ModelSpec::ropeBase);
    visit(Field{.name = "ropeScaling",
                .meaning = "How a llama's rotary frequencies are stretched to a longer context (as "
                           "Llama 3.1's)."},
          &ModelSpec::ropeScaling);
    visit(Field{.name = "normEpsilon",
                .meaning = "Added to the mean square in a llama's norms; 0 takes the preset's, "
                           "else 0.00001.",
                .minimum = 0,
                .maximum = 1},
          &ModelSpec::normEpsilon);
    visit(Field{.name = "weights",
                .meaning = "The parameters that training begins with; a checkpoint of the job goes "
                           "before them."},
          &ModelSpec::weights);
  }
};

template <>
struct Schema<DataSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "path",
                .meaning = "A file, or a folder whose files are read in the order of their names; "
                           "in the pod, or relative to the YAML's folder with lockstep run.",
                .required = true,
                .bytes_max = kPathBytesMax},
          &DataSpec::path);
    visit(Field{.name = "tokenizer",
                .meaning = "bytes makes one token of each byte; u16 and u32 files hold token ids, "
                           "little-endian.",
                .choices = "bytes u16 u32"},
          &DataSpec::tokenizer);
    visit(Field{.name = "validationFraction",
                .meaning = "The last part of the data, held back for validation.",
                .minimum = 0,
                .maximum = 0.5},
          &DataSpec::validationFraction);
    visit(Field{.name = "seed",
                .meaning = "Seed of the order in which samples are drawn.",
                .minimum = 0},
          &DataSpec::seed);
  }
};

template <>
struct Schema<BatchSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "global",
                .meaning = "Sequences of one optimizer step, over all ranks.",
                .minimum = 1,
                .maximum = kBatchMax},
          &BatchSpec::global);
    visit(Field{.name = "micro",
                .meaning = "Sequences of one forward pass on one rank; gradients accumulate until "
                           "global is reached. 0 takes a rank's whole share.",
                .minimum = 0,
                .maximum = kBatchMax},
          &BatchSpec::micro);
  }
};

template <>
struct Schema<OptimizerSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "name",
                .meaning = "The rule by which parameters are updated.",
                .choices = "adamw"},
          &OptimizerSpec::name);
    visit(Field{.name = "learningRate",
                .meaning = "The learning rate when the warm-up is over.",
                .minimum = 0,
                .maximum = 100,
                .above_minimum = true},
          &OptimizerSpec::learningRate);
    visit(Field{.name = "schedule",
                .meaning = "How the learning rate goes on after the warm-up.",
                .choices = "constant linear cosine"},
          &OptimizerSpec::schedule);
    visit(Field{.name = "warmupSteps",
                .meaning = "Steps in which the learning rate rises from 0.",
                .minimum = 0,
                .maximum = kStepsMax},
          &OptimizerSpec::warmupSteps);
    visit(
        Field{.name = "minimumLearningRate",
              .meaning = "The learning rate at which linear and cosine end; at most learningRate.",
              .minimum = 0,
              .maximum = 100},
        &OptimizerSpec::minimumLearningRate);
    visit(Field{.name = "beta1",
                .meaning = "Decay of the gradient's running mean.",
                .minimum = 0,
                .maximum = 0.999999},
          &OptimizerSpec::beta1);
    visit(Field{.name = "beta2",
                .meaning = "Decay of the squared gradient's running mean.",
                .minimum = 0,
                .maximum = 0.999999},
          &OptimizerSpec::beta2);
    visit(Field{.name = "epsilon",
                .meaning = "Added to the denominator of the update.",
                .minimum = 0,
                .maximum = 1,
                .above_minimum = true},
          &OptimizerSpec::epsilon);
    visit(Field{.name = "weightDecay",
                .meaning = "Decay of the weights, decoupled from the gradient; of matrices alone.",
                .minimum = 0,
                .maximum = 10},
          &OptimizerSpec::weightDecay);
    visit(Field{.name = "clipNorm",
                .meaning = "Bound of the norm of all gradients together; 0 is none.",
                .minimum = 0,
                .maximum = 1e9},
          &OptimizerSpec::clipNorm);
  }
};

template <>
struct Schema<ValidationSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "everySteps",
                .meaning = "Steps from one validation to the next; 0 validates at the end alone. "
                           "Needs data.validationFraction above 0.",
                .minimum = 0,
                .maximum = kStepsMax},
          &ValidationSpec::everySteps);
  }
};

template <>
struct Schema<SampleSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "tokens",
                .meaning = "Tokens generated after the last step; 0 is none.",
                .minimum = 0,
                .maximum = 65536},
          &SampleSpec::tokens);
    visit(Field{.name = "prompt", .meaning = "The text that is continued."}, &SampleSpec::prompt);
    visit(Field{.name = "temperature",
                .meaning = "How freely tokens are drawn: below 1 sharpens the distribution, 0 "
                           "always takes the likeliest.",
                .minimum = 0,
                .maximum = 100},
          &SampleSpec::temperature);
    visit(Field{.name = "topK",
                .meaning = "How many of the likeliest tokens are drawn from; 0 is all of them.",
                .minimum = 0,
                .maximum = 1 << 24},
          &SampleSpec::topK);
    visit(Field{.name = "seed", .meaning = "Seed of the draws.", .minimum = 0}, &SampleSpec::seed);
  }
};

template <>
struct Schema<TrainSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "model", .meaning = "What is trained."}, &TrainSpec::model);
    visit(Field{.name = "data", .meaning = "What it is trained on.", .required = true},
          &TrainSpec::data);
    visit(Field{.name = "steps",
                .meaning = "Updates of the parameters.",
                .minimum = 1,
                .maximum = kStepsMax},
          &TrainSpec::steps);
    visit(Field{.name = "batch", .meaning = "Sequences of one step."}, &TrainSpec::batch);
    visit(Field{.name = "optimizer", .meaning = "How the parameters are updated."},
          &TrainSpec::optimizer);
    visit(Field{.name = "precision",
                .meaning = "Precision of matrix products; parameters and sums are kept in fp32.",
                .choices = "fp32 bf16"},
          &TrainSpec::precision);
    visit(Field{.name = "rounding",
                .meaning = "How the bf16 copies of the fp32 parameters, which products read with "
                           "precision: bf16, are rounded: to the nearest even, or stochastically, "
                           "up or down with the odds of what is cut off, drawn from seed, step "
                           "and element, so that copies are right on average.",
                .choices = "nearest stochastic"},
          &TrainSpec::rounding);
    visit(Field{.name = "recompute",
                .meaning = "What backward computes again instead of having it kept, to save "
                           "memory: what norms and GELU give, or whole blocks of the model but "
                           "their inputs. The results are the same, but for the last bits of ops "
                           "with precision bf16 on a GPU.",
                .choices = "none ops blocks"},
          &TrainSpec::recompute);
    visit(Field{.name = "attention",
                .meaning = "Whose kernels compute attention on GPUs with precision bf16: "
                           "Lockstep's own, cuDNN's (heads of 64 or 128; backward needs memory "
                           "for a score of each pair of tokens), or whichever of the two is "
                           "measured to be faster when the job begins, which is kept in "
                           "checkpoint.path. They differ in the last bits.",
                .choices = "own cudnn auto"},
          &TrainSpec::attention);
    visit(Field{.name = "seed",
                .meaning = "Seed of the initial parameters, and of stochastic rounding.",
                .minimum = 0},
          &TrainSpec::seed);
    visit(Field{.name = "bucketBytes",
                .meaning = "Bytes of gradients that are all-reduced together.",
                .minimum = 1024,
                .maximum = 1 << 30},
          &TrainSpec::bucketBytes);
    visit(Field{.name = "validation", .meaning = "When the held back data is scored."},
          &TrainSpec::validation);
    visit(Field{.name = "sample", .meaning = "Text generated at the end."}, &TrainSpec::sample);
  }
};

template <>
struct Schema<ParallelismSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "tensor",
                .meaning = "Ranks that share every layer. This version carries out 1.",
                .minimum = 1,
                .maximum = 1024},
          &ParallelismSpec::tensor);
    visit(Field{.name = "pipeline",
                .meaning = "Stages that share the layers. This version carries out 1.",
                .minimum = 1,
                .maximum = 1024},
          &ParallelismSpec::pipeline);
    visit(Field{.name = "sharding",
                .meaning = "What data-parallel ranks share instead of each holding all of it. This "
                           "version carries out none.",
                .choices = "none optimizer gradients parameters"},
          &ParallelismSpec::sharding);
  }
};

template <>
struct Schema<ProcessGroupSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "name",
                .meaning = "Lower-case letters, digits and hyphens, from a letter on; unique.",
                .required = true,
                .bytes_max = 63},
          &ProcessGroupSpec::name);
    visit(Field{.name = "ranks",
                .meaning = "Its ranks in the group's order: \"0,7\", \"0-3\", \"0::2\" "
                           "(start:stop:step, stop exclusive), and lists of these.",
                .required = true},
          &ProcessGroupSpec::ranks);
  }
};

template <>
struct Schema<RendezvousSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "port",
                .meaning = "The port of local rank 0 on every node; local rank i listens on port + "
                           "i. With command, round r adds ((r - 1) mod 8) x processesPerNode.",
                .minimum = 1,
                .maximum = 65535},
          &RendezvousSpec::port);
    visit(Field{.name = "timeoutSeconds",
                .meaning =
                    "Time from the assignment until all ranks of the built-in loop are connected.",
                .minimum = 1,
                .maximum = 86400},
          &RendezvousSpec::timeoutSeconds);
    visit(Field{.name = "variables",
                .meaning = "Variables that a command gets beside torchrun's, by the framework that "
                           "reads them.",
                .choices = "jax tensorflow mpi",
                .items_max = 3},
          &RendezvousSpec::variables);
  }
};

template <>
struct Schema<CheckpointSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "path",
                .meaning = "A folder that all nodes see; empty writes none (lockstep run puts it "
                           "into its output folder). A command gets it as "
                           "LOCKSTEP_CHECKPOINT_PATH.",
                .bytes_max = kPathBytesMax},
          &CheckpointSpec::path);
    visit(Field{.name = "everySteps",
                .meaning = "Steps from one checkpoint to the next; 0 writes one at the end alone.",
                .minimum = 0,
                .maximum = kStepsMax},
          &CheckpointSpec::everySteps);
    visit(Field{.name = "keep",
                .meaning = "How many of the newest checkpoints stay.",
                .minimum = 1,
                .maximum = 10000},
          &CheckpointSpec::keep);
    visit.refused({"onPreemption", "string", "Time that a node's end leaves to save."});
  }
};

// Reasons of failures: what the agents say of processes, what became of pods, and why pods didn't
// start.
inline constexpr std::string_view kProcessEvents =
    "Error Signal OOMKilled StartError Suspected Hang";
inline constexpr std::string_view kFailureEvents =
    "Error Signal OOMKilled StartError Suspected Hang AgentSilent PodLost PodDeleted PodFailed "
    "PodStopped "
    "PodEnded PodRejected Evicted Preempted NodeTainted NodeShutdown NodeNotReady NodeDeleted "
    "NoAddress Unschedulable ImagePullFailed ContainerCreateFailed PodPending "
    "AgentDisagrees";

template <>
struct Schema<FailureRule> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "exitCodes",
                .meaning = "Exit codes that the rule is about, 128 + signal where a signal ended "
                           "the process; any, if left out.",
                .minimum = 1,
                .maximum = 255,
                .items_max = 255},
          &FailureRule::exitCodes);
    visit(Field{.name = "event",
                .meaning = "The reason that the rule is about, as in status.lastFailure; any, if "
                           "left out.",
                .choices = kFailureEvents},
          &FailureRule::event);
    visit(Field{.name = "action",
                .meaning = "What follows: Fail ends the job; RestartInPlace starts all ranks again "
                           "in their pods; RecreatePod makes the failed one's pod anew; Ignore "
                           "restarts as without a rule, and doesn't count against maxRestarts.",
                .choices = "Fail RestartInPlace RecreatePod Ignore",
                .required = true},
          &FailureRule::action);
    visit(Field{.name = "after",
                .meaning = "Of event Hang: how long the others wait in a step for a rank until it "
                           "hangs, such as 90s, 10m or 1h, and at least 5 times as long as the "
                           "median step; 20s, if left out.",
                .bytes_max = 8},
          &FailureRule::after);
  }
};

template <>
struct Schema<FailureSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "maxRestarts",
                .meaning = "Restarts after which the next failure fails the job.",
                .minimum = 0,
                .maximum = 1e6},
          &FailureSpec::maxRestarts);
    visit(Field{.name = "rules",
                .meaning = "What to do after which exit code or event; the first rule that speaks "
                           "of a failure decides.",
                .items_max = 32},
          &FailureSpec::rules);
    visit(Field{.name = "pendingTimeoutSeconds",
                .meaning = "Time that a pod may take from its creation until it runs; then it has "
                           "failed, and is made anew. 0 is no limit.",
                .minimum = 0,
                .maximum = kDayMax},
          &FailureSpec::pendingTimeoutSeconds);
    visit(Field{.name = "avoidNodes",
                .meaning = "Failures on one Kubernetes node, among the newest ten, after which the "
                           "job's pods avoid it; 0 is never.",
                .minimum = 0,
                .maximum = 10},
          &FailureSpec::avoidNodes);
  }
};

template <>
struct Schema<TrainingJobSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "nodes", .meaning = "Pods of the job.", .minimum = 1, .maximum = kNodesMax},
          &TrainingJobSpec::nodes);
    visit(Field{.name = "gpusPerNode",
                .meaning = "GPUs of each pod, as its limit nvidia.com/gpu; 0 computes on the CPU.",
                .minimum = 0,
                .maximum = kProcessesMax},
          &TrainingJobSpec::gpusPerNode);
    visit(Field{.name = "processesPerNode",
                .meaning = "Ranks of each pod; 0 is one a GPU, or one on the CPU. With train and "
                           "gpusPerNode a multiple of it.",
                .minimum = 0,
                .maximum = kProcessesMax},
          &TrainingJobSpec::processesPerNode);
    visit(Field{.name = "threadsPerProcess",
                .meaning = "CPU threads of each rank; 0 is the pod's CPUs divided by its ranks "
                           "(`lockstep run`: this machine's CPUs divided by all ranks). A command "
                           "gets it as OMP_NUM_THREADS.",
                .minimum = 0,
                .maximum = 4096},
          &TrainingJobSpec::threadsPerProcess);
    visit(Field{.name = "image",
                .meaning = "Container image of the pods, any one, since the agent is put into it; "
                           "empty is the controller's --job-image. lockstep run uses the "
                           "machine's own binaries.",
                .bytes_max = 512},
          &TrainingJobSpec::image);
    visit(Field{.name = "train", .meaning = "The built-in training loop."},
          &TrainingJobSpec::train);
    visit(Field{.name = "command",
                .meaning = "A program and its arguments, instead of train: every rank runs it, "
                           "with torchrun's variables in its environment.",
                .bytes_max = kCommandWordBytesMax,
                .items_max = 1000},
          &TrainingJobSpec::command);
    visit(Field{.name = "parallelism",
                .meaning = "How the ranks share the model; what is left is data parallel."},
          &TrainingJobSpec::parallelism);
    visit(Field{.name = "processGroups",
                .meaning = "Named groups of ranks beside the mesh's own. A command finds them in "
                           "LOCKSTEP_WORLD_FILE; the built-in loop does not use them.",
                .items_max = 256,
                .list_key = "name"},
          &TrainingJobSpec::processGroups);
    visit(Field{.name = "rendezvous", .meaning = "How the ranks find each other."},
          &TrainingJobSpec::rendezvous);
    visit(Field{.name = "checkpoint", .meaning = "Where and when the state is saved."},
          &TrainingJobSpec::checkpoint);
    visit(Field{.name = "failure", .meaning = "What follows a failure."},
          &TrainingJobSpec::failure);
    visit(Field{.name = "successPolicy",
                .meaning = "Whose ending with exit code 0 completes the job: AllRanks, or, of a "
                           "command, RankZero, whose end the others do not outlive.",
                .choices = "AllRanks RankZero"},
          &TrainingJobSpec::successPolicy);
    visit(Field{.name = "suspend",
                .meaning = "true saves a checkpoint (a command gets SIGTERM) and ends the pods; "
                           "false goes on from there."},
          &TrainingJobSpec::suspend);
    visit(Field{.name = "terminationGracePeriodSeconds",
                .meaning = "Time from asking the ranks to end (SIGTERM) to ending them (SIGKILL).",
                .minimum = 0,
                .maximum = 86400},
          &TrainingJobSpec::terminationGracePeriodSeconds);
    visit(Field{.name = "activeDeadlineSeconds",
                .meaning = "Time after which the job fails, from its start or its last resumption "
                           "on; 0 is none.",
                .minimum = 0,
                .maximum = kDayMax},
          &TrainingJobSpec::activeDeadlineSeconds);
    visit(Field{.name = "ttlSecondsAfterFinished",
                .meaning = "Time from the end of the job until it is deleted, with its pods; -1 "
                           "keeps it.",
                .minimum = -1,
                .maximum = kDayMax},
          &TrainingJobSpec::ttlSecondsAfterFinished);
    visit(Field{.name = "managedBy",
                .meaning =
                    "Who carries the job out, domain/path; empty or lockstep.dev/controller is "
                    "Lockstep, which leaves others' jobs alone.",
                .bytes_max = 63},
          &TrainingJobSpec::managedBy);
    visit(Field{.name = "podTemplate",
                .meaning = "A PodTemplateSpec, merged last into the pods; what would break the job "
                           "is refused by path. The container is named node."},
          &TrainingJobSpec::podTemplate);
    visit.refused({"elastic", "object", "Training on with fewer nodes."});
    visit.refused({"scheduling", "object", "Gangs, queues and topology."});
    visit.refused({"parameterServers", "object", "Nodes that hold the parameters."});
  }
};

}  // namespace lockstep
