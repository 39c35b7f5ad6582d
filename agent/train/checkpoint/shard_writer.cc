#include "agent/train/checkpoint/shard_writer.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <utility>

#include "agent/train/checkpoint/chunked_file.h"
#include "agent/train/checkpoint/safetensors.h"
#include "agent/train/checkpoint/tensor_slice.h"

namespace lockstep::train {
namespace {

std::string file_name(const char* stem, const ShardPlace& place) {
  if (place.ranks == 1) return std::string(stem) + ".safetensors";
  char numbers[64];
  std::snprintf(numbers, sizeof(numbers), "-%05lld-of-%05lld.safetensors",
                static_cast<long long>(place.rank), static_cast<long long>(place.ranks));
  return stem + std::string(numbers);
}

// Kinds [first, end) of the state, which are in one file.
struct Kinds {
  size_t first = 0;
  size_t end = 0;
};

SafetensorsHeader header_of(const StateTable& table, const parallel::StateShare& share,
                            const Kinds& kinds) {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}};  // what readers of PyTorch weights look for
  uint64_t at = 0;
  for (size_t kind = kinds.first; kind < kinds.end; ++kind) {
    for (const StateLayout::ShardPiece& piece : share.pieces) {
      const Parameter& parameter = table.parameters[static_cast<size_t>(piece.id)];
      const std::string name = state_tensor_name(parameter, table.states, kind);
      for (const TensorBox& box : boxes_of(piece.runs, parameter.dims[1])) {
        const TensorSlice slice{.tensor = name, .rank = parameter.rank, .box = box};
        const uint64_t end = at + static_cast<uint64_t>(box.count()) * sizeof(float);
        header.tensors.push_back(
            {slice_name(slice, parameter.shape()), "F32", slice.shape(), at, end});
        at = end;
      }
    }
  }
  return header;
}

Status write_values(const parallel::StateShare& share, const Kinds& kinds, ChunkedWriter& writer) {
  for (size_t kind = kinds.first; kind < kinds.end; ++kind) {
    for (const StateLayout::ShardPiece& piece : share.pieces) {
      for (const ShardRun& run : piece.runs) {
        const std::span<const float> values = share.kinds[kind].subspan(
            static_cast<size_t>(run.local - share.shard_begin), static_cast<size_t>(run.count));
        TRY(writer.write({reinterpret_cast<const char*>(values.data()), values.size_bytes()}));
      }
    }
  }
  return {};
}

Result<ManifestFile> write_file(Storage& storage, const std::string& folder,
                                const std::string& name, const SafetensorsHeader& header,
                                const std::stop_token& stop,
                                const std::function<Status(ChunkedWriter&)>& write) {
  TRY_ASSIGN(std::unique_ptr<ObjectWriter> object, storage.create(folder + "/" + name));
  ChunkedWriter writer(std::move(object), stop);
  TRY(writer.write(format_safetensors_header(header)));
  TRY(write(writer));
  TRY_ASSIGN(ManifestFile file, writer.finish(name));
  TRY_ASSIGN(ChunkedReader reader, ChunkedReader::open(storage, folder, file));
  TRY(reader.verify(stop));
  return file;
}

}  // namespace

Result<std::vector<ManifestFile>> write_shard(Storage& storage, const std::string& folder,
                                              const ShardPlace& place, const StateTable& table,
                                              const parallel::StateShare& share,
                                              const std::stop_token& stop) {
  const std::pair<const char*, Kinds> files[] = {{"model", {0, 1}},
                                                 {"optimizer", {1, share.kinds.size()}}};
  std::vector<ManifestFile> written;
  for (const auto& [stem, kinds] : files) {
    const SafetensorsHeader header = header_of(table, share, kinds);
    if (header.tensors.empty()) continue;
    TRY_ASSIGN(ManifestFile file, write_file(storage, folder, file_name(stem, place), header, stop,
                                             [&, &kinds = kinds](ChunkedWriter& writer) {
                                               return write_values(share, kinds, writer);
                                             }));
    written.push_back(std::move(file));
  }
  return written;
}

}  // namespace lockstep::train
