#pragma once

#include "common/api/agent_messages.h"
#include "common/api/servers_view.h"
#include "common/api/status_fields.h"
#include "common/api/training_job_fields.h"
#include "common/api/world_fields.h"

namespace lockstep {

// The fields of the messages between controller, agents and workers.

inline std::string_view enum_name(WorkerPhase phase) {
  return worker_phase_name(phase);
}
inline bool enum_from_name(std::string_view name, WorkerPhase& phase) {
  const Result<WorkerPhase> read = worker_phase_from_name(name);
  if (read.ok()) phase = *read;
  return read.ok();
}

template <>
struct Schema<Assignment> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "protocol",
                .minimum = kProtocolOldest,
                .maximum = kProtocolNewest,
                .required = true},
          &Assignment::protocol);
    visit(Field{.name = "action", .choices = "Run Exit", .required = true}, &Assignment::action);
    visit(Field{.name = "exitCode", .minimum = 0, .maximum = 255}, &Assignment::exit_code);
    visit(Field{.name = "jobName"}, &Assignment::job_name);
    visit(Field{.name = "jobNamespace"}, &Assignment::job_namespace);
    visit(Field{.name = "nodeIndex", .minimum = 0, .required = true}, &Assignment::node_index);
    visit(Field{.name = "hash", .required = true}, &Assignment::hash);
    visit(Field{.name = "world", .required = true}, &Assignment::world);
    visit(Field{.name = "train"}, &Assignment::train);
    visit(Field{.name = "command", .bytes_max = kCommandWordBytesMax, .items_max = 1000},
          &Assignment::command);
    visit(Field{.name = "parameterServers"}, &Assignment::parameter_servers);
    visit(Field{.name = "serversView", .bytes_max = kServersViewBytesMax},
          &Assignment::servers_view);
    visit(Field{.name = "variables", .choices = "jax tensorflow mpi", .items_max = 3},
          &Assignment::variables);
    visit(Field{.name = "restarts", .minimum = 0}, &Assignment::restarts);
    visit(Field{.name = "maxRestarts", .minimum = 0}, &Assignment::max_restarts);
    visit(Field{.name = "checkpoint"}, &Assignment::checkpoint);
    visit(Field{.name = "gpusPerNode", .minimum = 0, .maximum = kProcessesMax},
          &Assignment::gpus_per_node);
    visit(Field{.name = "threadsPerProcess", .minimum = 0, .maximum = 4096},
          &Assignment::threads_per_process);
    visit(Field{.name = "rendezvousTimeoutSeconds", .minimum = 1, .maximum = 86400},
          &Assignment::rendezvous_timeout_seconds);
    visit(Field{.name = "hangSeconds", .minimum = 1, .maximum = kHangSecondsMax},
          &Assignment::hang_seconds);
    visit(Field{.name = "commandHangSeconds", .minimum = 0, .maximum = kHangSecondsMax},
          &Assignment::command_hang_seconds);
    visit(Field{.name = "losses"}, &Assignment::losses);
    visit(Field{.name = "gracePeriodSeconds", .minimum = 0, .maximum = kGraceSecondsMax},
          &Assignment::grace_period_seconds);
  }
};

inline constexpr double kSecondsAgoMax = 1e9;  // thirty years

template <>
struct Schema<WorkerWait> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "operation", .bytes_max = 64}, &WorkerWait::operation);
    visit(Field{.name = "ranks", .bytes_max = 64}, &WorkerWait::ranks);
    visit(Field{.name = "groupSize", .minimum = 0}, &WorkerWait::group_size);
    visit(Field{.name = "waitsFor", .items_max = 8}, &WorkerWait::waits_for);
    visit(Field{.name = "seconds", .minimum = 0, .maximum = kSecondsAgoMax}, &WorkerWait::seconds);
  }
};

// Longer than a FixedText, because each byte that is not UTF-8 becomes a character of three bytes.
inline constexpr size_t kStorageTextBytesMax = 1024;

template <>
struct Schema<StorageState> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "saved", .minimum = 0}, &StorageState::saved);
    visit(Field{.name = "failedStep", .minimum = -1}, &StorageState::failed_step);
    visit(Field{.name = "failure", .bytes_max = kStorageTextBytesMax}, &StorageState::failure);
    visit(Field{.name = "setAside", .minimum = 0}, &StorageState::set_aside);
    visit(Field{.name = "setAsideStep", .minimum = -1}, &StorageState::set_aside_step);
    visit(Field{.name = "setAsideReason", .bytes_max = kStorageTextBytesMax},
          &StorageState::set_aside_reason);
    visit(Field{.name = "resumedStep", .minimum = -1}, &StorageState::resumed_step);
    visit(Field{.name = "fromMemory"}, &StorageState::from_memory);
    visit(Field{.name = "skips", .minimum = 0}, &StorageState::skips);
    visit(Field{.name = "skip", .bytes_max = kStorageTextBytesMax}, &StorageState::skip);
  }
};

