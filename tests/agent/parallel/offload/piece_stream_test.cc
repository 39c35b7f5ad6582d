// The CPU's form. emulated_offload_test.cc has the GPU's.
#include "agent/parallel/offload/piece_stream.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "kernels/device/arena.h"
#include "tests/agent/parallel/offload/far_values.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kRoom = 128;

// Two buffers of the CPU.
struct Buffers {
  std::array<kernels::Buffer, 2> owned;

  explicit Buffers(size_t bytes) {
    for (kernels::Buffer& buffer : owned) buffer = kernels::Buffer::allocate({}, bytes).value();
  }
  PieceMemory memory() const { return {.device = {owned[0].workspace(), owned[1].workspace()}}; }
};

// Advances only when told to.
struct Streamed {
  kernels::Stream stream;
  ManualClock clock;
  Buffers buffers;
  std::unique_ptr<PieceStream> pieces;

  explicit Streamed(const std::vector<StreamedArray>& arrays, int64_t room = kRoom)
      : buffers(arrays.size() * static_cast<size_t>(room) * sizeof(float)),
        pieces(make_piece_stream(stream, arrays, buffers.memory(), clock).value()) {}
  std::span<float> at(size_t piece, size_t array, const FarRange& range) const {
    return {pieces->places().at(piece, array), static_cast<size_t>(range.count)};
  }
};

std::vector<FarRange> ranges_of(int64_t count) {
  std::vector<FarRange> ranges;
  for (int64_t at = 0; at < count; at += kRoom) {
    ranges.push_back({.first = at, .count = std::min(kRoom, count - at)});
  }
  return ranges;
}

FarMemory counted(int64_t count, float first) {
  FarMemory far = far_file(count);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = first++;
  EXPECT_TRUE(far.write(0, values).ok());
  return far;
}

TEST(PieceStream, BringsEveryPieceOfEveryArrayInOrderAndWritesItBack) {
  for (const int64_t count : {1, 128, 129, 256, 1000}) {
    const FarMemory first = counted(count, 1), second = counted(count, 5000);
    Streamed streamed({{.memory = &first}, {.memory = &second}});
    const std::vector<FarRange> ranges = ranges_of(count);
    for (int run = 0; run < 3; ++run) {
      size_t next = 0;
      ASSERT_TRUE(streamed.pieces
                      ->run(ranges,
                            [&](size_t piece) {
                              EXPECT_EQ(piece, next++);
                              const FarRange& range = ranges[piece];
                              const auto one = streamed.at(piece, 0, range);
                              const auto two = streamed.at(piece, 1, range);
                              EXPECT_EQ(two[0] - one[0], run == 0 ? 4999 : 0);
                              std::copy(one.begin(), one.end(), two.begin());
                              for (float& value : one) ++value;
                              for (float& value : two) ++value;
                              return Status();
                            })
                      .ok());
      EXPECT_EQ(next, ranges.size());
    }
    const std::vector<float> expected = values_of(counted(count, 4));
    EXPECT_EQ(values_of(first), expected);
    EXPECT_EQ(values_of(second), expected);
    const uint64_t bytes = 3 * 2 * static_cast<uint64_t>(count) * sizeof(float);
    EXPECT_EQ(streamed.pieces->counts().bytes_read, bytes);
    EXPECT_EQ(streamed.pieces->counts().bytes_written, bytes);
  }
}

TEST(PieceStream, ReadsAndWritesOnlyTheArraysThatAreReadOrWritten) {
  constexpr int64_t kCount = 300;
  const FarMemory read = counted(kCount, 1), written = counted(kCount, 1000);
  Streamed streamed(
      {{.memory = &read, .is_written = false}, {.memory = &written, .is_read = false}});
  const std::vector<FarRange> ranges = ranges_of(kCount);
  ASSERT_TRUE(streamed.pieces
                  ->run(ranges,
                        [&](size_t piece) {
                          const auto from = streamed.at(piece, 0, ranges[piece]);
                          const auto to = streamed.at(piece, 1, ranges[piece]);
                          std::copy(from.begin(), from.end(), to.begin());
                          std::fill(from.begin(), from.end(), -1.0f);
                          return Status();
                        })
                  .ok());
  EXPECT_EQ(values_of(read), values_of(counted(kCount, 1)));
  EXPECT_EQ(values_of(written), values_of(counted(kCount, 1)));
  EXPECT_EQ(streamed.pieces->counts().bytes_read, kCount * sizeof(float));
  EXPECT_EQ(streamed.pieces->counts().bytes_written, kCount * sizeof(float));
}

TEST(PieceStream, LeavesWhatIsInNoPieceAlone) {
  const FarMemory far = counted(1000, 0);
  Streamed streamed({{.memory = &far}});
  const std::vector<FarRange> ranges{{.first = 700, .count = 100}, {.first = 10, .count = 3}};
  ASSERT_TRUE(streamed.pieces
                  ->run(ranges,
                        [&](size_t piece) {
                          for (float& value : streamed.at(piece, 0, ranges[piece])) value = -value;
                          return Status();
                        })
                  .ok());
  std::vector<float> expected = values_of(counted(1000, 0));
  for (size_t i = 0; i < expected.size(); ++i) {
    if ((i >= 700 && i < 800) || (i >= 10 && i < 13)) expected[i] = -expected[i];
  }
  EXPECT_EQ(values_of(far), expected);
  EXPECT_TRUE(streamed.pieces->run({}, [](size_t) { return Status(); }).ok());
}

