#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::local {

// Names as in CUDA_VISIBLE_DEVICES: "0", "GPU-0123...".
using Gpus = std::vector<std::string>;

// Returns the GPUs, of `count`, that a process with this CUDA_VISIBLE_DEVICES sees (null: not set).
// Like CUDA, ignores everything after the first index that does not exist. Pure.
Gpus visible_gpus(int64_t count, const char* visible);

// Returns the GPUs of this computer that this process sees.
Gpus computer_gpus();

// Gives containers exclusive GPUs, as nvidia's device plugin does on a node. Not thread-safe.
class GpuPool {
 public:
  void add(const std::string& machine, const Gpus& gpus);
  int64_t total(const std::string& machine) const;
  // Takes `count` free GPUs; nullopt if fewer are free.
  std::optional<Gpus> take(const std::string& machine, int64_t count);
  void give_back(const std::string& machine, const Gpus& gpus);

 private:
  struct Machine {
    Gpus all;
    Gpus free;  // in the order of `all`
  };
  std::map<std::string, Machine> machines_;
};

// Returns the names joined with commas: "0,2".
std::string gpus_text(const Gpus& gpus);

}  // namespace lockstep::local
