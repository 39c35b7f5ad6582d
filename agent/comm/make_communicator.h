#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/comm/comm_limits.h"
#include "agent/comm/communicator.h"
#include "common/api/collective_board.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::comm {

// The address on which a rank listens. Hosts are IP addresses, v4 or v6; names are not resolved.
struct PeerAddress {
  std::string host;
  int port = 0;
  int node = 0;  // ranks of one node share memory, if shm_fd is given
};

struct CommOptions {
  int rank = 0;
  std::vector<PeerAddress> peers;  // by rank; one for each rank of the world
  int listen_fd = -1;  // a listening socket (listen_on), owned from now on; -1: made here
  int shm_fd = -1;     // memfd, empty or of shm_bytes(local ranks); -1: TCP to all ranks
  int cores = 0;       // that the ranks of this node may use; 0: all of the machine's
  std::string job_uid;
  uint64_t round = 0;
  std::string world_hash;
  std::string key;       // shared secret of the round: transport_key()
  bool encrypt = false;  // all TCP connections; the same on every rank
  // Where this rank reports its progress; outlives the communicator and its sub-groups.
  CollectiveBoard* board = nullptr;

  // The clock of all limits. Sleeps end by the machine's clock, and then check this one.
  std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
  CommLimits limits;

  Duration forming_limit = std::chrono::seconds(60);    // from the call to the complete world
  Duration operation_limit = std::chrono::seconds(60);  // longest silence while an operation waits
  Duration handshake_limit = std::chrono::seconds(2);   // for one connection to authenticate
};

// Derives the secret with which ranks of this round authenticate to each other from the job's
// token: lower-case hex of HMAC-SHA256(job token, "comm/<round>/<world hash>").
std::string transport_key(std::string_view job_token, uint64_t round, std::string_view world_hash);

// Returns a socket that listens on this address, close-on-exec. With port 0 the system chooses one.
// kConflict, blaming the port, if it is taken: `[comm] port 29501 of 127.0.0.1 is taken`. Other
// errors of the address blame the configuration.
Result<int> listen_on(const std::string& host, int port);
// Returns the port of such a socket.
Result<int> port_of(int listen_fd);

// Returns the size of the memory that the ranks of one node share: a zeroed memfd, made and
// inherited for each round and never reused. Its maker may leave it empty; the ranks then give it
// its size. If it was made with MFD_ALLOW_SEALING, they also seal it, so that no process can shrink
// it under the others. Pages are allocated only when they are used.
size_t shm_bytes(int local_ranks);

// Joins the world and returns when all of its ranks have. Ranks of one node communicate through
// shared memory, others through TCP. Between any two ranks there is also a TCP connection that
// reports immediately when one of them ends or aborts. Large blocks are copied only once
// (comm_limits.h) if all ranks of a node may read each other's memory, and if that is fast there.
// Reading needs process_vm_readv: the same user, and no Yama, seccomp or user namespace that
// forbids it. path_to() reports whether blocks are copied once, or why not.
//
// Errors:
// - kConflict, immediately: an authenticated rank is in a newer round (this one is obsolete), or
//   has another world hash for this round.
// - kTimeout, when the limit has passed: names the missing ranks, and what was refused meanwhile (a
//   wrong token, garbage).
// - kInvalid: wrong options.
// - kUnavailable, blaming the configuration: `encrypt` in a build that cannot (aead.h).
// Connections prove the key in both directions (HMAC-SHA256 challenge and response), which keeps
// strangers out. Later traffic is encrypted and authenticated (records.h) only with `encrypt`.
// Without, eavesdroppers read it, and anyone in its path can change it. Traffic in shared memory is
// never encrypted.
Result<std::unique_ptr<Communicator>> make_communicator(const CommOptions& options);

// Makes a world of threads of this process, by rank, over the same shared-memory code. For tests.
// `nodes`: the host of each rank for the choice of algorithms; empty: one host.
Result<std::vector<std::unique_ptr<Communicator>>> make_thread_world(
    int size, Duration operation_limit = std::chrono::seconds(60),
    const std::vector<int>& nodes = {}, const CommLimits& limits = {});

}  // namespace lockstep::comm
