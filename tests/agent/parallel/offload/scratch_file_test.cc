#include "agent/parallel/offload/scratch_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>

#include "tests/agent/parallel/offload/far_values.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

ScratchOptions options_in(const std::string& folder, int64_t bytes = kMiB) {
  return {.folder = folder, .by = "first moments", .bytes = bytes};
}

// The system's calls, on a file system without unnamed files.
ScratchCalls without_unnamed_files() {
  ScratchCalls calls = ScratchCalls::of_system();
  calls.open_unnamed = [](const char*) {
    errno = EOPNOTSUPP;
    return -1;
  };
  return calls;
}

TEST(ScratchFile, HasNoNameAndItsWholeSpaceFromTheStart) {
  for (const ScratchCalls& calls : {ScratchCalls::of_system(), without_unnamed_files()}) {
    const ScratchFolder folder;
    const auto file = ScratchFile::create(options_in(folder.path()), calls);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_TRUE(folder.is_empty());
    struct stat found {};
    ASSERT_EQ(fstat(file->descriptor(), &found), 0);
    EXPECT_EQ(found.st_nlink, 0U);
    EXPECT_EQ(found.st_size, kMiB);
    EXPECT_GE(found.st_blocks * 512, kMiB);
    EXPECT_EQ(found.st_mode & 0777, 0600U);
    EXPECT_EQ(fcntl(file->descriptor(), F_GETFD), FD_CLOEXEC);
    const std::string link = "/proc/self/fd/" + std::to_string(file->descriptor());
    EXPECT_TRUE(std::filesystem::read_symlink(link).string().starts_with(folder.path() + "/"));
  }
}

TEST(ScratchFile, LeavesNothingBehindWhenTheProcessIsKilled) {
  for (const ScratchCalls& calls : {ScratchCalls::of_system(), without_unnamed_files()}) {
    const ScratchFolder folder;
    const int status = in_child([&] {
      const auto file = ScratchFile::create(options_in(folder.path()), calls);
      if (file.ok()) raise(SIGKILL);
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    EXPECT_TRUE(folder.is_empty());
  }
}

TEST(ScratchFile, IsInTheFolderForTemporaryFilesByDefault) {
  const ScratchFolder folder;
  const auto expect_in = [](const std::string& expected) {
    const auto file = ScratchFile::create(options_in(""));
    ASSERT_TRUE(file.ok()) << file.error().message;
    const std::string link = "/proc/self/fd/" + std::to_string(file->descriptor());
    const std::string found = std::filesystem::read_symlink(link).string();
    EXPECT_TRUE(found.starts_with(expected + "/")) << found;
  };
  const int status = in_child([&] {
    EXPECT_EQ(setenv("TMPDIR", folder.path().c_str(), 1), 0);
    expect_in(folder.path());
    EXPECT_EQ(setenv("TMPDIR", "", 1), 0);
    expect_in("/tmp");
    EXPECT_EQ(unsetenv("TMPDIR"), 0);
    expect_in("/tmp");
  });
  EXPECT_EQ(status, 0);
}

TEST(ScratchFile, BlamesTheConfigurationForAFolderThatTakesNoFiles) {
  const ScratchFolder folder;
  const std::string file = folder.path() + "/file";
  std::ofstream(file) << "x";
  for (const std::string& path : {folder.path() + "/none", file, std::string("/proc")}) {
    for (const ScratchCalls& calls : {ScratchCalls::of_system(), without_unnamed_files()}) {
      const auto made = ScratchFile::create(options_in(path), calls);
      ASSERT_FALSE(made.ok()) << path;
      EXPECT_EQ(made.error().code, Code::kInvalid) << made.error().message;
      EXPECT_EQ(made.error().blame, Blame::kConfig);
      EXPECT_NE(made.error().message.find("got " + path + ": "), std::string::npos)
          << made.error().message;
    }
  }
}

void expect_full(const Result<ScratchFile>& made, const std::string& beginning) {
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::kUnavailable);
  EXPECT_TRUE(made.error().message.starts_with(beginning)) << made.error().message;
  EXPECT_NE(made.error().message.find(" bytes) are free. Make room there"), std::string::npos)
      << made.error().message;
}

TEST(ScratchFile, DoesNotFillAFileSystemThatIsTooSmall) {
  static int calls_made;
  calls_made = 0;
  ScratchCalls calls = ScratchCalls::of_system();
  calls.reserve = [](int, int64_t) { return ++calls_made; };
  const ScratchFolder folder;
  const int64_t bytes = int64_t{1} << 60;
  expect_full(ScratchFile::create(options_in(folder.path(), bytes), calls),
              "[offload] 1.00 EiB (1152921504606846976 bytes) for first moments in a scratch file "
              "in " +
                  folder.path() + ": No space left on device; ");
  EXPECT_EQ(calls_made, 0);
}

TEST(ScratchFile, SaysWhatAFullFileSystemLacks) {
  ScratchCalls calls = ScratchCalls::of_system();
  calls.reserve = [](int, int64_t) { return ENOSPC; };  // others took the space
  const ScratchFolder folder;
  expect_full(ScratchFile::create(options_in(folder.path()), calls),
              "[offload] 1.00 MiB (1048576 bytes) for first moments in a scratch file in " +
                  folder.path() + ": No space left on device; ");
}

TEST(ScratchFile, IsNotSmallerThanALimitOfTheProcessAllows) {
  const int status = in_child([] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = kMiB / 2, .rlim_max = kMiB / 2};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const auto made = ScratchFile::create(options_in(""));
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, Code::kUnavailable);
    EXPECT_NE(made.error().message.find("File too large"), std::string::npos)
        << made.error().message;
  });
  EXPECT_EQ(status, 0);
}

TEST(ScratchFile, TriesAgainAfterASignal) {
  static int calls_made;
  calls_made = 0;
  ScratchCalls calls = ScratchCalls::of_system();
  calls.reserve = [](int, int64_t) { return ++calls_made < 3 ? EINTR : 0; };
  EXPECT_TRUE(ScratchFile::create(options_in(""), calls).ok());
  EXPECT_EQ(calls_made, 3);
}

}  // namespace
}  // namespace lockstep::parallel
