#include "kernels/ops/cpu_level.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>

#include "tests/kernels/cpu_levels.h"

namespace lockstep::kernels {

namespace {

struct Answer {
  int code = 0;
  std::string text;
};

// Runs the program cpu_level, since a process reads its cap once.
Answer level_under(const std::string& cap) {
  const std::string command = "env " + std::string(kMaxCpuIsaVariable) + "='" + cap + "' " +
                              LOCKSTEP_BIN_DIR "/tests/cpu_level 2>&1";
  std::FILE* output = popen(command.c_str(), "r");
  EXPECT_NE(output, nullptr);
  Answer answer;
  std::array<char, 256> part{};
  while (std::fgets(part.data(), part.size(), output) != nullptr) answer.text += part.data();
  answer.code = WEXITSTATUS(pclose(output));
  if (!answer.text.empty() && answer.text.back() == '\n') answer.text.pop_back();
  return answer;
}

TEST(CpuLevel, HasANameThatIsReadBack) {
  for (size_t i = 0; i < kCpuLevelNames.size(); ++i) {
    const Result<CpuLevel> read = cpu_level_from_name(kCpuLevelNames[i]);
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(static_cast<size_t>(*read), i);
  }
  EXPECT_EQ(cpu_level_name(CpuLevel::kAmx), kCpuLevelNames.back());
}

TEST(CpuLevel, IsThatOfTheOperationsAndOfTheProducts) {
  const CpuLevel ops = supported_isas().front()->level;
  const MatmulSupport products = cpu_matmul_support();
  EXPECT_LE(ops, cpu_level_cap().value());
  EXPECT_LE(products.level, cpu_level_cap().value());
  EXPECT_EQ(products.native_bf16, products.level >= CpuLevel::kAvx512Bf16);
}

TEST(CpuLevel, IsCappedByTheEnvironment) {
  const Result<CpuLevel> native = cpu_level_from_name(level_under("").text);
  ASSERT_TRUE(native.ok());
  for (size_t cap = 0; cap < kCpuLevelNames.size(); ++cap) {
    const Answer capped = level_under(std::string(kCpuLevelNames[cap]));
    EXPECT_EQ(capped.code, 0);
    EXPECT_EQ(capped.text, kCpuLevelNames[std::min(cap, static_cast<size_t>(*native))]);
  }
}

TEST(CpuLevel, IsRefusedWhereTheNameIsUnknown) {
  const Answer answer = level_under("avx3");
  EXPECT_EQ(answer.code, 2);
  EXPECT_EQ(answer.text,
            "LOCKSTEP_MAX_CPU_ISA: expected one of baseline, avx2, avx512, avx512_bf16, amx; found "
            "\"avx3\"");
}

}  // namespace

}  // namespace lockstep::kernels
