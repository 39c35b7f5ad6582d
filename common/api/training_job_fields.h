#pragma once

#include "common/api/codec.h"
#include "common/api/train_fields.h"
#include "common/api/training_job.h"

namespace lockstep {

// The single list of a TrainingJob's fields: names, meanings and ranges. The codec, validate(), the
// CRD and docs/trainingjob.md are all derived from it (schema.h). The fields of spec.train are in
// train_fields.h.

// `<job>-worker-<index>-<incarnation>` is a pod's name and host name, limited to 63 bytes. The
// suffix needs up to "-worker-" + 4 digits + "-" + 10 digits.
inline constexpr int64_t kJobNameBytesMax = 40;
inline constexpr double kNodesMax = 4096;
inline constexpr double kProcessesMax = 64;  // per node
inline constexpr int64_t kWorldSizeMax = 65536;
inline constexpr size_t kCommandWordBytesMax = 64 << 10;
inline constexpr size_t kCommandBytesMax = 128 << 10;
inline constexpr int64_t kPipelinePartsMax = 1024;
inline constexpr std::string_view kPipelineSchedules =
    "naive gpipe 1f1b interleaved zerobubble pipedream";
inline constexpr double kDayMax = 365 * 86400;  // seconds

// Visits the fields of StateSharing in `Owner`, which is one.
template <class Owner, class Visit>
void visit_sharing(Visit&& visit) {
  const auto field = [&visit]<class T>(const Field& described, T StateSharing::*member) {
    visit(described, static_cast<T Owner::*>(member));
  };
  field({.name = "sequenceParallel",
         .meaning = "With tensor: 2 or more, true divides the positions of each sequence among "
                    "the tensor-parallel ranks where layers work position by position (norms, "
                    "residual additions): less memory for activations."},
        &StateSharing::sequenceParallel);
  field(
      {.name = "sharding",
       .meaning = "State that the ranks of a sharding group divide instead of each holding all of "
                  "it: the optimizer's, also the gradients, also the parameters.",
       .choices = "none optimizer gradients parameters"},
      &StateSharing::sharding);
  field({.name = "shardingGroup",
         .meaning = "Ranks that divide the state: data means all data-parallel ranks; node means "
                    "those of one node, so that all nodes hold the same state.",
         .choices = "data node"},
        &StateSharing::shardingGroup);
  field(
      {
          .name = "reshardAfterForward",
          .meaning =
              "With sharding: parameters, true frees a block's gathered parameters after its "
              "forward and gathers them again for its backward; false keeps them.",
      },
      &StateSharing::reshardAfterForward);
  field({.name = "prefetch",
         .meaning = "With sharding: parameters, true gathers the next block while one computes; "
                    "false is for measurements."},
        &StateSharing::prefetch);
  field({.name = "gatherPrecision",
         .meaning = "With sharding: parameters, the type in which parameters travel and are "
                    "computed with.",
         .choices = "fp32 bf16"},
        &StateSharing::gatherPrecision);
  field({.name = "reducePrecision",
         .meaning = "The type in which gradients travel and are added.",
         .choices = "fp32 bf16"},
        &StateSharing::reducePrecision);
  field({.name = "transferPrecision",
         .meaning = "With pipeline: 2 or more, the type in which activations and their gradients "
                    "travel between stages; auto is the one that they are computed in.",
         .choices = "auto fp32 bf16"},
        &StateSharing::transferPrecision);
  field({.name = "offload",
         .meaning = "State that is kept in host memory (on GPUs) or in a scratch file, and fetched "
                    "piece by piece: the optimizer's, also the parameters.",
         .choices = "none optimizer parameters"},
        &StateSharing::offload);
  field(
      {.name = "offloadPath",
       .meaning = "Folder for the scratch file: a path in the pod or, with lockstep run, relative "
                  "to the YAML's folder. Empty means host memory on GPUs, and $TMPDIR or /tmp on "
                  "CPUs.",
       .bytes_max = kPathBytesMax},
      &StateSharing::offloadPath);
  field({.name = "exchange",
         .meaning = "How gradients and parameters travel: allReduce; firstRank collects gradients, "
                    "updates and sends parameters; host does so in the memory of one node.",
         .choices = "allReduce firstRank host"},
        &StateSharing::exchange);
  field({.name = "stages",
         .meaning =
             "Layers of each part of the model, from first to last: pipeline x virtualStages "
             "numbers. None means parts that take about as long as each other. A residual block "
             "of a convnet counts as one layer.",
         .minimum = 1,
         .maximum = kPipelinePartsMax,
         .items_max = kPipelinePartsMax},
        &StateSharing::stages);
  field({.name = "weightStashing",
         .meaning = "With pipelineSchedule: pipedream, true runs a micro-batch's backward with the "
                    "parameters that its forward used, which a stage keeps meanwhile; false with "
                    "the latest ones."},
        &StateSharing::weightStashing);
  field({.name = "verticalSync",
         .meaning = "With pipelineSchedule: pipedream, true uses on every stage the version of the "
                    "parameters that was the first stage's latest when the micro-batch entered "
                    "it."},
        &StateSharing::verticalSync);
}

template <>
struct Schema<ParallelismSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "tensor",
                .meaning = "Ranks that share every layer of a transformer: its heads, hidden units "
                           "and vocabulary.",
                .minimum = 1,
                .maximum = 1024},
          &ParallelismSpec::tensor);
    visit(Field{.name = "pipeline",
                .meaning = "Stages among which the layers of the model are divided; "
                           "micro-batches pass through them one after the other.",
                .minimum = 1,
                .maximum = 1024},
          &ParallelismSpec::pipeline);
    visit(
        Field{.name = "pipelineSchedule",
              .meaning = "Order of a step's micro-batches: 1f1b keeps at most as many in flight "
                         "as there are stages; gpipe runs all forward passes first; naive has one "
                         "in flight; interleaved is like 1f1b, with virtualStages parts of the "
                         "model on each stage; zerobubble is like 1f1b, with the gradients of "
                         "parameters computed while a stage would wait; pipedream never waits for "
                         "a step's end: batches follow each other, and their gradients are of "
                         "older parameters.",
              .choices = kPipelineSchedules},
        &ParallelismSpec::pipelineSchedule);
    visit(Field{.name = "virtualStages",
                .meaning = "Parts of the model on each stage of an interleaved pipeline: a "
                           "micro-batch passes through all stages that many times. More of them "
                           "leave stages less time idle and send more messages.",
                .minimum = 1,
                .maximum = 1024},
          &ParallelismSpec::virtualStages);
    visit_sharing<ParallelismSpec>(visit);
  }
};

