#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::sim {

struct SequenceResult {
  uint64_t seed = 0;
  std::vector<std::string> operations{};
  std::string end{};        // how job and pods look
  std::string violation{};  // empty: it ended as in a fresh cluster
};

// Does a random sequence of what users do to one job, with random pauses, while watches lag,
// requests get lost and the controller crashes: scale, suspend, resume, edit fields, write invalid
// specs and correct them, delete pods and kill workers, delete the job, create it again. When
// faults have stopped, job and pods must look as in a fresh cluster that gets the last version of
// the object and nothing else. The same seed does the same.
SequenceResult run_sequence(uint64_t seed);

}  // namespace lockstep::sim
