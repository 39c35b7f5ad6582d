#include "controller/loop/job_keys.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/sha256.h"

namespace lockstep::loop {
namespace {

constexpr char kFirst[] = "0123456789abcdef";
constexpr char kSecond[] = "fedcba9876543210";

TEST(JobKeys, AFileHasOneKeyOrSeveralLinesOfThem) {
  const std::string both = std::string(kFirst) + "\n" + kSecond;
  const struct {
    std::string text;
    JobKeys keys;
  } cases[] = {
      {kFirst, {kFirst}},
      {std::string(kFirst) + "\n", {kFirst}},
      {both, {kFirst, kSecond, both}},  // versions before several keys took the whole text
      {std::string("\n ") + kFirst + " \r\n\n", {kFirst, std::string("\n ") + kFirst}},
      {std::string(16, '\0'), {std::string(16, '\0')}},
      {std::string("\x80\n") + kFirst, {std::string("\x80\n") + kFirst}},  // not text: one key
      {std::string(kFirst) + "\nshort",
       {kFirst, "short", std::string(kFirst) + "\nshort"}},  // its jobs run
  };
  for (const auto& [text, keys] : cases) {
    SCOPED_TRACE(text);
    const Result<JobKeys> read = read_job_keys(text);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read, keys);
  }
}

TEST(JobKeys, AShortOneIsRefusedForNewJobs) {
  for (const std::string text :
       {"", "\n", "0123456789abcde", "\x80\x81", "short\n0123456789abcdef"}) {
    const Result<JobKeys> read = read_job_keys(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code, Code::kInvalid);
  }
  EXPECT_EQ(read_job_keys("0123456789abcde").error().message,
            "[key] the key has 15 bytes, expected at least 16. To keep the tokens of running jobs, "
            "put a new key on a line before it");
  std::string many;
  for (int i = 0; i < 9; ++i) many += std::string(kFirst) + "\n";
  EXPECT_FALSE(read_job_keys(many).ok());
}

TEST(JobKeys, EachMakesATokenOfTheJob) {
  EXPECT_EQ(job_tokens({kFirst, kSecond}, "uid"),
            (std::vector<std::string>{hex(hmac_sha256(kFirst, "uid")),
                                      hex(hmac_sha256(kSecond, "uid"))}));
}

}  // namespace
}  // namespace lockstep::loop