template <>
struct Schema<ProcessGroupSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "name",
                .meaning =
                    "Unique name: lower-case letters, digits and hyphens, starting with a letter.",
                .required = true,
                .bytes_max = 63},
          &ProcessGroupSpec::name);
    visit(Field{.name = "ranks",
                .meaning = "Ranks of the group, in its order: \"0,7\", \"0-3\", \"0::2\" "
                           "(start:stop:step, stop exclusive), or lists of these.",
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
                .meaning = "Time limit for all ranks of the built-in loop to connect, counted from "
                           "the assignment.",
                .minimum = 1,
                .maximum = 86400},
          &RendezvousSpec::timeoutSeconds);
    visit(
        Field{
            .name = "variables",
            .meaning =
                "Frameworks whose environment variables a command gets in addition to torchrun's.",
            .choices = "jax tensorflow mpi",
            .items_max = 3},
        &RendezvousSpec::variables);
  }
};

template <>
struct Schema<MemoryStatesSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "everySteps",
                .meaning = "Steps between two copies of the state into memory.",
                .minimum = 1,
                .maximum = kStepsMax},
          &MemoryStatesSpec::everySteps);
    visit(Field{.name = "copies",
                .meaning = "Copies of each rank's state in memory of the next node, from which "
                           "training resumes if a pod is lost. Without effect on a single node.",
                .minimum = 0,
                .maximum = 1},
          &MemoryStatesSpec::copies);
  }
};

