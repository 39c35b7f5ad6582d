#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/rpc/client.h"
#include "agent/rpc/server.h"

namespace lockstep::test {

// A member of a world of four ranks.
comm::Identity rpc_identity(uint32_t rank, bool encrypts = false,
                            const std::string& key = "secret");

// A listening socket on a port of this machine that the system chose.
struct Listener {
  int fd = -1;
  int port = 0;
};
Listener listen_here();

// Limits with which tests need not wait long.
rpc::Limits quick_limits();

// How clients and servers are connected.
enum class Path { kTcp, kEncrypted, kSharedMemory };
std::string path_name(Path path);
// Those that this build has: without OpenSSL nothing is encrypted.
std::vector<Path> all_paths();
std::vector<Path> socket_paths();

struct ServerSetup {
  uint32_t rank = 3;
  Path path = Path::kTcp;
  rpc::Limits limits = quick_limits();
  std::vector<std::shared_ptr<rpc::SharedMemory>> memory;
};
// Makes a server that does not serve yet.
std::unique_ptr<rpc::Server> make_server(const ServerSetup& setup, int listen_fd);

struct ClientSetup {
  uint32_t rank = 0;
  Path path = Path::kTcp;
  rpc::Limits limits = quick_limits();
  std::vector<std::shared_ptr<rpc::SharedMemory>> memory;
  std::string key = "secret";
};
std::unique_ptr<rpc::Client> make_client(const ClientSetup& setup);
rpc::Peer add_server(rpc::Client& client, int port, Path path = Path::kTcp, uint32_t rank = 3);

inline rpc::Bytes bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}
inline std::string text_of(rpc::Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
template <class T>
rpc::Bytes value_bytes(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <class T>
T value_of(rpc::Bytes bytes) {
  T value{};
  if (bytes.size() >= sizeof value) std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// A process that runs a function until it is killed. Make it before this process has threads.
class Child {
 public:
  explicit Child(const std::function<void()>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void signal(int number) const;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

// Waits until the condition holds; false if that takes longer than a minute.
bool eventually(const std::function<bool()>& condition);

}  // namespace lockstep::test