template <>
struct Schema<WorkerSpeed> {
  template <class Visit>
  static void visit(Visit&& visit) {
    const auto seconds = [](std::string_view name) {
      return Field{.name = name, .minimum = 0, .maximum = kStepSecondsMax};
    };
    visit(seconds("stepSeconds"), &WorkerSpeed::step_seconds);
    visit(seconds("dataSeconds"), &WorkerSpeed::data_seconds);
    visit(seconds("forwardSeconds"), &WorkerSpeed::forward_seconds);
    visit(seconds("backwardSeconds"), &WorkerSpeed::backward_seconds);
    visit(seconds("updateSeconds"), &WorkerSpeed::update_seconds);
  }
};

template <>
struct Schema<WorkerState> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "rank", .minimum = 0, .required = true}, &WorkerState::rank);
    visit(Field{.name = "localRank", .minimum = 0}, &WorkerState::local_rank);
    visit(Field{.name = "pid", .minimum = 0}, &WorkerState::pid);
    visit(Field{.name = "running"}, &WorkerState::running);
    visit(Field{.name = "exitCode", .minimum = 0, .maximum = 255}, &WorkerState::exit_code);
    visit(Field{.name = "signal", .minimum = 0, .maximum = 255}, &WorkerState::signal);
    visit(Field{.name = "reason", .bytes_max = 256}, &WorkerState::reason);
    visit(Field{.name = "logTail", .bytes_max = 8192}, &WorkerState::log_tail);
    visit(Field{.name = "phase"}, &WorkerState::phase);
    visit(Field{.name = "step", .minimum = 0}, &WorkerState::step);
    visit(Field{.name = "microBatch", .minimum = -1}, &WorkerState::micro_batch);
    visit(Field{.name = "suspectRank", .minimum = -1}, &WorkerState::suspect_rank);
    visit(Field{.name = "failedSecondsAgo", .minimum = 0, .maximum = kSecondsAgoMax},
          &WorkerState::failed_seconds_ago);
    visit(Field{.name = "wait"}, &WorkerState::wait);
    visit(Field{.name = "lifeless"}, &WorkerState::is_lifeless);
    visit(Field{.name = "lacksBf16"}, &WorkerState::lacks_bf16);
    visit(Field{.name = "serversView", .minimum = 0}, &WorkerState::servers_view);
    visit(Field{.name = "filling"}, &WorkerState::is_filling);
    visit(Field{.name = "speed"}, &WorkerState::speed);
  }
};

template <>
struct Schema<RoundBeginning> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "abortSeconds", .minimum = 0, .maximum = kStepSecondsMax},
          &RoundBeginning::abort_seconds);
    visit(Field{.name = "startSeconds", .minimum = 0, .maximum = kStepSecondsMax},
          &RoundBeginning::start_seconds);
  }
};

template <>
struct Schema<AgentState> {
  template <class Visit>
  static void visit(Visit&& visit) {
    visit(Field{.name = "protocol", .required = true}, &AgentState::protocol);
    visit(Field{.name = "sequence", .minimum = 0, .required = true}, &AgentState::sequence);
    visit(Field{.name = "bootId", .bytes_max = 256}, &AgentState::boot_id);
    visit(Field{.name = "jobUid", .bytes_max = 256}, &AgentState::job_uid);
    visit(Field{.name = "nodeIndex", .minimum = 0, .required = true}, &AgentState::node_index);
    visit(Field{.name = "incarnation", .minimum = 0}, &AgentState::incarnation);
    visit(Field{.name = "round", .minimum = 0, .required = true}, &AgentState::round);
    visit(Field{.name = "hash", .bytes_max = 256}, &AgentState::hash);
    visit(Field{.name = "serversView", .minimum = 0}, &AgentState::servers_view);
    visit(Field{.name = "serversStarted", .minimum = 0}, &AgentState::servers_started);
    visit(Field{.name = "phase",
                .choices = "Idle Starting Running Completed Failed Stopping Exiting"},
          &AgentState::phase);
    visit(Field{.name = "workers", .items_max = 128}, &AgentState::workers);
    visit(Field{.name = "beginning"}, &AgentState::beginning);
    visit(Field{.name = "progress"}, &AgentState::progress);
    visit(Field{.name = "lastCheckpoint"}, &AgentState::last_checkpoint);
    visit(Field{.name = "holdings"}, &AgentState::holdings);
    visit(Field{.name = "storage"}, &AgentState::storage);
    visit(Field{.name = "failedSecondsAgo", .minimum = 0, .maximum = kSecondsAgoMax},
          &AgentState::failed_seconds_ago);
  }
};

}  // namespace lockstep
