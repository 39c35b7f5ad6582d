#include "agent/train/forming.h"

#include <gtest/gtest.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <set>
#include <vector>

#include <thread>

#include "agent/comm/make_communicator.h"
#include "tests/agent/train/temporary_folder.h"

namespace lockstep::train {
namespace {

std::vector<Agreement> agree_all(const std::vector<RankTraits>& traits, bool want_bf16) {
  auto world = comm::make_thread_world(static_cast<int>(traits.size()));
  EXPECT_TRUE(world.ok());
  std::vector<Agreement> agreements(traits.size());
  {
    std::vector<std::jthread> ranks;
    for (size_t rank = 0; rank < traits.size(); ++rank) {
      ranks.emplace_back([&, rank] {
        const auto agreement = agree(*(*world)[rank], traits[rank], want_bf16);
        ASSERT_TRUE(agreement.ok());
        agreements[rank] = *agreement;
      });
    }
  }
  return agreements;
}

TEST(Agree, TakesBf16OnlyWhereEveryRankHasIt) {
  const RankTraits with{.native_bf16 = 1, .threads = 2};
  const RankTraits without{.native_bf16 = 0, .threads = 2};
  const Agreement bf16{kernels::Precision::kBf16, 2};
  const Agreement fp32{kernels::Precision::kF32, 2};
  EXPECT_EQ(agree_all({with, with}, true), (std::vector<Agreement>{bf16, bf16}));
  EXPECT_EQ(agree_all({with, without}, true), (std::vector<Agreement>{fp32, fp32}));
  EXPECT_EQ(agree_all({with, with}, false), (std::vector<Agreement>{fp32, fp32}));
}

TEST(Agree, TakesTheSmallestNumberOfThreads) {
  const Agreement two{kernels::Precision::kF32, 2};
  EXPECT_EQ(agree_all({{.threads = 4}, {.threads = 2}, {.threads = 8}}, false),
            (std::vector<Agreement>{two, two, two}));
}

TEST(TraitsOfThisMachine, AreTheGpusWhereTheRankHasOne) {
  const WorkerConfig config{.threads = 3};
  const RankTraits cpu = traits_of_this_machine(config, {});
  const RankTraits h200 = traits_of_this_machine(config, {.name = "NVIDIA H200"});
  EXPECT_EQ(cpu.native_bf16, kernels::cpu_matmul_support().native_bf16 ? 1 : 0);
  EXPECT_EQ(h200.native_bf16, 1);
  EXPECT_EQ(h200.threads, 3);
  EXPECT_NE(h200.instructions, cpu.instructions);
  EXPECT_EQ(h200.instructions,
            traits_of_this_machine(config, {.name = "NVIDIA H200"}).instructions);
  EXPECT_NE(h200.instructions, traits_of_this_machine(config, {.name = "NVIDIA A40"}).instructions);
}

TEST(BatchShapeOfASpec, SpreadsAStepEvenly) {
  const auto whole = batch_shape({.global = 32, .micro = 0}, {.data = 4});
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(*whole, (BatchShape{.micro = 8, .accumulation = 1, .data_size = 4}));
  const auto parts = batch_shape({.global = 32, .micro = 2}, {.data = 4});
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(*parts, (BatchShape{.micro = 2, .accumulation = 4, .data_size = 4}));
}

// At least 4 micro-batches for each stage, if there are as many samples.
TEST(BatchShapeOfASpec, FillsAPipeline) {
  const auto micro = [](int64_t global, const Mesh& mesh) {
    return batch_shape({.global = global, .micro = 0}, mesh)->micro;
  };
  EXPECT_EQ(micro(64, {.pipeline = 2, .data = 2}), 4);
  EXPECT_EQ(micro(64, {.pipeline = 4, .data = 2}), 2);
  EXPECT_EQ(micro(8, {.pipeline = 4, .data = 2}), 1);
  EXPECT_EQ(micro(30, {.pipeline = 2}), 3);
  EXPECT_EQ(batch_shape({.global = 64, .micro = 8}, {.pipeline = 2})->micro, 8);
}

// Their number is a multiple of the stages.
TEST(BatchShapeOfASpec, FillsAnInterleavedPipeline) {
  const Mesh mesh{.pipeline = 4, .data = 2, .virtual_stages = 2};
  const auto micro = [&](int64_t global) {
    return batch_shape({.global = global, .micro = 0}, mesh)->micro;
  };
  EXPECT_EQ(micro(64), 2);
  EXPECT_EQ(micro(72), 1) << "36 samples of a rank make 18 micro-batches of 2";
  EXPECT_EQ(micro(8), 1);
  const auto global = batch_shape({.global = 12, .micro = 0}, mesh);
  ASSERT_FALSE(global.ok());
  EXPECT_EQ(global.error().blame, Blame::kConfig);
  EXPECT_EQ(global.error().message,
            "spec.train.batch.global: 12 is not a multiple of the 4 stages x 2 data-parallel ranks "
            "of an interleaved pipeline");
  const auto too_large = batch_shape({.global = 48, .micro = 4}, mesh);
  ASSERT_FALSE(too_large.ok());
  EXPECT_EQ(too_large.error().blame, Blame::kConfig);
  EXPECT_EQ(too_large.error().message,
            "spec.train.batch.micro: 4 gives 6 micro-batches, but an interleaved pipeline's are a "
            "multiple of its 4 stages");
}

// As in an elastic job.
TEST(BatchShapeOfASpec, SpreadsAStepAsEvenlyAsItCan) {
  struct Case {
    BatchSpec spec;
    int64_t ranks;
    std::vector<std::vector<int64_t>> rows;  // by rank, then by micro-batch
  };
  const Case cases[] = {
      {{.global = 16, .micro = 0}, 3, {{6}, {5}, {5}}},
      {{.global = 16, .micro = 2}, 3, {{2, 2, 2}, {2, 2, 2}, {2, 1, 1}}},
      {{.global = 12, .micro = 1}, 4, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}},
      {{.global = 12, .micro = 2}, 4, {{2, 2}, {2, 2}, {1, 1}, {1, 1}}},
      // One more than `micro`, since no micro-batch may be empty.
      {{.global = 12, .micro = 1}, 5, {{2, 2}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}}};
  for (const Case& row : cases) {
    const auto shape = batch_shape(row.spec, {.data = row.ranks});
    ASSERT_TRUE(shape.ok()) << shape.error().message;
    EXPECT_EQ(shape->global(), row.spec.global);
    std::vector<std::vector<int64_t>> rows(static_cast<size_t>(row.ranks));
    std::set<int64_t> samples;
    for (int64_t rank = 0; rank < row.ranks; ++rank) {
      for (int64_t i = 0; i < shape->accumulation; ++i) {
        const int64_t count = shape->rows(i, rank);
        EXPECT_LE(count, shape->micro);
        rows[static_cast<size_t>(rank)].push_back(count);
        for (int64_t at = 0; at < count; ++at) {
          samples.insert(global_sample(*shape, {100, i, rank, at}));
        }
      }
    }
    EXPECT_EQ(rows, row.rows);
    EXPECT_EQ(std::ssize(samples), row.spec.global) << "each sample once";
    EXPECT_EQ(*samples.begin(), 100);
    EXPECT_EQ(*samples.rbegin(), 99 + row.spec.global);
  }
}

TEST(BatchShapeOfASpec, NeedsASampleForEachRank) {
  const auto global = batch_shape({.global = 3, .micro = 0}, {.data = 4});
  ASSERT_FALSE(global.ok());
  EXPECT_EQ(global.error().blame, Blame::kConfig);
  EXPECT_EQ(global.error().message,
            "spec.train.batch.global: 3 is less than the 4 data-parallel ranks");
}

class FormWorldTest : public testing::Test {
 protected:
  FormWorldTest() {
    TrainingJobSpec spec;
    spec.train.emplace();
    auto world = make_world(
        spec, {.job_uid = "uid", .round = 1, .members = {{.host = "127.0.0.1", .port = 29500}}});
    EXPECT_TRUE(world.ok());
    config_.world = *world;
    config_.hash = world_hash(*world);
    config_.token_file = folder_.write("token", "secret\n");
  }

