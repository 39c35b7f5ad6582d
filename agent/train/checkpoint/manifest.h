#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agent/train/checkpoint/file_io.h"
#include "common/base/result.h"

namespace lockstep::train {

// Where a training stands: with the tensors, all that the next step depends on. Random numbers are
// functions of seed and position (common/base/random.h), so that these are their state too.
struct TrainingPosition {
  int64_t step = 0;           // optimizer steps done
  int64_t samples = 0;        // done by the whole job: the position in the data
  uint64_t weights_seed = 0;  // of the initial parameters; only to tell where they came from
  uint64_t data_seed = 0;     // of the order of the samples that `samples` is a position in

  bool operator==(const TrainingPosition&) const = default;
};

struct ManifestFile {
  std::string name;  // within the checkpoint's folder: no '/'
  FileDigest digest;

  bool operator==(const ManifestFile&) const = default;
};

// manifest.json, the last file of a checkpoint to be written: a folder without it is none.
struct Manifest {
  TrainingPosition position;
  // The job's settings as text, by path (run_settings.h); empty if an older version wrote it.
  std::map<std::string, std::string> settings = {};
  double loss = 0;    // of its step, for who only reports it
  int64_t round = 0;  // in which it was written
  std::vector<ManifestFile> files;

  bool operator==(const Manifest&) const = default;
};

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr size_t kManifestBytesMax = 1u << 20;

std::string format_manifest(const Manifest& manifest);
// kCorrupt for whatever format_manifest does not write.
Result<Manifest> parse_manifest(std::string_view text);

}  // namespace lockstep::train
