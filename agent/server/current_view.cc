#include "agent/server/current_view.h"

#include <chrono>
#include <string>
#include <utility>

#include "agent/server/transfer.h"

namespace lockstep::server {
namespace {

// Whether another view may help: the server is gone or has a later view.
bool may_be_repeated(const rpc::Call& call) {
  if (call.status().ok()) return false;
  const Code code = call.status().error().code;
  return code == Code::kUnavailable || code == Code::kConflict;
}

}  // namespace

CurrentView::CurrentView(Options options) : options_(std::move(options)) {
  for (const rpc::Client::ServerAddress& server : options_.servers) {
    servers_[server.rank] = {server.address, options_.rpc->add_server(server),
                             std::make_shared<SentLists>()};
  }
}

Result<std::shared_ptr<CurrentView>> CurrentView::create(Options options,
                                                         std::shared_ptr<const View> view) {
  std::shared_ptr<CurrentView> current(new CurrentView(std::move(options)));
  auto routing = std::make_shared<const Routing>(std::move(view));
  TRY(current->check(*routing));
  current->routing_ = std::move(routing);
  return current;
}

Status CurrentView::check(const Routing& routing) const {
  for (const uint32_t server : routing.servers()) {
    if (servers_.contains(server)) continue;
    return invalid("[server] the address of rank " + std::to_string(server) + " is missing");
  }
  return {};
}

std::shared_ptr<const Routing> CurrentView::routing() const {
  const std::lock_guard lock(mutex_);
  return routing_;
}

Status CurrentView::install(std::shared_ptr<const View> view) {
  auto routing = std::make_shared<const Routing>(std::move(view));
  TRY(check(*routing));
  {
    const std::lock_guard lock(mutex_);
    const View& now = routing_->view();
    if (routing->view().round != now.round || routing->view().number <= now.number) {
      return conflict("[server] expected a view after number " + std::to_string(now.number) +
                      " of round " + std::to_string(now.round));
    }
    if (!have_same_units(now, routing->view())) {
      return invalid("[server] expected the ranges, slots and arcs of the views before");
    }
    routing_ = std::move(routing);
    for (TransferPart* const part : parts_) follow(*part);
  }
  notify();
  return {};
}

void CurrentView::move(const std::vector<rpc::Client::ServerAddress>& servers) {
  const std::lock_guard lock(mutex_);
  for (const rpc::Client::ServerAddress& server : servers) {
    const auto found = servers_.find(server.rank);
    const bool is_new = found == servers_.end();
    if (!is_new && found->second.address == server.address) continue;
    if (!is_new) found->second.peer.leave("it moved to " + comm::to_string(server.address));
    servers_[server.rank] = {server.address, options_.rpc->add_server(server),
                             std::make_shared<SentLists>()};
  }
}

// Sends the part's call to the primary of its unit.
void CurrentView::aim(TransferPart& part, const Routing& routing) const {
  const UnitId id{part.head.kind, part.head.unit, part.head.slot};
  part.server = chain_of(routing.view(), id).front();
  const Server& server = servers_.at(part.server);
  part.peer = server.peer;
  part.sent = id.kind == UnitKind::kTable ? server.sent : nullptr;
  part.head.fence = routing.fence();
  part.begin(part.sent != nullptr && !part.sent->has(part.head.signature));
}

// A call that another server has to answer, or that has failed, begins anew. One that the same
// server still answers stays.
void CurrentView::follow(TransferPart& part) {
  if (part.head.fence == routing_->fence()) return;
  const UnitId id{part.head.kind, part.head.unit, part.head.slot};
  const bool is_moved = part.server != chain_of(routing_->view(), id).front();
  const bool has_failed = part.call.is_done() && may_be_repeated(part.call);
  const bool is_answered = part.call.is_done() && !has_failed;
  if (is_answered || (!is_moved && !has_failed)) return;
  part.repeats = true;
  aim(part, *routing_);
}

void CurrentView::begin(TransferPart& part) {
  const std::lock_guard lock(mutex_);
  if (is_patient()) parts_.insert(&part);
  aim(part, *routing_);
}

bool CurrentView::is_done(const TransferPart& part) const {
  const std::lock_guard lock(mutex_);
  return part.call.is_done();
}

void CurrentView::remove(TransferPart& part) {
  const std::lock_guard lock(mutex_);
  parts_.erase(&part);
}

void CurrentView::notify() {
  const std::lock_guard lock(events_mutex_);
  ++events_;
  changed_.notify_all();
}

bool CurrentView::settle(TransferPart& part, bool is_patient) {
  const std::lock_guard lock(mutex_);
  follow(part);
  if (!part.call.is_done() || (is_patient && may_be_repeated(part.call))) return false;
  parts_.erase(&part);
  return true;
}

void CurrentView::wait(TransferPart& part) {
  if (!is_patient()) return static_cast<void>(part.call.wait());
  while (true) {
    uint64_t seen = 0;
    {
      const std::lock_guard lock(events_mutex_);
      seen = events_;
    }
    if (settle(part, true)) return;
    const bool may_give_up = is_done(part);
    std::unique_lock lock(events_mutex_);
    const auto has_changed = [&] { return events_ != seen; };
    if (!may_give_up) {
      changed_.wait(lock, has_changed);
    } else if (!changed_.wait_for(lock, options_.patience, has_changed)) {
      lock.unlock();
      if (settle(part, false)) return;
    }
  }
}

}  // namespace lockstep::server
