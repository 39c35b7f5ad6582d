#include "agent/comm/gpu/nccl_plan.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "agent/comm/gpu/backend_choice.h"
#include "agent/comm/gpu/staging_plan.h"

namespace lockstep::comm {
namespace {

using Kind = NcclStep::Kind;

// A call of rank `rank` of `size`, as the communicator passes it on, in-place or not.
struct Checked {
  std::vector<std::byte> data = std::vector<std::byte>(4096);
  std::vector<std::byte> input = std::vector<std::byte>(4096);
  DeviceCall call;

  Checked(Call made, int rank, int size, bool in_place) {
    made.buffer.data = data.data();
    made.buffer.input = in_place ? nullptr : input.data();
    const auto memory = check_call(made, rank, size);
    EXPECT_TRUE(memory.ok());
    call = {.call = made, .memory = *memory};
  }
};

NcclPlan plan_of(const Call& call, int rank, int size, bool in_place) {
  const Checked checked(call, rank, size, in_place);
  const auto plan = plan_nccl(checked.call, rank, size);
  EXPECT_TRUE(plan.ok());
  return *plan;
}

Call call_of(Collective kind, ReduceOp op = ReduceOp::kSum) {
  return {.kind = kind, .buffer = {.count = 10, .type = DataType::kF32}, .op = op, .rank = 1};
}

TEST(NcclPlan, GivesNcclWhatItHasItself) {
  const struct {
    Collective kind;
    Kind native;
  } rows[] = {{Collective::kAllReduce, Kind::kAllReduce},
              {Collective::kReduce, Kind::kReduce},
              {Collective::kBroadcast, Kind::kBroadcast},
              {Collective::kAllGather, Kind::kAllGather},
              {Collective::kReduceScatter, Kind::kReduceScatter},
              {Collective::kSend, Kind::kSend},
              {Collective::kReceive, Kind::kReceive}};
  for (const auto& row : rows) {
    const NcclPlan plan = plan_of(call_of(row.kind), 0, 3, false);
    SCOPED_TRACE(name_of(row.kind));
    ASSERT_EQ(plan.steps.size(), 1U);
    EXPECT_EQ(plan.steps[0].kind, row.native);
    EXPECT_EQ(plan.steps[0].count, 10);
    EXPECT_EQ(plan.steps[0].op, ReduceOp::kSum);
    EXPECT_TRUE(plan.before.empty() && plan.after.empty());
    EXPECT_EQ(plan.scratch_bytes, 0U);
  }
}

TEST(NcclPlan, MakesLorOfTruthAndMaxWithoutTouchingTheInput) {
  const NcclPlan all = plan_of(call_of(Collective::kAllReduce, ReduceOp::kLor), 0, 3, false);
  ASSERT_EQ(all.before.size(), 1U);
  EXPECT_EQ(all.before[0].kind, LocalStep::Kind::kToBoolean);
  EXPECT_EQ(all.before[0].to.area, NcclArea::kOutput);
  EXPECT_EQ(all.steps[0].op, ReduceOp::kMax);
  EXPECT_EQ(all.steps[0].from.area, NcclArea::kOutput);

  const NcclPlan reduce = plan_of(call_of(Collective::kReduce, ReduceOp::kLor), 0, 3, false);
  EXPECT_EQ(reduce.scratch_bytes, 40U);
  EXPECT_EQ(reduce.before[0].to.area, NcclArea::kScratch);
  EXPECT_EQ(reduce.steps[0].to.area, NcclArea::kScratch);  // rank 0 isn't the root

  const NcclPlan scatter =
      plan_of(call_of(Collective::kReduceScatter, ReduceOp::kLor), 0, 3, false);
  EXPECT_EQ(scatter.scratch_bytes, 120U);
  EXPECT_EQ(scatter.before[0].count, 30);
  EXPECT_EQ(scatter.steps[0].from.area, NcclArea::kScratch);
}

TEST(NcclPlan, MakesAvgOfSumAndADivisionWhereTheResultIs) {
  const NcclPlan all = plan_of(call_of(Collective::kAllReduce, ReduceOp::kAvg), 0, 3, true);
  EXPECT_EQ(all.steps[0].op, ReduceOp::kSum);
  ASSERT_EQ(all.after.size(), 1U);
  EXPECT_EQ(all.after[0].kind, LocalStep::Kind::kDivide);
  EXPECT_TRUE(plan_of(call_of(Collective::kReduce, ReduceOp::kAvg), 0, 3, true).after.empty());
  EXPECT_EQ(plan_of(call_of(Collective::kReduce, ReduceOp::kAvg), 1, 3, true).after.size(), 1U);
}

TEST(NcclPlan, ComposesGatherAndScatterOfSendsAndReceivesAndTheRootsOwnCopy) {
  for (const Collective kind : {Collective::kGather, Collective::kScatter}) {
    const NcclPlan root = plan_of(call_of(kind), 1, 4, false);
    EXPECT_EQ(root.steps.size(), 3U);
    EXPECT_EQ(root.before.size(), 1U);
    EXPECT_TRUE(plan_of(call_of(kind), 1, 4, true).before.empty());
    std::set<int> peers;
    for (const NcclStep& step : root.steps) {
      EXPECT_EQ(step.kind, kind == Collective::kGather ? Kind::kReceive : Kind::kSend);
      peers.insert(step.peer);
    }
    EXPECT_EQ(peers, (std::set<int>{0, 2, 3}));
    const NcclPlan other = plan_of(call_of(kind), 2, 4, false);
    ASSERT_EQ(other.steps.size(), 1U);
    EXPECT_EQ(other.steps[0].peer, 1);
  }
}

TEST(NcclPlan, SendsFromACopyWhereAllToAllIsInPlace) {
  const NcclPlan plan = plan_of(call_of(Collective::kAllToAll), 0, 3, true);
  EXPECT_EQ(plan.scratch_bytes, 120U);
  EXPECT_EQ(plan.before.size(), 1U);
  EXPECT_EQ(plan.steps.size(), 4U);
  for (const NcclStep& step : plan.steps) {
    const bool sends = step.kind == Kind::kSend;
    const auto peer = static_cast<size_t>(step.peer);
    EXPECT_EQ(sends ? step.from : step.to,
              (NcclPlace{sends ? NcclArea::kScratch : NcclArea::kOutput, peer * 40}));
  }
}

TEST(NcclPlan, LeavesOutWhatIsEmptyOnBothSidesOfACount) {
  const std::array<int64_t, 3> send = {4, 0, 7};
  const std::array<int64_t, 3> receive = {4, 5, 0};
  Call call = call_of(Collective::kAllToAll);
  call.buffer.count = 0;
  call.send_counts = send;
  call.receive_counts = receive;
  const NcclPlan plan = plan_of(call, 0, 3, false);
  ASSERT_EQ(plan.steps.size(), 2U);
  EXPECT_EQ(plan.steps[0].kind, Kind::kReceive);
  EXPECT_EQ(plan.steps[0].to.at, 16U);
  EXPECT_EQ(plan.steps[1].kind, Kind::kSend);
  EXPECT_EQ(plan.steps[1].from.at, 16U);
  EXPECT_EQ(plan.before.size(), 1U);
  Call none = call_of(Collective::kAllReduce);
  none.buffer.count = 0;
  EXPECT_TRUE(plan_of(none, 0, 3, true).steps.empty());
}

TEST(NcclPlan, RefusesANamedAlgorithm) {
  Call call = call_of(Collective::kAllReduce);
  call.algorithm = Algorithm::kRing;
  const Checked checked(call, 0, 2, true);
  const auto plan = plan_nccl(checked.call, 0, 2);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, Code::kInvalid);
  EXPECT_EQ(plan.error().message,
            "[comm] all_reduce: NCCL chooses the algorithm itself, so it cannot be 'ring'");
}

TEST(NcclNumbers, AreThoseOfItsHeaderAndDifferFromEachOther) {
  std::set<int> types;
  for (int i = 0; i < kDataTypes; ++i) types.insert(nccl_type(static_cast<DataType>(i)));
  EXPECT_EQ(types, (std::set<int>{1, 2, 4, 6, 7, 8, 9}));
  EXPECT_EQ(nccl_op(ReduceOp::kSum), 0);
  EXPECT_EQ(nccl_op(ReduceOp::kProd), 1);
  EXPECT_EQ(nccl_op(ReduceOp::kMax), 2);
  EXPECT_EQ(nccl_op(ReduceOp::kMin), 3);
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
}

TEST(CallHeaders, ThatDifferAreNamedWithBothRanks) {
  const CallHeader reduce = header_of(call_of(Collective::kAllReduce), 3);
  EXPECT_TRUE(compare_headers(std::vector{reduce, reduce, reduce}).ok());
  const CallHeader barrier = header_of({.kind = Collective::kBarrier}, 3);
  const Status status = compare_headers(std::vector{reduce, reduce, barrier});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kConflict);
  EXPECT_EQ(status.error().message,
            "ranks differ: rank 0 in all_reduce #3 (10 x f32 SUM), rank 2 in barrier #3 (0 x f32)");
  CallHeader other = reduce;
  other.count = 11;
  EXPECT_FALSE(compare_headers(std::vector{reduce, other}).ok());
}

