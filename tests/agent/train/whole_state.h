// A model's state that one rank holds as a whole, for tests.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/parallel/snapshot.h"
#include "agent/parallel/state_stream.h"
#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/checkpoint_reader.h"
#include "agent/train/checkpoint/folder_storage.h"
#include "agent/train/checkpoint/shard_writer.h"
#include "agent/train/weights/import_weights.h"

namespace lockstep::train {

inline const StateNames kAdamWStates = {"exp_avg", "exp_avg_sq"};

// Moves AdamW's state, or parameters alone, between files and memory of a transfer's device.
class WholeState {
 public:
  // `kinds` are arenas in the layout of whole_model(design); they and the transfer outlive it.
  WholeState(const ModelDesign& design, std::vector<float*> kinds, parallel::HostTransfer& transfer)
      : layout_(design, {}),
        arena_(parameter_arena(design, whole_model(design))),
        design_(design),
        kinds_(std::move(kinds)),
        transfer_(transfer) {}

  // Saves a checkpoint in the folder of checkpoints, as its only rank.
  Status save(const std::string& path, Manifest manifest) {
    FolderStorage storage(path, real_file_system());
    TRY(storage.make_root());
    const OwnerRecord owner{.job_name = "test", .boot_id = "boot"};
    CheckpointFolder folder(storage, owner, 3);
    TRY(folder.prepare());
    const std::string unfinished =
        CheckpointFolder::unfinished_folder(owner, manifest.position.step, 1);
    TRY(storage.make_folder(unfinished));
    const StateLayout::ShardRange all{0, arena_.count};
    parallel::Snapshot snapshot(all, kinds_.size());
    TRY(snapshot.take(held()));
    const parallel::StateShare share{.pieces = layout_.pieces_within(0, all, /*owned_only=*/true),
                                     .shard_begin = 0,
                                     .kinds = snapshot.kinds()};
    TRY_ASSIGN(manifest.files, write_shard(storage, unfinished, {}, table(), share));
    return folder.publish(unfinished, manifest);
  }

  // Loads one checkpoint's folder.
  Status load_checkpoint(const std::string& path) {
    FolderStorage storage(path, real_file_system());
    TRY_ASSIGN(const StoredManifest stored, read_manifest(storage, "."));
    TRY_ASSIGN(CheckpointReader reader, CheckpointReader::open(storage, ".", stored.manifest));
    TRY(reader.expect(layout_.table(), kAdamWStates));
    const auto pieces = layout_.pieces_within(0, {0, arena_.count}, /*owned_only=*/false);
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      for (const StateLayout::ShardPiece& piece : pieces) TRY(load_piece(reader, piece, kind));
    }
    return {};
  }
  Status import(const std::string& path) {
    TRY_ASSIGN(WeightsSource weights, WeightsSource::open(path, *transformer_of(design_)));
    parallel::StateStream stream(*world_.front(), layout_, held());
    return stream.distribute(&weights, 1);
  }

 private:
  parallel::HeldState held() {
    parallel::HeldState held{
        .slices = {{.count = arena_.count}}, .kinds = {}, .transfer = transfer_};
    for (float* kind : kinds_) held.kinds.push_back({.values = kind});
    return held;
  }
  StateTable table() const { return {layout_.table(), {kAdamWStates.begin(), states_end()}}; }
  StateNames::const_iterator states_end() const {
    return kAdamWStates.begin() + static_cast<ptrdiff_t>(kinds_.size()) - 1;
  }
  Status load_piece(CheckpointReader& reader, const StateLayout::ShardPiece& piece, size_t kind) {
    const Parameter& parameter = layout_.table()[static_cast<size_t>(piece.id)];
    const std::string name = state_tensor_name(parameter, kAdamWStates, kind);
    std::vector<parallel::ValueRun> runs;
    for (const ShardRun& run : piece.runs) runs.push_back({kinds_[kind] + run.local, run.count});
    return transfer_.write(runs, [&](size_t run, int64_t first, std::span<float> to) {
      return reader.read(name, piece.runs[run].global + first, to);
    });
  }

  std::vector<std::unique_ptr<comm::Communicator>> world_ = comm::make_thread_world(1).value();
  StateLayout layout_;
  ParameterArena arena_;
  ModelDesign design_;
  std::vector<float*> kinds_;
  parallel::HostTransfer& transfer_;
};

}  // namespace lockstep::train
