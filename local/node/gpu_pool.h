#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::local {

// As CUDA_VISIBLE_DEVICES names them: "0", "GPU-0123...".
using Gpus = std::vector<std::string>;

// Of `count` GPUs those that a process with that CUDA_VISIBLE_DEVICES sees (null: it is not set).
// As CUDA reads it, what stands behind an index that is not there is not seen. Pure.
Gpus visible_gpus(int64_t count, const char* visible);

// Those of this computer that this process sees.
Gpus computer_gpus();

// What nvidia's device plugin does on a node: containers get GPUs of their own. Not thread-safe.
class GpuPool {
 public:
  void add(const std::string& machine, const Gpus& gpus);
  int64_t total(const std::string& machine) const;
  // So many that nobody has; nullopt while there are too few.
  std::optional<Gpus> take(const std::string& machine, int64_t count);
  void give_back(const std::string& machine, const Gpus& gpus);

 private:
  struct Machine {
    Gpus all;
    Gpus free;  // in the order of `all`
  };
  std::map<std::string, Machine> machines_;
};

// "0,2"
std::string gpus_text(const Gpus& gpus);

}  // namespace lockstep::local
