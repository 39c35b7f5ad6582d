#include "tests/agent/train/memory_file_system.h"

#include <algorithm>
#include <utility>

namespace lockstep::train {
namespace {

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < path.size();) {
    const size_t slash = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, slash - at);
    if (!part.empty() && part != ".") parts.push_back(part);
    at = slash + 1;
  }
  return parts;
}

std::string text_of(const std::string& what, const std::string& path) {
  return "[storage] " + what + " of " + path;
}

Error no_such(const std::string& what, const std::string& path) {
  return not_found(text_of(what, path) + ": not found", Blame::kStorage);
}

Error taken(const std::string& what, const std::string& path) {
  return conflict(text_of(what, path) + ": there is one", Blame::kStorage);
}

size_t survivors_of(size_t changes, Survivors survivors, Random& random) {
  if (survivors == Survivors::kNone) return 0;
  return survivors == Survivors::kAll ? changes : random.below(changes + 1);
}

}  // namespace

template <class Call>
auto MemoryFileSystem::attempt(const std::string& what, const std::string& path, const Call& call)
    -> decltype(call()) {
  const int64_t number = calls_++;
  if (number < failure_.first || number - failure_.first >= failure_.count) return call();
  if (failure_.does == PlannedFailure::Does::kAll) (void)call();
  return unavailable(text_of(what, path) + ": call " + std::to_string(number) + " fails as planned",
                     Blame::kStorage);
}

class MemoryFileSystem::MemoryFile final : public OpenFile {
 public:
  MemoryFile(MemoryFileSystem& files, std::shared_ptr<Node> node, std::string path)
      : files_(files), node_(std::move(node)), path_(std::move(path)) {}

  Result<uint64_t> size() override {
    return files_.attempt("stat", path_, [&]() -> Result<uint64_t> { return node_->bytes.size(); });
  }
  Status read_at(uint64_t offset, std::span<char> to) override {
    return files_.attempt("read", path_, [&]() -> Status {
      if (offset > node_->bytes.size() || to.size() > node_->bytes.size() - offset) {
        return corrupt("[storage] " + path_ + " ends early", Blame::kStorage);
      }
      std::copy_n(node_->bytes.data() + offset, to.size(), to.data());
      return {};
    });
  }
  Status write(std::span<const char> from) override {
    const size_t before = node_->bytes.size();
    const Status written = files_.attempt("write", path_, [&]() -> Status {
      node_->bytes.append(from.data(), from.size());
      return {};
    });
    if (!written.ok() && files_.failure_.does == PlannedFailure::Does::kHalf) {
      node_->bytes.append(from.data(), from.size() / 2);
    }
    CHECK(!written.ok() || node_->bytes.size() == before + from.size());
    return written;
  }
  Status sync() override {
    return files_.attempt("fsync", path_, [&]() -> Status {
      node_->synced_bytes = node_->bytes.size();
      return {};
    });
  }
  void forget_cached() override {}

 private:
  MemoryFileSystem& files_;
  std::shared_ptr<Node> node_;
  std::string path_;
};

MemoryFileSystem::MemoryFileSystem() : root_(std::make_shared<Node>(Node{.is_folder = true})) {}

MemoryFileSystem::MemoryFileSystem(const Files& files) : MemoryFileSystem() {
  for (const auto& [path, bytes] : files) put(path, bytes);
}

void MemoryFileSystem::plan(const PlannedFailure& failure) {
  failure_ = failure;
  calls_ = 0;
}

std::shared_ptr<MemoryFileSystem::Node> MemoryFileSystem::Place::node() const {
  const auto found = folder->names.find(name);
  return found == folder->names.end() ? nullptr : found->second;
}

void MemoryFileSystem::Place::set(std::shared_ptr<Node> node) const {
  if (node == nullptr) {
    folder->names.erase(name);
  } else {
    folder->names[name] = std::move(node);
  }
  folder->unsynced.push_back(folder->names);
}

std::shared_ptr<MemoryFileSystem::Node> MemoryFileSystem::find(const std::string& path) const {
  std::shared_ptr<Node> node = root_;
  for (const std::string& part : parts_of(path)) {
    if (node != nullptr) node = Place{node.get(), part}.node();
  }
  return node;
}

Result<MemoryFileSystem::Place> MemoryFileSystem::place(const std::string& what,
                                                        const std::string& path) const {
  std::vector<std::string> parts = parts_of(path);
  CHECK(!parts.empty());
  Place place{root_.get(), parts.back()};
  parts.pop_back();
  for (const std::string& part : parts) {
    const std::shared_ptr<Node> next = Place{place.folder, part}.node();
    if (next == nullptr || !next->is_folder) return no_such(what, path);
    place.folder = next.get();
  }
  return place;
}

void MemoryFileSystem::put(const std::string& path, const std::string& bytes) {
  std::shared_ptr<Node> node = root_;
  const std::vector<std::string> parts = parts_of(path);
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_folder = i + 1 < parts.size() || path.ends_with('/');
    std::shared_ptr<Node>& next = node->names[parts[i]];
    if (next == nullptr || !is_folder) next = std::make_shared<Node>(Node{.is_folder = is_folder});
    node->synced_names[parts[i]] = next;
    node = next;
  }
  node->bytes = bytes;
  node->synced_bytes = bytes.size();
}

