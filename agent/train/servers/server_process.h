#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "agent/server/parameter_server.h"
#include "agent/train/checkpoint/folder_storage.h"
#include "agent/train/checkpoint/manifest.h"
#include "agent/train/checkpoint/retrying_storage.h"
#include "agent/train/progress_reporter.h"
#include "agent/train/servers/heartbeat.h"
#include "agent/train/servers/job_desk.h"
#include "agent/train/servers/round_plan.h"
#include "agent/train/servers/view_feed.h"
#include "agent/train/servers/worker_watch.h"
#include "common/api/worker_config.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::train {

// A rank whose role is server, from its configuration to its exit code: it serves parameters until
// all workers have left. Worker rank 0 tells it which checkpoint to load, and when to save. SIGTERM
// asks the workers to stop, which it tells them. It follows the views that its agent sends; one
// that begins in a later view than the first has nothing until it joins. One thread, and those of
// the server and of the feed.
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
  Status serve_until_all_have_left();
  void tell_hot_rows();
  // Whether no worker needs this server any more.
  bool may_end();
  // Whether the job has fewer servers now, and this one is none of them.
  bool has_left();
  // On the feed's thread.
  void follow(const ServersView& view);
  // Publishes the view and whether units are filling. From any thread. Returns the units.
  server::ParameterServer::Report show_view();
  Status view_failure();
  void carry_out(JobDesk::Order order);
  // `done`: the body of the reply.
  static void answer(rpc::Request& request, const Result<std::string>& done);
  Status load(const rpc::Request& request);
  // The round begins after this step.
  void begin_at(uint64_t step);
  // Returns the list of files.
  Result<std::string> save(const rpc::Request& request);
  void tell_past(rpc::Request& request);
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
  std::optional<ServersRound> round_;
  uint64_t seen_view_ = 0;
  std::optional<uint64_t> first_step_;      // after which the round began, if this server was there
  std::optional<TimePoint> first_left_at_;  // when it was seen that rank 0 has left
  struct Saved {
    std::string folder;  // of the newest save
    uint64_t view = 0;
    std::string files;  // list
  };
  Saved saved_;
  std::mutex view_mutex_;  // guards what follows, and the order in which views are shown
  ServersView followed_;
  Status view_failure_;
  std::unique_ptr<ViewFeed> feed_;
  std::unique_ptr<Heartbeat> heartbeat_;
};

}  // namespace lockstep::train
