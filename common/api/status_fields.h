#pragma once

#include "common/api/codec.h"
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
                .meaning = "What it is about: Valid, PodsScheduled, Ready, Running, Restarting, "
                           "Stuck, PrecisionReduced, Suspended, Complete or Failed.",
                .required = true},
          &Condition::type);
    visit(Field{.name = "status",
                .meaning = "Whether the condition holds.",
                .choices = "True False Unknown",
                .required = true},
          &Condition::status);
    visit(Field{.name = "reason", .meaning = "Why, in one word for programs."}, &Condition::reason);
    visit(Field{.name = "message", .meaning = "Why, for people.", .bytes_max = 32768},
          &Condition::message);
    visit(Field{.name = "lastTransitionTime", .meaning = "When status last changed."},
          &Condition::lastTransitionTime);
    visit(Field{.name = "observedGeneration",
                .meaning = "The metadata.generation that it speaks of.",
                .minimum = 0},
          &Condition::observedGeneration);
  }
};

template <>
struct Schema<NodesStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "desired", .meaning = "Pods that spec.nodes asks for.", .minimum = 0},
          &NodesStatus::desired);
    visit(Field{.name = "ready", .meaning = "Pods that run and have an address.", .minimum = 0},
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
    visit(Field{.name = "worldSize", .meaning = "Ranks of the round.", .minimum = 0},
          &RendezvousStatus::worldSize);
  }
};

template <>
struct Schema<ProgressStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "step", .meaning = "Steps done.", .minimum = 0}, &ProgressStatus::step);
    visit(Field{.name = "steps", .meaning = "Steps of the whole job.", .minimum = 0},
          &ProgressStatus::steps);
    visit(Field{.name = "loss",
                .meaning = "Loss of the last step (nats per token, or a command's own measure); "
                           "absent where it isn't finite."},
          &ProgressStatus::loss);
    visit(Field{.name = "validationLoss",
                .meaning = "The newest loss on the held back data, nats per token."},
          &ProgressStatus::validationLoss);
    visit(Field{.name = "tokensPerSecond",
                .meaning = "Tokens per second of the whole job, over the last steps; absent where "
                           "nobody counts tokens.",
                .minimum = 0},
          &ProgressStatus::tokensPerSecond);
    visit(Field{.name = "samplesPerSecond",
                .meaning = "Samples per second of the whole job, where a command counts samples.",
                .minimum = 0},
          &ProgressStatus::samplesPerSecond);
    visit(Field{.name = "mfu",
                .meaning = "Model FLOPs utilisation, of 1: tokensPerSecond x (6N + 12LCT), PaLM's "
                           "formula, by what the datasheet promises of the job's GPUs in bf16; "
                           "absent on the CPU, in fp32 and of GPUs that are not in the table.",
                .minimum = 0},
          &ProgressStatus::mfu);
    visit(Field{.name = "precision",
                .meaning = "Precision that matrix products are computed in: spec.train.precision, "
                           "or fp32 where a rank's CPU can't multiply bf16.",
                .choices = "fp32 bf16"},
          &ProgressStatus::precision);
    visit(Field{.name = "tokens", .meaning = "Tokens trained on since step 0.", .minimum = 0},
          &ProgressStatus::tokens);
    visit(Field{.name = "samples", .meaning = "Sequences trained on since step 0.", .minimum = 0},
          &ProgressStatus::samples);
    visit(Field{.name = "updatedAt", .meaning = "When these numbers were written."},
          &ProgressStatus::updatedAt);
  }
};

template <>
struct Schema<RecoveryStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "detectSeconds",
                .meaning = "Time from the failure until the controller knew of it.",
                .minimum = 0},
          &RecoveryStatus::detectSeconds);
    visit(Field{.name = "decideSeconds",
                .meaning = "Time until it had decided what to do.",
                .minimum = 0},
          &RecoveryStatus::decideSeconds);
    visit(Field{.name = "waitSeconds",
                .meaning = "Time held back because failures follow each other without progress.",
                .minimum = 0},
          &RecoveryStatus::waitSeconds);
    visit(Field{.name = "podsSeconds",
                .meaning = "Time until every pod of the next round ran; 0 where none was made.",
                .minimum = 0},
          &RecoveryStatus::podsSeconds);
    visit(
        Field{
            .name = "formSeconds", .meaning = "Time until all ranks were connected.", .minimum = 0},
        &RecoveryStatus::formSeconds);
    visit(Field{.name = "restoreSeconds",
                .meaning = "Time until all ranks trained again.",
                .minimum = 0},
          &RecoveryStatus::restoreSeconds);
  }
};

template <>
struct Schema<LostStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "seconds",
                .meaning = "Time from failures until all ranks trained again, summed up.",
                .minimum = 0},
          &LostStatus::seconds);
    visit(Field{.name = "steps",
                .meaning = "Steps done again after failures, summed up.",
                .minimum = 0},
          &LostStatus::steps);
  }
};

