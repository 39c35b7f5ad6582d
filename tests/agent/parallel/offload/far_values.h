#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "agent/parallel/offload/far_memory.h"

namespace lockstep::parallel {

// A new empty folder, removed with its contents by the destructor.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  bool is_empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

// The folders of two kinds of file systems: a disk's, and one in memory where there is one with
// enough room. Containers often have 64 MiB.
inline std::vector<std::string> file_system_folders(uint64_t bytes) {
  std::vector<std::string> folders{std::filesystem::temp_directory_path().string()};
  std::error_code failed;
  const std::filesystem::space_info space = std::filesystem::space("/dev/shm", failed);
  if (access("/dev/shm", W_OK) == 0 && !failed && space.available >= bytes) {
    folders.push_back("/dev/shm");
  }
  return folders;
}

inline FarMemory far_file(int64_t count, const std::string& folder = "") {
  return FarMemory::in_file({.folder = folder,
                             .by = "a test",
                             .bytes = count * static_cast<int64_t>(sizeof(float))})
      .value();
}

inline std::vector<float> values_of(const FarMemory& memory) {
  std::vector<float> values(static_cast<size_t>(memory.count()));
  memory.read(0, values);
  return values;
}

// This process's resident memory in MiB. The kernel's number is off by up to some hundred pages.
inline constexpr double kResidentMibMax = 8;
inline double resident_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == "VmRSS:" && status >> kib) return kib / 1024;
  }
  ADD_FAILURE() << "no VmRSS in /proc/self/status";
  return 0;
}

// Runs `body` in a child process and returns how that ended, as waitpid() does.
inline int in_child(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

}  // namespace lockstep::parallel