template <>
struct Schema<CheckpointSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "path",
                .meaning = "Folder for checkpoints, shared by all nodes. Empty writes no "
                           "checkpoints (lockstep run uses its output folder). A command gets it "
                           "as LOCKSTEP_CHECKPOINT_PATH.",
                .bytes_max = kPathBytesMax},
          &CheckpointSpec::path);
    visit(Field{.name = "everySteps",
                .meaning = "Steps between checkpoints; 0 writes none before the end.",
                .minimum = 0,
                .maximum = kStepsMax},
          &CheckpointSpec::everySteps);
    visit(Field{.name = "atEnd",
                .meaning = "Whether the last step writes a checkpoint even if everySteps does not "
                           "divide it. A job that is stopped earlier always writes one."},
          &CheckpointSpec::atEnd);
    visit(Field{.name = "keep",
                .meaning = "Number of the newest checkpoints to keep.",
                .minimum = 1,
                .maximum = 10000},
          &CheckpointSpec::keep);
    visit(Field{.name = "onPreemption",
                .meaning = "Time that the ranks of a pod get to save a checkpoint and exit when "
                           "the pod is deleted, drained or preempted, such as 60s, 10m or 1h. "
                           "Extends terminationGracePeriodSeconds if it is longer. Needs path.",
                .bytes_max = 8},
          &CheckpointSpec::onPreemption);
    visit(Field{.name = "memory",
                .meaning = "Keeps the two newest states in memory of the pods. After a process "
                           "has failed, training resumes from them."},
          &CheckpointSpec::memory);
  }
};

inline constexpr std::string_view kLossEvents = "LossNotFinite LossSpike";
inline constexpr std::string_view kLossActions = "Fail RollBack SkipBatch";

// Reasons of failures: how agents classify processes, what happened to pods, and why pods did not
// start.
inline constexpr std::string_view kProcessEvents =
    "Error Signal OOMKilled StartError Suspected Hang Straggler";
inline constexpr std::string_view kFailureEvents =
    "Error Signal OOMKilled StartError Suspected Hang Straggler LossNotFinite LossSpike "
    "AgentSilent "
    "PodLost "
    "PodDeleted PodFailed PodStopped "
    "PodEnded PodRejected Evicted Preempted NodeTainted NodeShutdown NodeNotReady NodeDeleted "
    "NoAddress Unschedulable ImagePullFailed ContainerCreateFailed PodPending "
    "AgentDisagrees";

template <>
struct Schema<LossRules> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "notFinite", .choices = kLossActions}, &LossRules::not_finite);
    visit(Field{.name = "spike", .choices = kLossActions}, &LossRules::spike);
    visit(Field{.name = "deviations", .minimum = 1, .maximum = 1000}, &LossRules::deviations);
  }
};

template <>
struct Schema<FailureRule> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "exitCodes",
                .meaning = "Exit codes that the rule matches, 128 + signal for a process killed by "
                           "a signal; any if omitted.",
                .minimum = 1,
                .maximum = 255,
                .items_max = 255},
          &FailureRule::exitCodes);
    visit(
        Field{.name = "event",
              .meaning =
                  "Failure reason that the rule matches, as in status.lastFailure; any if omitted.",
              .choices = kFailureEvents},
        &FailureRule::event);
    visit(Field{.name = "action",
                .meaning = "What to do: Fail ends the job; RestartInPlace restarts all ranks in "
                           "their pods; RecreatePod replaces the failed rank's pod; Ignore "
                           "restarts as without a rule, but does not count against maxRestarts. "
                           "For LossNotFinite and LossSpike: Fail; SkipBatch goes on with the next "
                           "batch from the state before the step; RollBack does so from the newest "
                           "checkpoint.",
                .choices = "Fail RestartInPlace RecreatePod Ignore RollBack SkipBatch",
                .required = true},
          &FailureRule::action);
    visit(Field{.name = "after",
                .meaning =
                    "For event Hang: how long the other ranks wait in a step for a rank "
                    "before it counts as hung, such as 90s, 10m or 1h, but at least 5 times "
                    "the median step; 20s if omitted. A command's rank counts as hung if it "
                    "has written nothing to its progress file for so long; 10m if omitted. For "
                    "event Straggler: how long a rank may be slower than its peers; 5m if "
                    "omitted.",
                .bytes_max = 8},
          &FailureRule::after);
    visit(Field{.name = "deviations",
                .meaning = "For event LossSpike: how many standard deviations above the mean of "
                           "the last 20 or so losses a loss is a spike; 0 means 10.",
                .minimum = 0,
                .maximum = 1000},
          &FailureRule::deviations);
  }
};

