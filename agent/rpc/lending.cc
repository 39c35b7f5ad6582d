#include "agent/rpc/lending.h"

#include <unistd.h>

#include <array>
#include <utility>

#include "common/base/log.h"

namespace lockstep::rpc {
namespace {

std::optional<LentPiece> piece_of(Bytes part,
                                  const std::vector<std::shared_ptr<SharedMemory>>& memory,
                                  uint64_t lendable) {
  for (uint32_t i = 0; i < memory.size(); ++i) {
    if ((lendable >> i & 1) == 0) continue;
    const auto offset = memory[i]->offset_of(part);
    if (offset) return LentPiece{.segment = i, .offset = *offset, .bytes = part.size()};
  }
  return {};
}

void append(std::vector<std::byte>& to, Bytes bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

std::optional<Loan> make_loan(std::span<const Bytes> body,
                              const std::vector<std::shared_ptr<SharedMemory>>& memory,
                              uint64_t lendable, size_t bytes_min, OutMessage& message) {
  if (lendable == 0 || body.empty() || body.size() > kLentPiecesMax) return {};
  uint64_t total = 0;
  std::array<LentPiece, kLentPiecesMax> pieces;
  for (size_t i = 0; i < body.size(); ++i) {
    const auto piece = piece_of(body[i], memory, lendable);
    if (!piece) return {};
    pieces[i] = *piece;
    total += piece->bytes;
  }
  if (total < bytes_min) return {};
  SharedMemory* const first = memory[pieces[0].segment].get();
  const auto word = first->take_word();
  if (!word) return {};
  const LentMark mark{.segment = pieces[0].segment, .word = word->index, .value = word->value};
  append(message.head, std::as_bytes(std::span(&mark, 1)));
  append(message.head, std::as_bytes(std::span(pieces).first(body.size())));
  message.header.pieces = static_cast<uint32_t>(body.size());
  return Loan{.word = *word, .memory = first};
}

void end_loan(std::optional<SharedMemory::Word>& word, SharedMemory*& memory) {
  if (!word) return;
  memory->give_back(*std::exchange(word, {}));
  memory = nullptr;
}

void offer(const std::vector<std::shared_ptr<SharedMemory>>& memory, Opening& opening) {
  opening.process = static_cast<uint64_t>(::getpid());
  opening.segment_count = static_cast<uint32_t>(memory.size());
  for (size_t i = 0; i < memory.size(); ++i) opening.segments[i] = memory[i]->notice();
}

std::vector<std::optional<PeerSegment>> map_segments(const Opening& opening, uint64_t& mapped) {
  std::vector<std::optional<PeerSegment>> segments(opening.segment_count);
  mapped = 0;
  for (uint32_t i = 0; i < opening.segment_count; ++i) {
    Result<PeerSegment> segment = PeerSegment::map(opening.process, opening.segments[i]);
    if (!segment.ok()) {
      log_debug("memory of a peer is not shared", {{"why", segment.error().message}});
      continue;
    }
    segments[i].emplace(*std::move(segment));
    mapped |= uint64_t{1} << i;
  }
  return segments;
}

}  // namespace lockstep::rpc
