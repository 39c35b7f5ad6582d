#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

// Follows the logs of a job's pods for what its ranks print: whole lines that begin with
// `[rank N] `, as the agents mark them. The agents' own lines are passed over.
class RankLines {
 public:
  // Files of `folder` whose names begin with `prefix`; there may be none yet.
  RankLines(std::string folder, std::string prefix);

  // Lines that have come since, each with its end, in the order of each file; a bounded part at a
  // time, empty where there are no more. A file that was cut back goes on from its end.
  std::string poll();

 private:
  struct File {
    int64_t offset = 0;
    std::string partial;  // a line whose end has not been written yet
  };
  void read_file(const std::string& path, File& file, std::string& lines) const;

  std::string folder_;
  std::string prefix_;
  std::map<std::string, File> files_;  // by path
};

}  // namespace lockstep
