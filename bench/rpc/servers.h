#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "agent/comm/handshake.h"
#include "agent/rpc/client.h"

namespace lockstep::bench {

enum class RpcPath { kTcp, kEncrypted, kSharedMemory };
const char* name_of(RpcPath path);

comm::Identity rpc_identity(uint32_t rank, RpcPath path);

// Servers in processes of their own, each with `bytes` bytes of parameters, until destroyed. Make
// them before this process has threads.
class ServerProcesses {
 public:
  ServerProcesses(RpcPath path, int servers, size_t bytes);
  ~ServerProcesses();
  ServerProcesses(const ServerProcesses&) = delete;
  ServerProcesses& operator=(const ServerProcesses&) = delete;
  std::vector<rpc::Peer> connect(rpc::Client& client) const;
  const std::vector<pid_t>& pids() const { return pids_; }

 private:
  RpcPath path_;
  std::vector<pid_t> pids_;
  std::vector<int> ports_;
};

}  // namespace lockstep::bench
