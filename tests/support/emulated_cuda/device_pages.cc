#include "tests/support/emulated_cuda/device_pages.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/base/check.h"
#include "tests/support/emulated_cuda/sanitizer_notes.h"

namespace lockstep::emulated_cuda {

namespace {

// Only address space; memory is used when it is touched.
constexpr size_t kReserveBytes = size_t{1} << 36;
constexpr char kUntouched = 0x5A;

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t rounded_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// The devices whose faults the handler explains.
constexpr size_t kDevicesMax = 64;
std::array<std::atomic<DevicePages*>, kDevicesMax> all_pages;
struct sigaction before;

}  // namespace

DevicePages::DevicePages() {
  static const bool installed = (install_handler(), true);
  CHECK(installed);
  for (auto& slot : all_pages) {
    DevicePages* none = nullptr;
    if (slot.compare_exchange_strong(none, this)) return;
  }
  CHECK(!"too many devices");
}

void DevicePages::install_handler() {
  struct sigaction action {};
  action.sa_sigaction = [](int signal, siginfo_t* info, void*) { on_fault(signal, info->si_addr); };
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  CHECK(sigaction(SIGSEGV, &action, &before) == 0);
}

// Prints what was wrong, then lets the fault happen again under the previous handler: a core dump,
// or the sanitizer's report, at the right place.
void DevicePages::on_fault(int signal, void* address) {
  char words[300] = "";
  for (const auto& slot : all_pages) {
    DevicePages* pages = slot.load();
    if (pages == nullptr) continue;
    const Fault fault = pages->handle(static_cast<char*>(address), words, sizeof words);
    if (fault == Fault::kOpened) return;
    if (fault == Fault::kWrong) (void)!write(STDERR_FILENO, words, std::strlen(words));
  }
  sigaction(signal, &before, nullptr);
}

DevicePages::Fault DevicePages::handle(const char* address, char* words, size_t words_bytes) {
  const std::lock_guard lock(mutex_);
  const auto has = [&](const Reserve& r) {
    return address >= r.begin && address < r.begin + r.bytes;
  };
  if (std::none_of(reserves_.begin(), reserves_.end(), has)) return Fault::kNotOurs;
  auto at = allocations_.upper_bound(address);
  if (opened_ > 0 && at != allocations_.begin()) {
    Allocation& it = (--at)->second;
    // Includes the padding; only the sanitizer detects reads of it.
    if (address < it.pages + it.page_bytes) {
      set_open(it, true);
      return Fault::kOpened;
    }
  }
  explain(address, words, words_bytes);
  return Fault::kWrong;
}

void DevicePages::explain(const char* address, char* words, size_t words_bytes) const {
  for (const auto& [data, it] : allocations_) {
    const char* name = it.by.c_str();
    if (address >= data && address < data + it.bytes) {
      std::snprintf(words, words_bytes,
                    "[emulated cuda] host access to device memory: byte %zu of "
                    "%zu of '%s'\n",
                    static_cast<size_t>(address - data), it.bytes, name);
      return;
    }
    if (address >= it.pages - page_bytes() && address < it.pages + it.page_bytes + page_bytes()) {
      std::snprintf(words, words_bytes,
                    "[emulated cuda] out-of-bounds access to byte %td of '%s', which has %zu\n",
                    address - data, name, it.bytes);
      return;
    }
  }
  std::snprintf(words, words_bytes,
                "[emulated cuda] access to device memory that was freed or never allocated\n");
}

// Reserves an inaccessible page after the pages, like the one before the first pages.
char* DevicePages::take_pages(size_t bytes) {
  const size_t wanted = bytes + page_bytes();
  if (wanted > kReserveBytes - page_bytes()) return nullptr;
  if (reserves_.empty() || reserves_.back().used + wanted > reserves_.back().bytes) {
    void* begin =
        mmap(nullptr, kReserveBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) return nullptr;
    reserves_.push_back({static_cast<char*>(begin), kReserveBytes, page_bytes()});
  }
  Reserve& reserve = reserves_.back();
  char* pages = reserve.begin + reserve.used;
  reserve.used += wanted;
  return pages;
}

void DevicePages::set_open(Allocation& allocation, bool open) {
  CHECK(mprotect(allocation.pages, allocation.page_bytes,
                 open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
  allocation.is_open = open;
}

void* DevicePages::allocate(size_t bytes, std::string_view by) {
  CHECK(bytes > 0);
  if (bytes > kReserveBytes / 2) return nullptr;
  const size_t own_bytes = rounded_up(bytes, kDeviceAlignment);
  Allocation it{.by = std::string(by),
                .pages = nullptr,
                .page_bytes = rounded_up(own_bytes, page_bytes()),
                .bytes = bytes};
  const std::lock_guard lock(mutex_);
  it.pages = take_pages(it.page_bytes);
  if (it.pages == nullptr) return nullptr;
  char* data = it.pages + it.page_bytes - own_bytes;
  set_open(it, true);
  std::fill(it.pages, data, kUntouched);
  std::fill(data + bytes, it.pages + it.page_bytes, kUntouched);
  forbid(it.pages, static_cast<size_t>(data - it.pages));
  forbid(data + bytes, own_bytes - bytes);
  set_open(it, false);
  // A flag that differs from the pages around, so that the kernel does not merge and split mappings
  // each time.
  madvise(it.pages, it.page_bytes, MADV_DONTDUMP);
  allocated_bytes_ += bytes;
  allocations_.emplace(data, std::move(it));
  return data;
}

bool DevicePages::is_untouched(const char* data, const Allocation& allocation) {
  const auto untouched = [](char c) { return c == kUntouched; };
  return std::all_of(static_cast<const char*>(allocation.pages), data, untouched) &&
         std::all_of(data + allocation.bytes,
                     static_cast<const char*>(allocation.pages) + allocation.page_bytes, untouched);
}

void DevicePages::release(void* data) {
  const std::lock_guard lock(mutex_);
  const auto at = allocations_.find(static_cast<const char*>(data));
  CHECK(at != allocations_.end());
  const Allocation& it = at->second;
  CHECK(mprotect(it.pages, it.page_bytes, PROT_READ) == 0);
  allow(it.pages, it.page_bytes);
  if (!is_untouched(at->first, it)) {
    std::fprintf(stderr, "[emulated cuda] write outside '%s' of %zu bytes\n", it.by.c_str(),
                 it.bytes);
    std::abort();
  }
  // Maps new pages, so that they merge into one mapping with their neighbours.
  CHECK(mmap(it.pages, it.page_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == it.pages);
  allocated_bytes_ -= it.bytes;
  allocations_.erase(at);
}

size_t DevicePages::bytes_from(const void* data) const {
  const auto* wanted = static_cast<const char*>(data);
  auto at = allocations_.upper_bound(wanted);
  if (at == allocations_.begin()) return 0;
  --at;
  const char* end = at->first + at->second.bytes;
  return wanted < end ? static_cast<size_t>(end - wanted) : 0;
}

void DevicePages::open() {
  const std::lock_guard lock(mutex_);
  ++opened_;
}

void DevicePages::close() {
  const std::lock_guard lock(mutex_);
  CHECK(opened_ > 0);
  if (--opened_ > 0) return;
  for (auto& [data, allocation] : allocations_) {
    if (allocation.is_open) set_open(allocation, false);
  }
}

}  // namespace lockstep::emulated_cuda
