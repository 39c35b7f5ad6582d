#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "local/node/address_pool.h"
#include "local/node/api_caller.h"
#include "local/node/event_recorder.h"
#include "local/node/gpu_pool.h"
#include "local/node/log_files.h"
#include "local/node/network_prober.h"
#include "local/node/process_host.h"
#include "local/node/process_sweeper.h"

namespace lockstep::local {

// A message from another thread to the node's thread: the result of the operation with number
// `run`.
struct NodeMessage {
  enum class Kind { kStarted, kExited, kSwept, kProbed };
  std::string pod_uid;
  uint64_t run = 0;
  Kind kind = Kind::kStarted;
  Result<pid_t> pid = pid_t{0};  // kStarted
  ExitStatus exit;               // kExited
  bool ok = false;               // kProbed
  std::string text;
};

struct PodOptions {
  std::string folder;          // the pods' files; private; each pod's are removed when it ends
  std::string program_folder;  // a command's base name is looked up here first
  std::string working_folder;  // where containers without a workingDir start; empty: their root
  Duration backoff_first = std::chrono::seconds(10);
  Duration backoff_max = std::chrono::minutes(5);
  Duration retry = std::chrono::milliseconds(500);  // while something is missing or refused
};

// Services shared by the pods of a node. Everything referenced outlives the pods.
struct NodeContext {
  ApiCaller& api;
  ProcessHost& host;
  const Clock& clock;
  ProcessSweeper& sweeper;
  NetworkProber& prober;
  LogFiles& logs;
  EventRecorder& events;
  AddressPool& addresses;
  GpuPool& gpus;
  const PodOptions& options;
  std::function<void(NodeMessage)> post;  // thread-safe
  uint64_t runs = 0;                      // number of the last run
};

}  // namespace lockstep::local
