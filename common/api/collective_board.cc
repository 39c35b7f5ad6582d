#include "common/api/collective_board.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>

#include "common/base/check.h"

namespace lockstep {
namespace {

using Word = std::atomic<uint64_t>;
static_assert(Word::is_always_lock_free);

// A fixed-length string stored in words, so that no read of it is a data race.
template <size_t kWords>
struct Text {
  std::array<Word, kWords> words;

  static constexpr size_t kLongest = kWords * 8 - 1;
  void store(std::string_view text) {
    std::array<char, kWords * 8> bytes{};
    std::memcpy(bytes.data(), text.data(), std::min(text.size(), kLongest));
    if (text.size() > kLongest) std::memcpy(bytes.data() + kLongest - 3, "...", 3);
    for (size_t i = 0; i < kWords; ++i) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i * 8, 8);
      words[i].store(word, std::memory_order_release);
    }
  }
  // The bytes may come from another process, so terminate them and replace unprintable ones.
  std::string load() const {
    std::array<char, kWords * 8> bytes{};
    for (size_t i = 0; i < kWords; ++i) {
      const uint64_t word = words[i].load(std::memory_order_acquire);
      std::memcpy(bytes.data() + i * 8, &word, 8);
    }
    bytes.back() = '\0';
    std::string text = bytes.data();
    for (char& c : text) c = c >= ' ' && c <= '~' ? c : '?';
    return text;
  }
};

int64_t as_signed(uint64_t value) {
  return static_cast<int64_t>(value);
}

}  // namespace

// Every record has a sequence number: 0 is empty, odd means that a write is in progress, even is
// stable. sequence_lock.h explains the memory orders.
struct CollectiveBoard::Memory {
  struct Group {
    Word sequence;
    Word group;
    Word size;
    Text<5> ranks;
    // Separate from the record's sequence, so that entering an operation costs only three stores.
    Word entered;
    Word completed;
    Text<2> operation;
  };
  struct Wait {
    Word sequence;
    Word is_set;
    Word number;
    Word group;
    Word size;
    std::array<Word, AwaitedRanks::kRanksMax> waits_for;
    Word since;
    Text<5> ranks;
    Text<2> operation;
  };
  Word beats;
  Wait wait;
  std::array<Group, kGroups> groups;
};

namespace {

// For one writer at a time: makes the sequence odd, writes, and makes it even again.
template <class Write>
void write_record(Word& sequence, const Write& write) {
  const uint64_t before = sequence.load(std::memory_order_relaxed) & ~uint64_t{1};
  sequence.store(before + 1, std::memory_order_relaxed);
  write();
  sequence.store(before + 2, std::memory_order_release);
}

// Returns whether `read` saw a stable record.
template <class Read>
bool read_stable(const Word& sequence, const Read& read) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = sequence.load(std::memory_order_acquire);
    if (before == 0) return false;
    if (before % 2 != 0) continue;
    read();
    if (sequence.load(std::memory_order_relaxed) == before) return true;
  }
  return false;
}

}  // namespace

CollectiveBoard::CollectiveBoard(void* memory) : memory_(static_cast<Memory*>(memory)) {
  static_assert(sizeof(Memory) <= kBytes);
}

int CollectiveBoard::add(const GroupActivity& added) {
  auto& groups = memory_->groups;
  const auto is_free = [](const Memory::Group& group) {
    return group.size.load(std::memory_order_relaxed) == 0;
  };
  auto place = std::find_if(groups.begin(), groups.end(), is_free);
  if (place == groups.end()) return kNowhere;
  write_record(place->sequence, [&] {
    place->group.store(added.group, std::memory_order_release);
    place->size.store(static_cast<uint64_t>(added.size), std::memory_order_release);
    place->ranks.store(added.ranks);
    place->operation.store(added.operation);
    place->entered.store(added.entered, std::memory_order_release);
    place->completed.store(added.completed, std::memory_order_release);
  });
  return static_cast<int>(place - groups.begin());
}

