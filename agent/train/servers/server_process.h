#pragma once

#include <memory>
#include <optional>

#include "agent/server/parameter_server.h"
#include "agent/train/checkpoint/folder_storage.h"
#include "agent/train/checkpoint/manifest.h"
#include "agent/train/checkpoint/retrying_storage.h"
#include "agent/train/progress_reporter.h"
#include "agent/train/servers/job_desk.h"
#include "agent/train/servers/round_plan.h"
#include "agent/train/servers/worker_watch.h"
#include "common/api/worker_config.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::train {

// A rank whose role is server, from its configuration to its exit code: it serves parameters until
// all workers have left. Worker rank 0 tells it which checkpoint to load, and when to save. SIGTERM
// asks the workers to stop, which it tells them. One thread, and those of the server.
class ServerProcess {
 public:
  struct Surroundings {
    const Clock& clock;
    FileSystem& files;
    Pause pause;
  };
  ServerProcess(WorkerConfig config, ProgressReporter& progress, Surroundings surroundings);

  // The exit code of the process (worker_config.h); what went wrong is in the log.
  int run();

 private:
  Status serve();
  void carry_out(JobDesk::Order order);
  // `done`: the body of the reply.
  static void answer(rpc::Request& request, const Result<std::string>& done);
  Status load(const rpc::Request& request);
  // Returns the list of files.
  Result<std::string> save(std::string_view folder);
  // Tells sizes and waits, and looks for a worker that hangs.
  void look();
  void report(const server::ParameterServer::Report& units);
  void report_wait();
  // Returns for which workers calls wait, at the desk or at a unit.
  std::optional<AwaitedWorkers> awaited(const server::ParameterServer::Report& units) const;
  Status give_up(uint32_t hung);

  const WorkerConfig config_;
  ProgressReporter& progress_;
  const Surroundings surroundings_;
  FolderStorage files_;
  RetryingStorage storage_;
  std::unique_ptr<JobDesk> desk_;
  std::unique_ptr<server::ParameterServer> server_;
  WorkerWatch watch_;
  uint32_t workers_ = 0;
  std::string saved_folder_;  // of the newest save, and its list of files
  std::string saved_files_;
};

}  // namespace lockstep::train
