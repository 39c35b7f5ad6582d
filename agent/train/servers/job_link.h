#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/rpc/client.h"
#include "agent/train/checkpoint/manifest.h"
#include "agent/train/servers/events.h"
#include "agent/train/servers/job_calls.h"
#include "agent/train/servers/round_plan.h"
#include "agent/train/servers/spread_call.h"
#include "common/api/servers_view.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::train {

// A worker's side of the calls in job_calls.h. Workers exchange nothing directly. Errors of a
// server that is gone blame the peer. One thread, but for install(). Has a client of its own: a
// client has one connection to a server, so it cannot be that of a ParameterClient, too.
//
// If the round follows views, meet(), report(), save() and leave() survive the death of servers:
// what fails then waits for a later view, for at most the round's patience while nothing happens.
class JobLink {
 public:
  static Result<std::unique_ptr<JobLink>> create(const ServersRound& round);

  // Goes by a later view from now on. An earlier one changes nothing. From any thread.
  void install(const ServersView& view);

  // Blocks until all servers answer, for at most this long; then kUnavailable, blaming the peer.
  Status connect(Duration at_most, const Clock& clock);
  // After a call failed. Returns the rank of a worker that hangs, as the servers say, or of a
  // server that does not answer; -1 if all do.
  int64_t culprit();

  // Where the process was in whose place this one is, as all servers together know.
  struct Past {
    std::optional<uint64_t> first;  // the step after which the round began, if one knows
    uint64_t step = 0;              // the newest that it has reported; 0: none
    uint64_t meetings = 0;          // that it has called
    uint64_t met_step = 0;          // kMeetStep and kMeetPlace of the last one
    uint64_t met_place = 0;
    bool has_left = false;
    bool was_stopped = false;    // it left because it was asked to stop
    uint64_t highest_clock = 0;  // of its next pushes

    // The step after which this one goes on, if that is known.
    uint64_t newest_step() const { return std::max(step, first.value_or(0)); }
    // How many meetings it has called since it reported its newest step, the first one aside.
    uint64_t met_since() const { return meetings > 1 && met_step == step ? met_place + 1 : 0; }
  };
  // Tells all servers that this process is the worker since this view. Before any other call but
  // connect().
  Result<Past> come_back(int64_t since);
  // Goes on after the last step that the previous process has reported. Blocks until all
  // workers have called the last meeting that it has called. meet() does nothing in place of those
  // that it has called since that step.
  Status go_on_after(const Past& past);
  // Whether the previous process has called the next meeting.
  bool is_behind() const { return met_ < called_before_; }

  // Blocks until all workers have called it as often as this one. Returns the sums of the values.
  using Values = std::array<double, kMeetValues>;
  Result<Values> meet(const Values& values = {});
  // Tells all servers of a completed step, and where to stop once one of them knows. Blocks until
  // they answer. The report's `leads` and `stop_at` do not count.
  Result<StepNews> report(const StepReport& report);
  // Rank 0, while all other workers wait in meet(). Errors of a server's storage blame storage.
  Status load(const std::string& manifest, uint64_t first);
  // Returns the files that the servers wrote to the folder. Errors of servers that are gone blame
  // nobody if the round follows views.
  Result<std::vector<ManifestFile>> save(std::string_view folder);
  // The last call.
  Status leave(bool was_stopped);

 private:
  JobLink(std::unique_ptr<rpc::Client> client, const ServersRound& round)
      : client_(std::move(client)),
        patience_(round.view_patience),
        first_rank_(round.workers),
        view_(round.standing),
        addresses_(round.servers) {}
  // Valid as long as the call.
  static Result<std::string_view> storage_answer(const rpc::Call& call);
  ServersView view() const;
  // Whether a later view may help after this error.
  bool may_pass(const Error& error) const;
  bool wait_for_view_after(int64_t number, Duration at_most) const;
  template <class T, class Try>
  Result<T> again_in_later_views(const Try& attempt) const;
  Result<Past> come_back_in(const ServersView& view, int64_t since);

  void move_servers(const ServersView& view);
  rpc::Call call(size_t server, const rpc::Method& method, rpc::CallOptions options) const;
  // Calls the servers that are not gone.
  std::vector<rpc::Call> call_all(const rpc::Method& method, const rpc::CallOptions& options) const;
  // Blocks until all are done, or one of them has failed: others may wait for a peer that it lost.
  // kConflict once there is a later view of servers than `in_view`.
  Status wait_all(std::vector<rpc::Call>& calls, std::optional<int64_t> in_view = {}) const;
  SpreadCall spread(const rpc::Method& method, SpreadCall::Heads heads) const;

  enum class Enough {
    kOne,      // a server has answered
    kAll,      // all servers have
    kDoneAll,  // likewise, or have failed
  };
  // Blocks until the call has enough answers. Then `take` reads them.
  using Take = std::function<Status(SpreadCall&, const SpreadCall::Outcome&)>;
  Status await(SpreadCall& call, Enough enough, const Take& take);
  Result<Values> meet(const MeetCall& head);
  Result<StepNews> report_once(const StepReport& report);
  Result<std::vector<ManifestFile>> save_in(const ServersView& view, std::string_view folder);

  const std::unique_ptr<rpc::Client> client_;
  const Duration patience_;
  const int64_t first_rank_;  // of the servers
  uint64_t met_ = 0;
  uint64_t called_before_ = 0;  // meetings, by the previous process
  uint64_t told_step_ = 0;      // kMeetStep and kMeetPlace of the next meeting
  uint64_t place_ = 0;
  uint64_t stop_at_ = 0;  // that all servers know; 0: none
  // Calls that are done, and views; calls own it, too.
  std::shared_ptr<Events> events_ = std::make_shared<Events>();
  mutable std::mutex mutex_;
  // Guarded by mutex_. Calls that other workers may depend on, for which later views matter:
  ServersView view_;
  std::deque<SpreadCall> meetings_;   // the newest one, and the one before until all have passed it
  std::optional<SpreadCall> report_;  // of the newest step
  std::optional<SpreadCall> leaving_;
  mutable std::mutex servers_mutex_;  // also locked while mutex_ is
  // Guarded by servers_mutex_:
  std::vector<rpc::Client::ServerAddress> addresses_;  // in the newest view
  std::vector<rpc::Peer> servers_;                     // at these addresses
};

}  // namespace lockstep::train