RankDevice gpu(uint8_t uuid, int version = 22809) {
  RankDevice device{.has_gpu = 1, .nccl_version = version};
  device.uuid[0] = uuid;
  const std::string name = "NVIDIA H200";
  const std::string bus = "0000:41:00.0";
  name.copy(device.name.data(), device.name.size() - 1);
  bus.copy(device.bus.data(), device.bus.size() - 1);
  return device;
}

TEST(BackendChoice, IsNcclWhereEveryRankHasItsOwnGpuAndTheSameNccl) {
  const auto choice = choose_backend(std::vector{gpu(1), gpu(2)}, DeviceBackendKind::kAuto);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->kind, DeviceBackendKind::kNccl);
  EXPECT_EQ(choice->why, "every rank has a GPU of its own and NCCL 2.28.9");
}

TEST(BackendChoice, IsHostMemoryWhereNcclCantServeAndSaysWhy) {
  const struct {
    std::vector<RankDevice> ranks;
    std::string why;
  } rows[] = {
      {{gpu(1), gpu(2), gpu(1)}, "ranks 0 and 2 have the same GPU (NVIDIA H200, 0000:41:00.0)"},
      {{gpu(1), gpu(2, 0)}, "rank 1 has no NCCL"},
      {{gpu(1), gpu(2, 22705)}, "rank 0 has NCCL 2.28.9, rank 1 2.27.5"}};
  for (const auto& row : rows) {
    const auto choice = choose_backend(row.ranks, DeviceBackendKind::kAuto);
    ASSERT_TRUE(choice.ok());
    EXPECT_EQ(choice->kind, DeviceBackendKind::kHostMemory);
    EXPECT_EQ(choice->why, row.why);
    const auto nccl = choose_backend(row.ranks, DeviceBackendKind::kNccl);
    ASSERT_FALSE(nccl.ok());
    EXPECT_EQ(nccl.error().code, Code::kUnavailable);
    EXPECT_EQ(nccl.error().message, "[comm] NCCL was requested but cannot be used: " + row.why);
  }
  EXPECT_EQ(choose_backend(std::vector{gpu(1), gpu(2)}, DeviceBackendKind::kHostMemory)->why,
            "requested");
}

