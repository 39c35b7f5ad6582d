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

namespace lockstep::comm {

// The memory that an operation works on, aligned to its type. It belongs to the caller, who must
// not touch it until the operation's wait() has returned. If `input` is null, the operation is
// in-place: it also takes its values from `data`. Otherwise the two do not overlap, and `input` is
// only read. Memory of a GPU needs a communicator of gpu/device_communicator.h; others refuse it
// (kInvalid). `stream` orders the operation: it runs after everything issued there before the call.
//
// clang-format off
// With n ranks and a block of `count` elements:
//   operation      | input                  | output (data)           | in-place
//   all_reduce     | a block                | a block                 |
//   reduce         | a block                | the root: a block       | others: data is only read
//   broadcast      | the root: a block      | a block                 |
//   all_gather     | a block                | n blocks, by rank       | own block is in its slot
//   gather         | a block                | the root: n blocks      | root's block is in its slot
//   reduce_scatter | n blocks               | a block                 | into own block's slot
//   scatter        | the root: n blocks     | a block                 | root's block stays
//   all_to_all     | n blocks, one for each | n blocks, one from each |
// clang-format on
struct CommBuffer {
  void* data = nullptr;
  int64_t count = 0;
  DataType type = DataType::kF32;
  kernels::Device device;
  const void* input = nullptr;
  void* stream = nullptr;  // of `device`: Stream::handle(); ignored for the CPU
};

// Marks a call as one of several that together carry out a larger operation, each on a part of
// every block. Ranks compare the larger operation's count and the index of the part.
struct CallPart {
  int64_t whole_count = 0;  // as CommBuffer::count
  uint32_t index = 0;
};

// One operation, as data.
struct Call {
  Collective kind = Collective::kBarrier;
  CommBuffer buffer;
  ReduceOp op = ReduceOp::kSum;  // for reductions
  int rank = 0;                  // the root, or the peer of a send or receive
  // all_to_all by counts (both spans, one entry per rank, `count` 0): the blocks of each side lie
  // back to back and have these many elements. Read before the call returns. Not in-place.
  std::span<const int64_t> send_counts;
  std::span<const int64_t> receive_counts;
  Algorithm algorithm = Algorithm::kAuto;
  Duration limit{};  // longest silence while it runs; zero: the communicator's
  std::optional<CallPart> part;
};

// Options that most calls leave at their defaults.
struct CallOptions {
  Algorithm algorithm = Algorithm::kAuto;
  Duration limit{};
};

// Numbers of collectives of one communicator, counted from 1 (sends and receives do not count). The
// two differ while a collective is under way. Compared across ranks, they show who is missing from
// what.
struct CollectiveCounts {
  uint64_t entered = 0;    // the last one that began to run here
  uint64_t completed = 0;  // the last one that ended here without an error
};

// Payload bytes that this process sent to and received from other ranks, without headers and
// padding.
struct Traffic {
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t bytes_sent_to_other_hosts = 0;  // part of bytes_sent
  uint64_t bytes_lent = 0;  // part of bytes_sent: copied once, by the receiver, from our memory
};

// How a communicator treats memory of a GPU.
struct DeviceTraits {
  // Whether an operation takes its place in the order of its stream. If so, work issued there after
  // start() has returned runs after it, so the host calls wait() only for the result. If not, that
  // holds only for work issued after wait() has returned.
  bool is_stream_ordered = false;
  // About how much memory of the device a communicator's first operation reserves, in addition to
  // the memory it is given.
  uint64_t memory_bytes = 0;
};

// Where a backend such as NCCL reports what it runs next to a communicator, on the same ranks. The
// reports show on the progress board, as those of a separate group, and in Communicator::traffic().
// One thread at a time.
class ActivityReport {
 public:
  virtual ~ActivityReport() = default;
  // enter() reports that `number` collectives have begun, of which `kind` is the last; complete()
  // reports that `number` are over.
  virtual void enter(Collective kind, uint64_t number) = 0;
  virtual void complete(uint64_t number) = 0;
  virtual void add(const Traffic& moved) = 0;
};

class Operation;  // owned by a Work; another thread may carry it out

// Operations under way. Move-only; one thread at a time may use it. The destructor waits, so that
// the buffers are free again in any case (the communicator's time limit bounds the wait).
class Work {
 public:
  Work();
  explicit Work(std::unique_ptr<Operation> first);
  Work(Work&& other) noexcept;
  Work& operator=(Work&& other) noexcept;
  ~Work();

  // Whether wait() would return immediately.
  bool test() const;
  // Returns the operations' result: the first error, if several fail. Returns kTimeout if they are
  // not done after `timeout`; then they go on, and the buffers are not free yet.
  Status wait(Duration timeout = Duration::max());

 private:
  void end();

