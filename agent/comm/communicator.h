#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "agent/comm/collective.h"
#include "agent/comm/data_type.h"
#include "agent/comm/host_map.h"
#include "common/base/clock.h"
#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep {

// The memory that an operation works on, aligned to its type. Owned by the caller, who leaves it
// alone until the operation's wait() has returned. `input` null: in place, the operation takes its
// values from `data` too. Else the two do not overlap, and `input` is only read. Memory of a GPU is
// served by the communicators of gpu/device_communicator.h alone, others refuse it (kInvalid);
// `stream` orders it: the operation comes behind what was issued there before the call.
//
// clang-format off
// With n ranks and a block of `count` elements:
//   operation      | takes (input)              | gives (data)               | in place
//   all_reduce     | a block                    | a block                    |
//   reduce         | a block                    | the root: a block          | others' is only read
//   broadcast      | the root: a block          | a block                    |
//   all_gather     | a block                    | n blocks, by rank          | own block at its place
//   gather         | a block                    | the root: n blocks         | the root's at its place
//   reduce_scatter | n blocks                   | a block                    | to the own block's place
//   scatter        | the root: n blocks         | a block                    | the root's stays in place
//   all_to_all     | n blocks, one to each rank | n blocks, one of each rank |
// clang-format on
struct CommBuffer {
  void* data = nullptr;
  int64_t count = 0;
  DataType type = DataType::kF32;
  Device device;
  const void* input = nullptr;
  void* stream = nullptr;  // of `device`: Stream::handle(); meaningless for the CPU
};

// One of several operations that carry out one between them, on a part of every block each: ranks
// compare the whole one's count, and which part of it this is.
struct CallPart {
  int64_t whole_count = 0;  // as CommBuffer::count
  uint32_t index = 0;
};

// One operation, as data.
struct Call {
  Collective kind = Collective::kBarrier;
  CommBuffer buffer;
  ReduceOp op = ReduceOp::kSum;  // of those that reduce
  int rank = 0;                  // the root, or the other side of a send or receive
  // all_to_all by counts (both, one a rank, `count` 0): the blocks of either side one behind the
  // other, of these many elements. Read before the call returns. Not in place.
  std::span<const int64_t> send_counts;
  std::span<const int64_t> receive_counts;
  Algorithm algorithm = Algorithm::kAuto;
  Duration limit{};  // of silence while it runs; zero: the communicator's
  std::optional<CallPart> part;
};

// What most calls leave as it is.
struct How {
  Algorithm algorithm = Algorithm::kAuto;
  Duration limit{};
};

// Numbers of the collectives of one communicator, counted from 1 (send and receive aren't). They
// differ while one is under way, and they tell from outside who is missing from what.
struct CollectiveCounts {
  uint64_t entered = 0;    // its execution began here
  uint64_t completed = 0;  // it ended here without an error
};

// Payload bytes that this process gave to and took from other ranks, without headers and padding.
struct Traffic {
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t bytes_sent_to_other_hosts = 0;  // of bytes_sent
  uint64_t bytes_lent = 0;  // of bytes_sent: copied once, by the receiver, from this rank's memory
};

// How a communicator treats memory of a GPU.
struct DeviceTraits {
  // An operation has its place in the order of its stream: what is issued there after start() has
  // returned runs behind it, so that the host needs wait() for its result alone. Else that holds
  // for what is issued after wait() has returned.
  bool is_stream_ordered = false;
  // Of the device, about, that it takes for itself by its first operation there, beside the memory
  // that it is given.
  uint64_t memory_bytes = 0;
};

// Where a backend tells of what it carries out beside a communicator, on the same ranks, as NCCL
// does: on the progress board, as of a group of its own, and in Communicator::traffic(). One thread
// at a time.
class ActivityReport {
 public:
  virtual ~ActivityReport() = default;
  // That so many collectives have begun, of which this is the last; that so many are over.
  virtual void enter(Collective kind, uint64_t number) = 0;
  virtual void complete(uint64_t number) = 0;
  virtual void add(const Traffic& moved) = 0;
};

class Operation;  // what a Work owns and another thread may carry out

// Operations on their way. Move-only; any one thread at a time may use it. The destructor waits, so
// that the buffers are free again in any case (the communicator's time limit bounds that).
class Work {
 public:
  Work();
  explicit Work(std::unique_ptr<Operation> first);
  Work(Work&& other) noexcept;
  Work& operator=(Work&& other) noexcept;
  ~Work();

