#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/rpc/client.h"
#include "agent/train/checkpoint/manifest.h"
#include "agent/train/servers/job_calls.h"
#include "agent/train/servers/round_plan.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::train {

// A worker's side of the calls in job_calls.h. Workers exchange nothing directly. Errors of a
// server that is gone blame the peer. One thread. Has a client of its own: a client has one
// connection to a server, so it cannot be that of a ParameterClient, too.
class JobLink {
 public:
  static Result<std::unique_ptr<JobLink>> create(const ServersRound& round);

  // Blocks until all servers answer, for at most this long; then kUnavailable, blaming the peer.
  Status connect(Duration at_most, const Clock& clock);
  // After a call failed. Returns the rank of a worker that hangs, as the servers say, or of a
  // server that does not answer; -1 if all do.
  int64_t culprit();

  // Blocks until all workers have called it as often as this one. Returns the sums of the values.
  using Values = std::array<double, kMeetValues>;
  Result<Values> meet(const Values& values = {});
  // Tells all servers of a completed step. Blocks until they answer.
  Result<StepNews> report(const StepReport& report);
  // Rank 0, while all other workers wait in meet(). Errors of a server's storage blame storage.
  Status load(const std::string& manifest, uint64_t first);
  // Returns the files that the servers wrote to the folder.
  Result<std::vector<ManifestFile>> save(std::string_view folder);
  // The last call.
  Status leave(bool was_stopped);

 private:
  explicit JobLink(std::unique_ptr<rpc::Client> client) : client_(std::move(client)) {}
  // Valid as long as the call.
  static Result<std::string_view> storage_answer(const rpc::Call& call);
  rpc::Call call(size_t server, const rpc::Method& method, rpc::CallOptions options) const;
  std::vector<rpc::Call> call_all(const rpc::Method& method, const rpc::CallOptions& options) const;
  // Blocks until all are done, or one of them has failed: others may wait for a peer that it lost.
  Status wait_all(std::vector<rpc::Call>& calls) const;

  std::unique_ptr<rpc::Client> client_;
  std::vector<rpc::Peer> servers_;
  std::vector<int64_t> ranks_;  // of the servers
  uint64_t meetings_ = 0;
  // Calls that are done so far; calls own it, too.
  std::shared_ptr<std::atomic<uint32_t>> done_ = std::make_shared<std::atomic<uint32_t>>(0);
};

}  // namespace lockstep::train
