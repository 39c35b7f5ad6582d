#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

// A text of bounded length as a plain value, for memory shared between processes. A text that does
// not fill the array is zero-terminated.
struct FixedText {
  std::array<char, 240> bytes{};

  // Copies the text; the middle of a longer text is left out (utf8_elided()).
  void assign(std::string_view text);
  // Returns the bytes before the first zero, at most all of the array. The other process may have
  // written anything, so the text need not be UTF-8. Valid as long as this object.
  std::string_view text() const;

  bool operator==(const FixedText&) const = default;
};

// Rank 0's report about the job's states in storage and in memory. Plain values, kept in shared
// memory.
struct StorageNotes {
  int64_t saved = 0;   // checkpoints that this process completed
  int64_t failed = 0;  // saves of this process that failed
  // Step of the newest save if it failed. -1: it succeeded, or there was none.
  int64_t failed_step = -1;
  double save_seconds = 0;  // of the newest complete save, from its snapshot until it was durable
  double blocked_seconds = 0;   // in which training waited for saves, in total
  int64_t set_aside = 0;        // corrupt checkpoints that this process set aside
  int64_t set_aside_step = -1;  // of the newest one of them
  // The step of the checkpoint that this process loaded as it began, or later, if it rolled back
  // and found set_aside_step then. 0 without one; -1 until known, in the phase kBroadcasting.
  int64_t resumed_step = -1;
  // Why failed_step failed and why set_aside_step was set aside: one sentence each, which names the
  // file and the cause.
  FixedText failure{};
  FixedText set_aside_reason{};
  int64_t from_memory = 0;  // 1: the state of resumed_step was in memory
  int64_t skips = 0;        // how often training went on without batches, in the whole job so far
  FixedText skip{};         // the newest one: which batches, and why
  // The newest state of this rank in memory that outlives it; -1: none. Bytes of all of them, and
  // the time in which training waited for copies, in total.
  int64_t kept_step = -1;
  int64_t kept_bytes = 0;
  double kept_blocked_seconds = 0;

  bool operator==(const StorageNotes&) const = default;
};

}  // namespace lockstep