TEST(PieceStream, EndsWithTheErrorOfAVisitAndCanRunAgain) {
  const FarMemory far = counted(10 * kRoom, 0);
  Streamed streamed({{.memory = &far}});
  const std::vector<FarRange> ranges = ranges_of(far.count());
  for (size_t bad = 0; bad < ranges.size(); ++bad) {
    size_t visits = 0;
    const Status done = streamed.pieces->run(ranges, [&](size_t piece) {
      ++visits;
      return piece == bad ? Status(unavailable("[test] broken")) : Status();
    });
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().message, "[test] broken");
    EXPECT_EQ(visits, bad + 1);
    EXPECT_TRUE(streamed.pieces->run(ranges, [](size_t) { return Status(); }).ok());
  }
  EXPECT_EQ(values_of(far), values_of(counted(far.count(), 0)));
}

TEST(PieceStream, EndsWithTheErrorOfAWriteInTheMiddle) {
  const int status = in_child([] {
    const FarMemory far = counted(10 * kRoom, 0);
    Streamed streamed({{.memory = &far}});
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 4 * kRoom * sizeof(float), .rlim_max = RLIM_INFINITY};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    size_t visits = 0;
    const Status done = streamed.pieces->run(ranges_of(far.count()), [&](size_t) {
      ++visits;
      return Status();
    });
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().message, "[offload] writing to a scratch file: File too large");
    // The fifth piece is written while the sixth is visited; the seventh waits for that.
    EXPECT_LE(visits, 6U);
    EXPECT_EQ(streamed.pieces->counts().bytes_written, 4 * kRoom * sizeof(float));
  });
  EXPECT_EQ(status, 0);
}

TEST(PieceStream, CountsTheTimeInWhichNothingIsComputed) {
  const FarMemory far = counted(4 * kRoom, 0);
  Streamed streamed({{.memory = &far}});
  for (int run = 1; run <= 2; ++run) {
    ASSERT_TRUE(streamed.pieces
                    ->run(ranges_of(far.count()),
                          [&](size_t) {
                            streamed.clock.advance(std::chrono::milliseconds(250));
                            return Status();
                          })
                    .ok());
    EXPECT_DOUBLE_EQ(streamed.pieces->counts().seconds, run);
    EXPECT_EQ(streamed.pieces->counts().waited_seconds, 0);
  }
}

TEST(PieceStream, TakesNoMemoryOfTheProcessButItsBuffers) {
  if (!std::string_view(LOCKSTEP_SANITIZERS).empty()) GTEST_SKIP() << "sanitizers take memory too";
  constexpr int64_t kLarge = (int64_t{128} << 20) / static_cast<int64_t>(sizeof(float));
  for (const std::string& folder : file_system_folders(2 * kLarge * sizeof(float))) {
    const FarMemory first = far_file(kLarge, folder), second = far_file(kLarge, folder);
    const auto room = static_cast<int64_t>(piece_buffer_bytes(2, kLarge) / 2 / sizeof(float));
    Streamed streamed({{.memory = &first}, {.memory = &second}}, room);
    std::vector<FarRange> ranges;
    for (int64_t at = 0; at < kLarge; at += room) ranges.push_back({.first = at, .count = room});
    const double before = resident_mib();
    double most = before;
    for (int run = 0; run < 2; ++run) {
      ASSERT_TRUE(streamed.pieces
                      ->run(ranges,
                            [&](size_t piece) {
                              most = std::max(most, resident_mib());
                              for (float& value : streamed.at(piece, 0, ranges[piece])) ++value;
                              return Status();
                            })
                      .ok());
    }
    EXPECT_LE(most - before, kResidentMibMax) << "MiB in " << folder;
    EXPECT_EQ(streamed.pieces->counts().bytes_written, size_t{512} << 20);
  }
}

TEST(PieceBuffers, HoldAPieceOfEachArrayAndNoMoreThanTheArraysNeed) {
  for (const size_t arrays : {1, 2, 3}) {
    const size_t large = piece_buffer_bytes(arrays, int64_t{1} << 40);
    EXPECT_LE(large, kOffloadPieceBytes);
    EXPECT_GT(large, kOffloadPieceBytes - arrays * kernels::kArenaAlign);
    for (const int64_t count : {1, 64, 65, 1000}) {
      const Buffers buffers(piece_buffer_bytes(arrays, count));
      const PiecePlaces places(arrays, buffers.memory().device);
      EXPECT_GE(places.room(), count);
      EXPECT_LT(places.room(), count + 64);
      EXPECT_EQ(places.at(3, arrays - 1) + places.room(),
                buffers.owned[1].f32() + buffers.owned[1].bytes() / sizeof(float));
    }
  }
  EXPECT_EQ(piece_buffer_bytes(0, 1000), 0U);
  EXPECT_EQ(piece_buffer_bytes(2, 0), 0U);
}

}  // namespace
}  // namespace lockstep::parallel
