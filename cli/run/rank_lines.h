#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace lockstep::cli {

// Follows the logs of a job's pods for the output of its ranks: whole lines that start with
// `[rank N] `, as the agents mark them. Skips the agents' own lines.
class RankLines {
 public:
  // Follows files in `folder` whose names start with `prefix`; they may appear later.
  RankLines(std::string folder, std::string prefix);

  // Returns the new lines of each file in order, each with its newline. Reads a bounded part per
  // call; empty if nothing is new. If a file was truncated, continues at its new end.
  std::string poll();

  // Returns the lines of `log`, the end of a rank's log, that poll() has not returned lately. The
  // first line may lack its beginning.
  std::string new_to_user(int64_t rank, std::string_view log) const;

 private:
  struct File {
    int64_t offset = 0;
    std::string partial;  // an incomplete line
  };
  void read_file(const std::string& path, File& file, std::string& lines);
  void remember(std::string_view line);

  std::string folder_;
  std::string prefix_;
  std::map<std::string, File> files_;  // by path
  // By mark, the newest lines without it. Longer than the end of a log in a job's status.
  std::map<std::string, std::string> recent_;
};

}  // namespace lockstep::cli
