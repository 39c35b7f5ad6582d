#include "agent/train/checkpoint/owner.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "agent/train/checkpoint/numbered_name.h"
#include "common/base/json.h"

namespace lockstep::train {
namespace {

constexpr char kFormat[] = "lockstep-owner/1";
constexpr size_t kOwnerBytesMax = 4096;
constexpr NumberedName kOwnerName{"owner-", ".json"};
constexpr int kTriesMax = 100;
constexpr int kLooksMax = 61;
constexpr Duration kBetweenLooks = std::chrono::seconds(1);

bool is_same_job(const OwnerRecord& a, const OwnerRecord& b) {
  if (a.job_uid.empty() || b.job_uid.empty()) return a.job_name == b.job_name;
  return a.job_uid == b.job_uid;
}

std::string text_of(const OwnerRecord& owner) {
  return "round " + std::to_string(owner.round) + " of job " + owner.job_name +
         (owner.job_uid.empty() ? "" : " (uid " + owner.job_uid + ")");
}

}  // namespace

std::string format_owner(const OwnerRecord& owner) {
  return dump_json({{"format", kFormat},
                    {"jobUid", owner.job_uid},
                    {"jobName", owner.job_name},
                    {"round", owner.round},
                    {"bootId", owner.boot_id}}) +
         "\n";
}

Result<OwnerRecord> parse_owner(std::string_view text) {
  const Result<Json> document = parse_json(text, {.bytes_max = kOwnerBytesMax, .depth_max = 2});
  if (!document.ok() || string_or(*document, "format", "") != kFormat) {
    return corrupt("[owner] expected an owner of checkpoints", Blame::kStorage);
  }
  const Result<int64_t> round = int_member(*document, "round");
  if (!round.ok()) return corrupt("[owner] " + round.error().message, Blame::kStorage);
  return OwnerRecord{.job_uid = string_or(*document, "jobUid", ""),
                     .job_name = string_or(*document, "jobName", ""),
                     .round = *round,
                     .boot_id = string_or(*document, "bootId", "")};
}

Result<int64_t> Ownership::newest() const {
  TRY_ASSIGN(const std::vector<std::string> names, storage_.list(""));
  int64_t newest = 0;
  for (const std::string& name : names) newest = std::max(newest, kOwnerName.number_of(name));
  return newest;
}

// Nothing if the record can't be understood: its owner was cut off while it wrote it, or is still
// writing it and will look again.
Result<std::optional<OwnerRecord>> Ownership::read_record(int64_t number) const {
  const Result<std::string> text = read_object(storage_, kOwnerName.of(number), kOwnerBytesMax);
  const bool may_be_cut =
      text.ok() || text.error().code == Code::kNotFound || text.error().code == Code::kCorrupt;
  if (!may_be_cut) return text.error();
  const Result<OwnerRecord> owner = text.ok() ? parse_owner(*text) : text.error();
  return owner.ok() ? std::optional(*owner) : std::nullopt;
}

Status Ownership::refuse_newer_round(int64_t number) const {
  TRY_ASSIGN(const std::optional<OwnerRecord> owner, read_record(number));
  if (!owner || !is_same_job(*owner, self_) || owner->round <= self_.round) return {};
  return conflict("[owner] " + storage_.describe("") + " belongs to " + text_of(*owner) +
                      ", which is newer than round " + std::to_string(self_.round),
                  Blame::kFenced);
}

Status Ownership::take() {
  for (int attempt = 0; attempt < kTriesMax; ++attempt) {
    TRY_ASSIGN(const int64_t last, newest());
    if (last > 0) TRY(refuse_newer_round(last));
    const Status put = storage_.put_new(kOwnerName.of(last + 1), format_owner(self_));
    if (!put.ok() && put.error().code == Code::kConflict) continue;
    TRY(put);
    number_ = last + 1;
    TRY_ASSIGN(const int64_t now, newest());
    if (now > number_) continue;  // the name was free because its owner and a successor had left
    remove_older();
    return {};
  }
  return unavailable("[owner] " + storage_.describe("") + " changes hands all the time",
                     Blame::kStorage);
}

Status Ownership::check() {
  TRY_ASSIGN(const int64_t now, newest());
  if (now <= number_) return {};
  TRY_ASSIGN(const std::optional<OwnerRecord> owner, read_record(now));
  const bool is_older = owner && is_same_job(*owner, self_) && owner->round < self_.round;
  if (!owner || is_older) return take();
  return conflict("[owner] " + storage_.describe("") + " now belongs to " + text_of(*owner) +
                      "; two jobs must not share spec.checkpoint.path",
                  Blame::kFenced);
}

// Best effort: older records are without effect.
void Ownership::remove_older() const {
  const Result<std::vector<std::string>> names = storage_.list("");
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const int64_t number = kOwnerName.number_of(name);
    if (number > 0 && number < number_) (void)storage_.remove_object(name);
  }
}

Status wait_for_owner(Storage& storage, int64_t number, std::string_view record,
                      const Pause& pause) {
  const std::string name = kOwnerName.of(number);
  for (int look = 0; look < kLooksMax; ++look) {
    if (look > 0) pause(kBetweenLooks);
    const Result<std::string> text = read_object(storage, name, kOwnerBytesMax);
    if (text.ok() && *text == record) return {};
    const bool may_come =
        text.ok() || text.error().code == Code::kNotFound || text.error().code == Code::kCorrupt;
    if (!may_come) return text.error();
  }
  return not_found("[owner] " + storage.describe(name) + " is missing or another one's",
                   Blame::kStorage);
}

}  // namespace lockstep::train
