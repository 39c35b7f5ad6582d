#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "agent/rpc/wire.h"
#include "common/base/result.h"

namespace lockstep::rpc {

// Memory of this process that processes of the same user and host can map for reading: a memfd with
// no name that could be left behind. A body that lies in it is lent instead of sent: the receiver
// copies it once, at the speed of memory. (process_vm_readv, which ranks use for collectives,
// reached a third of that where this was measured.) Give it to Client::Options or Server::Options.
// memory() is for its owner to divide; thread-safe otherwise.
class SharedMemory {
 public:
  // Zeroed; pages are allocated when they are used. kUnavailable if the system refuses.
  static Result<std::shared_ptr<SharedMemory>> create(size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Aligned to a page.
  std::span<std::byte> memory() const { return memory_; }

  SegmentNotice notice() const;
  // Where the bytes are in the segment; nothing if they are not in it.
  std::optional<uint64_t> offset_of(Bytes bytes) const;
  // Marks a loan: takes a word, which has a value of its own until it is given back. Nothing if all
  // words are taken.
  struct Word {
    uint32_t index = 0;
    uint64_t value = 0;
  };
  std::optional<Word> take_word();
  // Ends the loan: a receiver that is still copying sees this afterwards and discards its copy.
  void give_back(Word word);

 private:
  SharedMemory(int fd, std::span<std::byte> whole);
  int fd_;
  std::span<std::byte> whole_;
  std::span<std::byte> memory_;
  std::atomic<uint64_t> loans_{0};
};

// A segment of a peer's, mapped for reading.
class PeerSegment {
 public:
  // `process` and the notice are the peer's. Refuses memory that could shrink, which would end this
  // process with SIGBUS. kUnavailable, with the reason, if it cannot be mapped: another host or PID
  // namespace, another user, not a segment.
  static Result<PeerSegment> map(uint64_t process, const SegmentNotice& notice);
  PeerSegment(PeerSegment&& other) noexcept;
  PeerSegment& operator=(PeerSegment&& other) noexcept;
  ~PeerSegment();

  // The bytes at an offset of the peer's memory; nothing if they are not in it.
  std::optional<Bytes> at(uint64_t offset, uint64_t bytes) const;
  // Whether the word has the value. Call after the copy.
  bool still_lent(uint32_t word, uint64_t value) const;

 private:
  explicit PeerSegment(Bytes whole) : whole_(whole) {}
  Bytes whole_;
};

}  // namespace lockstep::rpc
