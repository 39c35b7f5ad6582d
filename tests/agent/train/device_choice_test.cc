#include "agent/train/device_choice.h"

#include <gtest/gtest.h>

#include "common/api/worker_config.h"

namespace lockstep::train {
namespace {

TEST(RankDevice, IsTheGpuOfThatNumberOrTheCpu) {
  EXPECT_EQ(rank_device(-1, 0).value(), kernels::Device{});
  EXPECT_EQ(rank_device(-1, 8).value(), kernels::Device{}) << "a job that asks for none";
  EXPECT_EQ(rank_device(0, 1).value(), (kernels::Device{kernels::DeviceType::kCuda, 0}));
  EXPECT_EQ(rank_device(7, 8).value(), (kernels::Device{kernels::DeviceType::kCuda, 7}));
}

TEST(RankDevice, ThatIsNotThereIsToldWithWhatIsThere) {
  const Result<kernels::Device> none = rank_device(0, 0);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_EQ(none.error().blame, Blame::kDevice);
  EXPECT_EQ(
      none.error().message,
      "[device] this rank uses GPU 0 (numbered from 0), but its process sees none. Check the "
      "container's limit nvidia.com/gpu (spec.gpusPerNode sets it, podTemplate may change it), "
      "nvidia-smi in the pod, and CUDA_VISIBLE_DEVICES");
  const Result<kernels::Device> few = rank_device(3, 2);
  ASSERT_FALSE(few.ok());
  EXPECT_NE(few.error().message.find("GPU 3 (numbered from 0), but its process sees only 2."),
            std::string::npos)
      << few.error().message;
}

TEST(RankDevice, SaysWhatCudaSaysWhereThisMachineHasNone) {
  if (kernels::device_count(kernels::DeviceType::kCuda) > 0) GTEST_SKIP() << "there is a GPU";
  const Result<kernels::Device> here = rank_device_here(0);
  ASSERT_FALSE(here.ok());
  EXPECT_EQ(here.error().code, Code::kNotFound);
  EXPECT_EQ(here.error().blame, Blame::kDevice);
  const std::string cuda = kernels::describe({kernels::DeviceType::kCuda, 0}).error().message;
  EXPECT_TRUE(here.error().message.ends_with("CUDA_VISIBLE_DEVICES: " + cuda));
  EXPECT_TRUE(rank_device_here(-1).ok());
}

}  // namespace
}  // namespace lockstep::train
