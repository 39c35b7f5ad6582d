// The operating system's file system and its twin in memory give the same results and codes.
#include "agent/train/checkpoint/file_system.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/agent/train/memory_file_system.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep::train {
namespace {

// Has these names in a folder of its own: `file` (with "abc"), `empty/`, `full/file`.
class FileSystemTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    memory_.put("/tmp/x/", "");
    for (const char* name : {"empty", "full"}) ASSERT_TRUE(files().make_folder(at(name)).ok());
    for (const char* name : {"file", "full/file"}) {
      const auto file = files().create(at(name));
      ASSERT_TRUE(file.ok());
      ASSERT_TRUE((*file)->write(std::string("abc")).ok());
      ASSERT_TRUE((*file)->sync().ok());
    }
  }
  FileSystem& files() { return GetParam() ? real_file_system() : memory_; }
  std::string at(const std::string& name) const {
    return (GetParam() ? folder_.path() : "/tmp/x") + "/" + name;
  }
  std::vector<std::string> names(const std::string& folder) {
    auto names = files().list(at(folder)).value();
    std::sort(names.begin(), names.end());
    return names;
  }

  TemporaryFolder folder_;
  MemoryFileSystem memory_;
};

template <class T>
Code code_of(const Result<T>& result) {
  if (result.ok()) return Code::kInternal;  // no call here gives it
  EXPECT_EQ(result.error().blame, Blame::kStorage) << result.error().message;
  EXPECT_TRUE(result.error().message.starts_with("[storage] ")) << result.error().message;
  return result.error().code;
}

TEST_P(FileSystemTest, RefusesNamesThatAreMissingOrTaken) {
  FileSystem& fs = files();
  const struct {
    const char* what;
    std::function<Code()> call;
    Code code;
  } cases[] = {
      {"create a file", [&] { return code_of(fs.create(at("file"))); }, Code::kConflict},
      {"create a folder", [&] { return code_of(fs.create(at("empty"))); }, Code::kConflict},
      {"create below nothing", [&] { return code_of(fs.create(at("no/file"))); }, Code::kNotFound},
      {"create below a file", [&] { return code_of(fs.create(at("file/a"))); }, Code::kNotFound},
      {"open nothing", [&] { return code_of(fs.open(at("no"))); }, Code::kNotFound},
      {"open a folder", [&] { return code_of(fs.open(at("full"))); }, Code::kNotFound},
      {"open below a file", [&] { return code_of(fs.open(at("file/a"))); }, Code::kNotFound},
      {"list nothing", [&] { return code_of(fs.list(at("no"))); }, Code::kNotFound},
      {"list a file", [&] { return code_of(fs.list(at("file"))); }, Code::kNotFound},
      {"mkdir a folder", [&] { return code_of(fs.make_folder(at("full"))); }, Code::kConflict},
      {"mkdir a file", [&] { return code_of(fs.make_folder(at("file"))); }, Code::kConflict},
      {"mkdir below nothing", [&] { return code_of(fs.make_folder(at("no/a"))); }, Code::kNotFound},
      {"mkdir below a file", [&] { return code_of(fs.make_folder(at("file/a"))); },
       Code::kNotFound},
      {"rename nothing", [&] { return code_of(fs.rename_folder(at("no"), at("a"))); },
       Code::kNotFound},
      {"rename to a full folder",
       [&] { return code_of(fs.rename_folder(at("empty"), at("full"))); }, Code::kConflict},
      {"rename to a file", [&] { return code_of(fs.rename_folder(at("empty"), at("file"))); },
       Code::kConflict},
      {"rename a file to a folder",
       [&] { return code_of(fs.rename_folder(at("file"), at("empty"))); }, Code::kConflict},
      {"unlink nothing", [&] { return code_of(fs.remove_file(at("no"))); }, Code::kNotFound},
      {"unlink a folder", [&] { return code_of(fs.remove_file(at("empty"))); }, Code::kNotFound},
      {"rmdir nothing", [&] { return code_of(fs.remove_folder(at("no"))); }, Code::kNotFound},
      {"rmdir a file", [&] { return code_of(fs.remove_folder(at("file"))); }, Code::kNotFound},
      {"rmdir a full folder", [&] { return code_of(fs.remove_folder(at("full"))); },
       Code::kConflict},
      {"sync nothing", [&] { return code_of(fs.sync_folder(at("no"))); }, Code::kNotFound},
      {"sync a file", [&] { return code_of(fs.sync_folder(at("file"))); }, Code::kNotFound},
  };
  for (const auto& c : cases) EXPECT_EQ(c.call(), c.code) << c.what;
  EXPECT_EQ(names(""), (std::vector<std::string>{"empty", "file", "full"}));
}

