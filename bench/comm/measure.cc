#include "bench/comm/measure.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "bench/comm/input_values.h"
#include "common/base/clock.h"

namespace lockstep::bench {
namespace {

// Encodes a whole number of at most 127, which every type holds exactly, as an element of `type`.
std::array<std::byte, 8> encoded(comm::DataType type, int value) {
  std::array<std::byte, 8> memory{};
  const auto put = [&](auto typed) { std::memcpy(memory.data(), &typed, sizeof typed); };
  const auto real = static_cast<float>(value);
  switch (type) {
    case comm::DataType::kF32:
      put(real);
      break;
    case comm::DataType::kF64:
      put(double{real});
      break;
    case comm::DataType::kBf16:
      put(static_cast<uint16_t>(std::bit_cast<uint32_t>(real) >> 16));
      break;
    case comm::DataType::kF16: {
      // The exponent's bias is 112 less than a float's.
      const uint32_t bits = std::bit_cast<uint32_t>(real) >> 13;
      put(static_cast<uint16_t>(value == 0 ? 0 : bits - (112u << 10)));
      break;
    }
    case comm::DataType::kI32:
      put(int32_t{value});
      break;
    case comm::DataType::kI64:
      put(int64_t{value});
      break;
    case comm::DataType::kU8:
      put(static_cast<uint8_t>(value));
      break;
  }
  return memory;
}

struct Layout {
  int64_t in = 0;  // blocks
  int64_t out = 0;
  double bus_factor = 1;
};

Layout layout_of(comm::Collective operation, int64_t n, bool root) {
  const double others = static_cast<double>(n - 1) / static_cast<double>(n);
  switch (operation) {
    case comm::Collective::kAllReduce:
      return {1, 1, 2 * others};
    case comm::Collective::kAllGather:
      return {1, n, others};
    case comm::Collective::kGather:
      return {1, root ? n : 0, others};
    case comm::Collective::kReduceScatter:
      return {n, 1, others};
    case comm::Collective::kScatter:
      return {root ? n : 0, 1, others};
    case comm::Collective::kAllToAll:
      return {n, n, others};
    case comm::Collective::kReduce:
      return {1, root ? 1 : 0, 1};
    case comm::Collective::kBroadcast:
      return {root ? 1 : 0, 1, 1};
    case comm::Collective::kSend:
      return {1, 1, 1};
    default:
      return {0, 0, 0};
  }
}

class Bench {
 public:
  Bench(comm::Communicator& comm, const BenchSettings& settings, const MeasureOptions& options)
      : comm_(comm), settings_(settings), operation_(options.operation), device_(options.device) {
    const auto element = static_cast<int64_t>(comm::data_type_bytes(settings.type));
    const int64_t n = comm.size();
    layout_ = layout_of(operation_, n, comm.rank() == settings.root);
    const int64_t blocks = comm::traits(operation_).has_blocks ? n : 1;
    count_ = operation_ == comm::Collective::kBarrier
                 ? 0
                 : std::max<int64_t>(1, options.bytes / element / blocks);
    bytes_ = count_ * blocks * element;
    // Send-receive needs separate send and receive buffers.
    in_place_ = options.in_place && operation_ != comm::Collective::kSend;
    block_bytes_ = static_cast<size_t>(count_ * element);
    const auto of = [&](int64_t count) { return static_cast<size_t>(count) * block_bytes_; };
    output_.resize(of(in_place_ ? std::max(layout_.in, layout_.out) : layout_.out) + 8);
    if (!in_place_) input_.resize(of(layout_.in) + 8);
  }

  Result<Measurement> run() {
    TRY_ASSIGN(stream_, kernels::Stream::create(device_));
    TRY_ASSIGN(device_output_, kernels::Buffer::allocate(device_, output_.size(), "the bench"));
    TRY_ASSIGN(device_input_, kernels::Buffer::allocate(device_, input_.size(), "the bench"));
    fill();
    TRY(give(device_output_, output_));
    TRY(give(device_input_, input_));
    TRY(once());
    Measurement measurement{.count = count_, .bytes = bytes_};
    TRY_ASSIGN(measurement.wrong, wrong_on_all());
    TRY_ASSIGN(std::vector<double> times, timed());
    std::sort(times.begin(), times.end());
    measurement.iterations = static_cast<int>(times.size());
    measurement.min_us = times.front() * 1e6;
    measurement.p50_us = times[times.size() / 2] * 1e6;
    measurement.p99_us = times[times.size() * 99 / 100] * 1e6;
    measurement.bandwidth = static_cast<double>(bytes_) / times[times.size() / 2];
    measurement.bus_bandwidth = measurement.bandwidth * layout_.bus_factor;
    return measurement;
  }

 private:
  std::byte* own_block(std::byte* all) const {
    return all + static_cast<size_t>(comm_.rank()) * block_bytes_;
  }

  // Poisons the output first, so that elements that the operation fails to write count as wrong.
  void fill() {
    std::fill(output_.begin(), output_.end(), std::byte{kUnwritten});
    std::byte* from = in_place_ ? output_.data() : input_.data();
    if (in_place_ && layout_.in == 1 && layout_.out > 1) from = own_block(from);
    const size_t element = comm::data_type_bytes(settings_.type);
    for (int64_t i = 0; i < layout_.in * count_; ++i) {
      const auto value = encoded(settings_.type, value_of(comm_.rank(), i));
      std::memcpy(from + static_cast<size_t>(i) * element, value.data(), element);
    }
  }

  Status give(const kernels::Buffer& to, const std::vector<std::byte>& from) {
    if (from.empty()) return {};
    TRY(kernels::copy_bytes(stream_, {.to = to.data(), .from = from.data(), .bytes = from.size()}));
    return stream_.synchronize();
  }

