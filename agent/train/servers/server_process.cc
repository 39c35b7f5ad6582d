#include "agent/train/servers/server_process.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "agent/comm/make_communicator.h"
#include "agent/rpc/limits.h"
#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/chunked_file.h"
#include "agent/train/exit_code.h"
#include "agent/train/stop_signal.h"
#include "common/api/hang_limit.h"
#include "common/api/servers_view.h"
#include "common/base/log.h"
#include "kernels/device/parallel.h"

namespace lockstep::train {
namespace {

// How soon SIGTERM is noticed, and how often the size of the tables is told.
constexpr Duration kLook = std::chrono::milliseconds(200);
// The next view waits for the end of filling.
constexpr Duration kLookWhileFilling = std::chrono::milliseconds(10);
constexpr Duration kAnswersAfterBlame = std::chrono::seconds(2);
constexpr Duration kOthersLeave = std::chrono::seconds(5);
constexpr size_t kHotRows = 3;  // of a table, that are logged

std::string_view text_of(rpc::Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

ServerProcess::ServerProcess(WorkerConfig config, ProgressReporter& progress,
                             Surroundings surroundings)
    : config_(std::move(config)),
      progress_(progress),
      surroundings_(std::move(surroundings)),
      files_(config_.checkpoint.path, surroundings_.files),
      storage_(files_, surroundings_.pause),
      watch_(std::chrono::seconds(config_.hang_seconds), kSilenceLimit) {}

int ServerProcess::run() {
  const Status served = serve();
  feed_.reset();
  const bool was_stopped = desk_ != nullptr && desk_->was_stopped();
  if (desk_ != nullptr) desk_->close();
  server_.reset();
  if (served.ok()) {
    progress_.enter(WorkerPhase::kDone);
    return was_stopped ? kExitStopped : 0;
  }
  const int exit_code = exit_code_of(served.error());
  log_error("server failed",
            {{"rank", config_.rank}, {"exitCode", exit_code}, {"reason", served.error().message}});
  return exit_code;
}

Status ServerProcess::serve() {
  progress_.enter(WorkerPhase::kForming);
  heartbeat_ = std::make_unique<Heartbeat>(progress_.board());
  TRY_ASSIGN(round_, servers_round(config_));
  const ServersRound& round = *round_;
  kernels::set_threads(static_cast<int>(config_.threads));
  const rpc::Client::ServerAddress& self = round.servers[round.self.rank - round.workers];
  TRY_ASSIGN(const int listener, comm::listen_on(self.address.host, self.address.port));
  desk_ = std::make_unique<JobDesk>(round.workers);
  TRY_ASSIGN(server_,
             server::ParameterServer::create(
                 {.rpc = {.self = round.self, .listen_fd = listener},
                  .catalog = round.catalog,
                  .view = round.view,
                  .servers = round.servers,
                  .consistency = round.consistency,
                  .seed = static_cast<uint64_t>(config_.train.seed),
                  .add_methods = [&](rpc::Server& server) { desk_->add_methods(server); }}));
  StopSignal::arm();
  followed_ = round.standing;
  desk_->note_lost(round.standing.workers);
  const ServerStanding& standing = round.standing.servers[round.self.rank - round.workers];
  if (standing.state == ServerState::kWhole && standing.since == 1) begin_at(0);
  TRY(server_->start());
  show_view();
  feed_ = std::make_unique<ViewFeed>(
      ViewFeed::Options{.fd = static_cast<int>(config_.rounds_fd),
                        .now = round.standing,
                        .handler = [this](const ServersView& view) { follow(view); }});
  progress_.enter(WorkerPhase::kTraining);
  log_info("serving parameters", {{"rank", config_.rank},
                                  {"port", self.address.port},
                                  {"workers", static_cast<int64_t>(round.workers)},
                                  {"servers", static_cast<int64_t>(round.servers.size())},
                                  {"view", text_of(round.standing)}});
  TRY(serve_until_all_have_left());
  report(server_->report());
  tell_hot_rows();
  return {};
}

void ServerProcess::tell_hot_rows() {
  const std::vector<server::TableSpec>& tables = round_->catalog.tables;
  for (uint32_t table = 0; table < tables.size(); ++table) {
    std::string rows;
    for (const server::HotRow& row : server_->hottest(table, kHotRows)) {
      if (!rows.empty()) rows += ' ';
      rows += std::to_string(row.key) + ":" + std::to_string(std::llround(row.frequency));
    }
    log_info("hottest rows", {{"table", tables[table].name}, {"keysAndUses", rows}});
  }
}

Status ServerProcess::serve_until_all_have_left() {
  while (true) {
    const bool is_filling = progress_.shows_filling();
    std::optional<JobDesk::Order> order = desk_->next(is_filling ? kLookWhileFilling : kLook);
    if (StopSignal::requested()) desk_->ask_to_stop();
    if (order) {
      carry_out(std::move(*order));
      continue;
    }
    look();
    TRY(view_failure());
    if (has_left() || may_end()) return {};
    if (const auto hung = watch_.hung(surroundings_.clock.now())) return give_up(*hung);
  }
}

// Rank 0 leaves once all others need no server any more. A server that was started anew may have
// missed that they left.
bool ServerProcess::may_end() {
  if (desk_->all_have_left()) return true;
  if (round_->standing.number == 1 || !desk_->first_has_left()) return false;
  const TimePoint now = surroundings_.clock.now();
  if (!first_left_at_) first_left_at_ = now;
  return now - *first_left_at_ >= kOthersLeave;
}

// Others hold what this server held.
bool ServerProcess::has_left() {
  const std::lock_guard lock(view_mutex_);
  return followed_.servers[round_->self.rank - round_->workers].state == ServerState::kLeft;
}

// A server that cannot follow is of no use: another process has to begin anew in its place.
void ServerProcess::follow(const ServersView& view) {
  desk_->note_lost(view.workers);
  const auto installed = [&]() -> Status {
    TRY_ASSIGN(const server::View next, view_of(*round_, view));
    if (next.number == server_->report().view) return {};
    server_->move_servers(addresses_in(view, round_->servers));
    return server_->install(next);
  }();
  if (!installed.ok()) {
    log_error("cannot follow a view of the servers",
              {{"view", text_of(view)}, {"reason", installed.error().message}});
    const std::lock_guard lock(view_mutex_);
    view_failure_ = installed;
    return;
  }
  {
    const std::lock_guard lock(view_mutex_);
    followed_ = view;
  }
  show_view();
  log_info("following a view of the servers", {{"rank", config_.rank}, {"view", text_of(view)}});
}

Status ServerProcess::view_failure() {
  const std::lock_guard lock(view_mutex_);
  return view_failure_;
}

server::ParameterServer::Report ServerProcess::show_view() {
  const std::lock_guard lock(view_mutex_);
  server::ParameterServer::Report units = server_->report();
  const bool is_filling = std::ranges::any_of(units.units, &server::Unit::Report::is_filling);
  progress_.show_view(followed_.number, is_filling);
  return units;
}

void ServerProcess::look() {
  const server::ParameterServer::Report units = show_view();
  report(units);
  // Calls that wait for another server begin anew in a later view.
  if (std::exchange(seen_view_, units.view) != units.view) watch_.begin_anew();
  watch_.look(desk_->step(), awaited(units), surroundings_.clock.now());
  report_wait();
}

std::optional<AwaitedWorkers> ServerProcess::awaited(
    const server::ParameterServer::Report& units) const {
  if (std::optional<AwaitedWorkers> found = desk_->awaited()) return found;
  std::optional<server::UnitClock::WorkerClock> slowest;
  for (const server::Unit::Report& unit : units.units) {
    if (unit.waiting == 0) continue;
    if (!slowest || unit.slowest.clock < slowest->clock) slowest = unit.slowest;
  }
  if (!slowest || desk_->is_away(slowest->worker)) return std::nullopt;
  return AwaitedWorkers{"step", slowest->clock + 1, {slowest->worker}};
}

void ServerProcess::report_wait() {
  CollectiveBoard* board = progress_.board();
  if (board == nullptr) return;
  const std::optional<AwaitedWorkers>& awaited = watch_.awaited();
  if (!awaited) return board->clear_wait();
  RankWait wait{.operation = awaited->operation,
                .number = awaited->number,
                .size = round_->workers,
                .ranks = round_->workers == 1 ? "0" : "0-" + std::to_string(round_->workers - 1),
                .since_nanoseconds = watch_.since().time_since_epoch().count()};
  for (const uint32_t rank : awaited->ranks) wait.waits_for.add(static_cast<int>(rank));
  board->set_wait(wait);
}

// Workers learn of it with their calls, and ask who it is before they end.
Status ServerProcess::give_up(uint32_t hung) {
  const std::string operation =
      watch_.awaited()->operation + " #" + std::to_string(watch_.awaited()->number);
  const Error error = timed_out("[servers] rank " + std::to_string(hung) + " is missing from " +
                                    operation + " for too long, while other workers wait",
                                Blame::kPeerHung);
  desk_->blame(hung);
  server_->fail_waiting(error);
  progress_.numbers().suspect_rank = hung;
  progress_.publish();
  surroundings_.pause(kAnswersAfterBlame);
  return error;
}

void ServerProcess::report(const server::ParameterServer::Report& units) {
  uint64_t rows = 0;
  uint64_t bytes = 0;
  for (const server::Unit::Report& unit : units.units) {
    rows += unit.size.rows;
    bytes += unit.size.bytes;
  }
  Holdings& holdings = progress_.numbers().holdings;
  std::optional<int64_t>& shown_rows = progress_.numbers().server_rows;
  const auto rows_now = static_cast<int64_t>(rows);
  if (holdings.parameters_bytes == bytes && shown_rows == rows_now) return;
  shown_rows = rows_now;
  holdings.parameters_bytes = bytes;
  holdings.sharding_ranks = 1;
  progress_.publish();
}

void ServerProcess::carry_out(JobDesk::Order order) {
  rpc::Request& request = order.request;
  if (order.kind == JobDesk::OrderKind::kReturn) return tell_past(request);
  if (order.kind == JobDesk::OrderKind::kLoad) {
    const Status loaded = load(request);
    return answer(request, loaded.ok() ? Result<std::string>(std::string()) : loaded.error());
  }
  progress_.enter(WorkerPhase::kSaving);
  const Result<std::string> files = save(request);
  progress_.enter(WorkerPhase::kTraining);
  answer(request, files);
}

void ServerProcess::answer(rpc::Request& request, const Result<std::string>& done) {
  StorageReply reply;
  if (!done.ok()) {
    if (done.error().blame != Blame::kStorage) {
      return request.fail(done.error().code, done.error().message);
    }
    reply.failure = 1 + static_cast<uint64_t>(done.error().code);
  }
  auto text = std::make_shared<const std::string>(
      done.ok() ? *done : done.error().message.substr(0, rpc::kErrorTextMax));
  const rpc::Bytes body[] = {std::as_bytes(std::span(*text))};
  request.answer(
      {.head = head_bytes(reply), .body = body, .on_free = [text]() mutable { text.reset(); }});
}

Status ServerProcess::load(const rpc::Request& request) {
  LoadCall call;
  if (request.head().size() != sizeof call) return invalid("[servers] expected another head");
  std::memcpy(&call, request.head().data(), sizeof call);
  TRY_ASSIGN(const Manifest manifest, parse_manifest(text_of(request.body())));
  const std::string folder = checkpoint_name(manifest.position.step);
  for (const ManifestFile& file : manifest.files) {
    TRY_ASSIGN(ChunkedReader reader, ChunkedReader::open(storage_, folder, file));
    uint64_t at = 0;
    TRY(server_->load([&](std::span<std::byte> to) -> Status {
      if (to.size() > reader.bytes() - at) {
        return corrupt("[servers] " + reader.path() + " is too short", Blame::kStorage);
      }
      TRY(reader.read(at, {reinterpret_cast<char*>(to.data()), to.size()}));
      at += to.size();
      return {};
    }));
  }
  server_->begin_at(call.first);
  begin_at(call.first);
  return {};
}

void ServerProcess::begin_at(uint64_t step) {
  first_step_ = step;
  watch_.begin_at(step, surroundings_.clock.now());
}

void ServerProcess::tell_past(rpc::Request& request) {
  ReturnReply reply = desk_->past_of(request.rank());
  if (first_step_) reply.first = *first_step_ + 1;
  reply.highest_clock = server_->highest_clock_of(request.rank());
  log_info("a worker returns", {{"rank", static_cast<int64_t>(request.rank())},
                                {"step", static_cast<int64_t>(reply.step)}});
  request.answer({.head = head_bytes(reply)});
}

Result<std::string> ServerProcess::save(const rpc::Request& request) {
  SaveCall call;
  if (request.head().size() != sizeof call) return invalid("[servers] expected another head");
  std::memcpy(&call, request.head().data(), sizeof call);
  const std::string folder(text_of(request.body()));
  if (saved_.folder == folder && saved_.view == call.view) return saved_.files;
  // Most often known before a file is begun.
  if (const uint64_t now = server_->report().view; now != call.view) {
    return conflict("[servers] expected a save in view " + std::to_string(now) + ", got view " +
                    std::to_string(call.view));
  }
  const std::string name = "server-" + std::to_string(config_.rank) + ".state";
  const std::string path = folder + "/" + name;
  TRY(storage_.remove_object(path));  // of an earlier view
  TRY_ASSIGN(std::unique_ptr<ObjectWriter> object, storage_.create(path));
  ChunkedWriter writer(std::move(object));
  TRY(server_->save(
      [&](std::span<const std::byte> bytes) {
        return writer.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      },
      call.view));
  TRY_ASSIGN(ManifestFile file, writer.finish(name));
  saved_ = {.folder = folder, .view = call.view, .files = format_files({std::move(file)})};
  return saved_.files;
}

}  // namespace lockstep::train
