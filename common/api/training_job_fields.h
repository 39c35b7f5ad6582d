#pragma once

#include "common/api/codec.h"
#include "common/api/train_fields.h"
#include "common/api/training_job.h"

namespace lockstep {

// The single list of a TrainingJob's fields: names, meanings and ranges. The codec, validate(), the
// CRD and docs/trainingjob.md are all derived from it (schema.h). The fields of spec.train are in
// train_fields.h.

inline constexpr double kNodesMax = 4096;
inline constexpr double kProcessesMax = 64;  // per node
inline constexpr int64_t kWorldSizeMax = 65536;
inline constexpr size_t kCommandWordBytesMax = 64 << 10;
inline constexpr size_t kCommandBytesMax = 128 << 10;
inline constexpr double kDayMax = 365 * 86400;  // seconds

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

// Reasons of failures: how agents classify processes, what happened to pods, and why pods did not
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
