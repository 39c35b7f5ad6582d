#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "agent/comm/gpu/device_backend.h"

namespace lockstep {

// clang-format off
// How operations are carried out on NCCL, beside what the other backends promise (collectives.h).
// Not measured, not run on a GPU.
//
//   operation      | on NCCL                                     | host memory (staging.h), own transports
//   all_reduce     | native                                      | native
//   reduce         | native                                      | native
//   broadcast      | native                                      | native
//   all_gather     | native                                      | native
//   reduce_scatter | native                                      | native
//   send, receive  | native                                      | native
//   scatter        | sends of the root, receives, one group      | native
//   gather         | receives of the root, sends, one group      | native
//   all_to_all     | sends and receives, one group; in place by  | native
//                  | way of a copy of the n blocks               |
//   by counts      | the same, of each rank's count              | native
//   barrier        | all_reduce of one byte, in stream order     | native
//   -------------- |                                             |
//   SUM, PROD      | native; 16-bit floats rounded at every add, | widened to f32, rounded once a
//                  | or less often (NVLS adds in the switch)     | hop
//   MIN, MAX       | native; a NaN may lose against a number     | NaN if any is
//   AVG            | SUM, then our division: integers towards    | the same
//                  | zero, floats one rounding more              |
//   LOR            | values made 0 or 1, then MAX                | native
//   order of sums  | NCCL's choice by topology, size and         | a pure function of operation,
//                  | version: the same bits on every rank; from  | algorithm, size and group
//                  | run to run as far as NCCL chooses alike     |
//   algorithms     | NCCL's; a named one is refused (kInvalid)   | all
//   mismatches     | found by the option check_mismatches alone  | found and named
//   stream order   | behind what was issued before start(), and  | behind what was issued before
//                  | before what is issued after start()         | start(); before what is issued
//                  |                                             | after wait()
//   start()        | waits where NCCL has to connect ranks first  | returns at once
//   memory         | LOR: the input's size (reduce,              | 4 parts of 4 MiB an operation,
//                  | reduce_scatter); all_to_all in place: nS    | page-locked
// clang-format on
//
// Source for what is native: nccl.h; for 16-bit sums and NaNs: NCCL promises nothing about either.

enum class NcclArea : uint8_t { kInput, kOutput, kScratch };
struct NcclPlace {
  NcclArea area = NcclArea::kOutput;
  size_t at = 0;  // bytes
  bool operator==(const NcclPlace&) const = default;
};

// One call of NCCL, all of a plan in one group.
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
  int64_t count = 0;  // as NCCL counts it: of a block
  DataType type = DataType::kU8;
  ReduceOp op = ReduceOp::kSum;  // kSum, kProd, kMin or kMax
  int peer = 0;                  // the root, or the other side
};

// What our own kernels or copies do on this rank alone.
struct LocalStep {
  enum class Kind : uint8_t { kCopy, kTruth, kDivide };
  Kind kind = Kind::kCopy;
  NcclPlace from;  // of kDivide: the same as `to`
  NcclPlace to;
  int64_t count = 0;  // elements
  DataType type = DataType::kU8;
};

// In the order: before, steps, after.
struct NcclPlan {
  size_t scratch_bytes = 0;
  std::vector<LocalStep> before;
  std::vector<NcclStep> steps;
  std::vector<LocalStep> after;
};

// kInvalid for a named algorithm. Pure.
Result<NcclPlan> plan_nccl(const DeviceCall& call, int rank, int size);

// Payload bytes of a step, as a ring in the order of the ranks carries it, a chain for reduce and
// broadcast: which way NCCL goes isn't known. What a rank gives the next one leaves its host if
// that one is on another. Of all ranks as much is sent as received. Pure.
Traffic traffic_of(const NcclStep& step, const HostMap& hosts, int rank);

// The numbers that nccl.h gives to types (ncclDataType_t) and reductions (ncclRedOp_t; kSum, kProd,
// kMin and kMax alone). The adapter asserts that they are so.
int nccl_type(DataType type);
int nccl_op(ReduceOp op);
// "2.28.9" of 22809, as ncclGetVersion gives it.
std::string nccl_version_text(int version);

// What ranks tell each other of a call before it, where mismatches are to be found.
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
// By rank of the group, all of the same call. kConflict, the same on every rank: "ranks differ:
// rank 0 in all_reduce #3 (40 x f32 SUM), rank 2 in barrier #3". Pure.
Status compare_headers(std::span<const CallHeader> headers);

}  // namespace lockstep