  TemporaryFolder folder_;
  WorkerConfig config_;
};

TEST_F(FormWorldTest, RefusesALayoutOrRolesThatThisVersionCannotCarryOut) {
  EXPECT_TRUE(check_world(config_.world).ok());
  const auto error_of = [&](const std::function<void(WorldAssignment&)>& change) {
    WorldAssignment world = config_.world;
    change(world);
    const Status status = check_world(world);
    if (status.ok()) return std::string("none");
    EXPECT_EQ(status.error().blame, Blame::kConfig);
    return status.error().message;
  };
  EXPECT_EQ(error_of([](WorldAssignment& world) { world.members[0].index = 3; }), "none");
  EXPECT_EQ(error_of([](WorldAssignment& world) { world.layout.sharding = "optimizer"; }), "none");
  EXPECT_EQ(error_of([](WorldAssignment& world) { world.layout.schedule = "interleaved"; }),
            "none");
  EXPECT_EQ(error_of([](WorldAssignment& world) {
              world.members.push_back(world.members[0]);
              world.members[1].role = MemberRole::kServer;
            }),
            "[config] world.nodes: a server: not in this version, expected workers alone");
}

TEST_F(FormWorldTest, SaysThatAPortIsTaken) {
  const Result<int> taken = comm::listen_on("127.0.0.1", 0);
  ASSERT_TRUE(taken.ok());
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  ASSERT_EQ(getsockname(*taken, reinterpret_cast<sockaddr*>(&address), &size), 0);
  config_.world.members[0].port = ntohs(address.sin_port);
  const auto world = form_world(config_, nullptr);
  ASSERT_FALSE(world.ok());
  EXPECT_EQ(world.error().blame, Blame::kPort);
  EXPECT_NE(world.error().message.find(std::to_string(ntohs(address.sin_port))), std::string::npos);
  close(*taken);
}

TEST_F(FormWorldTest, BlamesTheConfigurationForAnAddressThatIsNotThisMachines) {
  for (const char* host : {"192.0.2.1", "node-0"}) {  // of TEST-NET-1; a name
    config_.world.members[0].host = host;
    const auto world = form_world(config_, nullptr);
    ASSERT_FALSE(world.ok()) << host;
    EXPECT_EQ(world.error().blame, Blame::kConfig) << world.error().message;
  }
}

TEST_F(FormWorldTest, NeedsTheJobsToken) {
  for (const std::string& file :
       {std::string(), folder_.file("missing"), folder_.write("empty", "\n")}) {
    config_.token_file = file;
    const auto world = form_world(config_, nullptr);
    ASSERT_FALSE(world.ok()) << file;
    EXPECT_EQ(world.error().blame, Blame::kConfig);
  }
}

TEST(ServeDevice, LeavesTheWorldOfTheCpuAsItIs) {
  auto world = comm::make_thread_world(1);
  ASSERT_TRUE(world.ok());
  const comm::Communicator* before = world->front().get();
  const auto served = serve_device(std::move(world->front()), {}, {});
  ASSERT_TRUE(served.ok());
  EXPECT_EQ(served->get(), before);
}

TEST(ServeDevice, SaysOnEveryRankWhichOneHasNoGpu) {
  if (kernels::device_count(kernels::DeviceType::kCuda) > 0) GTEST_SKIP() << "there are GPUs here";
  auto world = comm::make_thread_world(2);
  ASSERT_TRUE(world.ok());
  std::vector<std::jthread> ranks;
  for (auto& communicator : *world) {
    ranks.emplace_back([&communicator] {
      const int rank = communicator->rank();
      const auto served =
          serve_device(std::move(communicator), {kernels::DeviceType::kCuda, rank}, {});
      ASSERT_FALSE(served.ok());
      EXPECT_EQ(served.error().message, "[comm] every rank needs a GPU, but rank 0 has none");
      EXPECT_EQ(served.error().blame, Blame::kConfig);
    });
  }
}

}  // namespace
}  // namespace lockstep::train
