#include "agent/server/reply_memory.h"

#include <algorithm>
#include <utility>

namespace lockstep::server {

ReplyMemory::ReplyMemory(Options options) : options_(std::move(options)) {}

ReplyMemory::Reply ReplyMemory::take(uint32_t worker, uint64_t count) {
  std::unique_ptr<std::vector<float>> memory;
  {
    const std::lock_guard lock(mutex_);
    size_t& bytes = under_way_[worker];
    if (bytes > 0 && bytes + count * sizeof(float) > options_.bytes_max) {
      has_refused_ = true;
      return nullptr;
    }
    bytes += count * sizeof(float);
    const auto fits =
        std::ranges::find_if(free_, [&](const auto& each) { return each->capacity() >= count; });
    if (fits != free_.end()) {
      memory = std::move(*fits);
      free_.erase(fits);
      kept_ -= memory->capacity() * sizeof(float);
    }
  }
  if (memory == nullptr) memory = std::make_unique<std::vector<float>>();
  memory->resize(count);
  std::vector<float>* const raw = memory.release();
  return {raw, [self = shared_from_this(), worker](std::vector<float>* given) {
            self->give_back(worker, std::unique_ptr<std::vector<float>>(given));
          }};
}

void ReplyMemory::give_back(uint32_t worker, std::unique_ptr<std::vector<float>> memory) {
  const std::lock_guard lock(mutex_);
  under_way_[worker] -= memory->size() * sizeof(float);
  if (std::exchange(has_refused_, false) && options_.on_room) options_.on_room();
  const size_t bytes = memory->capacity() * sizeof(float);
  if (kept_ + bytes > options_.kept_max) return;
  kept_ += bytes;
  free_.push_back(std::move(memory));
}

void ReplyMemory::close() {
  const std::lock_guard lock(mutex_);
  options_.on_room = nullptr;
}

}  // namespace lockstep::server
