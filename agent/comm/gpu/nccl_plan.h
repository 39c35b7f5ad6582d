#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "agent/comm/gpu/device_backend.h"

namespace lockstep::comm {

// clang-format off
// How operations run on NCCL, compared with what the other backends promise (collectives.h). Not
// measured; run with one rank.
//
//   operation      | on NCCL                                     | host memory (staging.h), ours
//   all_reduce     | native                                      | native
//   reduce         | native                                      | native
//   broadcast      | native                                      | native
//   all_gather     | native                                      | native
//   reduce_scatter | native                                      | native
//   send, receive  | native                                      | native
//   scatter        | sends of the root, receives, one group      | native
//   gather         | receives of the root, sends, one group      | native
//   all_to_all     | sends and receives, one group; in-place     | native
//                  | through a copy of the n blocks              |
//   by counts      | the same, with each rank's count            | native
//   barrier        | all_reduce of one byte, in stream order     | native
//   -------------- |                                             |
//   SUM, PROD      | native; 16-bit floats rounded at every add, | widened to f32, rounded once a
//                  | or less often (NVLS adds in the switch)     | hop
//   MIN, MAX       | native; a NaN may lose against a number     | NaN if any is
//   AVG            | SUM, then our division: integers towards    | the same
//                  | zero, floats one rounding more              |
//   LOR            | values made 0 or 1, then MAX                | native
//   order of sums  | chosen by NCCL from topology, size and      | a pure function of operation,
//                  | version: the same bits on every rank; from  | algorithm, size and group
//                  | run to run only if NCCL chooses alike       |
//   algorithms     | NCCL's; a named one is refused (kInvalid)   | all
//   mismatches     | found only with option check_mismatches     | found and named
//   stream order   | after what was issued before start(), and   | after what was issued before
//                  | before what is issued after start()         | start(); before what is issued
//                  |                                             | after wait()
//   start()        | waits while NCCL connects ranks             | returns immediately
//   memory         | LOR: the input's size (reduce,              | 4 parts of 4 MiB an operation,
//                  | reduce_scatter); all_to_all in place: nS    | page-locked
// clang-format on
//
// Source for "native": nccl.h. NCCL promises nothing about 16-bit sums and NaNs.

enum class NcclArea : uint8_t { kInput, kOutput, kScratch };
struct NcclPlace {
  NcclArea area = NcclArea::kOutput;
  size_t at = 0;  // bytes
  bool operator==(const NcclPlace&) const = default;
};

// One call of NCCL; all steps of a plan are in one NCCL group.
struct NcclStep {
  enum class Kind : uint8_t {
    kAllReduce,
    kReduce,
    kBroadcast,
    kAllGather,
    kReduceScatter,
    kSend,
    kReceive
  };
  Kind kind = Kind::kAllReduce;
  NcclPlace from;
  NcclPlace to;
  int64_t count = 0;  // per block, as NCCL counts
  DataType type = DataType::kU8;
  ReduceOp op = ReduceOp::kSum;  // kSum, kProd, kMin or kMax
  int peer = 0;                  // the root, or the peer
};

// Work of our own kernels or copies on this rank alone.
struct LocalStep {
  enum class Kind : uint8_t { kCopy, kToBoolean, kDivide };
  Kind kind = Kind::kCopy;
  NcclPlace from;  // kDivide: the same as `to`
  NcclPlace to;
  int64_t count = 0;  // elements
  DataType type = DataType::kU8;
};

// Runs in this order: before, steps, after.
struct NcclPlan {
  size_t scratch_bytes = 0;
  std::vector<LocalStep> before;
  std::vector<NcclStep> steps;
  std::vector<LocalStep> after;
};

// kInvalid if the call names an algorithm. Pure.
Result<NcclPlan> plan_nccl(const DeviceCall& call, int rank, int size);

// Estimates the payload bytes of a step as if NCCL used a ring in the order of the ranks, or a
// chain for reduce and broadcast; its real path is unknown. Bytes for the next rank leave the host
// if that rank is on another one. Over all ranks, as much is sent as is received. Pure.
Traffic traffic_of(const NcclStep& step, const HostMap& hosts, int rank);

// The numbers of types (ncclDataType_t) and reductions (ncclRedOp_t; only kSum, kProd, kMin and
// kMax) in nccl.h. nccl.cc asserts that they agree.
int nccl_type(DataType type);
int nccl_op(ReduceOp op);
// Returns "2.28.9" for 22809, the format of ncclGetVersion.
std::string nccl_version_text(int version);

// A summary of a call. Ranks exchange it before the call to find mismatches.
struct CallHeader {
  uint64_t number = 0;
  Collective kind = Collective::kBarrier;
  DataType type = DataType::kU8;
  ReduceOp op = ReduceOp::kSum;
  int32_t root = 0;
  int64_t count = 0;
  bool operator==(const CallHeader&) const = default;
};
CallHeader header_of(const Call& call, uint64_t number);
// Compares the headers of one call, by rank of the group. kConflict, with the same text on every
// rank: "ranks differ: rank 0 in all_reduce #3 (40 x f32 SUM), rank 2 in barrier #3". Pure.
Status compare_headers(std::span<const CallHeader> headers);

}  // namespace lockstep::comm
