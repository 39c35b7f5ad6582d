#include "agent/train/checkpoint/resume.h"

#include <utility>
#include <vector>

#include "agent/train/checkpoint/checkpoint_reader.h"
#include "agent/train/checkpoint/exchange.h"
#include "common/base/log.h"

namespace lockstep::train {
namespace {

// The tensors of a checkpoint as a source of a model's state.
class CheckpointSource final : public parallel::StateSource {
 public:
  CheckpointSource(CheckpointReader& reader, const StateNames& states)
      : reader_(reader), states_(states) {}

  Status read(const parallel::StateTensor& tensor, int64_t first, std::span<float> to) override {
    return reader_.read(state_tensor_name(tensor.parameter, states_, tensor.kind), first, to);
  }

 private:
  CheckpointReader& reader_;
  const StateNames& states_;
};

bool is_corrupt(const Error& error) {
  return error.code == Code::kCorrupt;
}

Status set_aside(const ResumeParts& parts, int64_t step, const Error& error) {
  TRY_ASSIGN(const SetAside moved, parts.folder->set_aside(step, error.message));
  StorageNotes& notes = parts.progress.storage();
  notes.set_aside += 1;
  notes.set_aside_step = step;
  notes.set_aside_reason.assign(moved.reason + " (it is now " + moved.name + ")");
  if (notes.resumed_step < 0) parts.progress.publish_storage();
  return {};
}

Result<StoredManifest> read_step(Storage& storage, int64_t step) {
  TRY_ASSIGN(StoredManifest stored, read_manifest(storage, checkpoint_name(step)));
  if (stored.manifest.position.step == step) return stored;
  return corrupt("[checkpoint] the manifest of " + storage.describe(checkpoint_name(step)) +
                     " is that of step " + std::to_string(stored.manifest.position.step),
                 Blame::kStorage);
}

// Rank 0: the newest checkpoint whose manifest is good; nothing if there is none.
Result<std::optional<StoredManifest>> newest(const ResumeParts& parts) {
  TRY_ASSIGN(const std::vector<int64_t> steps, checkpoint_steps(parts.storage));
  for (const int64_t step : steps) {
    if (step >= parts.below) continue;
    Result<StoredManifest> stored = read_step(parts.storage, step);
    if (stored.ok()) return std::optional(*std::move(stored));
    if (!is_corrupt(stored.error())) return stored.error();
    TRY(set_aside(parts, step, stored.error()));
  }
  return std::optional<StoredManifest>();
}

// Rank 0's text for all ranks: a manifest, or nothing if there is no checkpoint.
Result<std::string> offer(const ResumeParts& parts) {
  TRY_ASSIGN(std::optional<StoredManifest> stored, newest(parts));
  if (!stored) return std::string();
  const std::string folder = checkpoint_name(stored->manifest.position.step);
  TRY(parts.check(stored->manifest, parts.storage.describe(folder)));
  return std::move(stored->text);
}

Result<CheckpointReader> open_reader(const ResumeParts& parts, const Manifest& manifest) {
  const std::string folder = checkpoint_name(manifest.position.step);
  return CheckpointReader::open(parts.storage, folder, manifest);
}

Status read_share(const ResumeParts& parts, const Manifest& manifest) {
  TRY_ASSIGN(CheckpointReader reader, open_reader(parts, manifest));
  TRY(reader.expect(parts.table.parameters, parts.table.states));
  CheckpointSource source(reader, parts.table.states);
  return parts.model.read_share(source);
}

Status verify_all(const ResumeParts& parts, const Manifest& manifest) {
  TRY_ASSIGN(CheckpointReader reader, open_reader(parts, manifest));
  return reader.verify();
}

// Rank 0: sets a checkpoint aside that some rank found corrupt, if rank 0 finds it so, too. A rank
// on a broken machine must not be able to condemn every checkpoint.
Status judge(const ResumeParts& parts, const Manifest& manifest, const Error& error) {
  const Status seen = verify_all(parts, manifest);
  if (seen.ok()) {
    return unavailable("rank 0 reads the checkpoint without an error, but " + error.message,
                       Blame::kStorage);
  }
  if (!is_corrupt(seen.error())) return seen;
  return set_aside(parts, manifest.position.step, error);
}

}  // namespace

Result<std::optional<Manifest>> resume(const ResumeParts& parts) {
  while (true) {
    std::string mine;
    if (parts.folder != nullptr) {
      TRY_ASSIGN(mine, offer(parts));
    }
    TRY_ASSIGN(const std::string text, share_text(parts.world, mine));
    if (text.empty()) return std::optional<Manifest>();
    TRY_ASSIGN(Manifest manifest, parse_manifest(text));
    const Status read = read_share(parts, manifest);
    TRY_ASSIGN(Status all, common_outcome(parts.world, read));
    if (all.ok()) {
      TRY(parts.model.exchange_shares(manifest.position.step));
      return std::optional(std::move(manifest));
    }
    TRY(parts.model.clear_share());
    if (is_corrupt(all.error())) {
      const bool judges = parts.folder != nullptr;
      const Status judged = judges ? judge(parts, manifest, all.error()) : Status();
      TRY_ASSIGN(all, common_outcome(parts.world, judged));
      if (all.ok()) continue;
    }
    if (read.ok()) return all.error().blaming(Blame::kPeer);
    return is_corrupt(read.error()) ? all.error().blaming(Blame::kStorage) : read.error();
  }
}

}  // namespace lockstep::train
