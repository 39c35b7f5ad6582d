#include "common/api/gpu_numbers.h"

#include <gtest/gtest.h>

#include "common/api/progress_page.h"

namespace lockstep {
namespace {

TEST(GpuNumbers, StandOnThePageBesideTheProgressAndTheBoard) {
  auto agent = ProgressPage::create();
  ASSERT_TRUE(agent.ok());
  GpuNumbers read;
  ASSERT_TRUE(agent->gpu().read(read));
  EXPECT_EQ(read.samples, 0u) << "nothing is known yet";
  ProgressNumbers progress;
  progress.step = 7;
  progress.first_step_unix_seconds = 1e9;  // the last field
  agent->write(progress);
  GpuNumbers gpu{.samples = 3, .busy_ratio = 0.5};
  for (XidCount& xid : gpu.xids) xid = {~0u, ~0u};
  agent->gpu().write(gpu);
  ASSERT_TRUE(agent->read(progress));
  EXPECT_EQ(progress.step, 7);
  EXPECT_EQ(progress.first_step_unix_seconds, 1e9);
  EXPECT_EQ(agent->board().beats(), 0u);
  ASSERT_TRUE(agent->gpu().read(read));
  EXPECT_EQ(read.samples, 3u);
  EXPECT_EQ(read.busy_ratio, 0.5);
}

TEST(GpuNumbers, AUuidReadsAsNvidiaWritesIt) {
  EXPECT_EQ(uuid_text({0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89,
                       0xab, 0xcd, 0xef}),
            "GPU-01234567-89ab-cdef-0123-456789abcdef");
}

TEST(GpuNumbers, XidsAreToldInWordsWithTheirCount) {
  GpuNumbers gpu{.name = {"NVIDIA H200"}, .bus = {"0000:41:00.0"}};
  EXPECT_EQ(xids_text(gpu), "");
  count_xid(gpu, 79);
  EXPECT_EQ(xids_text(gpu),
            "GPU 0000:41:00.0 (NVIDIA H200) reported Xid 79 (the GPU has fallen off the bus)");
  for (const uint64_t number : {31, 31, 555, 555, 555}) count_xid(gpu, number);
  EXPECT_EQ(xids_text(gpu),
            "GPU 0000:41:00.0 (NVIDIA H200) reported Xid 79 (the GPU has fallen off the bus), Xid "
            "31 twice (a kernel accessed invalid memory, usually a bug in the program), Xid 555 3 "
            "times (see NVIDIA's list of Xid errors)");
  for (uint64_t number = 1000; number < 1020; ++number) count_xid(gpu, number);
  EXPECT_TRUE(xids_text(gpu).ends_with("Xid errors), other Xids 16 times")) << xids_text(gpu);
}

}  // namespace
}  // namespace lockstep
