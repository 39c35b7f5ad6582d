// Tests which results the comparison of libraries accepts as correct.
#include "bench/collectives/turns.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/comm/input_values.h"

namespace lockstep::test {
namespace {

constexpr int kRank = 1;
constexpr int kRanks = 4;

void put(const bench::Turn& turn, int64_t index, int value) {
  reinterpret_cast<float*>(turn.output)[index] = static_cast<float>(value);
}

// A single rank; the data of the other ranks is known.
class Alone final : public bench::Library {
 public:
  explicit Alone(std::function<void(const bench::Turn&)> body) : body_(std::move(body)) {}

  int rank() const override { return kRank; }
  int size() const override { return kRanks; }
  std::string describe() const override { return "a test's"; }
  std::string unsupported_reason(const bench::Turn&) const override { return ""; }
  Status run(const bench::Turn& turn) override {
    body_(turn);
    return {};
  }

 private:
  std::function<void(const bench::Turn&)> body_;
};

// Returns the number of elements that the check finds wrong.
int64_t wrong(const std::string& operation, std::function<void(const bench::Turn&)> body) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  std::thread server([&] {
    Alone library(std::move(body));
    EXPECT_EQ(bench::serve_turns(ends[1], library), 0);
  });
  const std::string request = operation + " 4096 1 1\n";
  EXPECT_EQ(::write(ends[0], request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::FILE* stream = ::fdopen(ends[0], "r");
  char line[512] = "{}";
  for (int i = 0; i < 2; ++i) EXPECT_NE(std::fgets(line, sizeof line, stream), nullptr);
  std::fclose(stream);
  server.join();
  return nlohmann::json::parse(line).value("wrong", int64_t{-1});
}

TEST(Given, DiffersFromRankToRankAndFromBlockToBlock) {
  const auto agreeing = [](int a, int64_t a_begin, int b, int64_t b_begin) {
    int same = 0;
    for (int64_t i = 0; i < 256; ++i)
      same += bench::input_value(a, a_begin + i) == bench::input_value(b, b_begin + i);
    return same;
  };
  for (int a = 0; a < 64; ++a) {
    EXPECT_LT(agreeing(a, 0, a, 256), 32) << a;
    for (int b = a + 1; b < 64; ++b) EXPECT_LT(agreeing(a, 0, b, 0), 32) << a << ", " << b;
  }
}

TEST(Turns, WhatDoesNothingIsWrong) {
  for (const char* operation :
       {"broadcast", "all-gather", "reduce-scatter", "all-to-all", "all-reduce"}) {
    EXPECT_GT(wrong(operation, [](const bench::Turn&) {}), 0) << operation;
  }
}

TEST(Turns, WhatIsRightIsNotWrong) {
  EXPECT_EQ(wrong("broadcast",
                  [](const bench::Turn& turn) {
                    for (int64_t i = 0; i < turn.count; ++i)
                      put(turn, i, bench::input_value(turn.root, i));
                  }),
            0);
  EXPECT_EQ(wrong("all-gather",
                  [](const bench::Turn& turn) {
                    for (int64_t i = 0; i < turn.count * kRanks; ++i) {
                      put(turn, i,
                          bench::input_value(static_cast<int>(i / turn.count), i % turn.count));
                    }
                  }),
            0);
}

TEST(Turns, BlocksOfOtherRanksAndTheOwnValueTimesTheirNumberAreWrong) {
  EXPECT_GT(wrong("all-gather",
                  [](const bench::Turn& turn) {
                    for (int64_t i = 0; i < turn.count * kRanks; ++i) {
                      const auto block = static_cast<int>(i / turn.count);
                      const int mixed_up = block == 0 ? 3 : block == 3 ? 0 : block;
                      put(turn, i, bench::input_value(mixed_up, i % turn.count));
                    }
                  }),
            0);
  EXPECT_GT(wrong("all-reduce",
                  [](const bench::Turn& turn) {
                    for (int64_t i = 0; i < turn.count; ++i) {
                      put(turn, i, bench::reduction_input(comm::ReduceOp::kSum, kRank, i) * kRanks);
                    }
                  }),
            0);
}

}  // namespace
}  // namespace lockstep::test
