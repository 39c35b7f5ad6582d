#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent/train/checkpoint/retrying_storage.h"
#include "agent/train/checkpoint/storage.h"
#include "common/base/result.h"

namespace lockstep::train {

// One round of a job, as the owner of a folder of checkpoints.
struct OwnerRecord {
  std::string job_uid;  // empty: an older agent did not tell it, and the name identifies the job
  std::string job_name;
  int64_t round = 0;
  std::string boot_id;  // of rank 0's agent

  bool operator==(const OwnerRecord&) const = default;
};

// The right to publish and remove checkpoints in a folder. Objects `owner-00000007.json` say it:
// the highest number is the owner's. A new owner puts the next number, which only one of several
// can (Storage::put_new), so a process that was cut off from the cluster learns that it has a
// successor as soon as it looks.
//
// A successor may come between a former owner's look and its next change of a name. The former
// owner can still make that one change, and no second one:
// - publish a complete checkpoint, until the successor has removed what is unfinished
//   (CheckpointFolder::prepare()), and so before the successor looks for checkpoints
// - begin to remove one checkpoint that it found beyond the newest `keep`
// - begin to remove what still earlier owners left unfinished, if it is in prepare()
// - set aside one checkpoint that it had found corrupt, or of the step that it was about to publish
// A former owner does not touch what the successor is writing. One thread.
class Ownership {
 public:
  // The storage outlives it.
  Ownership(Storage& storage, OwnerRecord self) : storage_(storage), self_(std::move(self)) {}

  // Becomes the owner. kConflict, blaming the fence, if a newer round of this job is.
  Status take();
  // kConflict, blaming the fence, if this is not the owner any more; the message says who is. Takes
  // the folder back from an older round of this job that did not see this one, and from a record
  // that is cut off.
  Status check();

  const OwnerRecord& self() const { return self_; }
  // The number of this owner; 0 before take().
  int64_t number() const { return number_; }

 private:
  Result<std::optional<OwnerRecord>> read_record(int64_t number) const;
  Status refuse_newer_round(int64_t number) const;
  Result<int64_t> newest() const;
  void remove_older() const;

  Storage& storage_;
  OwnerRecord self_;
  int64_t number_ = 0;
};

// Blocks until a rank sees this record of the owner, and so the same storage. A file system that is
// mounted by many machines may show a new file late, so the rank looks again for about a minute.
// Then kNotFound. `record` is format_owner() of the owner.
Status wait_for_owner(Storage& storage, int64_t number, std::string_view record,
                      const Pause& pause);

std::string format_owner(const OwnerRecord& owner);
// kCorrupt for whatever format_owner does not write.
Result<OwnerRecord> parse_owner(std::string_view text);

}  // namespace lockstep::train