void MemoryFileSystem::crash_node(Node& node, Survivors survivors, Random& random) {
  const size_t bytes =
      survivors_of(node.bytes.size() - node.synced_bytes, survivors, random) + node.synced_bytes;
  node.bytes.resize(bytes);
  node.synced_bytes = bytes;
  const size_t changes = survivors_of(node.unsynced.size(), survivors, random);
  node.names = changes == 0 ? node.synced_names : node.unsynced[changes - 1];
  node.synced_names = node.names;
  node.unsynced.clear();
  for (const auto& [name, child] : node.names) crash_node(*child, survivors, random);
}

void MemoryFileSystem::crash(Survivors survivors, uint64_t seed) {
  Random random(seed);
  crash_node(*root_, survivors, random);
  plan({});
}

void MemoryFileSystem::collect(const Node& node, const std::string& path, Files& files) {
  if (!path.empty()) files[node.is_folder ? path + "/" : path] = node.bytes;
  for (const auto& [name, child] : node.names) collect(*child, path + "/" + name, files);
}

Files MemoryFileSystem::files() const {
  Files files;
  collect(*root_, "", files);
  return files;
}

Result<std::unique_ptr<OpenFile>> MemoryFileSystem::create(const std::string& path) {
  return attempt("open", path, [&]() -> Result<std::unique_ptr<OpenFile>> {
    TRY_ASSIGN(const Place at, place("open", path));
    if (at.node() != nullptr) return taken("open", path);
    auto node = std::make_shared<Node>();
    at.set(node);
    return std::unique_ptr<OpenFile>(std::make_unique<MemoryFile>(*this, node, path));
  });
}

Result<std::unique_ptr<OpenFile>> MemoryFileSystem::open(const std::string& path) {
  return attempt("open", path, [&]() -> Result<std::unique_ptr<OpenFile>> {
    std::shared_ptr<Node> node = find(path);
    if (node == nullptr || node->is_folder) return no_such("open", path);
    return std::unique_ptr<OpenFile>(std::make_unique<MemoryFile>(*this, std::move(node), path));
  });
}

Result<std::vector<std::string>> MemoryFileSystem::list(const std::string& folder) {
  return attempt("opendir", folder, [&]() -> Result<std::vector<std::string>> {
    const std::shared_ptr<Node> node = find(folder);
    if (node == nullptr || !node->is_folder) return no_such("opendir", folder);
    std::vector<std::string> names;
    for (const auto& [name, child] : node->names) names.push_back(name);
    return names;
  });
}

Status MemoryFileSystem::make_folder(const std::string& path) {
  return attempt("mkdir", path, [&]() -> Status {
    TRY_ASSIGN(const Place at, place("mkdir", path));
    if (at.node() != nullptr) return taken("mkdir", path);
    at.set(std::make_shared<Node>(Node{.is_folder = true}));
    return {};
  });
}

// Within one folder, which is what storage does.
Status MemoryFileSystem::rename_folder(const std::string& from, const std::string& to) {
  return attempt("rename", from, [&]() -> Status {
    TRY_ASSIGN(const Place source, place("rename", from));
    TRY_ASSIGN(const Place target, place("rename", to));
    CHECK(source.folder == target.folder);
    const std::shared_ptr<Node> node = source.node();
    const std::shared_ptr<Node> there = target.node();
    if (node == nullptr) return no_such("rename", from);
    if (there != nullptr) {
      const bool is_file_over_file = !there->is_folder && !node->is_folder;
      const bool is_over_empty = there->is_folder && node->is_folder && there->names.empty();
      if (!is_file_over_file && !is_over_empty) return taken("rename to " + to, from);
    }
    source.folder->names.erase(source.name);
    target.set(node);
    return {};
  });
}

Status MemoryFileSystem::remove_file(const std::string& path) {
  return attempt("unlink", path, [&]() -> Status {
    TRY_ASSIGN(const Place at, place("unlink", path));
    if (at.node() == nullptr || at.node()->is_folder) return no_such("unlink", path);
    at.set(nullptr);
    return {};
  });
}

Status MemoryFileSystem::remove_folder(const std::string& path) {
  return attempt("rmdir", path, [&]() -> Status {
    TRY_ASSIGN(const Place at, place("rmdir", path));
    if (at.node() == nullptr || !at.node()->is_folder) return no_such("rmdir", path);
    if (!at.node()->names.empty()) return taken("rmdir", path);
    at.set(nullptr);
    return {};
  });
}

Status MemoryFileSystem::sync_folder(const std::string& path) {
  return attempt("fsync", path, [&]() -> Status {
    const std::shared_ptr<Node> node = find(path);
    if (node == nullptr || !node->is_folder) return no_such("fsync", path);
    node->synced_names = node->names;
    node->unsynced.clear();
    return {};
  });
}

}  // namespace lockstep::train
