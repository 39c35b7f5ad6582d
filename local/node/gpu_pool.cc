#include "local/node/gpu_pool.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace lockstep::local {
namespace {

bool is_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

int64_t count_entries(const char* folder, std::string_view prefix) {
  int64_t count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool counts = prefix.empty() || (name.starts_with(prefix) &&
                                           is_digits(std::string_view(name).substr(prefix.size())));
    if (counts) ++count;
  }
  return count;
}

// Counts the GPUs that the driver created. A container may have the devices without the driver's
// folder.
int64_t count_gpus() {
  const int64_t of_driver = count_entries("/proc/driver/nvidia/gpus", "");
  const int64_t devices = count_entries("/dev", "nvidia");
  return of_driver == 0 || devices == 0 ? std::max(of_driver, devices)
                                        : std::min(of_driver, devices);
}

}  // namespace

Gpus visible_gpus(int64_t count, const char* visible) {
  Gpus gpus;
  if (visible == nullptr) {
    for (int64_t i = 0; i < count; ++i) gpus.push_back(std::to_string(i));
    return gpus;
  }
  std::string_view rest = visible;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view one = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    int64_t index = -1;
    if (is_digits(one)) std::from_chars(one.data(), one.data() + one.size(), index);
    const bool is_there =
        (index >= 0 && index < count) || one.starts_with("GPU-") || one.starts_with("MIG-");
    if (!is_there) break;
    gpus.emplace_back(one);
  }
  return gpus;
}

Gpus computer_gpus() {
  return visible_gpus(count_gpus(), std::getenv("CUDA_VISIBLE_DEVICES"));
}

void GpuPool::add(const std::string& machine, const Gpus& gpus) {
  machines_[machine] = {gpus, gpus};
}

int64_t GpuPool::total(const std::string& machine) const {
  const auto found = machines_.find(machine);
  return found == machines_.end() ? 0 : std::ssize(found->second.all);
}

std::optional<Gpus> GpuPool::take(const std::string& machine, int64_t count) {
  Gpus& free = machines_[machine].free;
  if (count < 0 || count > std::ssize(free)) return std::nullopt;
  const auto end = free.begin() + count;
  Gpus taken(free.begin(), end);
  free.erase(free.begin(), end);
  return taken;
}

void GpuPool::give_back(const std::string& machine, const Gpus& gpus) {
  Machine& known = machines_[machine];
  Gpus free;
  for (const std::string& gpu : known.all) {
    const bool was_free = std::find(known.free.begin(), known.free.end(), gpu) != known.free.end();
    if (was_free || std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) free.push_back(gpu);
  }
  known.free = std::move(free);
}

std::string gpus_text(const Gpus& gpus) {
  std::string text;
  for (const std::string& gpu : gpus) text += (text.empty() ? "" : ",") + gpu;
  return text;
}

}  // namespace lockstep::local
