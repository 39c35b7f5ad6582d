// Tests which results `lockstep bench` accepts as correct.
#include "bench/comm/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "common/base/clock.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep {
namespace {

// Forwards all operations except one kind, for which it calls `instead`.
class Faulty final : public Communicator {
 public:
  using Instead = std::function<Status(Communicator&, const Call&)>;
  Faulty(Communicator& inner, Collective kind, Instead instead)
      : inner_(inner), kind_(kind), instead_(std::move(instead)) {}

  using Communicator::run;
  using Communicator::start;
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Work start(std::span<const Call> calls) override { return inner_.start(calls); }
  Status run(std::span<const Call> calls) override {
    // Forwards the all-reduce of the error counts.
    const bool counts = calls[0].buffer.type == DataType::kI64;
    if (calls[0].kind != kind_ || counts) return inner_.run(calls);
    return instead_(inner_, calls[0]);
  }
  Result<std::unique_ptr<Communicator>> sub_group(const std::vector<int>& ranks) override {
    return inner_.sub_group(ranks);
  }
  std::unique_ptr<ActivityReport> make_report() override { return inner_.make_report(); }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  void set_silence_limit(Duration limit) override { inner_.set_silence_limit(limit); }
  Status health() const override { return inner_.health(); }
  int suspect() const override { return inner_.suspect(); }
  CollectiveCounts counts() const override { return inner_.counts(); }
  Traffic traffic() const override { return inner_.traffic(); }
  const HostMap& hosts() const override { return inner_.hosts(); }
  std::string path_to(int rank) const override { return inner_.path_to(rank); }
  std::string describe() const override { return inner_.describe(); }

 private:
  Communicator& inner_;
  Collective kind_;
  Instead instead_;
};

constexpr Collective kKinds[] = {
    Collective::kBroadcast, Collective::kAllReduce,     Collective::kAllGather,
    Collective::kReduce,    Collective::kReduceScatter, Collective::kScatter,
    Collective::kGather,    Collective::kAllToAll,      Collective::kSend};

// Returns the smaller number of wrong elements of the in-place and the out-of-place run.
int64_t wrong(Collective kind, DataType type, ReduceOp op, const Faulty::Instead& instead) {
  test::World world = test::make_world(test::Transport::kThreads, 4);
  const BenchSettings settings{.type = type, .op = op, .root = 1, .iterations = 1};
  int64_t fewest = -1;
  for (const bool in_place : {false, true}) {
    if (in_place && kind == Collective::kSend) continue;
    int64_t found = -1;
    test::on_all(world, [&](Communicator& comm) {
      Faulty faulty(comm, kind, instead);
      const auto measured =
          measure(faulty, settings, {.operation = kind, .bytes = 16384, .in_place = in_place});
      ASSERT_TRUE(measured.ok()) << measured.error().message;
      if (comm.rank() == 0) found = measured->wrong;
    });
    fewest = fewest < 0 ? found : std::min(fewest, found);
  }
  return fewest;
}

TEST(Measure, FindsWhatDoesNothingWrong) {
  for (const Collective kind : kKinds) {
    EXPECT_GT(wrong(kind, DataType::kF32, ReduceOp::kSum,
                    [](Communicator&, const Call&) { return Status(); }),
              0)
        << name_of(kind);
  }
}

TEST(Measure, FindsBlocksOfOtherRanksWrong) {
  EXPECT_GT(wrong(Collective::kAllGather, DataType::kU8, ReduceOp::kSum,
                  [](Communicator& comm, const Call& call) {
                    const Status status = comm.run(call);
                    auto* bytes = static_cast<std::byte*>(call.buffer.data);
                    const auto block = call.buffer.count;
                    std::swap_ranges(bytes, bytes + block, bytes + 2 * block);
                    return status;
                  }),
            0);
}

TEST(Measure, TellsOnEveryRankHowLongTheSlowestTook) {
  test::World world = test::make_world(test::Transport::kThreads, 3);
  const BenchSettings settings{.iterations = 5};
  test::on_all(world, [&](Communicator& comm) {
    const SystemClock clock;
    Faulty faulty(comm, Collective::kBroadcast, [&](Communicator& inner, const Call& call) {
      const TimePoint until = clock.now() + std::chrono::milliseconds(5);
      const Status status = inner.run(call);
      while (inner.rank() == 2 && clock.now() < until) {
      }
      return status;
    });
    const auto measured =
        measure(faulty, settings, {.operation = Collective::kBroadcast, .bytes = 64});
    ASSERT_TRUE(measured.ok()) << measured.error().message;
    EXPECT_GE(measured->min_us, 4999) << comm.rank();
  });
}

TEST(Measure, FindsNothingWrongInWhatIsRightInEveryTypeAndReduction) {
  for (int type = 0; type < kDataTypes; ++type) {
    for (int op = 0; op < kReduceOps; ++op) {
      for (const Collective kind : kKinds) {
        EXPECT_EQ(wrong(kind, static_cast<DataType>(type), static_cast<ReduceOp>(op),
                        [kind](Communicator& comm, const Call& call) {
                          if (kind != Collective::kSend) return comm.run(call);
                          Call receiving = call;
                          receiving.kind = Collective::kReceive;
                          receiving.rank = (comm.rank() + comm.size() - 1) % comm.size();
                          receiving.buffer.input = nullptr;
                          const Call both[] = {call, receiving};
                          return comm.run(both);
                        }),
                  0)
            << name_of(kind);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