TEST(BackendChoice, RefusesARankWithoutAGpu) {
  const auto choice = choose_backend(std::vector{gpu(1), RankDevice{}}, DeviceBackendKind::kAuto);
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.error().message, "[comm] every rank needs a GPU, but rank 1 has none");
}

TEST(StagingPlan, CutsEveryBlockAtTheSamePlacesAndCoversEachByteOnce) {
  for (const Collective kind :
       {Collective::kAllReduce, Collective::kReduce, Collective::kBroadcast, Collective::kAllGather,
        Collective::kReduceScatter, Collective::kGather, Collective::kScatter,
        Collective::kAllToAll, Collective::kSend, Collective::kReceive, Collective::kBarrier}) {
    for (const int64_t count : {0, 1, 7, 100}) {
      size_t chunks_of_rank_0 = 0;
      for (const int rank : {0, 1, 2}) {
        Call call = call_of(kind);
        call.buffer.count = kind == Collective::kBarrier ? 0 : count;
        call.rank = kind == Collective::kSend || kind == Collective::kReceive ? (rank + 1) % 3 : 1;
        const Checked checked(call, rank, 3, false);
        const auto chunks = plan_staging(checked.call, 3, 96);
        if (rank == 0) chunks_of_rank_0 = chunks.size();
        EXPECT_EQ(chunks.size(), chunks_of_rank_0);
        int64_t counted = 0;
        std::vector<int> in(checked.call.memory.input_bytes);
        std::vector<int> out(checked.call.memory.output_bytes);
        for (const StagingChunk& chunk : chunks) {
          counted += chunk.count;
          EXPECT_LE(std::max(chunk.input_bytes, chunk.output_bytes), 96U);
          for (const StagingCopy& copy : chunk.in) {
            EXPECT_LE(copy.host + copy.bytes, chunk.input_bytes);
            for (size_t i = 0; i < copy.bytes; ++i) ++in[copy.device + i];
          }
          for (const StagingCopy& copy : chunk.out) {
            EXPECT_LE(copy.host + copy.bytes, chunk.output_bytes);
            for (size_t i = 0; i < copy.bytes; ++i) ++out[copy.device + i];
          }
        }
        EXPECT_EQ(counted, call.buffer.count);
        EXPECT_EQ(in, std::vector<int>(in.size(), 1)) << name_of(kind);
        EXPECT_EQ(out, std::vector<int>(out.size(), 1)) << name_of(kind);
      }
    }
  }
}

