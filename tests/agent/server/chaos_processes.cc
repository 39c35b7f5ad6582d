#include "tests/agent/server/chaos_processes.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>

#include "agent/server/parameter_client.h"
#include "agent/server/parameter_server.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "kernels/device/parallel.h"
#include "tests/agent/rpc/cutting_proxy.h"
#include "tests/agent/server/event_file.h"
#include "tests/agent/server/servers.h"

namespace lockstep::test {
namespace {

using server::ParameterClient;
using server::Transfer;

bool read_all(int fd, void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::read(fd, at, bytes);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

// Installs the views that the manager writes to the pipe, until it ends.
void follow_views(int pipe, ParameterClient& client) {
  uint32_t bytes = 0;
  while (read_all(pipe, &bytes, sizeof bytes)) {
    std::string text(bytes, '\0');
    if (!read_all(pipe, text.data(), bytes)) return;
    const auto view = server::parse_view(text);
    CHECK(view.ok());
    const Status installed = client.install(*view);
    CHECK(installed.ok());
  }
}

// One worker's steps: gradients depend on what it pulls, as in training.
class Trainer {
 public:
  Trainer(ParameterClient& client, uint64_t seed, uint32_t rank)
      : client_(client), random_(seed, rank) {}

  Status step(uint64_t clock) {
    const std::vector<uint64_t> keys = draw_keys();
    std::vector<float> user(keys.size() * kChaosDim), weights(keys.size()), tensor(60);
    using RowsPull = ParameterClient::RowsPull;
    Transfer pulls[] = {
        client_.pull(RowsPull{.table = 0, .keys = keys, .clock = clock, .into = user}),
        client_.pull(RowsPull{.table = 1, .keys = keys, .clock = clock, .into = weights}),
        client_.pull(ParameterClient::TensorPull{.tensor = 0, .clock = clock, .into = tensor})};
    for (Transfer& pull : pulls) TRY(pull.wait());
    for (std::vector<float>* const values : {&user, &weights, &tensor}) {
      for (float& value : *values) value = 0.3f * value + random_.normal();
    }
    using RowsPush = ParameterClient::RowsPush;
    Transfer pushes[] = {
        client_.push(RowsPush{
            .table = 0, .keys = keys, .clock = clock, .gradients = user, .learning_rate = 0.1}),
        client_.push(RowsPush{
            .table = 1, .keys = keys, .clock = clock, .gradients = weights, .learning_rate = 0.2}),
        client_.push(ParameterClient::TensorPush{
            .tensor = 0, .clock = clock, .gradient = tensor, .learning_rate = 0.01})};
    for (Transfer& push : pushes) TRY(push.wait());
    return {};
  }

 private:
  std::vector<uint64_t> draw_keys() {
    std::set<uint64_t> keys;
    for (int i = 0; i < 6; ++i) keys.insert(random_.below(random_.below(100) + 1));
    return {keys.begin(), keys.end()};
  }
  ParameterClient& client_;
  Random random_;
};

}  // namespace

server::Catalog chaos_catalog() {
  using optim::OptimizerKind;
  return {
      .tensors = {{.name = "w",
                   .count = 60,
                   .optimizer = {.kind = OptimizerKind::kSgd, .momentum = 0.9}}},
      .tables = {
          {.name = "user",
           .dim = kChaosDim,
           .deviation = 0.1f,
           .optimizer = {.kind = OptimizerKind::kAdamW},
           .life = {.idle_max = 8, .frequency_min = 4, .half_life = 5, .decay = 0.01}},
          {.name = "weights", .dim = 1, .optimizer = {.kind = OptimizerKind::kFtrl, .l1 = 0.01}}}};
}

std::string ChaosProcesses::server_file(const std::string& folder, uint32_t rank) {
  return folder + "/server-" + std::to_string(rank);
}

std::string ChaosProcesses::worker_file(const std::string& folder, uint32_t rank) {
  return folder + "/worker-" + std::to_string(rank);
}

ChaosProcesses::ChaosProcesses(Options options) : options_(std::move(options)) {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  shared_ = new (memory) Shared();
  std::map<uint32_t, Listener> listeners;
  for (const uint32_t rank : options_.servers) {
    listeners[rank] = listen_here();
    addresses_.push_back(
        {.rank = rank, .address = {.host = "127.0.0.1", .port = listeners[rank].port}});
  }
  std::map<uint32_t, int> ends;
  for (const uint32_t rank : options_.view.workers) {
    int pipe[2];
    CHECK(::pipe(pipe) == 0);
    ends[rank] = pipe[0];
    views_[rank] = pipe[1];
  }
  // Nobody keeps what belongs to another process: a port closes with its server.
  for (const uint32_t rank : options_.servers) {
    children_[rank] = std::make_unique<Child>([&] {
      for (const auto& [other, listener] : listeners) {
        if (other != rank) ::close(listener.fd);
      }
      for (const auto& [worker, end] : views_) ::close(end);
      serve(rank, listeners[rank].fd);
    });
  }
  for (const auto& [rank, listener] : listeners) ::close(listener.fd);
  for (const uint32_t rank : options_.view.workers) {
    children_[rank] = std::make_unique<Child>([&, rank] {
      for (const auto& [worker, end] : views_) ::close(end);
      train(rank, ends[rank]);
    });
  }
  for (const auto& [rank, end] : ends) ::close(end);
}

ChaosProcesses::~ChaosProcesses() {
  children_.clear();
  for (const auto& [rank, end] : views_) ::close(end);
  ::munmap(shared_, sizeof(Shared));
}

void ChaosProcesses::give_view(uint32_t worker, const std::string& text) {
  const auto bytes = static_cast<uint32_t>(text.size());
  std::string message(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  message += text;
  // A worker that is dead does not read it.
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  const ssize_t written = ::write(views_.at(worker), message.data(), message.size());
  ::signal(SIGPIPE, before);
  CHECK(written == static_cast<ssize_t>(message.size()) || written == -1);
}

void ChaosProcesses::serve(uint32_t rank, int listen_fd) const {
  kernels::set_threads(1);
  EventFile file(server_file(options_.folder, rank));
  rpc::Limits limits = quick_limits();
  limits.calls_max = options_.calls_max;
  auto made = server::ParameterServer::create(
      {.rpc = {.self = server_identity(rank), .listen_fd = listen_fd, .limits = limits},
       .catalog = chaos_catalog(),
       .view = options_.view,
       .servers = addresses_,
       .consistency = options_.consistency,
       .seed = kChaosSeed,
       .recorder = [&](const server::HistoryEvent& event) { file.append(event); }});
  CHECK(made.ok());
  CHECK((*made)->start().ok());
  while (true) ::pause();
}

void ChaosProcesses::train(uint32_t rank, int views) const {
  kernels::set_threads(1);
  EventFile file(worker_file(options_.folder, rank));
  std::vector<rpc::Client::ServerAddress> addresses = addresses_;
  std::vector<std::unique_ptr<CuttingProxy>> proxies;
  for (rpc::Client::ServerAddress& server : addresses) {
    if (!options_.cuts_connections) break;
    proxies.push_back(std::make_unique<CuttingProxy>(
        CuttingProxy::Options{.target_port = server.address.port,
                              .seed = options_.seed * 100 + rank * 16 + server.rank,
                              .bytes_min = 3000,
                              .bytes_max = 60'000}));
    server.address.port = proxies.back()->port();
  }
  auto rpc = rpc::Client::create({.self = server_identity(rank), .limits = quick_limits()});
  CHECK(rpc.ok());
  auto client = ParameterClient::create(
      {.rpc = rpc->get(),
       .catalog = chaos_catalog(),
       .view = options_.view,
       .servers = addresses,
       .view_patience = std::chrono::seconds(60),
       .recorder = [&](const server::ClientEvent& event) { file.append(event); }});
  CHECK(client.ok());
  std::thread([&] { follow_views(views, **client); }).detach();
  Trainer trainer(**client, options_.seed, rank);
  Random pauses(options_.seed + 1000, rank);
  for (uint64_t clock = 0; clock < options_.steps; ++clock) {
    const Status done = trainer.step(clock);
    if (!done.ok()) {
      std::fprintf(stderr, "rank %u, step %llu: %s\n", rank, static_cast<unsigned long long>(clock),
                   done.error().message.c_str());
      shared_->failed[rank] = true;
      break;
    }
    shared_->steps[rank] = clock + 1;
    std::this_thread::sleep_for(std::chrono::microseconds(pauses.below(rank == 2 ? 4000 : 1500)));
  }
  for (const auto& proxy : proxies) shared_->cuts += static_cast<uint64_t>(proxy->cuts());
  ::_exit(0);
}

}  // namespace lockstep::test
