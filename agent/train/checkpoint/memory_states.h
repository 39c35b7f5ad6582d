#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "agent/parallel/shared_segment.h"
#include "agent/train/loss_record.h"
#include "common/base/result.h"
#include "common/base/sha256.h"

namespace lockstep::train {

// A state in memory: where training was, and the loss shown then.
struct KeptState {
  int64_t step = -1;  // -1: there is none
  int64_t samples = 0;
  double loss = 0;
  LossRecord losses = {};

  bool operator==(const KeptState&) const = default;
};

// A share of the state: that of a rank in a world with as many data-parallel ranks, of which as
// many divide the state (Composition::OtherLayout).
struct KeptShare {
  int64_t data = 0;
  int64_t shard_ranks = 0;
  int64_t rank = -1;

  bool operator==(const KeptShare&) const = default;
};

// The two newest states of a rank, in a part of a memfd that an agent keeps from round to round
// (WorkerConfig::state_fd): a process that is killed at any moment leaves at least the older one
// whole. The part has a page with the head, then the two places. Nobody else writes to it while
// this exists. Move-only; one thread at a time.
//
// Source: the two newest checkpoints in CPU memory, one complete and one in progress, as in Gemini
// (Wang et al., SOSP 2023).
class MemoryStates {
 public:
  static constexpr size_t kPlaces = 2;

  // Gives the file this size. One of another size loses what it had. kUnavailable if memory is
  // short.
  static Status resize(int fd, uint64_t bytes);
  // Returns the states that are in a part of the file; none if another program has left it, or one
  // with another `identity`.
  static Result<std::optional<MemoryStates>> find(const parallel::SharedPlace& place,
                                                  const Digest& identity);
  // Maps a part of the file. States that find() would not find, or of another share or number of
  // values, are forgotten.
  static Result<MemoryStates> map(const parallel::SharedPlace& place, const Digest& identity,
                                  const KeptShare& share, uint64_t values);
  // Returns what map() needs.
  static uint64_t bytes(uint64_t values);
  MemoryStates(MemoryStates&& other) noexcept;
  MemoryStates& operator=(MemoryStates&& other) noexcept;
  ~MemoryStates();

  const KeptShare& share() const;
  uint64_t values() const { return values_; }
  std::array<KeptState, kPlaces> kept() const;
  // Returns the values of one of kept().
  std::span<const float> values_of(int64_t step) const;

  // Forgets the older state. Returns its memory, for the values of a newer one.
  std::span<float> begin();
  // Keeps what was written to that memory.
  void complete(const KeptState& state);
  // Forgets the states of later steps than this one: training goes on from it, and only the places
  // of older states may be overwritten.
  void forget_after(int64_t step);

 private:
  struct Head;
  MemoryStates(Head* head, uint64_t bytes, uint64_t values)
      : head_(head), bytes_(bytes), values_(values) {}
  static Result<MemoryStates> map_bytes(const parallel::SharedPlace& place, uint64_t values);
  bool is_of(const Digest& identity) const;
  size_t older() const;
  std::span<float> place(size_t i) const;

  Head* head_;
  uint64_t bytes_;
  uint64_t values_;
  size_t begun_ = 0;
};

}  // namespace lockstep::train
