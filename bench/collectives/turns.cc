#include "bench/collectives/turns.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "bench/comm/input_values.h"
#include "common/base/clock.h"

namespace lockstep::bench {
namespace {

using nlohmann::json;

struct Request {
  std::string operation;
  int64_t bytes = 0;
  int times = 1;
  bool check = false;
};

class Buffers {
 public:
  Buffers(const Library& library, const Request& request)
      : rank_(library.rank()), size_(library.size()) {
    if (request.operation == "all-gather") turn_.kind = comm::Collective::kAllGather;
    if (request.operation == "reduce-scatter") turn_.kind = comm::Collective::kReduceScatter;
    if (request.operation == "broadcast") turn_.kind = comm::Collective::kBroadcast;
    if (request.operation == "all-to-all") turn_.kind = comm::Collective::kAllToAll;
    if (request.operation == "all-reduce-lor") turn_.op = comm::ReduceOp::kLor;
    takes_blocks_ =
        turn_.kind == comm::Collective::kReduceScatter || turn_.kind == comm::Collective::kAllToAll;
    gives_blocks_ =
        turn_.kind == comm::Collective::kAllGather || turn_.kind == comm::Collective::kAllToAll;
    const int64_t blocks = takes_blocks_ || gives_blocks_ ? size_ : 1;
    turn_.count = std::max<int64_t>(1, request.bytes / 4 / blocks);
    in_place_ =
        turn_.kind == comm::Collective::kAllReduce || turn_.kind == comm::Collective::kBroadcast;
    const auto block = static_cast<size_t>(turn_.count);
    const auto n = static_cast<size_t>(size_);
    input_.resize(in_place_ ? 0 : block * (takes_blocks_ ? n : 1));
    output_.resize(block * (gives_blocks_ ? n : 1));
    turn_.input = reinterpret_cast<std::byte*>(input_.data());
    turn_.output = reinterpret_cast<std::byte*>(output_.data());
  }

  Turn& turn() { return turn_; }
  // Size of the larger of input and output.
  size_t bytes() const { return std::max(input_.size(), output_.size()) * sizeof(int32_t); }

  // Poisons the output first, so that elements that the operation fails to write count as wrong.
  void fill() {
    std::memset(output_.data(), kUnwritten, output_.size() * sizeof(int32_t));
    if (turn_.kind == comm::Collective::kBroadcast && rank_ != turn_.root) return;
    std::vector<int32_t>& from = in_place_ ? output_ : input_;
    for (size_t i = 0; i < from.size(); ++i)
      from[i] = stored(value_of(rank_, static_cast<int64_t>(i)));
  }

  // In-place results are the next operation's input: zeros keep sums from overflowing.
  void clear() {
    std::fill(input_.begin(), input_.end(), 0);
    std::fill(output_.begin(), output_.end(), 0);
  }

  int64_t wrong(const std::byte* result) const {
    int64_t wrong = 0;
    for (size_t i = 0; i < output_.size(); ++i) {
      int32_t got = 0;
      std::memcpy(&got, result + i * sizeof got, sizeof got);
      if (got != stored(expected(static_cast<int64_t>(i)))) ++wrong;
    }
    return wrong;
  }

 private:
  int32_t stored(int value) const {
    if (turn_.op == comm::ReduceOp::kLor) return value;
    const auto real = static_cast<float>(value);
    int32_t bits = 0;
    std::memcpy(&bits, &real, sizeof bits);
    return bits;
  }

  bool reduces() const {
    return turn_.kind == comm::Collective::kAllReduce ||
           turn_.kind == comm::Collective::kReduceScatter;
  }

  int value_of(int rank, int64_t index) const {
    return reduces() ? reduction_input(turn_.op, rank, index) : input_value(rank, index);
  }

  int expected(int64_t index) const {
    const int64_t own = rank_ * turn_.count;
    if (turn_.kind == comm::Collective::kBroadcast) return input_value(turn_.root, index);
    if (gives_blocks_) {
      const int64_t at = index % turn_.count + (takes_blocks_ ? own : 0);
      return input_value(static_cast<int>(index / turn_.count), at);
    }
    const int64_t at = takes_blocks_ ? own + index : index;
    int ones = 0;
    for (int rank = 0; rank < size_; ++rank) ones += value_of(rank, at);
    return reduction_result(turn_.op, ones, size_);
  }

  int rank_;
  int size_;
  Turn turn_;
  bool takes_blocks_ = false;
  bool gives_blocks_ = false;
  bool in_place_ = false;
  std::vector<int32_t> input_;
  std::vector<int32_t> output_;
};

// Returns the seconds that one operation takes.
Result<double> sample(Library& library, Turn& turn) {
  const SystemClock clock;
  const int operations = turn.kind == comm::Collective::kBroadcast ? library.size() : 1;
  const TimePoint begin = clock.now();
  for (int i = 0; i < operations; ++i) {
    turn.root = i;
    TRY(library.run(turn));
  }
  return to_seconds(clock.now() - begin) / operations;
}

Result<json> answer(Library& library, const Request& request) {
  Buffers buffers(library, request);
  Turn& turn = buffers.turn();
  if (const std::string lacks = library.unsupported_reason(turn); !lacks.empty())
    return json{{"lacks", lacks}};
  int64_t wrong = 0;
  if (request.check) {
    turn.root = library.size() - 1;
    buffers.fill();
    TRY(library.run(turn));
    wrong = buffers.wrong(library.result(turn));
  }
  buffers.clear();
  for (int i = 0; i < std::max(2, request.times / 10); ++i) {
    TRY_ASSIGN([[maybe_unused]] const double warm_up, sample(library, turn));
  }
  std::vector<double> us;
  double sum = 0;
  for (int i = 0; i < request.times; ++i) {
    TRY_ASSIGN(const double seconds, sample(library, turn));
    us.push_back(seconds * 1e6);
    sum += us.back();
  }
  std::sort(us.begin(), us.end());
  return json{{"bytes", buffers.bytes()},
              {"wrong", wrong},
              {"minUs", us.front()},
              {"p50Us", us[us.size() / 2]},
              {"p99Us", us[us.size() * 99 / 100]},
              {"meanUs", sum / static_cast<double>(us.size())}};
}

}  // namespace

int serve_turns(int socket, Library& library) {
  std::FILE* stream = ::fdopen(socket, "r+");
  if (stream == nullptr) return 1;
  const auto say = [&](const json& document) {
    const std::string line = document.dump() + "\n";
    return ::write(socket, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  };
  bool fine =
      say({{"rank", library.rank()}, {"size", library.size()}, {"library", library.describe()}});
  char line[256];
  while (fine && std::fgets(line, sizeof line, stream) != nullptr) {
    Request request;
    std::istringstream words(line);
    words >> request.operation >> request.bytes >> request.times >> request.check;
    const auto result = answer(library, request);
    if (!result.ok()) std::fprintf(stderr, "%s\n", result.error().message.c_str());
    fine = result.ok() && say(*result);
  }
  std::fclose(stream);
  return fine ? 0 : 1;
}

}  // namespace lockstep::bench
