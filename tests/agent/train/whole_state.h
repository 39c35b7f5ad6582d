// A model's state that one rank holds as a whole, for tests.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/parallel/state_stream.h"
#include "agent/train/checkpoint/checkpoint_folder.h"
#include "agent/train/checkpoint/state_files.h"
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

  Status collect(parallel::StateSink& sink) { return stream().collect(&sink); }
  Status load(parallel::StateSource& source) { return stream().distribute(&source, kinds_.size()); }

  Status save(CheckpointFolder& folder, const Manifest& manifest) {
    return folder.save(manifest, state_files(layout_.table(), kAdamWStates),
                       [this](parallel::StateSink& sink) { return collect(sink); });
  }
  Status load_checkpoint(const std::string& path) {
    TRY_ASSIGN(StateReader reader, StateReader::open(path, layout_.table(), kAdamWStates));
    return load(reader);
  }
  Status import(const std::string& path) {
    TRY_ASSIGN(WeightsSource weights, WeightsSource::open(path, *transformer_of(design_)));
    return stream().distribute(&weights, 1);
  }

 private:
  parallel::StateStream stream() {
    return {*world_.front(), layout_, {.arena = arena_, .kinds = kinds_, .transfer = transfer_}};
  }

  std::vector<std::unique_ptr<comm::Communicator>> world_ = comm::make_thread_world(1).value();
  StateLayout layout_;
  ParameterArena arena_;
  ModelDesign design_;
  std::vector<float*> kinds_;
  parallel::HostTransfer& transfer_;
};

}  // namespace lockstep::train
