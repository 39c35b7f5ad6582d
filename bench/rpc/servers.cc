#include "bench/rpc/servers.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <utility>

#include "agent/comm/make_communicator.h"
#include "agent/rpc/server.h"
#include "bench/rpc/methods.h"
#include "common/base/check.h"

namespace lockstep::bench {
namespace {

constexpr uint32_t kWorldSize = 64;

// The parameters of a server, and what its methods do with them.
class Shard {
 public:
  Shard(RpcPath path, size_t bytes) : received_(bytes), table_(kTableRows * kRowFloats) {
    if (path == RpcPath::kSharedMemory) {
      auto memory = rpc::SharedMemory::create(bytes);
      CHECK(memory.ok());
      shared_ = *memory;
      parameters_ = shared_->memory();
    } else {
      own_.resize(bytes);
      parameters_ = own_;
    }
    std::memset(parameters_.data(), 1, parameters_.size());
  }

  std::vector<std::shared_ptr<rpc::SharedMemory>> memory() const {
    if (shared_ == nullptr) return {};
    return {shared_};
  }

  void serve(rpc::Server& server) {
    server.add(kEcho, [](rpc::Request request) {
      const rpc::Bytes body[] = {request.body()};
      request.answer({.head = request.head(), .body = body});
    });
    server.add(kPush, [](rpc::Request request) { request.answer({}); },
               {.place = [this](const rpc::Arrival& arrival) -> Result<std::span<std::byte>> {
                 if (arrival.body_bytes > received_.size()) return invalid("no such range");
                 return std::span(received_);
               }});
    server.add(kPull, [this](rpc::Request request) {
      uint64_t bytes = 0;
      std::memcpy(&bytes, request.head().data(), sizeof bytes);
      const rpc::Bytes body[] = {parameters_.first(bytes)};
      request.answer({.body = body});
    });
    server.add(kPushRows, [this](rpc::Request request) { push_rows(std::move(request)); });
    server.add(kPullRows, [this](rpc::Request request) { pull_rows(std::move(request)); });
  }

 private:
  // The body has the keys, then a row for each.
  void push_rows(rpc::Request request) {
    const size_t count = request.body().size() / (sizeof(uint64_t) + kRowBytes);
    const auto* const keys = reinterpret_cast<const uint64_t*>(request.body().data());
    const auto* const rows =
        reinterpret_cast<const float*>(request.body().data() + count * sizeof(uint64_t));
    for (size_t i = 0; i < count; ++i) {
      float* const row = &table_[keys[i] % kTableRows * kRowFloats];
      for (size_t j = 0; j < kRowFloats; ++j) row[j] += rows[i * kRowFloats + j];
    }
    request.answer({});
  }

  // The body has the keys; the reply has the rows.
  void pull_rows(rpc::Request request) {
    const size_t count = request.body().size() / sizeof(uint64_t);
    const auto* const keys = reinterpret_cast<const uint64_t*>(request.body().data());
    const std::span<std::byte> into = parameters_.first(count * kRowBytes);
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(into.data() + i * kRowBytes, &table_[keys[i] % kTableRows * kRowFloats],
                  kRowBytes);
    }
    const rpc::Bytes body[] = {into};
    request.answer({.body = body});
  }

  std::shared_ptr<rpc::SharedMemory> shared_;
  std::vector<std::byte> own_;
  std::span<std::byte> parameters_;
  std::vector<std::byte> received_;
  std::vector<float> table_;
};

[[noreturn]] void run_server(RpcPath path, uint32_t rank, int listen_fd, size_t bytes) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Shard shard(path, bytes);
  auto server = rpc::Server::create({.self = rpc_identity(rank, path),
                                     .listen_fd = listen_fd,
                                     .memory = shard.memory(),
                                     .shares_memory = path == RpcPath::kSharedMemory});
  CHECK(server.ok());
  shard.serve(**server);
  CHECK((*server)->start().ok());
  for (;;) ::pause();
}

}  // namespace

const char* name_of(RpcPath path) {
  switch (path) {
    case RpcPath::kTcp:
      return "tcp";
    case RpcPath::kEncrypted:
      return "tcp-encrypted";
    case RpcPath::kSharedMemory:
      return "shm";
  }
  return "";
}

comm::Identity rpc_identity(uint32_t rank, RpcPath path) {
  return {.rank = rank,
          .size = kWorldSize,
          .round = 1,
          .key = "bench",
          .encrypts = path == RpcPath::kEncrypted};
}

ServerProcesses::ServerProcesses(RpcPath path, int servers, size_t bytes) : path_(path) {
  for (int i = 0; i < servers; ++i) {
    const auto fd = comm::listen_on("127.0.0.1", 0);
    CHECK(fd.ok());
    const auto port = comm::port_of(*fd);
    CHECK(port.ok());
    const pid_t pid = ::fork();
    CHECK(pid >= 0);
    if (pid == 0) run_server(path, static_cast<uint32_t>(i + 1), *fd, bytes);
    ::close(*fd);
    pids_.push_back(pid);
    ports_.push_back(*port);
  }
}

ServerProcesses::~ServerProcesses() {
  for (const pid_t pid : pids_) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

std::vector<rpc::Peer> ServerProcesses::connect(rpc::Client& client) const {
  std::vector<rpc::Peer> peers;
  for (size_t i = 0; i < ports_.size(); ++i) {
    peers.push_back(client.add_server({.rank = static_cast<uint32_t>(i + 1),
                                       .address = {.host = "127.0.0.1", .port = ports_[i]},
                                       .on_this_host = path_ == RpcPath::kSharedMemory}));
  }
  return peers;
}

}  // namespace lockstep::bench
