#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace lockstep::server {

// Memory of the replies to pulls. A reply is a copy of the parameters at one moment, and is sent
// from here while they change. Each worker has at most bytes_max under way; a larger reply goes
// alone. So a worker that pulls and does not read the replies costs a bounded amount of memory.
//
// Thread-safe. Shared by the replies that are under way.
class ReplyMemory : public std::enable_shared_from_this<ReplyMemory> {
 public:
  struct Options {
    size_t bytes_max = size_t{1} << 30;   // of one worker
    size_t kept_max = size_t{256} << 20;  // bytes of free memory kept for later replies
    std::function<void()> on_room;  // on any thread, after a refusal; must not block or call this
  };
  explicit ReplyMemory(Options options);

  // The memory of one reply; goes back with its last reference.
  using Reply = std::shared_ptr<std::vector<float>>;
  // Returns `count` floats of any value; null if the worker has to wait.
  Reply take(uint32_t worker, uint64_t count);
  // From now on, on_room is not called.
  void close();

 private:
  void give_back(uint32_t worker, std::unique_ptr<std::vector<float>> memory);

  std::mutex mutex_;
  Options options_;
  std::map<uint32_t, size_t> under_way_;                   // bytes, by worker
  std::vector<std::unique_ptr<std::vector<float>>> free_;  // the last given back at the end
  size_t kept_ = 0;                                        // bytes in free_
  bool has_refused_ = false;
};

}  // namespace lockstep::server
