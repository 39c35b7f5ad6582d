#include "tests/agent/train/written_state.h"

#include <bit>
#include <cstring>
#include <utility>

namespace lockstep::train {

float WrittenState::value(size_t kind, int64_t id, int64_t element) const {
  CHECK(kind < 4 && id < 64 && element < 1 << 14 && salt_ < 1 << 8);
  const auto number = static_cast<uint32_t>(element) | static_cast<uint32_t>(kind) << 14 |
                      static_cast<uint32_t>(id) << 16 | salt_ << 22;
  return std::bit_cast<float>(number);
}

Result<std::vector<ManifestFile>> WrittenState::write(Storage& storage, const std::string& folder,
                                                      int64_t rank) const {
  const StateLayout::ShardRange range = layout_.share(rank, coordinates(mesh_, rank).data);
  parallel::StateShare share{
      .pieces = layout_.pieces_within(rank, range, /*owned_only=*/true),
      .shard_begin = range.begin,
      .kinds = {},
  };
  std::vector<std::vector<float>> values(kStateKinds,
                                         std::vector<float>(static_cast<size_t>(range.count())));
  for (size_t kind = 0; kind < values.size(); ++kind) {
    for (const StateLayout::ShardPiece& piece : share.pieces) {
      for (const ShardRun& run : piece.runs) {
        for (int64_t i = 0; i < run.count; ++i) {
          values[kind][static_cast<size_t>(run.local - range.begin + i)] =
              value(kind, piece.id, run.global + i);
        }
      }
    }
    share.kinds.push_back(values[kind]);
  }
  return write_shard(storage, folder, {.rank = rank, .ranks = mesh_.size()}, table(), share);
}

Result<std::vector<ManifestFile>> WrittenState::write_all(Storage& storage,
                                                          const std::string& folder) const {
  std::vector<ManifestFile> all;
  for (int64_t rank = 0; rank < mesh_.size(); ++rank) {
    TRY_ASSIGN(std::vector<ManifestFile> files, write(storage, folder, rank));
    for (ManifestFile& file : files) all.push_back(std::move(file));
  }
  return all;
}

Result<bool> WrittenState::share_is_in(CheckpointReader& reader, int64_t rank) const {
  const StateLayout::ShardRange range = layout_.share(rank, coordinates(mesh_, rank).data);
  std::vector<float> found;
  std::vector<float> expected;
  for (const auto& piece : layout_.pieces_within(rank, range, /*owned_only=*/false)) {
    const Parameter& parameter = layout_.table()[static_cast<size_t>(piece.id)];
    for (size_t kind = 0; kind < kStateKinds; ++kind) {
      for (const ShardRun& run : piece.runs) {
        found.assign(static_cast<size_t>(run.count), 0.0f);
        expected.clear();
        for (int64_t i = 0; i < run.count; ++i) {
          expected.push_back(value(kind, piece.id, run.global + i));
        }
        TRY(reader.read(state_tensor_name(parameter, kTestStates, kind), run.global, found));
        const size_t bytes = found.size() * sizeof(float);
        if (std::memcmp(found.data(), expected.data(), bytes) != 0) return false;
      }
    }
  }
  return true;
}

Result<bool> WrittenState::is_in(CheckpointReader& reader) const {
  for (int64_t rank = 0; rank < mesh_.size(); ++rank) {
    TRY_ASSIGN(const bool is_equal, share_is_in(reader, rank));
    if (!is_equal) return false;
  }
  return true;
}

}  // namespace lockstep::train