TEST(StagingPlan, TakesOneElementOfEveryBlockWhereTheyAreManyAndAllToAllByCountsWhole) {
  const Checked one(call_of(Collective::kAllGather), 0, 50, true);
  EXPECT_EQ(plan_staging(one.call, 50, 16).size(), 10U);
  const std::array<int64_t, 2> counts = {300, 200};
  Call call = call_of(Collective::kAllToAll);
  call.buffer.count = 0;
  call.send_counts = counts;
  call.receive_counts = counts;
  const Checked by_counts(call, 0, 2, false);
  const auto chunks = plan_staging(by_counts.call, 2, 16);
  ASSERT_EQ(chunks.size(), 1U);
  EXPECT_EQ(chunks[0].input_bytes, 2000U);
}

TEST(NcclTraffic, WhatIsSentIsReceivedAndALoneRankMovesNothing) {
  for (int n = 1; n <= 6; ++n) {
    std::vector<int> nodes;
    for (int rank = 0; rank < n; ++rank) nodes.push_back(rank / 2);
    const HostMap hosts = make_host_map(nodes);
    for (const Kind kind : {Kind::kAllReduce, Kind::kReduce, Kind::kBroadcast, Kind::kAllGather,
                            Kind::kReduceScatter}) {
      for (int root = 0; root < n; ++root) {
        const NcclStep step{.kind = kind, .count = 60, .type = DataType::kF32, .peer = root};
        Traffic all;
        for (int rank = 0; rank < n; ++rank) {
          const Traffic one = traffic_of(step, hosts, rank);
          all.bytes_sent += one.bytes_sent;
          all.bytes_received += one.bytes_received;
          all.bytes_sent_to_other_hosts += one.bytes_sent_to_other_hosts;
        }
        EXPECT_EQ(all.bytes_sent, all.bytes_received) << static_cast<int>(kind) << " of " << n;
        EXPECT_EQ(all.bytes_sent == 0, n == 1);
        EXPECT_EQ(all.bytes_sent_to_other_hosts == 0, n <= 2);
      }
    }
  }
}

TEST(NcclTraffic, IsThatOfARingAndAMessageIsAllOfIt) {
  const HostMap hosts = make_host_map(std::vector<int>{0, 0, 1, 1});
  const auto sent = [&](Kind kind, int rank, int peer) {
    return traffic_of({.kind = kind, .count = 100, .type = DataType::kF64, .peer = peer}, hosts,
                      rank)
        .bytes_sent;
  };
  EXPECT_EQ(sent(Kind::kAllReduce, 0, 0), 2U * 600);
  EXPECT_EQ(sent(Kind::kAllGather, 0, 0), 3U * 800);
  EXPECT_EQ(sent(Kind::kBroadcast, 1, 2), 0U) << "the last of the chain";
  EXPECT_EQ(sent(Kind::kBroadcast, 2, 2), 800U);
  EXPECT_EQ(sent(Kind::kReduce, 2, 2), 0U) << "the root";
  EXPECT_EQ(sent(Kind::kSend, 0, 3), 800U);
  EXPECT_EQ(sent(Kind::kReceive, 0, 3), 0U);
  const NcclStep message{.kind = Kind::kSend, .count = 1, .type = DataType::kF64, .peer = 3};
  EXPECT_EQ(traffic_of(message, hosts, 0).bytes_sent_to_other_hosts, 8U);
  EXPECT_EQ(traffic_of(message, hosts, 2).bytes_sent_to_other_hosts, 0U);
}

}  // namespace
}  // namespace lockstep::comm
