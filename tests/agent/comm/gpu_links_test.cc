#include "agent/comm/gpu/gpu_links.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "agent/comm/network.h"

namespace lockstep::comm {
namespace {

TEST(GpuLinks, AreNvlinkWhereAtomicsWorkAndLinksAreUp) {
  EXPECT_EQ(link_of({.can_access = true, .native_atomics = true}, 18), GpuLink::kNvlink);
  EXPECT_EQ(link_of({.can_access = true, .native_atomics = true}, -1), GpuLink::kNvlink);
  EXPECT_EQ(link_of({.can_access = true, .native_atomics = true}, 0), GpuLink::kPcie);
  EXPECT_EQ(link_of({.can_access = true, .native_atomics = false}, 18), GpuLink::kPcie);
  EXPECT_EQ(link_of({.can_access = false}, 18), GpuLink::kHost);
}

GpusSeen gpus(size_t count, GpuLink link, int nvlinks) {
  GpusSeen seen{.names = std::vector<std::string>(count, "NVIDIA H200"),
                .buses = std::vector<std::string>(count),
                .nvlinks = std::vector<int>(count, nvlinks)};
  seen.links.assign(count, std::vector<GpuLink>(count, link));
  return seen;
}

TEST(NcclPath, IsTheLinkOfTheTwoGpusOnOneHostAndElseTheNetwork) {
  GpusSeen seen = gpus(2, GpuLink::kNvlink, 18);
  seen.buses = {"a", "b"};
  EXPECT_EQ(nccl_path(seen, {.from = "a", .to = "b"}), "NVLink (NCCL)");
  EXPECT_EQ(nccl_path(seen, {.from = "a", .to = "b", .is_one_host = false}), "network (NCCL)");
  EXPECT_EQ(nccl_path(seen, {.from = "a", .to = "c"}), "not visible (NCCL)");
  EXPECT_EQ(nccl_path({}, {.from = "a", .to = "b"}), "not visible (NCCL)");
}

TEST(GpusText, NamesTheGpusTheirCommonLinkAndTheExceptions) {
  EXPECT_EQ(gpus_text({}), "none");
  EXPECT_EQ(gpus_text(gpus(1, GpuLink::kHost, -1)), "1 x NVIDIA H200");
  EXPECT_EQ(gpus_text(gpus(8, GpuLink::kNvlink, 18)),
            "8 x NVIDIA H200, NVLink between all (18 NVLinks each)");
  GpusSeen mixed = gpus(4, GpuLink::kPcie, 4);
  mixed.names[3] = "NVIDIA A40";
  mixed.nvlinks[3] = 0;
  mixed.links[0][1] = GpuLink::kNvlink;
  mixed.links[1][2] = GpuLink::kHost;
  EXPECT_EQ(gpus_text(mixed),
            "3 x NVIDIA H200, 1 x NVIDIA A40, PCIe between all but NVLink 0-1; host memory 1-2");
}

TEST(GpusText, IsBoundedForManyGpus) {
  GpusSeen many = gpus(16, GpuLink::kPcie, -1);
  for (size_t to = 8; to < 16; ++to) {
    for (size_t from = 0; from < 5; ++from) many.links[from][to] = GpuLink::kHost;
  }
  const std::string text = gpus_text(many);
  EXPECT_NE(text.find("0-8, 0-9"), std::string::npos);
  EXPECT_NE(text.find("and 24 more pairs"), std::string::npos) << text;
}

TEST(RdmaText, SaysLayerRateAndStateAsFarAsTheyAreKnown) {
  EXPECT_EQ(rdma_device_text({.name = "mlx5_0",
                              .layer = "InfiniBand",
                              .rate = "400 Gb/sec (4X NDR)",
                              .state = "4: ACTIVE"}),
            "mlx5_0 (InfiniBand, 400 Gb/sec, active)");
  EXPECT_EQ(rdma_device_text({.name = "rxe0", .state = "1: DOWN"}), "rxe0 (down)");
  EXPECT_EQ(rdma_device_text({.name = "odd", .state = "garbage"}), "odd (garbage)");
  EXPECT_EQ(rdma_device_text({.name = "bare"}), "bare");
}

TEST(RdmaDevices, AreReadFromSysfsAndSorted) {
  const std::filesystem::path root =
      std::filesystem::path(testing::TempDir()) / "lockstep_rdma_test";
  std::filesystem::remove_all(root);
  EXPECT_EQ(rdma_devices(root), "");
  const auto write = [&](const std::string& device, const std::string& file,
                         const std::string& text) {
    std::filesystem::create_directories(root / device / "ports/1");
    std::ofstream(root / device / "ports/1" / file) << text << "\n";
  };
  write("mlx5_1", "state", "1: DOWN");
  write("mlx5_0", "state", "4: ACTIVE");
  write("mlx5_0", "rate", "200 Gb/sec (2X NDR)");
  write("mlx5_0", "link_layer", "Ethernet");
  EXPECT_EQ(rdma_devices(root), "mlx5_0 (Ethernet, 200 Gb/sec, active), mlx5_1 (down)");
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace lockstep::comm