template <>
struct Schema<FailureSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "maxRestarts",
                .meaning = "Number of restarts after which the next failure fails the job.",
                .minimum = 0,
                .maximum = 1e6},
          &FailureSpec::maxRestarts);
    visit(Field{.name = "rules",
                .meaning = "What to do after an exit code or event; the first rule that matches a "
                           "failure decides.",
                .items_max = 32},
          &FailureSpec::rules);
    visit(Field{.name = "pendingTimeoutSeconds",
                .meaning = "Time limit from a pod's creation until it runs; a pod that exceeds it "
                           "counts as failed and is replaced. 0 means no limit.",
                .minimum = 0,
                .maximum = kDayMax},
          &FailureSpec::pendingTimeoutSeconds);
    visit(Field{.name = "avoidNodes",
                .meaning = "Failures on one Kubernetes node, among the newest ten, after which the "
                           "job's pods avoid it; 0 means never.",
                .minimum = 0,
                .maximum = 10},
          &FailureSpec::avoidNodes);
  }
};

template <>
struct Schema<SecuritySpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "encryption",
                .meaning = "required encrypts all that the built-in loop's ranks send each other "
                           "between pods, and what the controller and agents tell each other, "
                           "and refuses what cannot; none authenticates both only. With several "
                           "nodes of GPUs, required does without NCCL, which does not encrypt.",
                .choices = "none required"},
          &SecuritySpec::encryption);
    visit(Field{.name = "networkPolicy",
                .meaning = "job closes the pods by a NetworkPolicy: they are open to each other, "
                           "and the agent's port to the controller and to scrapes; none makes no "
                           "policy; auto is job with train and none with command. The cluster's "
                           "CNI enforces it.",
                .choices = "auto job none"},
          &SecuritySpec::networkPolicy);
  }
};

template <>
struct Schema<ElasticSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "min",
                .meaning = "Fewest nodes that train. With fewer, the job waits for pods.",
                .minimum = 1,
                .maximum = kNodesMax},
          &ElasticSpec::min);
    visit(Field{.name = "max",
                .meaning = "Most nodes that spec.nodes may be scaled to.",
                .minimum = 1,
                .maximum = kNodesMax},
          &ElasticSpec::max);
  }
};

template <>
struct Schema<ServerRowsSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "idleSteps",
                .meaning = "Steps without a use after which a row expires if its frequency is "
                           "below minFrequency; 0: rows live forever. A row that is used again "
                           "begins anew.",
                .minimum = 0,
                .maximum = 1e9},
          &ServerRowsSpec::idleSteps);
    visit(Field{.name = "minFrequency",
                .meaning = "Rows of at least this frequency do not expire. It is the number of "
                           "uses, or with halfLifeSteps of recent ones; a pull and a push are a "
                           "use each. Needs idleSteps.",
                .minimum = 0,
                .maximum = 1e9},
          &ServerRowsSpec::minFrequency);
    visit(Field{.name = "halfLifeSteps",
                .meaning = "Steps after which a use counts half in the frequency; 0: each counts 1 "
                           "forever. Needs idleSteps.",
                .minimum = 0,
                .maximum = 1e9},
          &ServerRowsSpec::halfLifeSteps);
    visit(Field{.name = "decay",
                .meaning = "Each step after its first update multiplies a row by 1 - decay, also "
                           "if it is not used.",
                .minimum = 0,
                .maximum = 0.5},
          &ServerRowsSpec::decay);
    visit(Field{.name = "pushThreshold",
                .meaning = "A row's gradient is kept back, and added to the worker's next one of "
                           "that row within 1000 steps, while no element is above this in "
                           "magnitude. 0: every row is sent.",
                .minimum = 0,
                .maximum = 1e6},
          &ServerRowsSpec::pushThreshold);
  }
};

