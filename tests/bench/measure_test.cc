// Tests which results `lockstep bench` accepts as correct.
#include "bench/comm/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "common/base/clock.h"
#include "tests/agent/comm/worlds.h"

namespace lockstep::test {
namespace {

// Forwards all operations except one kind, for which it calls `instead`.
class Faulty final : public comm::Communicator {
 public:
  using Instead = std::function<Status(comm::Communicator&, const comm::Call&)>;
  Faulty(comm::Communicator& inner, comm::Collective kind, Instead instead)
      : inner_(inner), kind_(kind), instead_(std::move(instead)) {}

  using comm::Communicator::run;
  using comm::Communicator::start;
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  comm::Work start(std::span<const comm::Call> calls) override { return inner_.start(calls); }
  Status run(std::span<const comm::Call> calls) override {
    // Forwards the all-reduce of the error counts.
    const bool counts = calls[0].buffer.type == comm::DataType::kI64;
    if (calls[0].kind != kind_ || counts) return inner_.run(calls);
    return instead_(inner_, calls[0]);
  }
  Result<std::unique_ptr<comm::Communicator>> sub_group(const std::vector<int>& ranks) override {
    return inner_.sub_group(ranks);
  }
  std::unique_ptr<comm::ActivityReport> make_report() override { return inner_.make_report(); }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  void set_silence_limit(Duration limit) override { inner_.set_silence_limit(limit); }
  Status health() const override { return inner_.health(); }
  int suspect() const override { return inner_.suspect(); }
  comm::CollectiveCounts counts() const override { return inner_.counts(); }
  comm::Traffic traffic() const override { return inner_.traffic(); }
  const comm::HostMap& hosts() const override { return inner_.hosts(); }
  std::string path_to(int rank) const override { return inner_.path_to(rank); }
  std::string describe() const override { return inner_.describe(); }

 private:
  comm::Communicator& inner_;
  comm::Collective kind_;
  Instead instead_;
};

constexpr comm::Collective kKinds[] = {
    comm::Collective::kBroadcast, comm::Collective::kAllReduce,     comm::Collective::kAllGather,
    comm::Collective::kReduce,    comm::Collective::kReduceScatter, comm::Collective::kScatter,
    comm::Collective::kGather,    comm::Collective::kAllToAll,      comm::Collective::kSend};

// Returns the smaller number of wrong elements of the in-place and the out-of-place run.
int64_t wrong(comm::Collective kind, comm::DataType type, comm::ReduceOp op,
              const Faulty::Instead& instead) {
  test::World world = test::make_world(test::Transport::kThreads, 4);
  const bench::BenchSettings settings{.type = type, .op = op, .root = 1, .iterations = 1};
  int64_t fewest = -1;
  for (const bool in_place : {false, true}) {
    if (in_place && kind == comm::Collective::kSend) continue;
    int64_t found = -1;
    test::on_all(world, [&](comm::Communicator& comm) {
      Faulty faulty(comm, kind, instead);
      const auto measured = bench::measure(
          faulty, settings, {.operation = kind, .bytes = 16384, .in_place = in_place});
      ASSERT_TRUE(measured.ok()) << measured.error().message;
      if (comm.rank() == 0) found = measured->wrong;
    });
    fewest = fewest < 0 ? found : std::min(fewest, found);
  }
  return fewest;
}

TEST(Measure, FindsWhatDoesNothingWrong) {
  for (const comm::Collective kind : kKinds) {
    EXPECT_GT(wrong(kind, comm::DataType::kF32, comm::ReduceOp::kSum,
                    [](comm::Communicator&, const comm::Call&) { return Status(); }),
              0)
        << name_of(kind);
  }
}

TEST(Measure, FindsBlocksOfOtherRanksWrong) {
  EXPECT_GT(wrong(comm::Collective::kAllGather, comm::DataType::kU8, comm::ReduceOp::kSum,
                  [](comm::Communicator& comm, const comm::Call& call) {
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
  const bench::BenchSettings settings{.iterations = 5};
  test::on_all(world, [&](comm::Communicator& comm) {
    const SystemClock clock;
    Faulty faulty(comm, comm::Collective::kBroadcast,
                  [&](comm::Communicator& inner, const comm::Call& call) {
                    const TimePoint until = clock.now() + std::chrono::milliseconds(5);
                    const Status status = inner.run(call);
                    while (inner.rank() == 2 && clock.now() < until) {
                    }
                    return status;
                  });
    const auto measured =
        bench::measure(faulty, settings, {.operation = comm::Collective::kBroadcast, .bytes = 64});
    ASSERT_TRUE(measured.ok()) << measured.error().message;
    EXPECT_GE(measured->min_us, 4999) << comm.rank();
  });
}

TEST(Measure, FindsNothingWrongInWhatIsRightInEveryTypeAndReduction) {
  for (int type = 0; type < comm::kDataTypes; ++type) {
    for (int op = 0; op < comm::kReduceOps; ++op) {
      for (const comm::Collective kind : kKinds) {
        EXPECT_EQ(wrong(kind, static_cast<comm::DataType>(type), static_cast<comm::ReduceOp>(op),
                        [kind](comm::Communicator& comm, const comm::Call& call) {
                          if (kind != comm::Collective::kSend) return comm.run(call);
                          comm::Call receiving = call;
                          receiving.kind = comm::Collective::kReceive;
                          receiving.rank = (comm.rank() + comm.size() - 1) % comm.size();
                          receiving.buffer.input = nullptr;
                          const comm::Call both[] = {call, receiving};
                          return comm.run(both);
                        }),
                  0)
            << name_of(kind);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::test
