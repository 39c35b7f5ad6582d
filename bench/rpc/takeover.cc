#include "bench/rpc/takeover.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/rpc/client.h"
#include "agent/rpc/server.h"
#include "bench/rpc/methods.h"
#include "bench/rpc/servers.h"
#include "common/base/check.h"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

struct LocalServer {
  std::unique_ptr<rpc::Server> server;
  int port = 0;
};

LocalServer make_server(uint32_t rank, rpc::Server::Handler handler) {
  const auto fd = comm::listen_on("127.0.0.1", 0);
  CHECK(fd.ok());
  LocalServer made{.port = *comm::port_of(*fd)};
  auto server = rpc::Server::create({.self = rpc_identity(rank, RpcPath::kTcp), .listen_fd = *fd});
  CHECK(server.ok());
  made.server = *std::move(server);
  made.server->add(kPush, std::move(handler));
  CHECK(made.server->start().ok());
  return made;
}

}  // namespace

void print_takeover() {
  std::atomic<int> held{0};
  std::vector<rpc::Request> requests;
  const LocalServer first = make_server(1, [&](rpc::Request request) {
    requests.push_back(std::move(request));
    ++held;
  });
  const LocalServer second = make_server(2, [](rpc::Request request) { request.answer({}); });
  constexpr uint64_t kCalls = rpc::kUnfinishedMax - 1;
  for (uint64_t number = 1; number <= kCalls; ++number) {
    CHECK(first.server->record({.client = 7, .number = number}, 1, {.bytes = std::string(16, 'x')})
              .ok());
  }
  auto begin = Clock::now();
  const std::string exported = first.server->export_calls();
  CHECK(second.server->import_calls(exported).ok());
  std::printf("takeover 1 export_import %zu %.1f\n", exported.size(), us_since(begin));

  auto client = rpc::Client::create({.self = rpc_identity(0, RpcPath::kTcp)});
  CHECK(client.ok());
  const auto add = [&](uint32_t rank, int port) {
    return (*client)->add_server({.rank = rank, .address = {.host = "127.0.0.1", .port = port}});
  };
  const rpc::Peer to_first = add(1, first.port);
  const rpc::Peer to_second = add(2, second.port);
  rpc::Call warm = to_second.call(kPush, {});
  CHECK(warm.wait().ok());
  rpc::Call call = to_first.call(kPush, {});
  while (held == 0) std::this_thread::yield();
  begin = Clock::now();
  to_first.leave("the benchmark has another primary");
  CHECK(!call.wait().ok());
  rpc::Call again = to_second.call_again(std::move(call), kPush, {});
  CHECK(again.wait().ok());
  std::printf("takeover 1 call_again 0 %.1f\n", us_since(begin));
  requests.clear();
}

}  // namespace lockstep::bench
