#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lockstep {

// Plain values that one writer writes and any readers read, in memory that processes share: no
// system call, and nothing that a writer killed in mid-write can block. Zeroed memory is one, of
// zeroes.
//
// A sequence lock after Boehm, "Can seqlocks get along with programming language memory models?"
// (MSPC 2012): the values themselves are atomic words, so that no read is a data race; release on
// every word keeps it behind the odd sequence, acquire keeps it before the second look at it.
// Without fences, which the thread sanitizer does not model. Even: at rest.
template <class T>
class SequenceLocked {
 public:
  void write(const T& value) {
    const Words words = std::bit_cast<Words>(value);
    // A writer killed in mid-write left an odd number; its successor here makes it even again.
    const uint64_t before = sequence_.load(std::memory_order_relaxed) & ~uint64_t{1};
    sequence_.store(before + 1, std::memory_order_relaxed);
    for (size_t i = 0; i < words.size(); ++i) {
      words_[i].store(words[i], std::memory_order_release);
    }
    sequence_.store(before + 2, std::memory_order_release);
  }

  // The last complete write; false while the writer is in mid-write (or died there) after a bounded
  // number of tries, with `value` unchanged.
  bool read(T& value) const {
    for (int i = 0; i < kReadTries; ++i) {
      const uint64_t before = sequence_.load(std::memory_order_acquire);
      if (before % 2 != 0) continue;
      Words words;
      for (size_t w = 0; w < words.size(); ++w) {
        words[w] = words_[w].load(std::memory_order_acquire);
      }
      if (sequence_.load(std::memory_order_relaxed) != before) continue;
      value = std::bit_cast<T>(words);
      return true;
    }
    return false;
  }

 private:
  static constexpr int kReadTries = 1000;
  static_assert(sizeof(T) % sizeof(uint64_t) == 0);
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  using Words = std::array<uint64_t, sizeof(T) / sizeof(uint64_t)>;

  std::atomic<uint64_t> sequence_;
  std::array<std::atomic<uint64_t>, sizeof(T) / sizeof(uint64_t)> words_;
};

}  // namespace lockstep