TEST_P(FileSystemTest, ReadsWhatWasWritten) {
  const auto file = files().open(at("file"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->size().value(), 3u);
  std::string text(2, '\0');
  ASSERT_TRUE((*file)->read_at(1, text).ok());
  EXPECT_EQ(text, "bc");
  EXPECT_EQ(code_of((*file)->read_at(2, text)), Code::kCorrupt);
  EXPECT_EQ(code_of((*file)->read_at(9, text)), Code::kCorrupt);
}

TEST_P(FileSystemTest, RenamesAndRemoves) {
  FileSystem& fs = files();
  ASSERT_TRUE(fs.rename_folder(at("full"), at("empty")).ok()) << "over an empty folder";
  EXPECT_EQ(names("empty"), std::vector<std::string>{"file"});
  ASSERT_TRUE(fs.rename_folder(at("file"), at("other")).ok()) << "a file";
  EXPECT_EQ(names(""), (std::vector<std::string>{"empty", "other"}));
  ASSERT_TRUE(fs.remove_file(at("empty/file")).ok());
  ASSERT_TRUE(fs.remove_folder(at("empty")).ok());
  ASSERT_TRUE(fs.remove_file(at("other")).ok());
  ASSERT_TRUE(fs.sync_folder(at("")).ok());
  EXPECT_TRUE(names("").empty());
}

TEST_P(FileSystemTest, KeepsAFileThatIsOpenWhenItsNameGoes) {
  const auto file = files().open(at("full/file"));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(files().remove_file(at("full/file")).ok());
  std::string text(3, '\0');
  EXPECT_TRUE((*file)->read_at(0, text).ok());
}

INSTANTIATE_TEST_SUITE_P(RealAndMemory, FileSystemTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Real" : "Memory"; });

// The rest is of the twin alone.

Status write(FileSystem& files, const std::string& path, const std::string& bytes, bool sync) {
  TRY_ASSIGN(const auto file, files.create(path));
  TRY(file->write(bytes));
  return sync ? file->sync() : Status();
}

TEST(MemoryFileSystem, ForgetsAtACrashWhatWasNotSynced) {
  const auto crashed = [](Survivors survivors) {
    MemoryFileSystem files(Files{{"/a/old/x", "x"}, {"/a/gone", "g"}});
    EXPECT_TRUE(write(files, "/a/old/synced", "1234", /*sync=*/true).ok());
    EXPECT_TRUE(files.sync_folder("/a/old").ok());
    EXPECT_TRUE(write(files, "/a/old/nameless", "1234", /*sync=*/true).ok());
    EXPECT_TRUE(write(files, "/a/empty", "1234", /*sync=*/false).ok());
    EXPECT_TRUE(files.sync_folder("/a").ok());
    EXPECT_TRUE(files.rename_folder("/a/old", "/a/new").ok());
    EXPECT_TRUE(files.remove_file("/a/gone").ok());
    files.crash(survivors);
    return files.files();
  };
  EXPECT_EQ(crashed(Survivors::kNone), (Files{{"/a/", ""},
                                              {"/a/empty", ""},
                                              {"/a/gone", "g"},
                                              {"/a/old/", ""},
                                              {"/a/old/synced", "1234"},
                                              {"/a/old/x", "x"}}));
  EXPECT_EQ(crashed(Survivors::kAll), (Files{{"/a/", ""},
                                             {"/a/empty", "1234"},
                                             {"/a/new/", ""},
                                             {"/a/new/nameless", "1234"},
                                             {"/a/new/synced", "1234"},
                                             {"/a/new/x", "x"}}));
}

TEST(MemoryFileSystem, TearsWhatWasNotSynced) {
  std::map<std::string, int> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    MemoryFileSystem files(Files{{"/old/x", "x"}});
    ASSERT_TRUE(write(files, "/f", "ab", /*sync=*/false).ok());
    ASSERT_TRUE(files.rename_folder("/old", "/new").ok());
    files.crash(Survivors::kSome, seed);
    const auto left = files.files();
    EXPECT_EQ(left.contains("/old/x") + left.contains("/new/x"), 1) << "a rename is one change";
    EXPECT_TRUE(left.contains("/f") || left.contains("/old/x")) << "changes are in order";
    ++seen[!left.contains("/f")      ? "no file"
           : left.contains("/old/x") ? "old " + left.at("/f")
                                     : "new"];
  }
  EXPECT_EQ(seen.size(), 5u) << "no file; the old name and a file of 0, 1 or 2 bytes; the new name";
}

TEST(MemoryFileSystem, FailsTheCallsThatWerePlanned) {
  using Does = PlannedFailure::Does;
  const struct {
    PlannedFailure failure;
    int64_t calls;  // until the error; 3 are made in all
    Files files;
  } cases[] = {
      {{.first = 0, .count = 1, .does = Does::kNothing}, 1, {}},
      {{.first = 0, .count = 1, .does = Does::kHalf}, 1, {}},
      {{.first = 0, .count = 1, .does = Does::kAll}, 1, {{"/f", ""}}},
      {{.first = 1, .count = kAllCalls, .does = Does::kNothing}, 2, {{"/f", ""}}},
      {{.first = 1, .count = 1, .does = Does::kHalf}, 2, {{"/f", "12"}}},
      {{.first = 1, .count = 1, .does = Does::kAll}, 2, {{"/f", "1234"}}},
      {{.first = 3, .count = 1, .does = Does::kNothing}, 3, {{"/f", "1234"}}},
  };
  for (const auto& c : cases) {
    MemoryFileSystem files;
    files.plan(c.failure);
    const Status written = write(files, "/f", "1234", /*sync=*/true);
    EXPECT_EQ(written.ok(), c.failure.first == 3);
    if (!written.ok()) {
      EXPECT_EQ(code_of(written), Code::kUnavailable);
    }
    EXPECT_EQ(files.calls(), c.calls);
    EXPECT_EQ(files.files(), c.files);
    if (c.failure.count == kAllCalls) {
      EXPECT_EQ(code_of(files.list("/")), Code::kUnavailable);
    }
  }
}

}  // namespace
}  // namespace lockstep::train
