#include "bench/server/parameter_servers.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>
#include <utility>

#include "agent/comm/make_communicator.h"
#include "agent/server/parameter_server.h"
#include "agent/server/placement.h"
#include "common/base/check.h"

namespace lockstep::bench {

ParameterServers::ParameterServers(Options options) : options_(std::move(options)) {
  std::vector<uint32_t> workers(options_.workers);
  std::iota(workers.begin(), workers.end(), 0);
  std::vector<uint32_t> servers(options_.servers);
  std::iota(servers.begin(), servers.end(), options_.workers);
  auto placed =
      server::place(options_.catalog, {.round = 1, .workers = workers, .servers = servers}, {});
  CHECK(placed.ok());
  view_ = *std::move(placed);
  for (const uint32_t rank : servers) begin(rank);
}

ParameterServers::~ParameterServers() {
  for (const pid_t pid : pids_) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

comm::Identity ParameterServers::identity_of(uint32_t rank) const {
  return {.rank = rank, .size = options_.workers + options_.servers, .round = 1, .key = "bench"};
}

void ParameterServers::begin(uint32_t rank) {
  const auto listener = comm::listen_on("127.0.0.1", 0);
  CHECK(listener.ok());
  addresses_.push_back({.rank = rank, .address = {"127.0.0.1", *comm::port_of(*listener)}});
  const pid_t pid = ::fork();
  CHECK(pid >= 0);
  if (pid == 0) serve(rank, *listener);
  ::close(*listener);
  pids_.push_back(pid);
}

void ParameterServers::serve(uint32_t rank, int listener) const {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto view = server::parse_view(server::text_of(view_));  // a server gets the text
  CHECK(view.ok());
  auto server =
      server::ParameterServer::create({.rpc = {.self = identity_of(rank), .listen_fd = listener},
                                       .catalog = options_.catalog,
                                       .view = *std::move(view),
                                       .consistency = options_.consistency});
  CHECK(server.ok() && (*server)->start().ok());
  while (true) ::pause();
}

}  // namespace lockstep::bench