  std::unique_ptr<Operation> first_;  // the first of a list: each owns the next
};

// An ordered group of ranks that carry out operations together.
//
// Order: every rank of the group calls the same collectives in the same order, with the same
// counts, types, reductions, roots and algorithms. A mismatch is detected and named, never obeyed,
// by the first rank that receives anything in it. If no rank does (each of two ranks takes the
// other for the root of a reduce), the group's next collective detects it. Collectives of one group
// run one after another in the order of the calls; those of different groups run concurrently.
// Sends to and receives from one rank are matched in the order of the calls, and run concurrently.
//
// Calls: start_...() returns immediately, and the operation runs while the caller computes. The
// other calls wait for the operation, and run it on the caller's thread if nothing else is under
// way. (With NCCL, start() may wait and not everything runs concurrently:
// gpu/device_communicator.h.) Calls given together are issued together, so that none waits for
// another one to return. If one of them is wrong, none is issued.
//
// Results are bitwise identical on every rank and in every run: the order of sums is a pure
// function of operation, algorithm, size and group.
//
// Flow control: concurrent operations of one rank take turns on the way to another, at most 1 MiB
// each. An operation sends up to 8 MiB ahead of its receiver. It sends more once the receiver has
// called the operation and makes progress in it. Data that cannot be taken yet, and that is in
// front of data a rank waits for, is kept in memory. Per sender that is at most the 8 MiB of 32
// operations, or of more operations that are smaller (each frame costs 512 bytes more); beyond that
// it is kConflict. A rank keeps such data while it waits to receive, not while it waits to send.
// So, as in MPI, two ranks that both send() to each other before they receive block until the time
// limit, unless the messages fit in the link (half a MiB in memory, some over TCP). Call
// start_send() first, or give both calls together. Between ranks of one host, the receiver may copy
// a large block directly from the sender's buffer (comm_limits.h); the sender's operation lasts
// until then.
//
// Thread-safe, but only calls from one thread have a defined order. Must outlive its Works. A
// sub-group's Communicator may outlive the one that it came from.
//
// Errors read like `[comm] all_reduce #17: rank 3 silent for 30 s`, with ranks of the world:
// - kUnavailable: a rank ended, left or called abort()
// - kTimeout: no byte came from a rank for the time limit
// - kConflict: ranks are in different operations, or in too many at the same time
// - kCorrupt: received data is no frame of this round
// - kInvalid: the call itself is wrong; nothing was sent, and the communicator stays usable
// Any other error than kInvalid breaks the communicator. Every operation of it, of its parents and
// of its sub-groups then returns that first error, here and, within milliseconds, on all ranks. A
// new round needs a new communicator.
//
// Errors that another rank causes blame it: kPeerHung with kTimeout, else kPeer. Errors of this
// rank's own device, sockets and memory, and kInvalid, blame nobody else.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // All other operations call these two.
  virtual Work start(std::span<const Call> calls) = 0;
  virtual Status run(std::span<const Call> calls) = 0;
  Work start(const Call& call) { return start(std::span(&call, 1)); }
  Status run(const Call& call) { return run(std::span(&call, 1)); }

  Status all_reduce(const CommBuffer& buffer, ReduceOp op, const CallOptions& options = {}) {
    return run(call(Collective::kAllReduce, buffer, op, 0, options));
  }
  Work start_all_reduce(const CommBuffer& buffer, ReduceOp op, const CallOptions& options = {}) {
    return start(call(Collective::kAllReduce, buffer, op, 0, options));
  }
  Status broadcast(const CommBuffer& buffer, int root, const CallOptions& options = {}) {
    return run(call(Collective::kBroadcast, buffer, {}, root, options));
  }
  Work start_broadcast(const CommBuffer& buffer, int root, const CallOptions& options = {}) {
    return start(call(Collective::kBroadcast, buffer, {}, root, options));
  }
  Status reduce(const CommBuffer& buffer, ReduceOp op, int root, const CallOptions& options = {}) {
    return run(call(Collective::kReduce, buffer, op, root, options));
  }
  Work start_reduce(const CommBuffer& buffer, ReduceOp op, int root,
                    const CallOptions& options = {}) {
    return start(call(Collective::kReduce, buffer, op, root, options));
  }
  Status reduce_scatter(const CommBuffer& buffer, ReduceOp op, const CallOptions& options = {}) {
    return run(call(Collective::kReduceScatter, buffer, op, 0, options));
  }
  Work start_reduce_scatter(const CommBuffer& buffer, ReduceOp op,
                            const CallOptions& options = {}) {
    return start(call(Collective::kReduceScatter, buffer, op, 0, options));
  }
  Status all_gather(const CommBuffer& buffer, const CallOptions& options = {}) {
    return run(call(Collective::kAllGather, buffer, {}, 0, options));
  }
  Work start_all_gather(const CommBuffer& buffer, const CallOptions& options = {}) {
    return start(call(Collective::kAllGather, buffer, {}, 0, options));
  }
  Status gather(const CommBuffer& buffer, int root, const CallOptions& options = {}) {
    return run(call(Collective::kGather, buffer, {}, root, options));
  }
  Status scatter(const CommBuffer& buffer, int root, const CallOptions& options = {}) {
    return run(call(Collective::kScatter, buffer, {}, root, options));
  }
  Status all_to_all(const CommBuffer& buffer, const CallOptions& options = {}) {
    return run(call(Collective::kAllToAll, buffer, {}, 0, options));
  }
  Work start_all_to_all(const CommBuffer& buffer, const CallOptions& options = {}) {
    return start(call(Collective::kAllToAll, buffer, {}, 0, options));
  }

