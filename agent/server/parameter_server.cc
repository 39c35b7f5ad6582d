#include "agent/server/parameter_server.h"

#include <algorithm>
#include <utility>

#include "agent/comm/socket.h"
#include "agent/server/limits.h"
#include "agent/server/rows_state.h"
#include "common/base/check.h"

namespace lockstep::server {
namespace {

Status check_chains(const View& view) {
  const auto is_single = [](const auto& held) { return held.chain.size() == 1; };
  if (std::ranges::all_of(view.ranges, is_single) && std::ranges::all_of(view.arcs, is_single)) {
    return {};
  }
  return invalid("[server] copies are not in this version: expected chains of one server");
}

bool is_held_by(const Chain& chain, uint32_t rank) {
  return chain.front() == rank;
}

Error ended_error() {
  return unavailable("[server] the server has ended");
}

std::string name_of(const TensorSpec& tensor, const DenseRange& range) {
  return tensor.name + ", elements " + std::to_string(range.begin) + " to " +
         std::to_string(range.end);
}

}  // namespace

Result<std::unique_ptr<ParameterServer>> ParameterServer::create(Options options) {
  comm::UniqueFd listener(options.rpc.listen_fd);
  TRY(check_catalog(options.catalog));
  TRY(check_view(options.view, options.catalog));
  TRY(check_chains(options.view));
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
  server->add_methods();
  return server;
}

ParameterServer::ParameterServer(Options options, std::shared_ptr<const View> view)
    : options_(std::move(options)),
      rank_(options_.rpc.self.rank),
      replies_(std::make_shared<ReplyMemory>(
          ReplyMemory::Options{.bytes_max = options_.reply_bytes_max,
                               .on_room =
                                   [this] {
                                     strand_->post([this] {
                                       for (const auto& [id, unit] : units_) unit->settle();
                                     });
                                   }})),
      routing_(std::make_unique<Routing>(std::move(view))),
      strand_(std::make_unique<Strand>()) {
  add_units();
}

ParameterServer::~ParameterServer() {
  replies_->close();
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  // Requests have to be destroyed before their server.
  strand_->run([&] {
    for (const auto& [id, unit] : units_) unit->fail_waiting(ended_error());
  });
  rpc_.reset();
  strand_.reset();
}

void ParameterServer::add_unit(const UnitId& id, std::string name,
                               std::unique_ptr<UnitState> state) {
  units_[id] = std::make_unique<Unit>(Unit::Options{.id = id,
                                                    .name = std::move(name),
                                                    .state = std::move(state),
                                                    .consistency = options_.consistency,
                                                    .workers = routing_->view().workers,
                                                    .replies = replies_,
                                                    .recorder = options_.recorder});
}

void ParameterServer::add_units() {
  const View& view = routing_->view();
  for (uint32_t i = 0; i < view.ranges.size(); ++i) {
    const DenseRange& range = view.ranges[i];
    if (!is_held_by(range.chain, rank_)) continue;
    const TensorSpec& tensor = options_.catalog.tensors[range.tensor];
    add_unit({UnitKind::kRange, i}, name_of(tensor, range),
             std::make_unique<RangeState>(range.end - range.begin, tensor.optimizer));
  }
  const bool has_rows =
      std::ranges::any_of(view.arcs, [&](const Arc& arc) { return is_held_by(arc.chain, rank_); });
  if (!has_rows) return;
  for (uint32_t i = 0; i < options_.catalog.tables.size(); ++i) {
    const TableSpec& table = options_.catalog.tables[i];
    const RowStore::Options rows{.seed = options_.seed, .table = i, .rows_max = options_.rows_max};
    add_unit({UnitKind::kTable, i}, table.name, std::make_unique<RowsState>(table, rows));
  }
}

void ParameterServer::add_methods() {
  serve(kPush, CallKind::kPush, &Unit::push);
  serve(kPull, CallKind::kPull, &Unit::pull);
  serve(kPut, CallKind::kPut, &Unit::put);
  if (options_.add_methods) options_.add_methods(*rpc_);
}

void ParameterServer::serve(const rpc::Method& method, CallKind kind,
                            void (Unit::*handler)(UnitCall)) {
  rpc_->add(method, [this, kind, handler](rpc::Request request) {
    const std::lock_guard lock(mutex_);
    if (is_ending_) return request.fail(ended_error().code, ended_error().message);
    auto shared = std::make_shared<rpc::Request>(std::move(request));
    strand_->post([this, kind, handler, shared = std::move(shared)] {
      take(kind, handler, std::move(*shared));
    });
  });
}

Status ParameterServer::start() {
  return rpc_->start();
}

void ParameterServer::take(CallKind kind, void (Unit::*handler)(UnitCall), rpc::Request request) {
  const auto fail = [&](const Error& error) { request.fail(error.code, error.message); };
  const auto head = parse_call(kind, request.head());
  if (!head.ok()) return fail(head.error());
  const Status same_view = check_fence(head->fence, routing_->fence());
  if (!same_view.ok()) return fail(same_view.error());
  const auto unit = units_.find({head->kind, head->unit});
  if (unit == units_.end()) {
    return fail(invalid("[server] rank " + std::to_string(rank_) + " does not have unit " +
                        std::to_string(head->unit)));
  }
  auto body = parse_body(kind, *head, unit->second->floats(), request.body());
  if (!body.ok()) return fail(body.error());
  auto keys = keys_of(request.rank(), *head, *body);
  if (!keys.ok()) return fail(keys.error());
  (unit->second.get()->*handler)({.request = std::move(request),
                                  .head = *head,
                                  .keys = *std::move(keys),
                                  .values = body->values,
                                  .decoded = std::move(body->decoded)});
}

Status ParameterServer::check_keys(std::span<const uint64_t> keys) const {
  for (const uint64_t key : keys) {
    if (routing_->primary_of(key) != rank_) {
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
    TRY(check_keys(*body.keys));
    TRY(lists.add(head.signature, body.keys));
    return body.keys;
  }
  if (KeyList known = lists.find(head.signature, head.key_count)) return known;
  return not_found("[server] no list of keys has this signature: send it");
}

Status ParameterServer::install(const View& view) {
  TRY(check_view(view, options_.catalog));
  TRY(check_consistency(options_.consistency, view.workers.size()));
  Status done;
  strand_->run([&] { done = switch_to(std::make_shared<const View>(view)); });
  return done;
}

Status ParameterServer::switch_to(std::shared_ptr<const View> view) {
  const View& now = routing_->view();
  if (view->round != now.round || view->number <= now.number) {
    return conflict("[server] expected a view after number " + std::to_string(now.number) +
                    " of round " + std::to_string(now.round) + ", got " +
                    std::to_string(view->number) + " of round " + std::to_string(view->round));
  }
  if (view->ranges != now.ranges || view->arcs != now.arcs) {
    return invalid("[server] moving ranges is not in this version");
  }
  routing_ = std::make_unique<Routing>(std::move(view));
  const std::vector<uint32_t>& workers = routing_->view().workers;
  std::erase_if(key_lists_, [&](const auto& lists) {
    return !std::ranges::binary_search(workers, lists.first);
  });
  for (const auto& [id, unit] : units_) unit->set_workers(workers);
  return {};
}

void ParameterServer::fail_waiting(const Error& error) {
  strand_->run([&] {
    for (const auto& [id, unit] : units_) unit->fail_waiting(error);
  });
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
