#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "agent/rpc/outbox.h"
#include "agent/rpc/shared_memory.h"

namespace lockstep::rpc {

// A body that the other side copies from our shared memory.
struct Loan {
  SharedMemory::Word word;
  SharedMemory* memory = nullptr;  // that the word is in
};

// Lends the body of a message, if it has at least `bytes_min` bytes and lies in segments of
// `memory` that the other side has mapped (`lendable`, a bit each): adds the marks to the message.
// Nothing if it cannot be lent; the message is unchanged then.
std::optional<Loan> make_loan(std::span<const Bytes> body,
                              const std::vector<std::shared_ptr<SharedMemory>>& memory,
                              uint64_t lendable, size_t bytes_min, OutMessage& message);
// Ends a loan, if there is one.
void end_loan(std::optional<SharedMemory::Word>& word, SharedMemory*& memory);

// Fills in what an opening says about these segments.
void offer(const std::vector<std::shared_ptr<SharedMemory>>& memory, Opening& opening);
// Maps the segments that a peer has offered; an empty place is one that cannot be mapped. `mapped`
// gets a bit for each that can.
std::vector<std::optional<PeerSegment>> map_segments(const Opening& opening, uint64_t& mapped);

}  // namespace lockstep::rpc
