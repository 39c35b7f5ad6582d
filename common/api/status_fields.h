#pragma once

#include "common/api/codec.h"
#include "common/api/servers_view.h"
#include "common/api/step_number_table.h"
#include "common/api/training_job.h"

namespace lockstep {

// The fields of a TrainingJob's status, which the controller alone writes, and of its metadata.

template <>
struct Schema<ObjectMeta> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "name"}, &ObjectMeta::name);
    visit(Field{.name = "namespace"}, &ObjectMeta::namespace_);
    visit(Field{.name = "uid"}, &ObjectMeta::uid);
    visit(Field{.name = "resourceVersion"}, &ObjectMeta::resourceVersion);
    visit(Field{.name = "generation"}, &ObjectMeta::generation);
    visit(Field{.name = "creationTimestamp"}, &ObjectMeta::creationTimestamp);
    visit(Field{.name = "deletionTimestamp"}, &ObjectMeta::deletionTimestamp);
    visit(Field{.name = "finalizers"}, &ObjectMeta::finalizers);
    visit(Field{.name = "labels"}, &ObjectMeta::labels);
    visit(Field{.name = "annotations"}, &ObjectMeta::annotations);
  }
};

template <>
struct Schema<Condition> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "type",
                .meaning =
                    "Type of the condition: Valid, PodsScheduled, Ready, Running, "
                    "Restarting, Draining, Stuck, Straggling, PrecisionReduced, CheckpointFailing, "
                    "CheckpointSetAside, BatchSkipped, NetworkPolicyFailing, Suspended, "
                    "Complete or Failed.",
                .required = true},
          &Condition::type);
    visit(Field{.name = "status",
                .meaning = "Whether the condition holds.",
                .choices = "True False Unknown",
                .required = true},
          &Condition::status);
    visit(Field{.name = "reason", .meaning = "Reason in one word, for programs."},
          &Condition::reason);
    visit(Field{.name = "message", .meaning = "Reason in words, for people.", .bytes_max = 32768},
          &Condition::message);
    visit(Field{.name = "lastTransitionTime", .meaning = "When status last changed."},
          &Condition::lastTransitionTime);
    visit(Field{.name = "observedGeneration",
                .meaning = "The metadata.generation that the condition describes.",
                .minimum = 0},
          &Condition::observedGeneration);
  }
};

template <>
struct Schema<NodesStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(
        Field{.name = "desired", .meaning = "Desired number of pods, from the spec.", .minimum = 0},
        &NodesStatus::desired);
    visit(Field{.name = "ready", .meaning = "Running pods with an address.", .minimum = 0},
          &NodesStatus::ready);
  }
};

template <>
struct Schema<RendezvousStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "host", .meaning = "Address of rank 0."}, &RendezvousStatus::host);
    visit(Field{.name = "port", .meaning = "Port of rank 0.", .minimum = 0, .maximum = 65535},
          &RendezvousStatus::port);
    visit(Field{.name = "worldSize", .meaning = "Number of ranks in the round.", .minimum = 0},
          &RendezvousStatus::worldSize);
    visit(Field{.name = "nodeIndices",
                .meaning = "Node indices in the round, in the order of their ranks, such as "
                           "\"0,2-5\". Empty if they are the first ones.",
                .bytes_max = 65536},
          &RendezvousStatus::nodeIndices);
  }
};

template <>
struct Schema<ProgressStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    for (const StepNumber& number : step_number_table()) {
      if (number.status.name.empty()) continue;
      std::visit([&](auto member) { visit(number.status, as_own(member)); }, number.member);
    }
    visit(Field{.name = "precision",
                .meaning = "Precision that matrix products are computed in: spec.train.precision, "
                           "or fp32 where a rank's CPU can't multiply bf16.",
                .choices = "fp32 bf16"},
          &ProgressStatus::precision);
    visit(Field{.name = "updatedAt", .meaning = "Time of these numbers."},
          &ProgressStatus::updatedAt);
  }

 private:
  template <class T>
  static constexpr T ProgressStatus::*as_own(T StepNumbers::*member) {
    return member;
  }
};

