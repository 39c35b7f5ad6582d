// Files of logs: instances, holes, what is removed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/local/node/files.h"
#include "cli/local/node/log_files.h"

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

  const std::string folder_;
  const LogFiles::Place place_{"default", "p", "uid", "c", true};
};

TEST_F(LogFilesTest, KeepsTheNewestTwoInstances) {
  LogFiles logs({.folder = folder_, .keep = true});
  EXPECT_FALSE(logs.log_file("uid", "c", false).ok());
  for (const char* text : {"one", "two", "three"}) {
    Result<std::string> file = logs.next_file(place_);
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
  LogFiles logs({.folder = folder_});
  Result<std::string> file = logs.next_file(place_);
  ASSERT_TRUE(file.ok());
  append(*file, "text");
  logs.remove("uid");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(LogFilesTest, ATooLongFileLosesItsBeginningAndNobodyLosesTheirPlace) {
  constexpr size_t kMax = 1u << 20;
  LogFiles logs({.folder = folder_, .bytes_max = kMax});
  Result<std::string> file = logs.next_file(place_);
  ASSERT_TRUE(file.ok());
  append(*file, std::string(3 * kMax, 'a') + "end");
  logs.bound();
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

}  // namespace
}  // namespace lockstep::local
