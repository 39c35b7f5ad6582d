#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::emulated_cuda {

// The memory of a device: pages of their own, between pages that nobody may touch, and without any
// access themselves unless they are open. So a host that follows a pointer to it dies of SIGSEGV at
// the place, and so does a kernel that goes past an allocation, or into one that was given back
// (addresses are not used twice); stderr says which one and how far off. An allocation ends where
// its last page does, but for what rounds it to kDeviceAlignment: these bytes, and those before it
// in its first page, must be as they were when it is given back. The address sanitizer sees all of
// it to the byte. (A debugger does well not to stop at SIGSEGV: what is open is opened by it, an
// allocation at a time, when it is first touched.)
//
// Calls are made by one thread at a time; what touches the memory may be any. For the life of the
// process.
inline constexpr size_t kDeviceAlignment = 256;

class DevicePages {
 public:
  DevicePages();
  DevicePages(const DevicePages&) = delete;
  DevicePages& operator=(const DevicePages&) = delete;

  // Zeroed; null where the system has none. `bytes` > 0; `by`: for what, in words.
  void* allocate(size_t bytes, std::string_view by);
  // Ends the process, with words, where something was written beside it or there is no such one.
  void release(void* data);
  uint64_t allocated_bytes() const { return allocated_bytes_; }

  // Where `data` points to: how many bytes of an allocation begin there; 0 where it is in none.
  size_t bytes_from(const void* data) const;

  // Open from the first open() until as many close().
  void open();
  void close();
  class Opened {
   public:
    explicit Opened(DevicePages& pages) : pages_(pages) { pages_.open(); }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
    ~Opened() { pages_.close(); }

   private:
    DevicePages& pages_;
  };

 private:
  struct Allocation {
    std::string by;
    char* pages = nullptr;
    size_t page_bytes = 0;
    size_t bytes = 0;
    bool is_open = false;
  };
  struct Reserve {
    char* begin = nullptr;
    size_t bytes = 0;
    size_t used = 0;
  };

  static void on_fault(int signal, void* address);
  static void install_handler();
  enum class Fault : uint8_t { kNotOurs, kOpened, kWrong };
  // Opens the allocation, or puts into `words` what was wrong.
  Fault handle(const char* address, char* words, size_t words_bytes);
  void explain(const char* address, char* words, size_t words_bytes) const;
  char* take_pages(size_t bytes);
  static void set_open(Allocation& allocation, bool open);
  static bool is_untouched(const char* data, const Allocation& allocation);

  // Of what the handler of a fault reads; nobody touches the device's memory while it is held.
  mutable std::mutex mutex_;
  std::vector<Reserve> reserves_;  // the last one is used
  std::map<const char*, Allocation> allocations_;
  int opened_ = 0;
  uint64_t allocated_bytes_ = 0;
};

}  // namespace lockstep::emulated_cuda
