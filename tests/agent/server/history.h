#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "agent/server/catalog.h"
#include "agent/server/history.h"
#include "agent/server/view.h"

namespace lockstep::test {

// A HistoryEvent that owns its memory.
struct KeptEvent {
  server::HistoryEvent event;
  std::vector<uint64_t> keys;
  std::vector<float> values;
  std::vector<uint32_t> workers;
  struct Gradient {
    std::vector<uint64_t> keys;
    std::vector<float> values;
  };
  std::vector<Gradient> gradients;
};

// Keeps what servers record. Events of different units are independent, so those of several servers
// go into one list. Thread-safe until it is read.
class KeptHistory {
 public:
  server::HistoryRecorder recorder();
  const std::vector<KeptEvent>& events() const { return events_; }

 private:
  std::mutex mutex_;
  std::vector<KeptEvent> events_;
};

// A sequential program with plain maps that goes through a history and compares the bits of every
// pull. Tables are one map each: servers have different rows of it.
class Replay {
 public:
  Replay(const server::Catalog& catalog, const server::View& view, uint64_t seed);

  struct Outcome {
    size_t pulls = 0;
    size_t updates = 0;
    size_t expiries = 0;   // of rows
    std::string mismatch;  // of the first pull that differs; empty: none
  };
  Outcome run(const std::vector<KeptEvent>& events);

 private:
  struct Tensor {
    std::vector<float> values;
    std::vector<float> states;  // [states, count]
    int64_t updates = 0;
    uint64_t updated_at = 0;
  };
  void update(const KeptEvent& kept);
  std::vector<float> pulled(const KeptEvent& kept);
  Tensor& row(uint32_t table, uint64_t key);
  void apply(Tensor& tensor, const std::vector<float>& gradient,
             const optim::OptimizerOptions& optimizer, double learning_rate);

  server::Catalog catalog_;
  server::View view_;
  uint64_t seed_;
  std::map<uint32_t, Tensor> ranges_;                     // by index in the view
  std::map<std::pair<uint32_t, uint64_t>, Tensor> rows_;  // by table and key
};

}  // namespace lockstep::test