template <>
struct Schema<RecoveryStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "detectSeconds",
                .meaning = "Time from the failure until the controller detected it.",
                .minimum = 0},
          &RecoveryStatus::detectSeconds);
    visit(Field{.name = "decideSeconds",
                .meaning = "Time until the controller had decided what to do.",
                .minimum = 0},
          &RecoveryStatus::decideSeconds);
    visit(Field{.name = "waitSeconds",
                .meaning = "Backoff time, because failures follow each other without progress.",
                .minimum = 0},
          &RecoveryStatus::waitSeconds);
    visit(Field{.name = "podsSeconds",
                .meaning = "Time until every pod of the next round ran; 0 if no pod was created.",
                .minimum = 0},
          &RecoveryStatus::podsSeconds);
    visit(
        Field{.name = "abortSeconds",
              .meaning = "Time that the slowest node took until its processes of the round before "
                         "had left it; absent if a node did not tell.",
              .minimum = 0},
        &RecoveryStatus::abortSeconds);
    visit(Field{.name = "respawnSeconds",
                .meaning = "Time that the slowest node then took until its processes connected to "
                           "others; absent if a node did not tell.",
                .minimum = 0},
          &RecoveryStatus::respawnSeconds);
    visit(Field{.name = "formSeconds",
                .meaning = "Time until all ranks were connected, apart from these two.",
                .minimum = 0},
          &RecoveryStatus::formSeconds);
    visit(Field{.name = "restoreSeconds",
                .meaning = "Time until all ranks trained again.",
                .minimum = 0},
          &RecoveryStatus::restoreSeconds);
    visit(Field{.name = "recomputeSeconds",
                .meaning = "Time after that until the steps that were lost had been done again, as "
                           "far as reports tell; absent if a further round began before. It is no "
                           "part of recoverySeconds.",
                .minimum = 0},
          &RecoveryStatus::recomputeSeconds);
  }
};

template <>
struct Schema<LostStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "seconds",
                .meaning = "Total time from failures and drains until all ranks trained again.",
                .minimum = 0},
          &LostStatus::seconds);
    visit(Field{.name = "steps", .meaning = "Total steps repeated after failures.", .minimum = 0},
          &LostStatus::steps);
  }
};

template <>
struct Schema<FailureStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "number",
                .meaning = "Number of the failure, counted over the whole job from 1.",
                .minimum = 0},
          &FailureStatus::number);
    visit(Field{.name = "rank",
                .meaning = "The rank that failed first; -1 means none or unknown, for example if a "
                           "whole pod was lost.",
                .minimum = -1},
          &FailureStatus::rank);
    visit(Field{.name = "nodeIndex",
                .meaning = "Node index of that rank; -1 means unknown.",
                .minimum = -1},
          &FailureStatus::nodeIndex);
    visit(Field{.name = "node", .meaning = "Kubernetes node of that rank's pod."},
          &FailureStatus::node);
    visit(Field{.name = "exitCode",
                .meaning =
                    "Exit code of that rank, 128 + signal if a signal killed it; -1 means unknown.",
                .minimum = -1},
          &FailureStatus::exitCode);
    visit(
        Field{
            .name = "reason",
            .meaning =
                "Reason of the failure in one word, such as Error, Signal, OOMKilled or PodLost."},
        &FailureStatus::reason);
    visit(Field{.name = "message", .meaning = "End of that rank's log.", .bytes_max = 32768},
          &FailureStatus::message);
    visit(Field{.name = "action", .meaning = "Action taken: RestartInPlace, RecreatePod or Fail."},
          &FailureStatus::action);
    visit(
        Field{.name = "round", .meaning = "The round in which the failure happened.", .minimum = 0},
        &FailureStatus::round);
    visit(Field{.name = "generation",
                .meaning = "The metadata.generation of the job at the failure; 0 means unknown.",
                .minimum = 0},
          &FailureStatus::generation);
    visit(Field{.name = "step",
                .meaning = "The step that training had reached in this round.",
                .minimum = 0},
          &FailureStatus::step);
    visit(Field{.name = "resumedStep",
                .meaning = "The step from which training resumed; -1 until that is known.",
                .minimum = -1},
          &FailureStatus::resumedStep);
    visit(Field{.name = "resumedFrom",
                .meaning = "Where the state of resumedStep was: memory or storage. Absent until "
                           "that is known, and where training started over."},
          &FailureStatus::resumedFrom);
    visit(Field{.name = "furthestStep",
                .meaning = "The furthest step of the consecutive attempts.",
                .minimum = 0},
          &FailureStatus::furthestStep);
    visit(Field{.name = "attempt",
                .meaning = "Consecutive failures without progress beyond the step of the first.",
                .minimum = 0},
          &FailureStatus::attempt);
    visit(Field{.name = "recoverySeconds",
                .meaning = "Time from the failure until all ranks trained again (with command: ran "
                           "again); 0 until then.",
                .minimum = 0},
          &FailureStatus::recoverySeconds);
    visit(Field{.name = "recovery", .meaning = "Parts of that time; each appears when it is over."},
          &FailureStatus::recovery);
    visit(Field{.name = "time", .meaning = "Time of the failure, as far as it is known."},
          &FailureStatus::time);
  }
};

