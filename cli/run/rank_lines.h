#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

// Follows the logs of a job's pods for the output of its ranks: whole lines that start with
// `[rank N] `, as the agents mark them. Skips the agents' own lines.
class RankLines {
 public:
  // Follows files in `folder` whose names start with `prefix`; they may appear later.
  RankLines(std::string folder, std::string prefix);

  // Returns the new lines of each file in order, each with its newline. Reads a bounded part per
  // call; empty if nothing is new. If a file was truncated, continues at its new end.
  std::string poll();

 private:
  struct File {
    int64_t offset = 0;
    std::string partial;  // an incomplete line
  };
  void read_file(const std::string& path, File& file, std::string& lines) const;

  std::string folder_;
  std::string prefix_;
  std::map<std::string, File> files_;  // by path
};

}  // namespace lockstep
