// A file system in memory that fails and crashes when a test says so.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/train/checkpoint/file_system.h"
#include "common/base/random.h"

namespace lockstep::train {

inline constexpr int64_t kAllCalls = std::numeric_limits<int64_t>::max();

// Which calls fail with kUnavailable, counted from 0, and what they have done by then.
struct PlannedFailure {
  enum class Does { kNothing, kHalf, kAll };  // kHalf: a write writes half, other calls do nothing

  int64_t first = 0;
  int64_t count = 0;  // kAllCalls: a process that dies
  Does does = Does::kNothing;
};

// The changes that survive a crash of the machine although they were not synced: of the names in a
// folder that was not synced, and of the bytes of files that were not. A new name, a rename and a
// removal are one change each; the changes of one folder survive in their order.
enum class Survivors {
  kNone,
  kAll,
  kSome,  // of each folder and file some prefix, as a seed says
};

// Bytes by path. A path with a '/' at the end is a folder.
using Files = std::map<std::string, std::string>;

// The twin of the operating system's file system (real_file_system()): the same results and codes.
// For one thread at a time.
class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();
  // Has these files and their folders. All of it is synced.
  explicit MemoryFileSystem(const Files& files);
  MemoryFileSystem(MemoryFileSystem&&) = default;
  MemoryFileSystem& operator=(MemoryFileSystem&&) = default;

  // Counts calls from 0 again, and fails those.
  void plan(const PlannedFailure& failure);
  // The calls since plan().
  int64_t calls() const { return calls_; }
  // Forgets what the machine forgets. Open files are of the time before; plan() is over.
  void crash(Survivors survivors, uint64_t seed = 0);

  Files files() const;
  // Puts a synced file there, instead of any other.
  void put(const std::string& path, const std::string& bytes);

  Result<std::unique_ptr<OpenFile>> create(const std::string& path) override;
  Result<std::unique_ptr<OpenFile>> open(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Status make_folder(const std::string& path) override;
  Status rename_folder(const std::string& from, const std::string& to) override;
  Status remove_file(const std::string& path) override;
  Status remove_folder(const std::string& path) override;
  Status sync_folder(const std::string& path) override;

 private:
  struct Node;
  using Names = std::map<std::string, std::shared_ptr<Node>>;
  // A file or a folder.
  struct Node {
    bool is_folder = false;
    std::string bytes = {};
    size_t synced_bytes = 0;
    Names names = {};
    Names synced_names = {};
    std::vector<Names> unsynced = {};  // the names after each change since
  };
  // A name in a folder, which may be free.
  struct Place {
    Node* folder = nullptr;
    std::string name;

    std::shared_ptr<Node> node() const;
    // Changes the folder.
    void set(std::shared_ptr<Node> node) const;
  };
  class MemoryFile;

  // Counts a call and makes it, or fails as planned.
  template <class Call>
  auto attempt(const std::string& what, const std::string& path, const Call& call)
      -> decltype(call());
  std::shared_ptr<Node> find(const std::string& path) const;
  Result<Place> place(const std::string& what, const std::string& path) const;
  static void crash_node(Node& node, Survivors survivors, Random& random);
  static void collect(const Node& node, const std::string& path, Files& files);

  std::shared_ptr<Node> root_;
  PlannedFailure failure_;
  int64_t calls_ = 0;
};

}  // namespace lockstep::train