template <>
struct Schema<HoldingsStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "sharding",
                .meaning = "State that ranks divide, as spec.parallelism.sharding."},
          &HoldingsStatus::sharding);
    visit(Field{.name = "shardingRanks",
                .meaning = "Ranks that divide it; 1 means that each rank holds all of it.",
                .minimum = 1},
          &HoldingsStatus::shardingRanks);
    visit(Field{.name = "parametersBytes",
                .meaning = "Parameters, with their bf16 copies.",
                .minimum = 0},
          &HoldingsStatus::parametersBytes);
    visit(Field{.name = "gradientsBytes", .meaning = "Gradients.", .minimum = 0},
          &HoldingsStatus::gradientsBytes);
    visit(Field{.name = "optimizerBytes", .meaning = "States of the optimizer.", .minimum = 0},
          &HoldingsStatus::optimizerBytes);
    visit(
        Field{.name = "gatheredBytes",
              .meaning =
                  "Parameters of other ranks and gradients of units, while they are computed with.",
              .minimum = 0},
        &HoldingsStatus::gatheredBytes);
    visit(Field{.name = "activationsBytes",
                .meaning = "Activations of a micro-batch, with their gradients.",
                .minimum = 0},
          &HoldingsStatus::activationsBytes);
    visit(Field{.name = "offloadedBytes",
                .meaning = "State in host memory or in a scratch file, which is not in the "
                           "numbers above.",
                .minimum = 0},
          &HoldingsStatus::offloadedBytes);
  }
};

template <>
struct Schema<CheckpointStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "step",
                .meaning = "Completed steps when the checkpoint was saved.",
                .minimum = 0},
          &CheckpointStatus::step);
    visit(Field{.name = "path", .meaning = "Folder of the checkpoint."}, &CheckpointStatus::path);
  }
};

