#include "agent/train/servers/server_process.h"

#include <chrono>
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
#include "common/base/log.h"
#include "kernels/device/parallel.h"

namespace lockstep::train {
namespace {

// How soon SIGTERM is noticed, and how often the size of the tables is told.
constexpr Duration kLook = std::chrono::milliseconds(200);
constexpr Duration kAnswersAfterBlame = std::chrono::seconds(2);

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
  TRY_ASSIGN(ServersRound round, servers_round(config_));
  kernels::set_threads(static_cast<int>(config_.threads));
  const rpc::Client::ServerAddress& self = round.servers[round.self.rank - round.workers];
  TRY_ASSIGN(const int listener, comm::listen_on(self.address.host, self.address.port));
  workers_ = round.workers;
  desk_ = std::make_unique<JobDesk>(workers_);
  TRY_ASSIGN(server_,
             server::ParameterServer::create(
                 {.rpc = {.self = round.self, .listen_fd = listener},
                  .catalog = round.catalog,
                  .view = round.view,
                  .consistency = round.consistency,
                  .seed = static_cast<uint64_t>(config_.train.seed),
                  .add_methods = [&](rpc::Server& server) { desk_->add_methods(server); }}));
  StopSignal::arm();
  TRY(server_->start());
  progress_.enter(WorkerPhase::kTraining);
  log_info("serving parameters", {{"rank", config_.rank},
                                  {"port", self.address.port},
                                  {"workers", static_cast<int64_t>(round.workers)},
                                  {"servers", static_cast<int64_t>(round.servers.size())}});
  while (true) {
    std::optional<JobDesk::Order> order = desk_->next(kLook);
    if (StopSignal::requested()) desk_->ask_to_stop();
    if (order) {
      carry_out(std::move(*order));
      continue;
    }
    look();
    if (desk_->all_have_left()) return {};
    if (const auto hung = watch_.hung(surroundings_.clock.now())) return give_up(*hung);
  }
}

void ServerProcess::look() {
  const server::ParameterServer::Report units = server_->report();
  report(units);
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
  if (!slowest) return std::nullopt;
  return AwaitedWorkers{"step", slowest->clock + 1, {slowest->worker}};
}

void ServerProcess::report_wait() {
  CollectiveBoard* board = progress_.board();
  if (board == nullptr) return;
  const std::optional<AwaitedWorkers>& awaited = watch_.awaited();
  if (!awaited) return board->clear_wait();
  RankWait wait{.operation = awaited->operation,
                .number = awaited->number,
                .size = workers_,
                .ranks = workers_ == 1 ? "0" : "0-" + std::to_string(workers_ - 1),
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
  if (holdings.parameters_bytes == bytes) return;
  progress_.numbers().server_rows = static_cast<int64_t>(rows);
  holdings.parameters_bytes = bytes;
  holdings.sharding_ranks = 1;
  progress_.publish();
}

void ServerProcess::carry_out(JobDesk::Order order) {
  rpc::Request& request = order.request;
  if (order.kind == JobDesk::OrderKind::kLoad) {
    const Status loaded = load(request);
    return answer(request, loaded.ok() ? Result<std::string>(std::string()) : loaded.error());
  }
  progress_.enter(WorkerPhase::kSaving);
  const Result<std::string> files = save(text_of(request.body()));
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
  return {};
}

Result<std::string> ServerProcess::save(std::string_view folder) {
  if (!saved_folder_.empty() && saved_folder_ == folder) return saved_files_;
  const std::string name = "server-" + std::to_string(config_.rank) + ".state";
  TRY_ASSIGN(std::unique_ptr<ObjectWriter> object,
             storage_.create(std::string(folder) + "/" + name));
  ChunkedWriter writer(std::move(object));
  TRY(server_->save([&](std::span<const std::byte> bytes) {
    return writer.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }));
  TRY_ASSIGN(ManifestFile file, writer.finish(name));
  saved_files_ = format_files({std::move(file)});
  saved_folder_ = folder;
  return saved_files_;
}

}  // namespace lockstep::train
