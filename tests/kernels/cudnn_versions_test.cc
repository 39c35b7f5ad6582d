// Tests which of several installed cuDNN libraries is loaded.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops/dnn/cudnn_library.h"

namespace lockstep::kernels::dnn {
namespace {

const std::string kOld = FOLDERS "91500/", kFirst = FOLDERS "91600/", kBroken = FOLDERS "91700/";

Result<CudnnLibrary> load(std::vector<std::string_view> folders) {
  return load_cudnn_from(folders);
}

TEST(CudnnVersions, TheFirstThatIsNewEnoughIsTaken) {
  const Result<CudnnLibrary> found = load({"/nowhere/", kOld, kBroken, kFirst});
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->version(), 91600u);
}

TEST(CudnnVersions, WhereNoneIsTheErrorSaysWhatEachHas) {
  const Result<CudnnLibrary> found = load({"/nowhere/", kOld, kBroken});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Code::kUnavailable);
  const std::string& words = found.error().message;
  for (const std::string& part :
       {std::string("expected libcudnn.so.9 version 91600 or later"),
        std::string("/nowhere/libcudnn.so.9"), kOld + "libcudnn.so.9 is version 91500",
        std::string("does not export cudnnBackendExecute")}) {
    EXPECT_NE(words.find(part), std::string::npos) << part << " in " << words;
  }
}

}  // namespace
}  // namespace lockstep::kernels::dnn
