#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "agent/rpc/client.h"
#include "agent/server/routing.h"
#include "agent/server/sent_lists.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::server {

struct TransferPart;

// The view that a client's calls go by, and its servers. A later view moves calls that are not done
// to where their units are now, and repeats calls that failed meanwhile, so those who wait for them
// need not know. Thread-safe.
class CurrentView {
 public:
  struct Options {
    rpc::Client* rpc = nullptr;  // outlives this
    std::vector<rpc::Client::ServerAddress> servers;
    // How long a call that failed, maybe because of the view, waits for a later view while nothing
    // else happens; 0: not at all.
    Duration patience{};
  };
  // kInvalid if a primary of the view has no address.
  static Result<std::shared_ptr<CurrentView>> create(Options options,
                                                     std::shared_ptr<const View> view);

  std::shared_ptr<const Routing> routing() const;
  // kConflict for an earlier view, kInvalid if a primary has no address.
  Status install(std::shared_ptr<const View> view);
  // Looks for these servers at these addresses from now on, also for new ones. Calls to a server's
  // previous address fail. Before install() of the view in which they count.
  void move(const std::vector<rpc::Client::ServerAddress>& servers);

  // Begins the part's first call, by the current view.
  void begin(TransferPart& part);
  // Blocks until the part's call is done, and no later view is worth waiting for. From then on, the
  // part leaves its call as it is.
  void wait(TransferPart& part);
  bool is_done(const TransferPart& part) const;
  // The part ends.
  void remove(TransferPart& part);

  bool is_patient() const { return options_.patience > Duration(); }
  // A call is done. From any thread; does not block.
  void notify();

 private:
  struct Server {
    comm::SocketAddress address;
    rpc::Peer peer;
    std::shared_ptr<SentLists> sent;
  };
  explicit CurrentView(Options options);
  Status check(const Routing& routing) const;
  void aim(TransferPart& part, const Routing& routing) const;
  void follow(TransferPart& part);
  // Returns whether the part's call is done for good.
  bool settle(TransferPart& part, bool is_patient);

  const Options options_;
  mutable std::mutex mutex_;            // not taken by notify()
  std::map<uint32_t, Server> servers_;  // by rank
  std::shared_ptr<const Routing> routing_;
  std::set<TransferPart*> parts_;  // whose calls are not done, if this is patient
  std::mutex events_mutex_;
  std::condition_variable changed_;
  uint64_t events_ = 0;
};

}  // namespace lockstep::server
