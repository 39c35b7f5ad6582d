#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "agent/parallel/offload/scratch_file.h"
#include "common/base/result.h"
#include "kernels/device/device.h"

namespace lockstep::parallel {

// Consecutive values of a far array.
struct FarRange {
  int64_t first = 0;
  int64_t count = 0;

  bool operator==(const FarRange&) const = default;
};

// A flat array of floats outside of the device's memory: an optimizer's state, or a shard of the
// parameters. It is page-locked memory of the host, which a GPU copies from and to, or a scratch
// file that is mapped into the process. Zero at first. Move-only.
//
// read(), write() and visit() keep at most 4 MiB of a file in the process's memory. Its pages stay
// in the system's cache for as long as there is room, and the system writes them to the file when
// it likes. All of the file's space is reserved, so a full file system is no danger later. A disk
// that cannot read ends the process (SIGBUS).
//
// Several threads may use different ranges at the same time.
class FarMemory {
 public:
  FarMemory() = default;  // an empty array
  // In caller-owned, page-locked memory that outlives this object. Sets it to zero.
  explicit FarMemory(kernels::Workspace page_locked);
  // In a scratch file; ScratchFile::create() has the errors.
  static Result<FarMemory> in_file(const ScratchOptions& options);

  int64_t count() const { return count_; }
  bool is_file() const { return file_.has_value(); }
  // Returns where the array begins in the address space. A GPU copies from and to page-locked
  // memory there. Pages of a file that are used by this address stay in the process's memory until
  // they are given back; their values stay in any case.
  float* data() const { return data_; }
  void give_back(const FarRange& range) const;

  void read(int64_t first, std::span<float> to) const;
  // kUnavailable if the file cannot be written.
  Status write(int64_t first, std::span<const float> from) const;

  // Calls `visit` with all values of the range in order, some at a time, which it may read and
  // change: for checkpoints and initial values. Its error ends the visit.
  using Visit = std::function<Status(int64_t first, std::span<float> values)>;
  Status visit(const FarRange& range, const Visit& visit) const;

 private:
  struct Unmap {
    size_t bytes;
    void operator()(void* mapping) const;
  };
  std::span<float> values(const FarRange& range) const {
    return {data_ + range.first, static_cast<size_t>(range.count)};
  }

  std::optional<ScratchFile> file_;
  std::unique_ptr<void, Unmap> mapping_;  // of the file
  float* data_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace lockstep::parallel
