#include "tests/agent/server/servers.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace lockstep::test {

comm::Identity server_identity(uint32_t rank) {
  comm::Identity identity = rpc_identity(rank);
  identity.size = 16;
  return identity;
}

uint32_t primary_of(const server::Routing& routing, uint64_t key) {
  return routing.view().slots[routing.slot_of(key)].chain.front();
}

Servers::Servers(ServersSetup setup) : setup_(std::move(setup)) {
  auto view = server::place(setup_.catalog,
                            {.round = 7, .workers = setup_.workers, .servers = setup_.servers},
                            setup_.placement);
  CHECK(view.ok());
  view_ = *std::move(view);
  for (size_t i = 0; i < setup_.servers.size(); ++i) listeners_.push_back(listen_here());
}

void Servers::start() {
  for (size_t i = 0; i < listeners_.size(); ++i) {
    auto made = server::ParameterServer::create({.rpc = {.self = server_identity(setup_.servers[i]),
                                                         .listen_fd = listeners_[i].fd,
                                                         .limits = quick_limits()},
                                                 .catalog = setup_.catalog,
                                                 .view = view_,
                                                 .servers = addresses(),
                                                 .consistency = setup_.consistency,
                                                 .seed = setup_.seed,
                                                 .rows_max = setup_.rows_max,
                                                 .reply_bytes_max = setup_.reply_bytes_max,
                                                 .recorder = setup_.recorder});
    if (!made.ok()) std::fprintf(stderr, "%s\n", made.error().message.c_str());
    CHECK(made.ok());
    CHECK((*made)->start().ok());
    servers_.push_back(*std::move(made));
  }
}

std::vector<rpc::Client::ServerAddress> Servers::addresses() const {
  std::vector<rpc::Client::ServerAddress> addresses;
  for (size_t i = 0; i < listeners_.size(); ++i) {
    addresses.push_back(
        {.rank = setup_.servers[i], .address = {.host = "127.0.0.1", .port = listeners_[i].port}});
  }
  return addresses;
}

Worker::Worker(const Servers& servers, uint32_t rank) : Worker(servers, rank, servers.view()) {}

Worker::Worker(const Servers& servers, uint32_t rank, server::View view)
    : Worker(servers, rank, std::move(view), servers.addresses()) {}

Worker::Worker(const Servers& servers, uint32_t rank, server::View view,
               std::vector<rpc::Client::ServerAddress> addresses) {
  auto made = rpc::Client::create({.self = server_identity(rank), .limits = quick_limits()});
  CHECK(made.ok());
  rpc = *std::move(made);
  auto client = server::ParameterClient::create({.rpc = rpc.get(),
                                                 .catalog = servers.catalog(),
                                                 .view = std::move(view),
                                                 .servers = std::move(addresses)});
  CHECK(client.ok());
  parameters = *std::move(client);
}

WorkerProcess::WorkerProcess(const std::function<bool()>& body) {
  pid_ = ::fork();
  CHECK(pid_ >= 0);
  if (pid_ > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool ok = body();
  ::_exit(ok ? 0 : 1);
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)) {}

WorkerProcess::~WorkerProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool WorkerProcess::join() {
  int status = 0;
  CHECK(::waitpid(std::exchange(pid_, -1), &status, 0) > 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace lockstep::test
