#include "agent/train/input_check.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/agent/train/temporary_folder.h"
#include "tests/support/npy_bytes.h"

namespace lockstep::train {
namespace {

constexpr uint64_t kRoom = uint64_t{1} << 30;

// Leaves the process address space of kRoom bytes more than it has.
class ShortOfAddresses {
 public:
  ShortOfAddresses() {
    EXPECT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + kRoom;
    EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  }
  ~ShortOfAddresses() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

TEST(InputCheck, NamesTheFieldOfAFileThatCannotBeMapped) {
  TemporaryFolder folder;
  const std::string features =
      folder.write("x.npy", npy_array("<f4", "(2, 1)", std::vector<float>{1, 2}));
  const std::string huge = folder.write("huge.npy", "");
  ASSERT_EQ(truncate(huge.c_str(), 2 * kRoom), 0);  // a hole
  TrainSpec train;
  train.model = {.family = kMlp, .inputs = 1, .outputs = 2};
  train.data = {.features = features, .targets = huge};
  const ShortOfAddresses limit;
  EXPECT_EQ(input_problems(train),
            Problems{"spec.train.data.targets: " + huge + ": mmap: Cannot allocate memory"});
}

}  // namespace
}  // namespace lockstep::train
