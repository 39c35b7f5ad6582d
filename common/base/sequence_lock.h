#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lockstep {

// A plain value in memory shared between processes, with one writer and any number of readers.
// Neither side makes system calls, and a writer killed in mid-write blocks nobody. Zeroed memory is
// a valid instance that holds zeros.
//
// A sequence lock after Boehm, "Can seqlocks get along with programming language memory models?"
// (MSPC 2012). The value is stored as atomic words, so that no read is a data race. Release on
// every word keeps the word after the store of the odd sequence; acquire keeps it before the second
// load of the sequence. Fences are avoided because the thread sanitizer does not model them. An
// even sequence means that no write is in progress.
template <class T>
class SequenceLocked {
 public:
  void write(const T& value) {
    const Words words = std::bit_cast<Words>(value);
    // A writer killed in mid-write leaves an odd sequence. The next write makes it even again.
    const uint64_t before = sequence_.load(std::memory_order_relaxed) & ~uint64_t{1};
    sequence_.store(before + 1, std::memory_order_relaxed);
    for (size_t i = 0; i < words.size(); ++i) {
      words_[i].store(words[i], std::memory_order_release);
    }
    sequence_.store(before + 2, std::memory_order_release);
  }

  // Reads the last complete write. Returns false and leaves `value` unchanged if a write is still
  // in progress (or its writer died in it) after a bounded number of tries.
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