  Status send(const CommBuffer& buffer, int to, const CallOptions& options = {}) {
    return run(call(Collective::kSend, buffer, {}, to, options));
  }
  Status receive(const CommBuffer& buffer, int from, const CallOptions& options = {}) {
    return run(call(Collective::kReceive, buffer, {}, from, options));
  }
  // Known elsewhere as isend and irecv.
  Work start_send(const CommBuffer& buffer, int to, const CallOptions& options = {}) {
    return start(call(Collective::kSend, buffer, {}, to, options));
  }
  Work start_receive(const CommBuffer& buffer, int from, const CallOptions& options = {}) {
    return start(call(Collective::kReceive, buffer, {}, from, options));
  }

  // Returns after every rank has called it.
  Status barrier(const CallOptions& options = {}) {
    return run(call(Collective::kBarrier, {}, {}, 0, options));
  }

  // Copies `mine` of rank r to all[r * mine.size()].
  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all);

  // Returns the value of every rank, by rank: losses, norms, values that ranks must agree on.
  template <class T>
  Result<std::vector<T>> all_gather_value(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<size_t>(size()));
    TRY(all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
    return all;
  }

  // Returns a communicator of these ranks of this group; their order gives their new ranks. Sends
  // nothing: every member makes the same call, in the same order among the calls that name the same
  // ranks. kInvalid if this rank is not among them, if one does not exist, or if one is named
  // twice.
  virtual Result<std::unique_ptr<Communicator>> sub_group(const std::vector<int>& ranks) = 0;

  // Returns a communicator of all ranks of this group, for collectives that ranks may call in
  // another order than those of this group. All ranks call it, as sub_group().
  Result<std::unique_ptr<Communicator>> twin();

  // For a backend that runs next to this communicator. Every rank of the group makes the same
  // calls, in one order with its calls of sub_group().
  virtual std::unique_ptr<ActivityReport> make_report() = 0;

  // Splits the group; all its ranks call it. Ranks with the same colour form a group, ordered by
  // key and, if keys are equal, by rank. Returns null to a rank whose colour is negative.
  Result<std::unique_ptr<Communicator>> split(int colour, int key);

  // Breaks the communicator with this reason on all ranks; waiting ranks wake within milliseconds.
  // May be called from any thread; the first reason wins.
  virtual void abort(const std::string& reason) = 0;

  // Sets how long operations that are called from now on, here and in the groups that share these
  // links, wait for a rank that sends nothing. If `limit` is not positive, restores the limit that
  // the communicator was made with. The original limit also sets the heartbeat interval (an eighth
  // of it, at most a second). With a limit shorter than four heartbeats, errors name the rank that
  // is waited for, not the rank that gives no sign of life.
  virtual void set_silence_limit(Duration limit) = 0;

  // The default is that of a communicator that serves no GPU memory.
  virtual DeviceTraits device_traits() const { return {}; }

  // Returns the first error, which broke the communicator; success while there is none.
  virtual Status health() const = 0;
  // Returns the world rank that the first error blames; -1 if there is no error, or nobody to
  // blame.
  virtual int suspect() const = 0;
  virtual CollectiveCounts counts() const = 0;
  virtual Traffic traffic() const = 0;
  // The ranks of the group by host.
  virtual const HostMap& hosts() const = 0;
  // Describes the path from here to a rank of the group: "itself", "shared memory", "tcp 10.0.1.4
  // to 10.0.2.7 (eth0, 25000 Mb/s)".
  virtual std::string path_to(int rank) const = 0;
  // Describes which transport serves which rank: "rank 0 of 4: shared memory 1; tcp 2-3".
  virtual std::string describe() const = 0;

 private:
  static Call call(Collective kind, const CommBuffer& buffer, ReduceOp op, int rank,
                   const CallOptions& options) {
    return {.kind = kind,
            .buffer = buffer,
            .op = op,
            .rank = rank,
            .send_counts = {},
            .receive_counts = {},
            .algorithm = options.algorithm,
            .limit = options.limit};
  }
};

}  // namespace lockstep::comm
