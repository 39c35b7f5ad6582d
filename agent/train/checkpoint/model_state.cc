#include "agent/train/checkpoint/model_state.h"

#include <array>

namespace lockstep::train {
namespace {

struct StateTensor {
  const char* file;
  const char* suffix;
  float* ModelState::*arena;
};

constexpr std::array<StateTensor, 3> kTensors{{
    {"model.safetensors", "", &ModelState::parameters},
    {"optimizer.safetensors", ".exp_avg", &ModelState::first_moments},
    {"optimizer.safetensors", ".exp_avg_sq", &ModelState::second_moments},
}};

// Where the runs of the entry's logical tensor lie in `arena`.
std::vector<TensorPiece> pieces_of(const ModelState& state, const Parameter& parameter,
                                   const ArenaEntry& entry, float* arena) {
  std::vector<TensorPiece> pieces;
  for (const ShardRun& run : shard_runs(parameter, entry, state.shard)) {
    pieces.push_back({arena + entry.offset + run.local, run.global, run.count});
  }
  return pieces;
}

// One of the files' kinds of tensors.
Status load_tensors(const TensorFile& file, const ModelState& state, const StateTensor& kind,
                    parallel::HostTransfer& transfer) {
  const std::vector<Parameter> table = parameter_table(state.config);
  std::vector<parallel::ValueRun> runs;
  struct Source {
    const Parameter* parameter;
    int64_t begin;
  };
  std::vector<Source> sources;  // of each run
  for (const ArenaEntry& entry : state.arena->entries) {
    const Parameter& parameter = table[static_cast<size_t>(entry.id)];
    TRY(file.read(parameter.name + kind.suffix, parameter.shape(), {}));  // no pieces: checks alone
    for (const TensorPiece& piece : pieces_of(state, parameter, entry, state.*kind.arena)) {
      runs.push_back({piece.data, piece.count});
      sources.push_back({&parameter, piece.begin});
    }
  }
  return transfer.write(runs, [&](size_t run, int64_t first, std::span<float> to) {
    const auto& [parameter, begin] = sources[run];
    const TensorPiece piece{to.data(), begin + first, static_cast<int64_t>(to.size())};
    return file.read(parameter->name + kind.suffix, parameter->shape(), {&piece, 1});
  });
}

}  // namespace

std::vector<StoredFile> model_state_files(const ModelState& state) {
  const std::vector<Parameter> table = parameter_table(state.config);
  std::vector<StoredFile> files;
  for (const StateTensor& kind : kTensors) {
    if (files.empty() || files.back().name != kind.file) files.push_back({kind.file, {}});
    for (const ArenaEntry& entry : state.arena->entries) {
      const Parameter& parameter = table[static_cast<size_t>(entry.id)];
      StoredTensor tensor{parameter.name + kind.suffix, parameter.shape(), {}};
      tensor.pieces = pieces_of(state, parameter, entry, state.*kind.arena);
      files.back().tensors.push_back(std::move(tensor));
    }
  }
  return files;
}

Status load_model_state(const std::string& path, const ModelState& state,
                        parallel::HostTransfer& transfer) {
  for (const StateTensor& kind : kTensors) {
    TRY_ASSIGN(const TensorFile file, TensorFile::open(path + "/" + kind.file));
    TRY(load_tensors(file, state, kind, transfer));
  }
  return {};
}

}  // namespace lockstep::train
