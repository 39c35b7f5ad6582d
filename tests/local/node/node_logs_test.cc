// Tests log files: instances, holes, removal.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "local/node/files.h"
#include "local/node/log_files.h"
#include "local/store/log_times.h"
#include "tests/support/job_run.h"

namespace lockstep::local {
namespace {

class LogFilesTest : public testing::Test {
 protected:
  LogFilesTest() : folder_(testing::TempDir() + "lockstep-logs-" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~LogFilesTest() override { std::filesystem::remove_all(folder_); }

  static void append(const std::string& file, const std::string& text) {
    std::ofstream(file, std::ios::app) << text;
  }
  static std::string text_of(const std::string& file) { return end_of_file(file, 1u << 20); }

  SystemClock clock_;
  const std::string folder_;
  const LogFiles::ContainerId id_{"default", "p", "uid", "c", true};
};

TEST_F(LogFilesTest, KeepsTheNewestTwoInstances) {
  LogFiles logs(clock_, {.folder = folder_, .keep = true});
  EXPECT_FALSE(logs.log_file("uid", "c", false).ok());
  for (const char* text : {"one", "two", "three"}) {
    Result<std::string> file = logs.next_file(id_);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(*file, folder_ + "/p.log");
    append(*file, text);
  }
  EXPECT_EQ(text_of(*logs.log_file("uid", "c", false)), "three");
  EXPECT_EQ(text_of(*logs.log_file("uid", "c", true)), "two");
  logs.remove("uid");
  EXPECT_FALSE(logs.log_file("uid", "c", false).ok());
  EXPECT_EQ(text_of(folder_ + "/p.log"), "three") << "kept for people";
}

TEST_F(LogFilesTest, AreRemovedWithThePodWhereNobodyKeepsThem) {
  LogFiles logs(clock_, {.folder = folder_});
  Result<std::string> file = logs.next_file(id_);
  ASSERT_TRUE(file.ok());
  append(*file, "text");
  logs.remove("uid");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(LogFilesTest, ATooLongFileLosesItsBeginningAndNobodyLosesTheirPlace) {
  constexpr size_t kMax = 1u << 20;
  LogFiles logs(clock_, {.folder = folder_, .bytes_max = kMax});
  Result<std::string> file = logs.next_file(id_);
  ASSERT_TRUE(file.ok());
  append(*file, std::string(3 * kMax, 'a') + "end");
  logs.trim();
  struct stat info {};
  ASSERT_EQ(stat(file->c_str(), &info), 0);
  EXPECT_LE(static_cast<size_t>(info.st_blocks) * 512, kMax);
  append(*file, "!");
  EXPECT_EQ(end_of_file(*file, 4), "end!");
  if (static_cast<size_t>(info.st_size) > kMax) {
    EXPECT_EQ(static_cast<size_t>(info.st_size), 3 * kMax + 3) << "offsets stay";
    int fd = open(file->c_str(), O_RDONLY | O_CLOEXEC);
    off_t data = lseek(fd, 0, SEEK_DATA);
    EXPECT_GT(data, 0);
    EXPECT_LE(data, info.st_size - static_cast<off_t>(kMax) / 2);
    close(fd);
  }
}

TEST_F(LogFilesTest, WriteDownWhenALogGrew) {
  LogFiles logs(clock_, {.folder = folder_});
  const std::string file = *logs.next_file(id_);
  Result<LogTimes> times = LogTimes::open(times_file_of(file));
  ASSERT_TRUE(times.ok()) << times.error().message;
  const auto begin = clock_.wall_now().time_since_epoch().count();
  for (int64_t bytes : {4, 8, 12}) {
    append(file, "abc\n");
    EXPECT_TRUE(test::eventually([&] { return times->bytes_known() == bytes; }));
  }
  EXPECT_GE(times->seen(0), begin);
  EXPECT_GT(times->seen(4), times->seen(3));
  EXPECT_GT(times->seen(8), times->seen(7));
  EXPECT_LE(times->seen(11), clock_.wall_now().time_since_epoch().count());
}

TEST_F(LogFilesTest, KnowTheTimeOfAllThatIsAskedFor) {
  LogFiles logs(clock_, {.folder = folder_, .keep = true});
  const std::string file = *logs.next_file(id_);
  const std::string times_file = times_file_of(file);
  Result<LogTimes> times = LogTimes::open(times_file);
  ASSERT_TRUE(times.ok());
  append(file, "one\n");
  EXPECT_EQ(logs.log_file("uid", "c", false).ok() ? times->bytes_known() : -1, 4);
  append(file, "two\n");
  logs.ended(file);
  EXPECT_EQ(times->bytes_known(), 8);
  append(file, "three\n");
  ASSERT_TRUE(logs.next_file(id_).ok());
  Result<LogTimes> before = LogTimes::open(times_file_of(*logs.log_file("uid", "c", true)));
  ASSERT_TRUE(before.ok());
  EXPECT_EQ(before->bytes_known(), 14);
  logs.remove("uid");
  EXPECT_FALSE(std::filesystem::exists(times_file)) << "for nobody to look at";
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST_F(LogFilesTest, ALogOfTooManyMomentsLosesItsBeginningWithThem) {
  constexpr size_t kTimesMax = 16 << 10;
  constexpr int64_t kLines = 4096, kLineBytes = 64;
  const std::string log = folder_ + "/log", times_file = times_file_of(log);
  const std::string line(kLineBytes - 1, 'x');
  for (int64_t i = 1; i <= kLines; ++i) append_time_record(times_file, {i * kLineBytes, i});
  std::string text;
  for (int64_t i = 0; i < kLines; ++i) text += line + "\n";
  append(log, text);
  trim_log(log, 64u << 20, kTimesMax);
  Result<LogTimes> times = LogTimes::open(times_file);
  ASSERT_TRUE(times.ok());
  struct stat info {};
  ASSERT_EQ(stat(times_file.c_str(), &info), 0);
  if (times->first_index() == 0)
    GTEST_SKIP() << "the file system of " << folder_ << " has no holes";
  EXPECT_LT(static_cast<size_t>(info.st_blocks) * 512, 2 * kTimesMax);
  const int fd = open(log.c_str(), O_RDONLY | O_CLOEXEC);
  const int64_t data = lseek(fd, 0, SEEK_DATA);
  close(fd);
  EXPECT_GT(data, 0);
  for (int64_t at = data; at < kLines * kLineBytes; at += kLineBytes)
    EXPECT_EQ(times->seen(at), at / kLineBytes + 1);
}

}  // namespace
}  // namespace lockstep::local
