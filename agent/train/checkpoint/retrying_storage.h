#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/train/checkpoint/storage.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::train {

// Blocks for that long.
using Pause = std::function<void(Duration)>;

// Another storage, whose reads, removals and small writes are tried again a few times, within about
// 6 seconds, if they fail for a reason that may pass (kUnavailable): a server that restarts, a
// descriptor that is short.
class RetryingStorage final : public Storage {
 public:
  // The other storage outlives it.
  RetryingStorage(Storage& storage, Pause pause) : storage_(storage), pause_(std::move(pause)) {}

  std::string describe(std::string_view name) const override { return storage_.describe(name); }
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Result<std::unique_ptr<ObjectWriter>> create(const std::string& name) override {
    return storage_.create(name);
  }
  Result<std::unique_ptr<ObjectReader>> open(const std::string& name) override;
  // A try that failed after the object was there gives kConflict at the next one.
  Status put_new(const std::string& name, std::string_view bytes) override;
  Status make_folder(const std::string& folder) override { return storage_.make_folder(folder); }
  Status move_folder(const std::string& from, const std::string& to) override {
    return storage_.move_folder(from, to);
  }
  Status remove_object(const std::string& name) override;
  Status remove_folder(const std::string& folder) override;

  // Carries out another call with the same tries.
  Status again(const std::function<Status()>& call);

 private:
  Storage& storage_;
  Pause pause_;
};

}  // namespace lockstep::train
