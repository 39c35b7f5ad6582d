#include "agent/parallel/offload/far_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "tests/agent/parallel/offload/far_values.h"

namespace lockstep::parallel {
namespace {

std::vector<float> numbers(int64_t count, float first) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

// Page-locked memory with other values than zero.
struct Locked {
  std::vector<float> values;
  FarMemory far;

  explicit Locked(int64_t count)
      : values(static_cast<size_t>(count), 7),
        far(kernels::Workspace{values.data(), values.size() * sizeof(float)}) {}
};

void expect_array_of_zeros(const FarMemory& far, int64_t count) {
  ASSERT_EQ(far.count(), count);
  EXPECT_EQ(values_of(far), std::vector<float>(static_cast<size_t>(count)));
}

void expect_what_was_written(const FarMemory& far) {
  std::vector<float> expected(static_cast<size_t>(far.count()));
  for (const FarRange& range : {FarRange{0, 3}, FarRange{1000, 500'000},
                                FarRange{far.count() - 1, 1}, FarRange{999, 2}, FarRange{10, 0}}) {
    const std::vector<float> values = numbers(range.count, static_cast<float>(range.first + 1));
    ASSERT_TRUE(far.write(range.first, values).ok());
    std::copy(values.begin(), values.end(), expected.begin() + range.first);
  }
  EXPECT_EQ(values_of(far), expected);
  std::vector<float> part(100);
  far.read(950, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + 950));
}

constexpr int64_t kCount = 1'000'003;  // neither whole pages nor whole MiB

TEST(FarMemory, IsZeroAtFirst) {
  for (const std::string& folder : file_system_folders(kCount * sizeof(float))) {
    expect_array_of_zeros(far_file(kCount, folder), kCount);
  }
  expect_array_of_zeros(Locked(kCount).far, kCount);
  expect_array_of_zeros(FarMemory(), 0);
  expect_array_of_zeros(far_file(0), 0);
}

TEST(FarMemory, KeepsWhatIsWritten) {
  for (const std::string& folder : file_system_folders(kCount * sizeof(float))) {
    expect_what_was_written(far_file(kCount, folder));
  }
  expect_what_was_written(Locked(kCount).far);
}

TEST(FarMemory, StaysWhereItIsWhenItIsMoved) {
  FarMemory first = far_file(100);
  ASSERT_TRUE(first.write(0, numbers(100, 1)).ok());
  const float* data = first.data();
  const FarMemory second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(values_of(second), numbers(100, 1));
}

TEST(FarMemory, LetsARangeBeReadAndChangedInOrder) {
  const FarMemory far = far_file(kCount);
  ASSERT_TRUE(far.write(0, numbers(kCount, 0)).ok());
  int64_t next = 5;
  ASSERT_TRUE(far.visit({.first = 5, .count = 600'000},
                        [&](int64_t first, std::span<float> values) {
                          EXPECT_EQ(first, next);
                          EXPECT_EQ(values[0], static_cast<float>(first));
                          EXPECT_LE(values.size_bytes(), size_t{1} << 20);
                          next += static_cast<int64_t>(values.size());
                          for (float& value : values) value = -value;
                          return Status();
                        })
                  .ok());
  EXPECT_EQ(next, 600'005);
  std::vector<float> expected = numbers(kCount, 0);
  for (size_t i = 5; i < 600'005; ++i) expected[i] = -expected[i];
  EXPECT_EQ(values_of(far), expected);
}

TEST(FarMemory, EndsAVisitWithItsError) {
  const FarMemory far = far_file(kCount);
  int calls = 0;
  const Status visited = far.visit({.first = 0, .count = kCount}, [&](int64_t, std::span<float>) {
    return ++calls == 2 ? Status(corrupt("[test] bad values")) : Status();
  });
  ASSERT_FALSE(visited.ok());
  EXPECT_EQ(visited.error().message, "[test] bad values");
  EXPECT_EQ(calls, 2);
}

TEST(FarMemory, TakesNoMemoryOfTheProcess) {
  if (!std::string_view(LOCKSTEP_SANITIZERS).empty()) GTEST_SKIP() << "sanitizers take memory too";
  constexpr int64_t kLarge = (int64_t{256} << 20) / static_cast<int64_t>(sizeof(float));
  for (const std::string& folder : file_system_folders(kLarge * sizeof(float))) {
    const FarMemory far = far_file(kLarge, folder);
    std::vector<float> buffer(size_t{1} << 20, 1);
    const double before = resident_mib();
    double most = before;
    for (int64_t at = 0; at < kLarge; at += static_cast<int64_t>(buffer.size())) {
      ASSERT_TRUE(far.write(at, buffer).ok());
      far.read(at, buffer);
      most = std::max(most, resident_mib());
    }
    ASSERT_TRUE(far.visit({.first = 0, .count = kLarge},
                          [&](int64_t, std::span<float> values) {
                            for (float& value : values) value += 1;
                            most = std::max(most, resident_mib());
                            return Status();
                          })
                    .ok());
    EXPECT_LE(most - before, kResidentMibMax) << "MiB in " << folder;
    for (int64_t i = 0; i < kLarge; i += 1024) far.data()[i] += 1;  // on every page
    EXPECT_GE(resident_mib() - before, 200);
    far.give_back({.first = 0, .count = kLarge});
    EXPECT_LE(resident_mib() - before, kResidentMibMax) << "MiB in " << folder;
    far.read(kLarge - 1, {buffer.data(), 1});
    EXPECT_EQ(buffer[0], 2);
  }
}

TEST(FarMemory, GivesBackThePagesThatTheSystemMapsAroundItsOwn) {
  if (!std::string_view(LOCKSTEP_SANITIZERS).empty()) {
    GTEST_SKIP() << "sanitizers take memory too";
  }
  constexpr int64_t kLarge = (int64_t{128} << 20) / static_cast<int64_t>(sizeof(float));
  for (const std::string& folder : file_system_folders(kLarge * sizeof(float))) {
    const FarMemory far = far_file(kLarge, folder);
    ASSERT_TRUE(far.write(0, std::vector<float>(kLarge, 1)).ok());
    const double before = resident_mib();
    constexpr int64_t kPage = 1024;
    std::vector<float> page(kPage);
    // Elsewhere in each window of 16 pages, which the system maps at a fault.
    for (int64_t at = 0; at + kPage <= kLarge; at += 17 * kPage) far.read(at, page);
    EXPECT_LE(resident_mib() - before, kResidentMibMax) << "MiB in " << folder;
  }
}

TEST(FarMemory, ReportsWhatCannotBeWritten) {
  const int status = in_child([] {
    const FarMemory far = far_file(1000);
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 2000, .rlim_max = 2000};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const Status written = far.write(0, numbers(1000, 1));
    ASSERT_FALSE(written.ok());
    EXPECT_EQ(written.error().code, Code::kUnavailable);
    EXPECT_EQ(written.error().message, "[offload] writing to a scratch file: File too large");
    EXPECT_EQ(values_of(far)[499], 500);
  });
  EXPECT_EQ(status, 0);
}

TEST(FarMemory, LeavesNothingBehindWhenTheProcessIsKilledInTheMiddle) {
  const ScratchFolder folder;
  const int status = in_child([&] {
    const FarMemory far = far_file(kCount, folder.path());
    (void)far.write(0, numbers(kCount, 1));
    (void)far.visit({.first = 0, .count = kCount}, [](int64_t, std::span<float> values) {
      values[0] = 2;
      raise(SIGKILL);
      return Status();
    });
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  EXPECT_TRUE(folder.is_empty());
}

}  // namespace
}  // namespace lockstep::parallel
