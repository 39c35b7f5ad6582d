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

namespace lockstep {

// Where a rank listens. Hosts are IP addresses, v4 or v6; no name is resolved.
struct PeerAddress {
  std::string host;
  int port = 0;
  int node = 0;  // ranks of one node share memory, if they were given some
};

struct CommOptions {
  int rank = 0;
  std::vector<PeerAddress> peers;  // by rank; their number is the size of the world
  int listen_fd = -1;              // a listening socket (listen_on); taken over. -1: made here
  int shm_fd = -1;  // memfd, empty or of shm_bytes(local ranks); -1: TCP to all ranks
  int cores = 0;    // that the ranks of this node may use together; 0: all of the machine's
  std::string job_uid;
  uint64_t round = 0;
  std::string world_hash;
  std::string key;  // shared secret of the round: transport_key()
  // Where this rank tells what it is doing; outlives the communicator and its sub-groups.
  CollectiveBoard* board = nullptr;

  // By which all limits go; what sleeps is woken by the machine's, and looks at this one then.
  std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
  CommLimits limits;

  Duration forming_limit = std::chrono::seconds(60);    // from the call to the complete world
  Duration operation_limit = std::chrono::seconds(60);  // of silence while an operation waits
  Duration handshake_limit = std::chrono::seconds(2);   // for one connection to prove itself
};

// The secret with which ranks of this round prove themselves to each other, from the job's token:
// lower-case hex of HMAC-SHA256(job token, "comm/<round>/<world hash>").
std::string transport_key(std::string_view job_token, uint64_t round, std::string_view world_hash);

// A socket that listens there, close-on-exec, port 0: chosen by the system. kConflict if the port
// is taken: `[comm] port 29501 of 127.0.0.1 is taken`.
Result<int> listen_on(const std::string& host, int port);
// The port that such a socket has.
Result<int> port_of(int listen_fd);

// Size of the memory that so many ranks of one node share: a memfd made and inherited for every
// round anew, zeroed, never used twice. Whoever makes it may leave it empty: the ranks give it its
// size. Pages are only taken up as they are used.
size_t shm_bytes(int local_ranks);

// Joins the world and returns when all of its ranks have. Ranks of one node talk through shared
// memory, others through TCP; between any two ranks there is also a TCP connection that tells, at
// once, when one of them ends or aborts. Where all ranks of a node may read each other's memory
// (process_vm_readv: the same user; Yama, seccomp or a user namespace may forbid it) and that is
// fast there, large blocks are copied once (comm_limits.h); path_to() says whether, or why not.
//
// kConflict at once if a rank that has proved itself is in a newer round (this one is obsolete) or
// in the same round with another world hash; kTimeout naming the ranks that are missing, and what
// was refused meanwhile (a wrong token, garbage), when the limit has passed; kInvalid for wrong
// options. Connections prove the key in both directions (HMAC-SHA256 challenge and response); what
// travels later is plain, as in NCCL, Gloo and MPI: strangers are kept out, wire-tappers aren't.
Result<std::unique_ptr<Communicator>> make_communicator(const CommOptions& options);

// A world of threads of this process, by rank, over the same shared-memory code. For tests.
// `nodes`: on which host each rank is taken to be, for the choice of algorithms; empty: on one.
Result<std::vector<std::unique_ptr<Communicator>>> make_thread_world(
    int size, Duration operation_limit = std::chrono::seconds(60),
    const std::vector<int>& nodes = {}, const CommLimits& limits = {});

}  // namespace lockstep
