#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::emulated_cuda {

// The memory of an emulated device. Each allocation has its own pages, with guard pages in between,
// and is inaccessible unless the memory is open. Errors die of SIGSEGV where they happen, and
// stderr names the allocation and the offset:
// - the host follows a pointer to device memory
// - a kernel goes past an allocation, or into one that was freed (addresses are never reused)
//
// An allocation ends at the end of its last page, except for the padding to kDeviceAlignment.
// release() checks that this padding, and the bytes before the allocation in its first page, are
// unchanged. The address sanitizer checks every byte. (Debuggers should not stop at SIGSEGV: while
// the memory is open, the handler opens each allocation at its first access.)
//
// One thread at a time may call these functions; any thread may access the memory. Lives as long as
// the process.
inline constexpr size_t kDeviceAlignment = 256;

class DevicePages {
 public:
  DevicePages();
  DevicePages(const DevicePages&) = delete;
  DevicePages& operator=(const DevicePages&) = delete;

  // Returns zeroed memory; null if the system has none. `bytes` > 0; `by` names the purpose.
  void* allocate(size_t bytes, std::string_view by);
  // Aborts with a message if bytes around the allocation changed, or if it does not exist.
  void release(void* data);
  uint64_t allocated_bytes() const { return allocated_bytes_; }

  // Returns how many bytes of an allocation start at `data`; 0 if it is in no allocation.
  size_t bytes_from(const void* data) const;

  // Memory is open from the first open() until as many close() calls.
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
  // Opens the allocation, or writes to `words` what was wrong.
  Fault handle(const char* address, char* words, size_t words_bytes);
  void explain(const char* address, char* words, size_t words_bytes) const;
  char* take_pages(size_t bytes);
  static void set_open(Allocation& allocation, bool open);
  static bool is_untouched(const char* data, const Allocation& allocation);

  // Protects everything the fault handler reads; its holder must not access device memory.
  mutable std::mutex mutex_;
  std::vector<Reserve> reserves_;  // the last one is in use
  std::map<const char*, Allocation> allocations_;
  int opened_ = 0;
  uint64_t allocated_bytes_ = 0;
};

}  // namespace lockstep::emulated_cuda
