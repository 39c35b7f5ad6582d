#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/parallel/snapshot.h"
#include "agent/train/checkpoint/manifest.h"
#include "agent/train/checkpoint/state_tensors.h"
#include "agent/train/checkpoint/storage.h"
#include "common/base/result.h"

namespace lockstep::train {

// Which of several ranks writes, for the names of files.
struct ShardPlace {
  int64_t rank = 0;
  int64_t ranks = 1;
};

// Writes the rank's files into a folder that exists, reads them back and compares: the parameters,
// then the optimizer's states, none where the rank has nothing of them. They are
// `model.safetensors` and `optimizer.safetensors` if there is one rank, otherwise for example
// `model-00001-of-00004.safetensors` for rank 1. Memory: one chunk. kUnavailable
// once `stop` is requested.
Result<std::vector<ManifestFile>> write_shard(Storage& storage, const std::string& folder,
                                              const ShardPlace& place, const StateTable& table,
                                              const parallel::StateShare& share,
                                              const std::stop_token& stop = {});

}  // namespace lockstep::train
