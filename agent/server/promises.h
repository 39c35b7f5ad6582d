#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "common/base/result.h"

namespace lockstep::server {

// Answers that are promised for the time when the whole chain of a unit has all entries of the log
// that they tell of. Single-threaded.
class Promises {
 public:
  // Gets the status with which to answer.
  using Answer = std::function<void(const Status&)>;

  // Keeps the answer until entry `sequence` is acknowledged. Sequences do not go back.
  void add(uint64_t sequence, Answer answer) { waiting_.push_back({sequence, std::move(answer)}); }
  // Answers what waits for this entry and those before.
  void keep(uint64_t acknowledged);
  // Answers all with the error.
  void refuse(const Error& error);
  size_t size() const { return waiting_.size(); }

 private:
  struct Waiting {
    uint64_t sequence = 0;
    Answer answer;
  };
  std::deque<Waiting> waiting_;
};

}  // namespace lockstep::server