template <>
struct Schema<TrainingJobStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "observedGeneration",
                .meaning = "The metadata.generation that this status describes.",
                .minimum = 0},
          &TrainingJobStatus::observedGeneration);
    visit(
        Field{.name = "state",
              .meaning = "State of the job: Pending, Forming, Running, Restarting, Suspended, "
                         "Complete or Failed. For display only; programs should read conditions."},
        &TrainingJobStatus::state);
    visit(Field{.name = "round",
                .meaning = "Number of the current round; a round is one formation of the world. 0 "
                           "before the first.",
                .minimum = 0},
          &TrainingJobStatus::round);
    visit(Field{.name = "members",
                .meaning = "The incarnation of each node index, such as \"1,1,2,1\".",
                .bytes_max = 65536},
          &TrainingJobStatus::members);
    visit(Field{.name = "worldHash", .meaning = "Hash of the round's assignment."},
          &TrainingJobStatus::worldHash);
    visit(
        Field{
            .name = "fixed",
            .meaning =
                "Fingerprints of the spec fields that can change only while the job is suspended."},
        &TrainingJobStatus::fixed);
    visit(
        Field{.name = "agentImage",
              .meaning = "Lockstep's image for the job's pods: the pods' own image if the job "
                         "names none, else the image that the agent comes from. It does not change "
                         "while any of these pods exists, so that all ranks run the same version."},
        &TrainingJobStatus::agentImage);
    visit(Field{.name = "restarts",
                .meaning = "Restarts after failures: new rounds, and parameter servers and workers "
                           "next to them that were started anew in their round. Failures that a "
                           "rule ignored or that were seen twice do not count.",
                .minimum = 0},
          &TrainingJobStatus::restarts);
    visit(Field{.name = "nodes", .meaning = "Desired and ready pods of workers."},
          &TrainingJobStatus::nodes);
    visit(Field{.name = "servers", .meaning = "Desired and ready pods of parameter servers."},
          &TrainingJobStatus::servers);
    visit(Field{.name = "serversView",
                .meaning = "Which parameter servers of the round hold what they should: number of "
                           "the view, then for each server since which view it does (1), is "
                           "gone (-2), or is filled by the others (+3), and after @ to which pod "
                           "it moved since the round began; *, ~ and ! mark one that was added, "
                           "hands over what it holds, or has left; after # the places in which the "
                           "parameters are cut; after a semicolon, since which view workers have a "
                           "new process (0@4). Absent: all do, and none has.",
                .bytes_max = kServersViewBytesMax},
          &TrainingJobStatus::serversView);
    visit(Field{.name = "rendezvous", .meaning = "Where the ranks of the round connect."},
          &TrainingJobStatus::rendezvous);
    visit(Field{.name = "progress", .meaning = "Progress of the training."},
          &TrainingJobStatus::progress);
    visit(Field{.name = "holdings",
                .meaning = "Memory that one rank of the built-in loop has allocated, in bytes; "
                           "the largest of each over the ranks."},
          &TrainingJobStatus::holdings);
    visit(Field{.name = "lastFailure", .meaning = "The newest failure and what was done about it."},
          &TrainingJobStatus::lastFailure);
    visit(Field{.name = "failures",
                .meaning = "The newest failures, the latest last.",
                .items_max = 10},
          &TrainingJobStatus::failures);
    visit(Field{.name = "lost", .meaning = "Total cost of all failures."},
          &TrainingJobStatus::lost);
    visit(Field{.name = "trainedSeconds",
                .meaning = "Total time in which all ranks trained, up to the last interruption.",
                .minimum = 0},
          &TrainingJobStatus::trainedSeconds);
    visit(
        Field{.name = "longestRunSeconds",
              .meaning = "Longest time in which all ranks trained without interruption, up to the "
                         "last interruption.",
              .minimum = 0},
        &TrainingJobStatus::longestRunSeconds);
    visit(Field{.name = "lastCheckpoint", .meaning = "The newest complete checkpoint in storage."},
          &TrainingJobStatus::lastCheckpoint);
    visit(Field{.name = "startTime", .meaning = "When the controller started the job."},
          &TrainingJobStatus::startTime);
    visit(Field{.name = "completionTime", .meaning = "When the job became Complete or Failed."},
          &TrainingJobStatus::completionTime);
    visit(Field{.name = "conditions",
                .meaning = "The job's conditions, as metav1.Conditions.",
                .items_max = 32,
                .list_key = "type"},
          &TrainingJobStatus::conditions);
  }
};

}  // namespace lockstep