void CollectiveBoard::remove(int place) {
  if (place == kNowhere) return;
  Memory::Group& group = memory_->groups[static_cast<size_t>(place)];
  write_record(group.sequence, [&] { group.size.store(0, std::memory_order_release); });
}

void CollectiveBoard::enter(int place, const char* operation, uint64_t number) {
  if (place == kNowhere) return;
  Memory::Group& group = memory_->groups[static_cast<size_t>(place)];
  group.operation.store(operation);
  group.entered.store(number, std::memory_order_release);
}

void CollectiveBoard::complete(int place, uint64_t number) {
  if (place == kNowhere) return;
  memory_->groups[static_cast<size_t>(place)].completed.store(number, std::memory_order_release);
}

void CollectiveBoard::set_wait(const RankWait& value) {
  Memory::Wait& wait = memory_->wait;
  write_record(wait.sequence, [&] {
    wait.is_set.store(1, std::memory_order_release);
    wait.number.store(value.number, std::memory_order_release);
    wait.group.store(value.group, std::memory_order_release);
    wait.size.store(static_cast<uint64_t>(value.size), std::memory_order_release);
    for (size_t i = 0; i < AwaitedRanks::kRanksMax; ++i) {
      const int64_t rank = value.waits_for.ranks[i];
      wait.waits_for[i].store(static_cast<uint64_t>(rank), std::memory_order_release);
    }
    wait.since.store(static_cast<uint64_t>(value.since_nanoseconds), std::memory_order_release);
    wait.ranks.store(value.ranks);
    wait.operation.store(value.operation);
  });
}

void CollectiveBoard::clear_wait() {
  Memory::Wait& wait = memory_->wait;
  write_record(wait.sequence, [&] { wait.is_set.store(0, std::memory_order_release); });
}

void CollectiveBoard::clear_beats() {
  memory_->beats.store(0, std::memory_order_relaxed);
}

void CollectiveBoard::beat() {
  memory_->beats.fetch_add(1, std::memory_order_relaxed);
}

std::vector<GroupActivity> CollectiveBoard::groups() const {
  std::vector<GroupActivity> found;
  for (const Memory::Group& group : memory_->groups) {
    GroupActivity seen;
    const bool is_whole = read_stable(group.sequence, [&] {
      seen = {.group = group.group.load(std::memory_order_acquire),
              .size = as_signed(group.size.load(std::memory_order_acquire)),
              .ranks = group.ranks.load(),
              .operation = group.operation.load(),
              .entered = group.entered.load(std::memory_order_acquire),
              .completed = group.completed.load(std::memory_order_acquire)};
    });
    if (is_whole && seen.size > 0) found.push_back(std::move(seen));
  }
  return found;
}

std::optional<RankWait> CollectiveBoard::wait() const {
  const Memory::Wait& wait = memory_->wait;
  RankWait seen;
  bool is_set = false;
  const bool is_whole = read_stable(wait.sequence, [&] {
    is_set = wait.is_set.load(std::memory_order_acquire) != 0;
    seen = {.operation = wait.operation.load(),
            .number = wait.number.load(std::memory_order_acquire),
            .group = wait.group.load(std::memory_order_acquire),
            .size = as_signed(wait.size.load(std::memory_order_acquire)),
            .ranks = wait.ranks.load(),
            .waits_for = {},
            .since_nanoseconds = as_signed(wait.since.load(std::memory_order_acquire))};
    for (size_t i = 0; i < AwaitedRanks::kRanksMax; ++i) {
      const int64_t rank = as_signed(wait.waits_for[i].load(std::memory_order_acquire));
      const bool is_rank = rank >= 0 && rank < std::numeric_limits<int32_t>::max();
      if (is_rank) seen.waits_for.add(static_cast<int>(rank));
    }
  });
  return is_whole && is_set ? std::optional(seen) : std::nullopt;
}

uint64_t CollectiveBoard::beats() const {
  return memory_->beats.load(std::memory_order_relaxed);
}

}  // namespace lockstep
