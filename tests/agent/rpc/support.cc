#include "tests/agent/rpc/support.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "agent/comm/make_communicator.h"
#include "common/base/check.h"
#include "common/crypto/aead.h"

namespace lockstep::test {

comm::Identity rpc_identity(uint32_t rank, bool encrypts, const std::string& key) {
  return {.rank = rank,
          .size = 4,
          .round = 7,
          .job = sha256("job"),
          .world = sha256("world"),
          .key = key,
          .encrypts = encrypts};
}

Listener listen_here() {
  const auto fd = comm::listen_on("127.0.0.1", 0);
  CHECK(fd.ok());
  const auto port = comm::port_of(*fd);
  CHECK(port.ok());
  return {.fd = *fd, .port = *port};
}

rpc::Limits quick_limits() {
  return {.ping_every = std::chrono::milliseconds(100),
          .silence_limit = std::chrono::seconds(20),
          .reconnect_limit = std::chrono::seconds(20),
          .handshake_limit = std::chrono::seconds(10)};
}

std::string path_name(Path path) {
  switch (path) {
    case Path::kTcp:
      return "Tcp";
    case Path::kEncrypted:
      return "Encrypted";
    case Path::kSharedMemory:
      return "SharedMemory";
  }
  return "";
}

std::vector<Path> all_paths() {
  std::vector<Path> paths = socket_paths();
  paths.push_back(Path::kSharedMemory);
  return paths;
}

std::vector<Path> socket_paths() {
  if (can_encrypt().ok()) return {Path::kTcp, Path::kEncrypted};
  return {Path::kTcp};
}

std::unique_ptr<rpc::Server> make_server(const ServerSetup& setup, int listen_fd) {
  auto server =
      rpc::Server::create({.self = rpc_identity(setup.rank, setup.path == Path::kEncrypted),
                           .listen_fd = listen_fd,
                           .limits = setup.limits,
                           .memory = setup.memory,
                           .shares_memory = setup.path == Path::kSharedMemory});
  CHECK(server.ok());
  return *std::move(server);
}

std::unique_ptr<rpc::Client> make_client(const ClientSetup& setup) {
  auto client = rpc::Client::create(
      {.self = rpc_identity(setup.rank, setup.path == Path::kEncrypted, setup.key),
       .limits = setup.limits,
       .memory = setup.memory});
  CHECK(client.ok());
  return *std::move(client);
}

rpc::Peer add_server(rpc::Client& client, int port, Path path, uint32_t rank) {
  return client.add_server({.rank = rank,
                            .address = {.host = "127.0.0.1", .port = port},
                            .on_this_host = path == Path::kSharedMemory});
}

Child::Child(const std::function<void()>& body) {
  pid_ = ::fork();
  CHECK(pid_ >= 0);
  if (pid_ > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  body();
  ::_exit(0);
}

Child::~Child() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Child::signal(int number) const {
  ::kill(pid_, number);
  if (number == SIGSTOP) ::waitpid(pid_, nullptr, WUNTRACED);  // until it has stopped
}

bool eventually(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace lockstep::test