template <>
struct Schema<ParameterServersSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "nodes",
                .meaning = "Number of pods that hold the parameters, in addition to spec.nodes. "
                           "Each has as many processes as one of the workers' pods. It may change "
                           "while the job trains.",
                .minimum = 1,
                .maximum = kNodesMax},
          &ParameterServersSpec::nodes);
    visit(Field{.name = "consistency",
                .meaning = "synchronous: a step is one update with the gradients of all workers. "
                           "asynchronous: each worker's gradients update at once, and nobody "
                           "waits. boundedStaleness: likewise, but no worker is more than "
                           "staleness steps ahead of the slowest.",
                .choices = "synchronous asynchronous boundedStaleness"},
          &ParameterServersSpec::consistency);
    visit(Field{.name = "staleness",
                .meaning = "Steps that a worker may be ahead of the slowest one. Only with "
                           "boundedStaleness.",
                .minimum = 0,
                .maximum = 1e6},
          &ParameterServersSpec::staleness);
    visit(Field{.name = "backupWorkers",
                .meaning = "Ranks whose gradients a step does without: the slowest ones. Only "
                           "with synchronous.",
                .minimum = 0,
                .maximum = kNodesMax},
          &ParameterServersSpec::backupWorkers);
    visit(
        Field{.name = "copies",
              .meaning =
                  "Further servers that hold each parameter. With at least one, training "
                  "goes on without a server that loses its process or its pod, and the "
                  "server is filled by the others when it is back. Needs one process on each node.",
              .minimum = 0,
              .maximum = 7},
        &ParameterServersSpec::copies);
    visit(Field{.name = "pushPrecision",
                .meaning = "Type of gradients on their way to servers. What bf16 and int8 lose is "
                           "added to the worker's next gradient of the same parameter.",
                .choices = "fp32 bf16 int8"},
          &ParameterServersSpec::pushPrecision);
    visit(Field{.name = "pullPrecision",
                .meaning = "Type of parameters on their way to workers. Servers keep them in fp32.",
                .choices = "fp32 bf16 int8"},
          &ParameterServersSpec::pullPrecision);
    visit(
        Field{.name = "rows",
              .meaning = "How long rows of a click model live on servers, and when they are sent."},
        &ParameterServersSpec::rows);
  }
};

