#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep {

enum class DataType : uint8_t { kF32, kBf16, kF64, kI32, kI64, kU8 };
constexpr size_t data_type_bytes(DataType type) {
  switch (type) {
    case DataType::kF32:
    case DataType::kI32:
      return 4;
    case DataType::kBf16:
      return 2;
    case DataType::kF64:
    case DataType::kI64:
      return 8;
    case DataType::kU8:
      return 1;
  }
  return 0;
}
constexpr DataType data_type(DType dtype) {
  return dtype == DType::kF32 ? DataType::kF32 : DataType::kBf16;
}

// kAvg is the sum divided by the number of ranks, for floats alone. bf16 is added in fp32 and
// rounded (to nearest even) once a hop; integers wrap around; kMin and kMax with a NaN give NaN.
enum class ReduceOp : uint8_t { kSum, kAvg, kMin, kMax };

// `count` elements at `data`, aligned to their type. Owned by the caller, who leaves them alone
// until the operation's wait() has returned. The backends of today serve memory of the CPU; another
// device is refused (kInvalid).
struct CommBuffer {
  void* data = nullptr;
  int64_t count = 0;
  DataType type = DataType::kF32;
  Device device;
};

// Numbers of the collectives of one communicator, counted from 1. They differ while one is under
// way, and they tell from outside who is missing from what.
struct CollectiveCounts {
  uint64_t entered = 0;    // its execution began here
  uint64_t completed = 0;  // it ended here without an error
};

// Payload bytes that this process gave to and took from other ranks, without headers and padding.
struct Traffic {
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
};

struct Operation;  // the state that a Work and the thread that carries it out share

// An operation on its way. Move-only; any one thread at a time may use it. The destructor waits, so
// that the buffer is free again in any case (the communicator's time limit bounds that).
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<Operation> operation);
  Work(Work&& other) noexcept;
  Work& operator=(Work&& other) noexcept;
  ~Work();

  // Whether wait() would return at once.
  bool test() const;
  // The operation's own result; kTimeout if it is not done after `timeout`, in which case it goes
  // on, and the buffer isn't free yet.
  Status wait(Duration timeout = Duration::max());

 private:
  std::shared_ptr<Operation> operation_;
};

// An ordered group of ranks that carry out collective operations together.
//
// Every rank of the group calls the same operations in the same order with the same counts, types,
// reductions and roots; a mismatch is found and named, not obeyed. Operations run one after the
// other in the order of the calls, those of sub-groups included, so ranks that share two groups
// issue the operations of both in one order. start_...() returns at once and the operation goes on
// while the caller computes; the others wait for it, and run on the caller's thread if nothing else
// is under way. Results are the same bits on every rank and in every run: the order of sums is a
// pure function of size, group and layout.
//
// Thread-safe, though only one thread can give operations an order. Outlives its Works; a
// sub-group's Communicator may outlive the one that it came from.
//
// Errors: `[comm] all_reduce #17: rank 3 silent for 30 s`. kUnavailable: a rank ended, left or
// called abort(); kTimeout: no byte came from a rank for the time limit; kConflict: ranks are in
// different operations; kCorrupt: what came is no frame of this round; kInvalid: the call itself is
// wrong (then nothing was sent, and the communicator stays usable). Ranks in messages are those of
// the world. After any but kInvalid the communicator is broken: every operation of it, its parents
// and sub-groups returns that first error, here and, in milliseconds, on all ranks; a new round
// needs a new one.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place: every rank ends with the reduction of all ranks' buffers.
  virtual Work start_all_reduce(const CommBuffer& buffer, ReduceOp op) = 0;
  // In place: every rank ends with the root's buffer.
  virtual Work start_broadcast(const CommBuffer& buffer, int root) = 0;

  virtual Status all_reduce(const CommBuffer& buffer, ReduceOp op) = 0;
  virtual Status broadcast(const CommBuffer& buffer, int root) = 0;
  // Returns after every rank has called it.
  virtual Status barrier() = 0;
  // `mine` of rank r comes to all[r * mine.size()]. For small host values: at most
  // kGatherBytesMax from each rank, the same from all.
  virtual Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  static constexpr size_t kGatherBytesMax = size_t{64} << 10;

  // The value of every rank, by rank: losses, norms, what ranks have to agree on.
  template <class T>
  Result<std::vector<T>> all_gather_value(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<size_t>(size()));
    TRY(all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
    return all;
  }

  // A communicator of these ranks of this group; their order gives their new ranks. Sends nothing:
  // every rank that is in it makes the same call. kInvalid for a rank outside, with a rank that is
  // not there, or with one named twice.
  virtual Result<std::unique_ptr<Communicator>> sub_group(const std::vector<int>& ranks) = 0;

  // Breaks the communicator with this reason on all ranks; waiting ones wake in milliseconds. From
  // any thread; the first reason counts.
  virtual void abort(const std::string& reason) = 0;

  // The rank of the world that the first error blames; -1 if there is none, or nobody to blame.
  virtual int suspect() const = 0;
  virtual CollectiveCounts counts() const = 0;
  virtual Traffic traffic() const = 0;
  // Which transport serves which rank: "rank 0 of 4: shared memory 1; tcp 2-3".
  virtual std::string describe() const = 0;
};

}  // namespace lockstep
