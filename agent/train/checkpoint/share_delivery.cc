#include "agent/train/checkpoint/share_delivery.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace lockstep::train {
namespace {

comm::Call message(comm::Collective kind, std::span<const float> values, int rank) {
  return {.kind = kind,
          .buffer = {.data = const_cast<float*>(values.data()), .count = std::ssize(values)},
          .rank = rank};
}

}  // namespace

ShareDelivery::ShareDelivery(comm::Communicator& world, parallel::Composition& model,
                             const parallel::Composition::OtherLayout& layout,
                             std::vector<ShareSource> sources, const Limits& limits)
    : world_(world), model_(model), sources_(std::move(sources)), limits_(limits) {
  for (int64_t rank = 0; rank < std::ssize(sources_); ++rank) {
    shares_.push_back(model_.foreign_share(layout, rank));
  }
}

Status ShareDelivery::deliver() {
  uint64_t longest = 0;
  for (const auto& share : shares_) longest = std::max(longest, share.values());
  for (uint64_t first = 0; first < longest; first += limits_.piece_values) {
    TRY_ASSIGN(const std::vector<Piece> pieces, pieces_from(first));
    TRY(deliver_pieces(pieces));
  }
  return {};
}

// Returns the next piece of each share, the same on all ranks but for `is_mine`.
Result<std::vector<ShareDelivery::Piece>> ShareDelivery::pieces_from(uint64_t first) const {
  const size_t count = shares_.size();
  std::vector<std::byte> mine(count);
  for (size_t i = 0; i < count; ++i) {
    mine[i] = std::byte{model_.holds_any(shares_[i], first, limits_.piece_values)};
  }
  std::vector<std::byte> all(count * static_cast<size_t>(world_.size()));
  TRY(world_.all_gather(mine, all));
  std::vector<Piece> pieces;
  for (size_t i = 0; i < count; ++i) {
    if (shares_[i].values() <= first) continue;
    Piece piece{.share = i,
                .first = first,
                .count = std::min(limits_.piece_values, shares_[i].values() - first),
                .receivers = {},
                .is_mine = mine[i] != std::byte{0}};
    for (int rank = 0; rank < world_.size(); ++rank) {
      const bool needs = all[static_cast<size_t>(rank) * count + i] != std::byte{0};
      if (needs && rank != sources_[i].rank) piece.receivers.push_back(rank);
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// Sends go on while this rank receives. Two ranks have at most two pieces under way to each other:
// a rank has two shares at most.
Status ShareDelivery::deliver_pieces(const std::vector<Piece>& pieces) {
  const auto goes_to_all = [&](const Piece& piece) {
    return std::ssize(piece.receivers) == world_.size() - 1;
  };
  std::vector<comm::Call> sends;
  std::vector<const Piece*> received;
  for (const Piece& piece : pieces) {
    if (is_source_of(piece) && piece.is_mine) TRY(take(piece, values_of(piece)));
    if (goes_to_all(piece)) continue;
    if (!is_source_of(piece)) {
      if (piece.is_mine) received.push_back(&piece);
      continue;
    }
    for (const int rank : piece.receivers) {
      sends.push_back(message(comm::Collective::kSend, values_of(piece), rank));
    }
  }
  comm::Work sending = sends.empty() ? comm::Work() : world_.start(sends);
  for (size_t i = 0; i < received.size(); i += limits_.pieces) {
    TRY(receive(std::span(received).subspan(i, std::min(limits_.pieces, received.size() - i))));
  }
  TRY(sending.wait());
  for (const Piece& piece : pieces) {
    if (goes_to_all(piece)) TRY(broadcast(piece));
  }
  return {};
}

Status ShareDelivery::receive(std::span<const Piece* const> pieces) {
  std::vector<std::vector<float>> values;
  std::vector<comm::Call> calls;
  for (const Piece* piece : pieces) {
    values.emplace_back(piece->count);
    calls.push_back(
        message(comm::Collective::kReceive, values.back(), sources_[piece->share].rank));
  }
  TRY(world_.run(calls));
  for (size_t i = 0; i < pieces.size(); ++i) {
    TRY(take(*pieces[i], values[i]));
    received_values_ += pieces[i]->count;
  }
  return {};
}

Status ShareDelivery::broadcast(const Piece& piece) {
  const int root = sources_[piece.share].rank;
  if (is_source_of(piece)) {
    return world_.run(message(comm::Collective::kBroadcast, values_of(piece), root));
  }
  std::vector<float> values(piece.count);
  TRY(world_.run(message(comm::Collective::kBroadcast, values, root)));
  received_values_ += piece.count;
  return take(piece, values);
}

bool ShareDelivery::is_source_of(const Piece& piece) const {
  return sources_[piece.share].rank == world_.rank();
}

std::span<const float> ShareDelivery::values_of(const Piece& piece) const {
  return sources_[piece.share].values.subspan(piece.first, piece.count);
}

Status ShareDelivery::take(const Piece& piece, std::span<const float> values) {
  return model_.take(shares_[piece.share], piece.first, values);
}

}  // namespace lockstep::train