  // Whether wait() would return at once.
  bool test() const;
  // The operations' result, of several the first error; kTimeout if they are not done after
  // `timeout`, in which case they go on, and the buffers aren't free yet.
  Status wait(Duration timeout = Duration::max());

 private:
  void end();

  std::unique_ptr<Operation> first_;  // each of them owns the next
};

// An ordered group of ranks that carry out operations together.
//
// Every rank of the group calls the same collectives in the same order with the same counts, types,
// reductions, roots and algorithms; a mismatch is found and named, not obeyed, by the first rank
// that takes anything in it: where none does (a reduce whose root each of two ranks takes to be the
// other) the next collective of the group finds it. The collectives of one group run one after the
// other in the order of the calls, those of different groups side by side. Sends to and receives
// from one rank are matched in the order of the calls; all that were started are under way at once.
// start_...() returns at once and the operation goes on while the caller computes; the others wait
// for it, and run on the caller's thread if nothing else is under way. (On NCCL start() may wait,
// and not all is under way at once: gpu/device_communicator.h.) Calls given together are issued at
// once, so that none waits for another of them to return; none is if one of them is wrong. Results
// are the same bits on every rank and in every run: the order of sums is a pure function of
// operation, algorithm, size and group.
//
// What one rank gives another in operations that are under way at once takes turns, at most 1 MiB
// each. Of one operation up to 8 MiB go ahead of what the other side takes; more goes when it has
// called that operation and goes on there. What comes before it can be taken, and in front of what
// is waited for, is kept in memory: of one rank the 8 MiB of 32 operations, or of more that are
// smaller (a frame costs 512 bytes besides); beyond that it is kConflict. It is kept by who waits
// for something else to come, not by who waits to send: as in MPI, two ranks that both send() to
// each other before they receive stand until the time limit, unless the messages are so small that
// the link holds them (half a MiB in memory, some over TCP). start_send() first, or give both
// together. Between ranks of one host the receiver may copy a large block from the sender's buffer
// by itself (comm_limits.h): the sender's operation lasts until then.
//
// Thread-safe, though only one thread can give operations an order. Outlives its Works; a
// sub-group's Communicator may outlive the one that it came from.
//
// Errors: `[comm] all_reduce #17: rank 3 silent for 30 s`. kUnavailable: a rank ended, left or
// called abort(); kTimeout: no byte came from a rank for the time limit; kConflict: ranks are in
// different operations, or in too many at once; kCorrupt: what came is no frame of this round;
// kInvalid: the call itself is wrong (then nothing was sent, and the communicator stays usable).
// Ranks in messages are those of the world. After any but kInvalid the communicator is broken:
// every operation of it, its parents and sub-groups returns that first error, here and, in
// milliseconds, on all ranks; a new round needs a new one.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Every operation comes down to these.
  virtual Work start(std::span<const Call> calls) = 0;
  virtual Status run(std::span<const Call> calls) = 0;
  Work start(const Call& call) { return start(std::span(&call, 1)); }
  Status run(const Call& call) { return run(std::span(&call, 1)); }

  Status all_reduce(const CommBuffer& buffer, ReduceOp op, const How& how = {}) {
    return run(call(Collective::kAllReduce, buffer, op, 0, how));
  }
  Work start_all_reduce(const CommBuffer& buffer, ReduceOp op, const How& how = {}) {
    return start(call(Collective::kAllReduce, buffer, op, 0, how));
  }
  Status broadcast(const CommBuffer& buffer, int root, const How& how = {}) {
    return run(call(Collective::kBroadcast, buffer, {}, root, how));
  }
  Work start_broadcast(const CommBuffer& buffer, int root, const How& how = {}) {
    return start(call(Collective::kBroadcast, buffer, {}, root, how));
  }
  Status reduce(const CommBuffer& buffer, ReduceOp op, int root, const How& how = {}) {
    return run(call(Collective::kReduce, buffer, op, root, how));
  }
  Work start_reduce(const CommBuffer& buffer, ReduceOp op, int root, const How& how = {}) {
    return start(call(Collective::kReduce, buffer, op, root, how));
  }
  Status reduce_scatter(const CommBuffer& buffer, ReduceOp op, const How& how = {}) {
    return run(call(Collective::kReduceScatter, buffer, op, 0, how));
  }
  Work start_reduce_scatter(const CommBuffer& buffer, ReduceOp op, const How& how = {}) {
    return start(call(Collective::kReduceScatter, buffer, op, 0, how));
  }
  Status all_gather(const CommBuffer& buffer, const How& how = {}) {
    return run(call(Collective::kAllGather, buffer, {}, 0, how));
  }
  Work start_all_gather(const CommBuffer& buffer, const How& how = {}) {
    return start(call(Collective::kAllGather, buffer, {}, 0, how));
  }
  Status gather(const CommBuffer& buffer, int root, const How& how = {}) {
    return run(call(Collective::kGather, buffer, {}, root, how));
  }
  Status scatter(const CommBuffer& buffer, int root, const How& how = {}) {
    return run(call(Collective::kScatter, buffer, {}, root, how));
  }
  Status all_to_all(const CommBuffer& buffer, const How& how = {}) {
    return run(call(Collective::kAllToAll, buffer, {}, 0, how));
  }
  Work start_all_to_all(const CommBuffer& buffer, const How& how = {}) {
    return start(call(Collective::kAllToAll, buffer, {}, 0, how));
  }

  Status send(const CommBuffer& buffer, int to, const How& how = {}) {
    return run(call(Collective::kSend, buffer, {}, to, how));
  }
  Status receive(const CommBuffer& buffer, int from, const How& how = {}) {
    return run(call(Collective::kReceive, buffer, {}, from, how));
  }
  // What others call isend and irecv.
  Work start_send(const CommBuffer& buffer, int to, const How& how = {}) {
    return start(call(Collective::kSend, buffer, {}, to, how));
  }
  Work start_receive(const CommBuffer& buffer, int from, const How& how = {}) {
    return start(call(Collective::kReceive, buffer, {}, from, how));
  }

  // Returns after every rank has called it.
  Status barrier(const How& how = {}) { return run(call(Collective::kBarrier, {}, {}, 0, how)); }

  // `mine` of rank r comes to all[r * mine.size()].
  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all);

  // The value of every rank, by rank: losses, norms, what ranks have to agree on.
  template <class T>
  Result<std::vector<T>> all_gather_value(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<size_t>(size()));
    TRY(all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
    return all;
  }

  // A communicator of these ranks of this group; their order gives their new ranks. Sends nothing:
  // every rank that is in it makes the same call, in the same order among the calls that name the
  // same ranks. kInvalid for a rank outside, with a rank that is not there, or with one named
  // twice.
  virtual Result<std::unique_ptr<Communicator>> sub_group(const std::vector<int>& ranks) = 0;

  // For a backend beside this one. Every rank of the group makes the same calls, in one order with
  // those of sub_group().
  virtual std::unique_ptr<ActivityReport> make_report() = 0;

  // All ranks of the group call it: those who give the same colour make a group, by key and, where
  // keys are equal, by rank. Null for a rank whose colour is negative.
  Result<std::unique_ptr<Communicator>> split(int colour, int key);

  // Breaks the communicator with this reason on all ranks; waiting ones wake in milliseconds. From
  // any thread; the first reason counts.
  virtual void abort(const std::string& reason) = 0;

  // Operations that are called from now on, here and in the groups that share these links, wait as
  // long for a rank from which nothing comes; until then, and again where this is not positive,
  // what the communicator was made with. That also says how often ranks give a sign of life (an
  // eighth of it, a second at most): with a limit that is shorter than four of them, the rank that
  // is waited for is named, not the one that gives none.
  virtual void set_silence_limit(Duration limit) = 0;

  // Of one that serves no memory of a GPU: none.
  virtual DeviceTraits device_traits() const { return {}; }

  // The first error, which broke the communicator; success while there is none.
  virtual Status health() const = 0;
  // The rank of the world that the first error blames; -1 if there is none, or nobody to blame.
  virtual int suspect() const = 0;
  virtual CollectiveCounts counts() const = 0;
  virtual Traffic traffic() const = 0;
  // The ranks of the group by host.
  virtual const HostMap& hosts() const = 0;
  // Which way bytes go from here to a rank of the group: "itself", "shared memory", "tcp 10.0.1.4
  // to 10.0.2.7 (eth0, 25000 Mb/s)".
  virtual std::string path_to(int rank) const = 0;
  // Which transport serves which rank: "rank 0 of 4: shared memory 1; tcp 2-3".
  virtual std::string describe() const = 0;

 private:
  static Call call(Collective kind, const CommBuffer& buffer, ReduceOp op, int rank,
                   const How& how) {
    return {.kind = kind,
            .buffer = buffer,
            .op = op,
            .rank = rank,
            .send_counts = {},
            .receive_counts = {},
            .algorithm = how.algorithm,
            .limit = how.limit};
  }
};

}  // namespace lockstep