  Status once() {
    const comm::Call call{.kind = operation_,
                          .buffer = {.data = device_output_.data(),
                                     .count = count_,
                                     .type = settings_.type,
                                     .device = device_,
                                     .input = in_place_ ? nullptr : device_input_.data(),
                                     .stream = stream_.handle()},
                          .op = settings_.op,
                          .rank = settings_.root,
                          .algorithm = settings_.algorithm};
    if (operation_ != comm::Collective::kSend) return comm_.run(call);
    // Sends to the next rank and receives from the previous one.
    std::array<comm::Call, 2> both = {call, call};
    both[0].rank = (comm_.rank() + 1) % comm_.size();
    both[1].kind = comm::Collective::kReceive;
    both[1].buffer.input = nullptr;
    both[1].rank = (comm_.rank() - 1 + comm_.size()) % comm_.size();
    return comm_.run(both);
  }

  bool reduces() const { return comm::traits(operation_).reduces; }

  int value_of(int rank, int64_t index) const {
    return reduces() ? reduction_input(settings_.op, rank, index) : input_value(rank, index);
  }

  // Returns how many ranks contribute a 1 to this element of the result.
  int ones_at(int64_t index) const {
    const int64_t own = operation_ == comm::Collective::kReduceScatter ? comm_.rank() * count_ : 0;
    int ones = 0;
    for (int rank = 0; rank < comm_.size(); ++rank) ones += value_of(rank, own + index);
    return ones;
  }

  int expected(int64_t index) const {
    const int n = comm_.size();
    const int64_t own = comm_.rank() * count_;
    if (reduces()) return reduction_result(settings_.op, ones_at(index), n);
    switch (operation_) {
      case comm::Collective::kBroadcast:
        return input_value(settings_.root, index);
      case comm::Collective::kScatter:
        return input_value(settings_.root, own + index);
      case comm::Collective::kAllGather:
      case comm::Collective::kGather:
        return input_value(static_cast<int>(index / count_), index % count_);
      case comm::Collective::kAllToAll:
        return input_value(static_cast<int>(index / count_), own + index % count_);
      default:
        return input_value((comm_.rank() - 1 + n) % n, index);
    }
  }

  // Averages that are not whole numbers are left to the tests: only integer types round them down.
  bool is_checked(int64_t index) const {
    return !reduces() || settings_.op != comm::ReduceOp::kAvg || ones_at(index) % comm_.size() == 0;
  }

  Result<int64_t> wrong_on_all() {
    TRY(kernels::copy_bytes(
        stream_, {.to = output_.data(), .from = device_output_.data(), .bytes = output_.size()}));
    TRY(stream_.synchronize());
    std::byte* at = output_.data();
    if (in_place_ && layout_.out == 1 && layout_.in > 1) at = own_block(at);
    const size_t element = comm::data_type_bytes(settings_.type);
    int64_t wrong = 0;
    for (int64_t i = 0; i < layout_.out * count_; ++i, at += element) {
      if (!is_checked(i)) continue;
      const auto value = encoded(settings_.type, expected(i));
      if (std::memcmp(at, value.data(), element) != 0) ++wrong;
    }
    TRY(comm_.all_reduce({.data = &wrong, .count = 1, .type = comm::DataType::kI64},
                         comm::ReduceOp::kSum));
    return wrong;
  }

  Result<double> seconds_of_one() {
    const SystemClock clock;
    const TimePoint begin = clock.now();
    TRY(once());
    return to_seconds(clock.now() - begin);
  }

  Result<std::vector<double>> timed() {
    // Zeros keep repeated in-place sums from overflowing.
    std::fill(output_.begin(), output_.end(), std::byte{0});
    TRY(give(device_output_, output_));
    double warm = 0;
    const int warm_ups = settings_.iterations > 0 ? 1 : 20;
    for (int i = 0; i < warm_ups; ++i) {
      TRY_ASSIGN(warm, seconds_of_one());
    }
    // All ranks use rank 0's estimate, so that they agree on the number of iterations.
    TRY_ASSIGN(const std::vector<double> guesses, comm_.all_gather_value(warm));
    const double about_a_second = 1.0 / std::max(1e-7, guesses.front());
    const int iterations = settings_.iterations > 0
                               ? settings_.iterations
                               : static_cast<int>(std::clamp(about_a_second, 20.0, 20'000.0));
    std::vector<double> times;
    times.reserve(static_cast<size_t>(iterations));
    TRY(comm_.barrier());
    for (int i = 0; i < iterations; ++i) {
      // Without a barrier, a rank that only sends would run ahead by what the buffers hold.
      if (comm::traits(operation_).has_root) TRY(comm_.barrier());
      TRY_ASSIGN(const double seconds, seconds_of_one());
      times.push_back(seconds);
    }
    // An operation takes as long as its slowest rank.
    TRY(comm_.all_reduce({.data = times.data(), .count = iterations, .type = comm::DataType::kF64},
                         comm::ReduceOp::kMax));
    return times;
  }

  comm::Communicator& comm_;
  const BenchSettings& settings_;
  comm::Collective operation_;
  Layout layout_;
  int64_t count_ = 0;
  int64_t bytes_ = 0;
  size_t block_bytes_ = 0;
  bool in_place_ = false;
  // Host copies, filled and checked here. The operation uses the device buffers below.
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  kernels::Device device_;
  kernels::Stream stream_;
  kernels::Buffer device_input_;
  kernels::Buffer device_output_;
};

}  // namespace

Result<Measurement> measure(comm::Communicator& comm, const BenchSettings& settings,
                            const MeasureOptions& options) {
  return Bench(comm, settings, options).run();
}

}  // namespace lockstep::bench
