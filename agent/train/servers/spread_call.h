#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "agent/rpc/client.h"
#include "agent/rpc/method.h"
#include "common/api/servers_view.h"
#include "common/base/result.h"

namespace lockstep::train {

// Returns the server that holds its share for the longest; of several, the first one. So one that
// was started anew leads only if no older one is left.
size_t leader_of(const ServersView& view);

// A call that goes to all servers that are not gone, and to further ones as later views have them.
// One thread at a time.
class SpreadCall {
 public:
  using Begin = std::function<rpc::Call(size_t server, const rpc::CallOptions& options)>;
  struct Heads {
    std::vector<std::byte> leader;  // of the call to the leader
    std::vector<std::byte> others;
  };
  // `begin` calls a server.
  SpreadCall(Heads heads, Begin begin) : heads_(std::move(heads)), begin_(std::move(begin)) {}

  // Calls the servers of this view that have not got the call, or may have lost it. Forgets the
  // calls to the others.
  void follow(const ServersView& view);
  // Later calls have these heads.
  void set_heads(Heads heads) { heads_ = std::move(heads); }

  struct Outcome {
    size_t answered = 0;
    size_t pending = 0;
    Status failure;                      // the first one
    const rpc::Call* first = nullptr;    // that has been answered
    const rpc::Call* leaders = nullptr;  // the leader's, if that has been answered
  };
  Outcome outcome() const;
  // Returns the calls that have been answered.
  std::vector<const rpc::Call*> answers() const;

 private:
  struct Sent {
    rpc::Call call;
    int64_t in_view = 0;  // number
    bool leads = false;
  };
  bool is_lost(const Sent& sent, const ServerStanding& now) const;

  Heads heads_;
  Begin begin_;
  size_t leader_ = 0;
  std::map<size_t, Sent> sent_;  // by server
};

}  // namespace lockstep::train
