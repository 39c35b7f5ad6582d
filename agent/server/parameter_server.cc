#include "agent/server/parameter_server.h"

#include <algorithm>
#include <utility>

#include "agent/comm/socket.h"
#include "agent/server/limits.h"
#include "agent/server/rows_state.h"
#include "common/base/check.h"

namespace lockstep::server {
namespace {

Error ended_error() {
  return unavailable("[server] the server has ended");
}

// Makes of a push of selected rows one that has no other keys.
void take_selected(const RowSelection& selection, CallHead& head, KeyList& keys) {
  keys = std::make_shared<const std::vector<uint64_t>>(
      selected(std::span<const uint64_t>(*keys), selection));
  head.key_count = keys->size();
  head.signature = 0;
  head.flags = static_cast<uint16_t>(head.flags & ~CallHead::kSelects);
}

}  // namespace

Result<std::unique_ptr<ParameterServer>> ParameterServer::create(Options options) {
  comm::UniqueFd listener(options.rpc.listen_fd);
  TRY(check_catalog(options.catalog));
  TRY(check_view(options.view, options.catalog));
  TRY(check_consistency(options.consistency, options.view.workers.size()));
  if (options.view.round != options.rpc.self.round) {
    return invalid("[server] expected a view of round " + std::to_string(options.rpc.self.round) +
                   ", got round " + std::to_string(options.view.round));
  }
  listener.release();
  TRY_ASSIGN(auto rpc, rpc::Server::create(options.rpc));
  auto view = std::make_shared<const View>(std::move(options.view));
  std::unique_ptr<ParameterServer> server(new ParameterServer(std::move(options), std::move(view)));
  server->rpc_ = std::move(rpc);
  TRY(server->check_first());
  server->place_units();
  server->add_methods();
  return server;
}

ParameterServer::ParameterServer(Options options, std::shared_ptr<const View> view)
    : options_(std::move(options)),
      rank_(options_.rpc.self.rank),
      peers_({.self = options_.rpc.self,
              .limits = options_.rpc.limits,
              .clock = options_.rpc.clock,
              .nonce = options_.rpc.nonce,
              .memory = {}},
             options_.servers),
      replies_(std::make_shared<ReplyMemory>(
          ReplyMemory::Options{.bytes_max = options_.reply_bytes_max,
                               .on_room =
                                   [this] {
                                     strand_->post([this] {
                                       for (const auto& [id, unit] : units_) unit->settle();
                                     });
                                   }})),
      routing_(std::make_unique<Routing>(std::move(view))),
      strand_(std::make_unique<Strand>(
          Strand::Around{.begin = [this] { begin_burst(); }, .end = [this] { burst_.reset(); }})) {}

ParameterServer::~ParameterServer() {
  replies_->close();
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  // Requests have to be destroyed before their server.
  strand_->run([&] {
    for (const auto& [id, unit] : units_) unit->end(ended_error());
    units_.clear();
    for (const Early& early : early_)
      early.request->fail(ended_error().code, ended_error().message);
    early_.clear();
    burst_.reset();
    has_ended_ = true;
  });
  rpc_.reset();
  peers_.close();
  strand_.reset();
}

void ParameterServer::add_methods() {
  serve(kPush, CallKind::kPush, &Unit::push);
  serve(kPull, CallKind::kPull, &Unit::pull);
  serve(kPut, CallKind::kPut, &Unit::put);
  rpc_->add(kCopy, [this](rpc::Request request) {
    post([this](rpc::Request taken) { take_copy(std::move(taken)); }, std::move(request));
  });
  rpc_->add(kInstallView,
            [this](rpc::Request request) {
              post([this](rpc::Request taken) { take_view(std::move(taken)); }, std::move(request));
            },
            {.body_bytes_max = kViewTextMax, .place = nullptr});
  if (options_.add_methods) options_.add_methods(*rpc_);
}

void ParameterServer::serve(const rpc::Method& method, CallKind kind,
                            void (Unit::*handler)(UnitCall)) {
  rpc_->add(method, [this, kind, handler](rpc::Request request) {
    post([this, kind, handler](rpc::Request taken) { take(kind, handler, std::move(taken)); },
         std::move(request));
  });
}

void ParameterServer::post(const Take& take, rpc::Request request) {
  const std::lock_guard lock(mutex_);
  if (is_ending_) return request.fail(ended_error().code, ended_error().message);
  auto shared = std::make_shared<rpc::Request>(std::move(request));
  strand_->post([take, shared = std::move(shared)] { take(std::move(*shared)); });
}

void ParameterServer::begin_burst() {
  if (!has_ended_) burst_.emplace(*rpc_);
}

Status ParameterServer::start() {
  return rpc_->start();
}

void ParameterServer::take(CallKind kind, void (Unit::*handler)(UnitCall), rpc::Request request) {
  const auto fail = [&](const Error& error) { request.fail(error.code, error.message); };
  auto head = parse_call(kind, request.head());
  if (!head.ok()) return fail(head.error());
  const Take again = [this, kind, handler](rpc::Request taken) {
    take(kind, handler, std::move(taken));
  };
  if (!is_of_this_view(head->fence, request, again)) return;
  const auto unit = units_.find({head->kind, head->unit, head->slot});
  if (unit == units_.end() || !unit->second->is_primary()) {
    return fail(invalid("[server] rank " + std::to_string(rank_) + " does not have unit " +
                        std::to_string(head->unit)));
  }
  auto body = parse_body(kind, *head, unit->second->floats(), request.body());
  if (!body.ok()) return fail(body.error());
  auto keys = keys_of(request.rank(), *head, *body);
  if (!keys.ok()) return fail(keys.error());
  if ((head->flags & CallHead::kSelects) != 0) take_selected(body->selection, *head, *keys);
  const uint32_t worker = request.rank();
  if (request.body().size() >= rpc::kBurstBytes) burst_.reset();
  (unit->second.get()->*handler)({.request = std::move(request),
                                  .worker = worker,
                                  .head = *head,
                                  .keys = *std::move(keys),
                                  .values = body->values,
                                  .decoded = std::move(body->decoded),
                                  .sent = body->sent});
}

bool ParameterServer::is_of_this_view(const Fence& fence, rpc::Request& request,
                                      const Take& again) {
  const Fence& own = routing_->fence();
  if (fence.round == own.round && fence.number > own.number) {
    std::erase_if(early_, [](const Early& early) {
      if (early.request->is_wanted()) return false;
      early.request->fail(Code::kUnavailable, "[server] nobody waits for the call any more");
      return true;
    });
    early_.push_back({std::make_shared<rpc::Request>(std::move(request)), again});
    return false;
  }
  const Status same_view = check_fence(fence, own);
  if (!same_view.ok()) request.fail(same_view.error().code, same_view.error().message);
  return same_view.ok();
}

Status ParameterServer::check_keys(uint32_t slot, std::span<const uint64_t> keys) const {
  for (const uint64_t key : keys) {
    if (routing_->slot_of(key) != slot) {
      return invalid("[server] rank " + std::to_string(rank_) + " does not have the row of key " +
                     std::to_string(key));
    }
  }
  return {};
}

// Returns null for a range.
Result<KeyList> ParameterServer::keys_of(uint32_t worker, const CallHead& head,
                                         const CallBody& body) {
  if (head.kind == UnitKind::kRange) return KeyList();
  if (!std::ranges::binary_search(routing_->view().workers, worker)) {
    return conflict("[server] rank " + std::to_string(worker) + " is no worker of this view");
  }
  const uint64_t floats = options_.catalog.tables[head.unit].dim * head.key_count;
  if (floats > kReplyFloatsMax) {
    return invalid("[server] expected at most " + std::to_string(kReplyFloatsMax) +
                   " floats, got " + std::to_string(floats));
  }
  KeyLists& lists = key_lists_[worker];
  if (body.keys != nullptr) {
    TRY(check_keys(head.slot, *body.keys));
    TRY(lists.add(head.signature, body.keys));
    return body.keys;
  }
  // All keys of a list are in one slot.
  const KeyList known = lists.find(head.signature, head.key_count);
  if (known != nullptr && !known->empty()) TRY(check_keys(head.slot, std::span(*known).first(1)));
  if (known != nullptr) return known;
  return not_found("[server] no list of keys has this signature: send it");
}

void ParameterServer::fail_waiting(const Error& error) {
  strand_->run([&] {
    for (const auto& [id, unit] : units_) unit->fail_waiting(error);
  });
}

// A copy has no push that its primary does not have.
uint64_t ParameterServer::highest_clock_of(uint32_t worker) {
  uint64_t highest = 0;
  strand_->run([&] {
    if (!std::ranges::binary_search(routing_->view().workers, worker)) return;
    for (const auto& [id, unit] : units_) {
      if (unit->is_whole()) highest = std::max(highest, unit->clock_of(worker));
    }
  });
  return highest;
}

std::vector<HotRow> ParameterServer::hottest(uint32_t table, size_t count) {
  std::vector<HotRow> hot;
  strand_->run([&] {
    burst_.reset();
    for (const auto& [id, unit] : units_) {
      const bool is_of_table = id.kind == UnitKind::kTable && id.index == table;
      if (!is_of_table || !unit->is_primary()) continue;
      const std::vector<HotRow> of_unit = unit->state().hottest(count, unit->report().now);
      hot.insert(hot.end(), of_unit.begin(), of_unit.end());
    }
  });
  std::ranges::sort(hot, is_hotter);
  hot.resize(std::min(hot.size(), count));
  return hot;
}

ParameterServer::Report ParameterServer::report() {
  Report report;
  strand_->run([&] {
    report.view = routing_->view().number;
    for (const auto& [id, unit] : units_) report.units.push_back(unit->report());
  });
  return report;
}

}  // namespace lockstep::server
