#include "agent/train/checkpoint/retrying_storage.h"

#include <array>
#include <chrono>
#include <utility>

#include "common/base/log.h"

namespace lockstep::train {
namespace {

constexpr std::array<Duration, 3> kPauses = {std::chrono::milliseconds(100),
                                             std::chrono::seconds(1), std::chrono::seconds(5)};

// Returns the result of the first try that succeeds or fails for good, otherwise that of the last.
template <class Try>
auto retry(const Pause& pause, const Try& attempt) {
  auto result = attempt();
  for (const Duration& each : kPauses) {
    if (result.ok() || result.error().code != Code::kUnavailable) break;
    log_warning("storage failed and is tried again", {{"reason", result.error().message}});
    pause(each);
    result = attempt();
  }
  return result;
}

class RetryingReader final : public ObjectReader {
 public:
  RetryingReader(std::unique_ptr<ObjectReader> object, const Pause& pause)
      : object_(std::move(object)), pause_(pause) {}
  Result<uint64_t> size() override {
    return retry(pause_, [&] { return object_->size(); });
  }
  Status read_at(uint64_t offset, std::span<char> to) override {
    return retry(pause_, [&] { return object_->read_at(offset, to); });
  }

 private:
  std::unique_ptr<ObjectReader> object_;
  Pause pause_;
};

}  // namespace

Result<std::vector<std::string>> RetryingStorage::list(const std::string& folder) {
  return retry(pause_, [&] { return storage_.list(folder); });
}

Result<std::unique_ptr<ObjectReader>> RetryingStorage::open(const std::string& name) {
  TRY_ASSIGN(std::unique_ptr<ObjectReader> object,
             retry(pause_, [&] { return storage_.open(name); }));
  return std::unique_ptr<ObjectReader>(std::make_unique<RetryingReader>(std::move(object), pause_));
}

Status RetryingStorage::put_new(const std::string& name, std::string_view bytes) {
  return retry(pause_, [&] { return storage_.put_new(name, bytes); });
}

Status RetryingStorage::again(const std::function<Status()>& call) {
  return retry(pause_, call);
}

Status RetryingStorage::remove_object(const std::string& name) {
  return retry(pause_, [&] { return storage_.remove_object(name); });
}

Status RetryingStorage::remove_folder(const std::string& folder) {
  return retry(pause_, [&] { return storage_.remove_folder(folder); });
}

}  // namespace lockstep::train
