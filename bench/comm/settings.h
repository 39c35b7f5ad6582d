#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/comm/communicator.h"
#include "common/base/result.h"

namespace lockstep::bench {

// kNccl and kStaged work on GPU memory: through NCCL, and staged through host memory.
enum class Backend { kThreads, kSharedMemory, kTcp, kEncryptedTcp, kMixed, kNccl, kStaged };
constexpr int kBackends = 7;
const char* name_of(Backend backend);
constexpr bool needs_gpu(Backend backend) {
  return backend == Backend::kNccl || backend == Backend::kStaged;
}

struct BenchSettings {
  bool topology = false;                     // print the topology, measure nothing
  std::vector<comm::Collective> operations;  // at least one; none with topology
  std::vector<Backend> backends;             // at least one; measured in turns, size by size
  int ranks = 2;
  int64_t bytes_min = 8;
  int64_t bytes_max = int64_t{64} << 20;
  int64_t factor = 4;  // from each size to the next
  comm::DataType type = comm::DataType::kF32;
  comm::ReduceOp op = comm::ReduceOp::kSum;
  int root = 0;
  comm::Algorithm algorithm = comm::Algorithm::kAuto;
  int iterations = 0;  // 0: enough for about one second
  bool pin = false;    // rank r on core r
  std::string json;    // file to write; empty: none
};

constexpr const char* kBenchUsage =
    "usage: lockstep bench OPERATION [--ranks N] [--sizes 8:64M[:FACTOR]] [--backend BACKEND]\n"
    "           [--type TYPE] [--op REDUCTION] [--root RANK] [--algorithm ALGORITHM]\n"
    "           [--iterations N] [--pin] [--json FILE]\n"
    "OPERATION: all-reduce, all-gather, reduce-scatter, broadcast, reduce, gather, scatter,\n"
    "           all-to-all, send-receive, barrier; several separated by commas; or topology,\n"
    "           which prints the backend and path of each pair of ranks\n"
    "BACKEND:   shm (default), tcp, tcp-encrypted, mixed (two hosts), threads; for GPU memory "
    "nccl,\n"
    "           staged (through host memory), which are skipped without a GPU (rank r uses GPU r\n"
    "           modulo their number); several separated by commas. tcp-encrypted needs OpenSSL\n"
    "TYPE:      f32 (default), f64, f16, bf16, i32, i64, u8\n"
    "REDUCTION: sum (default), prod, min, max, lor, avg\n"
    "ALGORITHM: auto (default), direct, ring, tree, one-root, halving, by-host, by-host-halving\n"
    "A size is that of the larger of a rank's input and output, as in nccl-tests.\n";

// Returns kInvalid for a bad argument; the message names the argument and the values it accepts.
Result<BenchSettings> parse_settings(const std::vector<std::string>& arguments);

}  // namespace lockstep::bench