template <>
struct Schema<FailureStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "number",
                .meaning = "The number of the failure among all of the job's, from 1.",
                .minimum = 0},
          &FailureStatus::number);
    visit(
        Field{
            .name = "rank",
            .meaning =
                "The rank that failed first; -1 is none or unknown, as where a whole pod was lost.",
            .minimum = -1},
        &FailureStatus::rank);
    visit(
        Field{
            .name = "nodeIndex", .meaning = "The index of its node; -1 is unknown.", .minimum = -1},
        &FailureStatus::nodeIndex);
    visit(Field{.name = "node", .meaning = "The Kubernetes node of its pod."},
          &FailureStatus::node);
    visit(Field{.name = "exitCode",
                .meaning = "Its exit code, 128 + signal where a signal ended it; -1 is unknown.",
                .minimum = -1},
          &FailureStatus::exitCode);
    visit(Field{.name = "reason",
                .meaning =
                    "Why it failed, in one word: Error, Signal, OOMKilled, PodLost and the like."},
          &FailureStatus::reason);
    visit(Field{.name = "message", .meaning = "The end of its log.", .bytes_max = 32768},
          &FailureStatus::message);
    visit(Field{.name = "action",
                .meaning = "What was done about it: RestartInPlace, RecreatePod or Fail."},
          &FailureStatus::action);
    visit(Field{.name = "round", .meaning = "The round in which it happened.", .minimum = 0},
          &FailureStatus::round);
    visit(Field{.name = "step",
                .meaning = "The step that training had reached since it last began.",
                .minimum = 0},
          &FailureStatus::step);
    visit(Field{.name = "resumedStep",
                .meaning = "The step from which it went on; -1 until that is known.",
                .minimum = -1},
          &FailureStatus::resumedStep);
    visit(Field{.name = "furthestStep",
                .meaning = "The furthest step of the attempts in a row.",
                .minimum = 0},
          &FailureStatus::furthestStep);
    visit(Field{.name = "attempt",
                .meaning = "Failures in a row without a step beyond that of the first.",
                .minimum = 0},
          &FailureStatus::attempt);
    visit(Field{.name = "recoverySeconds",
                .meaning = "Time from the failure until all ranks trained (those of a command: "
                           "ran) again; 0 until then.",
                .minimum = 0},
          &FailureStatus::recoverySeconds);
    visit(Field{.name = "recovery", .meaning = "That time by its parts, each once it is over."},
          &FailureStatus::recovery);
    visit(Field{.name = "time", .meaning = "When it failed, as far as that is known."},
          &FailureStatus::time);
  }
};

template <>
struct Schema<CheckpointStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "step", .meaning = "Steps done when it was saved.", .minimum = 0},
          &CheckpointStatus::step);
    visit(Field{.name = "path", .meaning = "The folder of the checkpoint."},
          &CheckpointStatus::path);
  }
};

template <>
struct Schema<TrainingJobStatus> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "observedGeneration",
                .meaning = "The metadata.generation that this status speaks of.",
                .minimum = 0},
          &TrainingJobStatus::observedGeneration);
    visit(Field{.name = "state",
                .meaning = "What the job is doing: Pending, Forming, Running, Restarting, "
                           "Suspended, Complete or Failed; for display, conditions are the API."},
          &TrainingJobStatus::state);
    visit(Field{.name = "round",
                .meaning = "The formation of the world, counted; 0 before the first.",
                .minimum = 0},
          &TrainingJobStatus::round);
    visit(Field{.name = "members",
                .meaning = "The incarnation of each node index in the round, such as \"1,1,2,1\".",
                .bytes_max = 65536},
          &TrainingJobStatus::members);
    visit(Field{.name = "worldHash", .meaning = "Hash of the round's assignment."},
          &TrainingJobStatus::worldHash);
    visit(Field{.name = "fixed",
                .meaning = "Fingerprints of the fields of spec that can't change but while the job "
                           "is suspended."},
          &TrainingJobStatus::fixed);
    visit(Field{.name = "agentImage",
                .meaning = "Lockstep's image that the job's pods are made with: their own where "
                           "the job names none, else that which the agent is from. It stays for as "
                           "long as any of them does, so that one version trains together."},
          &TrainingJobStatus::agentImage);
    visit(Field{.name = "restarts",
                .meaning = "Rounds begun after a failure, but for those that a rule ignored.",
                .minimum = 0},
          &TrainingJobStatus::restarts);
    visit(Field{.name = "nodes", .meaning = "Pods that are wanted, and that are there."},
          &TrainingJobStatus::nodes);
    visit(Field{.name = "rendezvous", .meaning = "Where the round meets."},
          &TrainingJobStatus::rendezvous);
    visit(Field{.name = "progress", .meaning = "How far the training is."},
          &TrainingJobStatus::progress);
    visit(Field{.name = "lastFailure", .meaning = "The newest failure and what followed."},
          &TrainingJobStatus::lastFailure);
    visit(Field{.name = "failures",
                .meaning = "The newest failures, the last one at the end.",
                .items_max = 10},
          &TrainingJobStatus::failures);
    visit(Field{.name = "lost", .meaning = "What failures have cost in all."},
          &TrainingJobStatus::lost);
    visit(Field{.name = "trainedSeconds",
                .meaning = "Time in which all ranks trained, up to when they last ceased to.",
                .minimum = 0},
          &TrainingJobStatus::trainedSeconds);
    visit(Field{.name = "lastCheckpoint", .meaning = "The newest complete one in storage."},
          &TrainingJobStatus::lastCheckpoint);
    visit(Field{.name = "startTime", .meaning = "When the controller took the job up."},
          &TrainingJobStatus::startTime);
    visit(Field{.name = "completionTime", .meaning = "When the job was Complete or Failed."},
          &TrainingJobStatus::completionTime);
    visit(Field{.name = "conditions",
                .meaning = "What the job has reached, as metav1.Conditions.",
                .items_max = 32,
                .list_key = "type"},
          &TrainingJobStatus::conditions);
  }
};

}  // namespace lockstep