template <>
struct Schema<TrainingJobSpec> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "nodes",
                .meaning = "Number of pods of the job, but for those of parameterServers.",
                .minimum = 1,
                .maximum = kNodesMax},
          &TrainingJobSpec::nodes);
    visit(Field{.name = "elastic",
                .meaning = "Lets the job train with fewer nodes while pods are missing."},
          &TrainingJobSpec::elastic);
    visit(Field{.name = "gpusPerNode",
                .meaning = "GPUs per pod, set as its limit nvidia.com/gpu; 0 computes on the CPU.",
                .minimum = 0,
                .maximum = kProcessesMax},
          &TrainingJobSpec::gpusPerNode);
    visit(Field{.name = "processesPerNode",
                .meaning = "Ranks per pod; 0 means one per GPU, or one on the CPU. With train and "
                           "gpusPerNode, a multiple of gpusPerNode.",
                .minimum = 0,
                .maximum = kProcessesMax},
          &TrainingJobSpec::processesPerNode);
    visit(Field{.name = "threadsPerProcess",
                .meaning = "CPU threads per rank; 0 means the pod's CPUs divided by its ranks "
                           "(`lockstep run`: this machine's CPUs divided by all ranks). A command "
                           "gets it as OMP_NUM_THREADS.",
                .minimum = 0,
                .maximum = 4096},
          &TrainingJobSpec::threadsPerProcess);
    visit(Field{.name = "image",
                .meaning = "Container image of the pods. Any image works, because the agent is "
                           "copied into it. Empty means the controller's --job-image. lockstep run "
                           "uses the machine's own binaries.",
                .bytes_max = 512},
          &TrainingJobSpec::image);
    visit(Field{.name = "train", .meaning = "The built-in training loop."},
          &TrainingJobSpec::train);
    visit(Field{.name = "command",
                .meaning = "A program and its arguments, instead of train. Every rank runs it, "
                           "with torchrun's variables in its environment.",
                .bytes_max = kCommandWordBytesMax,
                .items_max = 1000},
          &TrainingJobSpec::command);
    visit(Field{.name = "parameterServers",
                .meaning = "Nodes that hold the parameters, and from which the workers pull what "
                           "they need. Without them, each worker has its own."},
          &TrainingJobSpec::parameterServers);
    visit(Field{.name = "parallelism",
                .meaning = "How the ranks share the model. The remaining factor of the world size "
                           "is data parallel."},
          &TrainingJobSpec::parallelism);
    visit(
        Field{.name = "processGroups",
              .meaning = "Named groups of ranks, in addition to those of the mesh. A command finds "
                         "them in LOCKSTEP_WORLD_FILE; the built-in loop does not use them.",
              .items_max = 256,
              .list_key = "name"},
        &TrainingJobSpec::processGroups);
    visit(Field{.name = "rendezvous", .meaning = "How the ranks find each other."},
          &TrainingJobSpec::rendezvous);
    visit(Field{.name = "checkpoint", .meaning = "Where and when checkpoints are saved."},
          &TrainingJobSpec::checkpoint);
    visit(Field{.name = "failure", .meaning = "What to do after a failure."},
          &TrainingJobSpec::failure);
    visit(Field{.name = "security", .meaning = "Protection of the job's traffic."},
          &TrainingJobSpec::security);
    visit(Field{.name = "successPolicy",
                .meaning = "Ranks that must exit with code 0 to complete the job: AllRanks or, "
                           "with command, RankZero, whose exit also ends the other ranks.",
                .choices = "AllRanks RankZero"},
          &TrainingJobSpec::successPolicy);
    visit(Field{.name = "suspend",
                .meaning = "true saves a checkpoint (a command gets SIGTERM) and ends the pods; "
                           "false resumes from there."},
          &TrainingJobSpec::suspend);
    visit(Field{.name = "terminationGracePeriodSeconds",
                .meaning =
                    "Time between asking the ranks to exit (SIGTERM) and killing them (SIGKILL).",
                .minimum = 0,
                .maximum = kGraceSecondsMax},
          &TrainingJobSpec::terminationGracePeriodSeconds);
    visit(Field{.name = "activeDeadlineSeconds",
                .meaning = "Time after which the job fails, counted from its start or last "
                           "resumption; 0 means no limit.",
                .minimum = 0,
                .maximum = kDayMax},
          &TrainingJobSpec::activeDeadlineSeconds);
    visit(
        Field{.name = "ttlSecondsAfterFinished",
              .meaning =
                  "Time from the end of the job until it and its pods are deleted; -1 keeps them.",
              .minimum = -1,
              .maximum = kDayMax},
        &TrainingJobSpec::ttlSecondsAfterFinished);
    visit(
        Field{.name = "managedBy",
              .meaning =
                  "The controller that runs the job, as domain/path. Empty or "
                  "lockstep.dev/controller means Lockstep, which ignores other controllers' jobs.",
              .bytes_max = 63},
        &TrainingJobSpec::managedBy);
    visit(Field{.name = "podTemplate",
                .meaning = "A PodTemplateSpec, merged into the pods last. Fields that would break "
                           "the job are rejected with their path. The container is named node."},
          &TrainingJobSpec::podTemplate);
    visit.refused({"scheduling", "object", "Gang scheduling, queues and topology."});
  }
};

}  // namespace lockstep
