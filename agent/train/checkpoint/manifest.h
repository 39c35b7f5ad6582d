#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/train/loss_record.h"
#include "common/base/result.h"
#include "common/base/sha256.h"
#include "common/layout/mesh.h"

namespace lockstep::train {

// Where a training stands: with the tensors, all that the next step depends on. Random numbers are
// functions of seed and position (common/base/random.h), so that these are their state too.
struct TrainingPosition {
  int64_t step = 0;           // optimizer steps done
  int64_t samples = 0;        // done by the whole job: the position in the data
  uint64_t weights_seed = 0;  // of the initial parameters; only to tell where they came from
  uint64_t data_seed = 0;     // of the order of the samples that `samples` is a position in
  LossRecord losses = {};

  bool operator==(const TrainingPosition&) const = default;
};

// Bytes of a file that one checksum covers; the last chunk of a file may be shorter.
inline constexpr uint64_t kChunkBytes = uint64_t{4} << 20;

struct ManifestFile {
  std::string name;  // within the checkpoint's folder: no '/'
  uint64_t bytes = 0;
  std::vector<uint32_t> chunks = {};  // CRC-32C of each; empty in format 1
  std::optional<Digest> sha256 = {};  // of all bytes; only in format 1

  bool operator==(const ManifestFile&) const = default;
};

// manifest.json, the last file of a checkpoint to be written: a folder without it is none.
// docs/formats.md describes it.
struct Manifest {
  TrainingPosition position;
  // The job's settings as text, by path (run_settings.h); empty if an older version wrote it.
  std::map<std::string, std::string> settings = {};
  double loss = 0;    // of its step, for who only reports it
  int64_t round = 0;  // in which it was written
  Mesh mesh = {};     // of the ranks that wrote it
  std::vector<ManifestFile> files;

  bool operator==(const Manifest&) const = default;
};

inline constexpr char kManifestName[] = "manifest.json";
// 8 bytes for each 4 MiB chunk: enough for 30 TB.
inline constexpr size_t kManifestBytesMax = size_t{64} << 20;

// Writes format 2.
std::string format_manifest(const Manifest& manifest);
// The list of files alone, in format 2, for ranks to exchange.
std::string format_files(const std::vector<ManifestFile>& files);
Result<std::vector<ManifestFile>> parse_files(std::string_view text);
// Reads formats 1 and 2. kCorrupt for whatever this or an earlier version does not write, and for a
// text that does not have the checksum in its first line.
Result<Manifest> parse_manifest(std::string_view text);

}  // namespace lockstep::train
