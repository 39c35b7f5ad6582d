#include "agent/node/install.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace lockstep::node {
namespace {

namespace fs = std::filesystem;

class Install : public testing::Test {
 protected:
  Install() {
    std::string name = testing::TempDir() + "install-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    fs::create_directories(folder_ / "bundle/bin");
    fs::create_directories(folder_ / "bundle/lib");
    fs::create_directories(folder_ / "target");
    put(folder_ / "bundle/bin/lockstep-agent", "agent");
    fs::permissions(folder_ / "bundle/bin/lockstep-agent", fs::perms(0755));
    put(folder_ / "bundle/lib/libc.so.6", "library");
  }
  ~Install() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  static void put(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string get(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  Status install() const {
    return install_bundle((folder_ / "bundle/bin/lockstep-agent").string(),
                          (folder_ / "target").string());
  }

  fs::path folder_;
};

TEST_F(Install, CopiesProgramsAndLibrariesWithTheirModes) {
  const Status installed = install();
  ASSERT_TRUE(installed.ok()) << installed.error().message;
  EXPECT_EQ(get(folder_ / "target/bin/lockstep-agent"), "agent");
  EXPECT_EQ(get(folder_ / "target/lib/libc.so.6"), "library");
  EXPECT_EQ(fs::status(folder_ / "target/bin/lockstep-agent").permissions(), fs::perms(0755));
}

TEST_F(Install, ReplacesWhatAnEarlierAttemptLeft) {
  ASSERT_TRUE(install().ok());
  put(folder_ / "target/lib/libc.so.6", "half");
  const Status installed = install();
  ASSERT_TRUE(installed.ok()) << installed.error().message;
  EXPECT_EQ(get(folder_ / "target/lib/libc.so.6"), "library");
}

TEST_F(Install, SaysWhereItExpectedABundleAndWhatItCouldNotCopy) {
  fs::remove_all(folder_ / "target");
  put(folder_ / "target", "a file");
  const Status no_folder = install();
  ASSERT_FALSE(no_folder.ok());
  EXPECT_EQ(no_folder.error().code, Code::kUnavailable);
  EXPECT_NE(no_folder.error().message.find((folder_ / "target").string()), std::string::npos)
      << no_folder.error().message;
  fs::remove_all(folder_ / "bundle/lib");
  const Status no_bundle = install();
  ASSERT_FALSE(no_bundle.ok());
  EXPECT_EQ(no_bundle.error().code, Code::kInvalid);
  EXPECT_NE(no_bundle.error().message.find((folder_ / "bundle/lib").string()), std::string::npos)
      << no_bundle.error().message;
}

}  // namespace
}  // namespace lockstep::node
