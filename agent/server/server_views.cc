// How a server takes part in a view, and goes on in the next one.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "agent/server/limits.h"
#include "agent/server/parameter_server.h"
#include "agent/server/rows_state.h"
#include "common/base/check.h"

namespace lockstep::server {
namespace {

bool is_in(const Chain& chain, uint32_t rank) {
  return std::ranges::find(chain, rank) != chain.end();
}

size_t place_in(const Chain& chain, uint32_t rank) {
  return static_cast<size_t>(std::ranges::find(chain, rank) - chain.begin());
}

// Returns the server after this one, which may be the one that joins.
std::optional<uint32_t> next_of(const Holders& holders, uint32_t rank) {
  const auto own = std::ranges::find(holders.chain, rank);
  if (own == holders.chain.end()) return std::nullopt;
  if (own + 1 != holders.chain.end()) return *(own + 1);
  return holders.joining;
}

std::optional<uint32_t> before(const Holders& holders, uint32_t rank) {
  if (holders.joining == rank) return holders.chain.back();
  const auto own = std::ranges::find(holders.chain, rank);
  if (own == holders.chain.end() || own == holders.chain.begin()) return std::nullopt;
  return *(own - 1);
}

std::string name_of(const UnitId& id, const View& view, const Catalog& catalog) {
  if (id.kind == UnitKind::kTable) {
    const std::string slot = view.slots.size() > 1 ? ", slot " + std::to_string(id.slot) : "";
    return catalog.tables[id.index].name + slot;
  }
  const DenseRange& range = view.ranges[id.index];
  return catalog.tensors[range.tensor].name + ", elements " + std::to_string(range.begin) + " to " +
         std::to_string(range.end);
}

}  // namespace

Status ParameterServer::prepare_peers(const View& view) {
  for (const UnitId& id : units_of(view, options_.catalog)) {
    const Holders holders = holders_of(view, id);
    const auto next = next_of(holders, rank_);
    if (!next) continue;
    TRY(peers_.prepare(place_in(holders.chain, rank_)));
    if (!peers_.knows(*next)) {
      return invalid("[server] the address of rank " + std::to_string(*next) + " is missing");
    }
    if (id.kind == UnitKind::kRange &&
        view.ranges[id.index].end - view.ranges[id.index].begin > kCopiedElementsMax) {
      return invalid("[server] range " + std::to_string(id.index) + ": expected at most " +
                     std::to_string(kCopiedElementsMax) + " elements if there are copies");
    }
  }
  return {};
}

Status ParameterServer::check_first() {
  const View& view = routing_->view();
  TRY(prepare_peers(view));
  if (view.number == 1) return {};
  for (const UnitId& id : units_of(view, options_.catalog)) {
    if (is_in(holders_of(view, id).chain, rank_)) {
      return invalid("[server] view " + std::to_string(view.number) + " has rank " +
                     std::to_string(rank_) + " in a chain, but it begins with nothing");
    }
  }
  return {};
}

Status ParameterServer::install(const View& view) {
  TRY(check_view(view, options_.catalog));
  TRY(check_consistency(options_.consistency, view.workers.size()));
  Status done;
  strand_->run([&] { done = switch_to(std::make_shared<const View>(view)); });
  return done;
}

void ParameterServer::move_servers(const std::vector<rpc::Client::ServerAddress>& servers) {
  strand_->run([&] { peers_.move(servers); });
}

Status ParameterServer::check_unit(const UnitId& id, const Holders& now,
                                   const Holders& next) const {
  if (!is_in(next.chain, rank_)) return {};
  const auto unit = units_.find(id);
  const bool has_it = unit != units_.end() && unit->second->is_whole();
  if (has_it && may_become(now, next)) return {};
  const std::string name = name_of(id, routing_->view(), options_.catalog);
  if (!has_it) {
    return conflict("[server] rank " + std::to_string(rank_) + " does not have all of " + name);
  }
  return invalid("[server] " + name + ": expected the servers of view " +
                 std::to_string(routing_->view().number) +
                 " in their order, maybe fewer, and maybe the one that joined");
}

Status ParameterServer::check_next(const View& next) {
  const View& now = routing_->view();
  if (next.round != now.round || next.number <= now.number) {
    return conflict("[server] expected a view after number " + std::to_string(now.number) +
                    " of round " + std::to_string(now.round) + ", got " +
                    std::to_string(next.number) + " of round " + std::to_string(next.round));
  }
  if (!have_same_units(now, next)) {
    return invalid("[server] expected the ranges, slots and arcs of the views before");
  }
  TRY(prepare_peers(next));
  for (const UnitId& id : units_of(next, options_.catalog)) {
    TRY(check_unit(id, holders_of(now, id), holders_of(next, id)));
  }
  return {};
}

Status ParameterServer::switch_to(std::shared_ptr<const View> view) {
  TRY(check_next(*view));
  routing_ = std::make_unique<Routing>(std::move(view));
  const std::vector<uint32_t>& workers = routing_->view().workers;
  std::erase_if(key_lists_, [&](const auto& lists) {
    return !std::ranges::binary_search(workers, lists.first);
  });
  place_units();
  for (const auto& [id, unit] : units_) unit->set_workers(workers);
  std::vector<Early> early = std::exchange(early_, {});
  for (Early& each : early) each.take(std::move(*each.request));
  return {};
}

std::unique_ptr<Unit> ParameterServer::make_unit(const UnitId& id, bool is_whole) const {
  const View& view = routing_->view();
  std::unique_ptr<UnitState> state;
  if (id.kind == UnitKind::kTable) {
    const RowStore::Options rows{
        .seed = options_.seed, .table = id.index, .rows_max = options_.rows_max};
    state = std::make_unique<RowsState>(options_.catalog.tables[id.index], rows);
  } else {
    const DenseRange& range = view.ranges[id.index];
    state = std::make_unique<RangeState>(range.end - range.begin,
                                         options_.catalog.tensors[range.tensor].optimizer);
  }
  return std::make_unique<Unit>(
      Unit::Options{.id = id,
                    .name = name_of(id, view, options_.catalog),
                    .state = std::move(state),
                    .consistency = options_.consistency,
                    .workers = view.workers,
                    .replies = replies_,
                    .recorder = options_.recorder,
                    .post = [this](std::function<void()> task) { strand_->post(std::move(task)); },
                    .is_whole = is_whole});
}

void ParameterServer::place_units() {
  for (const UnitId& id : units_of(routing_->view(), options_.catalog)) {
    place_unit(id, holders_of(routing_->view(), id));
  }
}

void ParameterServer::place_unit(const UnitId& id, const Holders& holders) {
  const bool joins = holders.joining == rank_;
  const auto known = units_.find(id);
  if (known != units_.end() && (joins || !is_in(holders.chain, rank_))) {
    known->second->end(conflict("[server] there is another view now"));
    units_.erase(known);
  }
  if (!joins && !is_in(holders.chain, rank_)) return;
  std::unique_ptr<Unit>& unit = units_[id];
  if (unit == nullptr) unit = make_unit(id, !joins);
  Unit::Place place{.fence = routing_->fence(), .is_primary = holders.chain.front() == rank_};
  if (const auto next = next_of(holders, rank_)) {
    place.next = peers_.at(place_in(holders.chain, rank_), *next);
    place.next_joins = holders.joining == *next;
  }
  unit->set_place(place);
}

// Parses the body as its entry has it.
Result<SharedCall> ParameterServer::copied_call(const CopyHead& head, Unit& unit,
                                                rpc::Request& request) const {
  CallBody body;
  if (head.kind == CopyKind::kPush || head.kind == CopyKind::kPut) {
    const CallKind kind = head.kind == CopyKind::kPush ? CallKind::kPush : CallKind::kPut;
    TRY_ASSIGN(body, parse_body(kind, head.call, unit.floats(), request.body()));
  } else if (head.kind == CopyKind::kExpiry) {
    TRY_ASSIGN(std::vector<uint64_t> keys, parse_keys(request.body()));
    body.keys = std::make_shared<const std::vector<uint64_t>>(std::move(keys));
  }
  return std::make_shared<UnitCall>(UnitCall{.request = std::move(request),
                                             .worker = head.worker,
                                             .head = head.call,
                                             .keys = std::move(body.keys),
                                             .values = body.values,
                                             .decoded = std::move(body.decoded),
                                             .sent = body.sent});
}

void ParameterServer::take_copy(rpc::Request request) {
  const auto fail = [&](const Error& error) { request.fail(error.code, error.message); };
  const auto head = parse_copy(request.head());
  if (!head.ok()) return fail(head.error());
  const Take again = [this](rpc::Request taken) { take_copy(std::move(taken)); };
  if (!is_of_this_view(head->call.fence, request, again)) return;
  const UnitId id{head->call.kind, head->call.unit, head->call.slot};
  const auto unit = units_.find(id);
  if (unit == units_.end() || before(holders_of(routing_->view(), id), rank_) != request.rank()) {
    return fail(invalid("[server] rank " + std::to_string(request.rank()) +
                        " is not the server before rank " + std::to_string(rank_) +
                        " in a chain of unit " + std::to_string(head->call.unit)));
  }
  auto call = copied_call(*head, *unit->second, request);
  if (!call.ok()) return fail(call.error());
  unit->second->receive({*head, *std::move(call)});
}

ViewReply ParameterServer::view_reply() const {
  ViewReply reply{.view = routing_->view().number};
  for (const auto& [id, unit] : units_) reply.unfilled += unit->report().is_filling ? 1 : 0;
  return reply;
}

void ParameterServer::take_view(rpc::Request request) {
  const auto installed = [&]() -> Status {
    if (request.body().empty()) return {};
    const rpc::Bytes body = request.body();
    TRY_ASSIGN(View view, parse_view({reinterpret_cast<const char*>(body.data()), body.size()}));
    if (view == routing_->view()) return {};
    TRY(check_view(view, options_.catalog));
    TRY(check_consistency(options_.consistency, view.workers.size()));
    return switch_to(std::make_shared<const View>(std::move(view)));
  }();
  if (!installed.ok()) return request.fail(installed.error().code, installed.error().message);
  const ViewReply reply = view_reply();
  request.answer({.head = std::as_bytes(std::span(&reply, 1))});
}

}  // namespace lockstep::server
