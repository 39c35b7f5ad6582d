#include "agent/parallel/state_stream.h"

#include <algorithm>
#include <array>

namespace lockstep::parallel {
namespace {

int64_t count_of(const std::vector<ShardRun>& pieces) {
  int64_t count = 0;
  for (const ShardRun& piece : pieces) count += piece.count;
  return count;
}

bool is_rank_zero(const std::vector<int64_t>& ranks) {
  return ranks.size() == 1 && ranks.front() == 0;
}

std::vector<float> pack(const std::vector<ShardRun>& pieces, const float* slice, int64_t begin) {
  std::vector<float> packed;
  packed.reserve(static_cast<size_t>(count_of(pieces)));
  for (const ShardRun& piece : pieces) {
    const float* from = slice + piece.global - begin;
    packed.insert(packed.end(), from, from + piece.count);
  }
  return packed;
}

comm::CommBuffer buffer_of(std::vector<float>& values) {
  return {.data = values.data(), .count = std::ssize(values)};
}

}  // namespace

Status StateStream::each_tensor(size_t kinds,
                                const std::function<Status(const StateTensor&)>& move) const {
  CHECK(kinds <= mine_.kinds.size());
  for (size_t kind = 0; kind < kinds; ++kind) {
    for (const Parameter& parameter : layout_.table()) TRY(move({parameter, kind}));
  }
  return {};
}

std::vector<StateStream::Part> StateStream::parts_of(const StateTensor& tensor,
                                                     const std::vector<int64_t>& ranks) const {
  std::vector<Part> parts;
  for (const int64_t rank : ranks) {
    if (!is_root() && rank != world_.rank()) continue;  // the others exchange values with rank 0
    parts.push_back({rank, layout_.pieces(tensor.parameter, rank)});
  }
  return parts;
}

StateStream::Slice StateStream::slice_at(int64_t begin, const StateTensor& tensor,
                                         const std::vector<Part>& parts) const {
  const int64_t end = std::min(begin + piece_values_, tensor.parameter.count());
  Slice slice{.tensor = tensor, .begin = begin, .end = end, .parts = {}};
  for (const Part& part : parts) {
    std::vector<ShardRun> here = runs_within(part.pieces, begin, end);
    if (!here.empty()) slice.parts.push_back({part.rank, std::move(here)});
  }
  return slice;
}

Status StateStream::distribute(StateSource* source, size_t kinds) {
  CHECK(is_root() == (source != nullptr));
  return each_tensor(kinds, [&](const StateTensor& tensor) -> Status {
    const std::vector<int64_t> holders = layout_.holders(tensor.parameter);
    if (is_rank_zero(holders)) return is_root() ? read_all(tensor, *source) : Status();
    const std::vector<Part> parts = parts_of(tensor, holders);
    for (int64_t at = 0; at < tensor.parameter.count(); at += piece_values_) {
      TRY(distribute_slice(slice_at(at, tensor, parts), source));
    }
    return {};
  });
}

Status StateStream::distribute_slice(const Slice& slice, StateSource* source) {
  if (!is_root()) {
    if (slice.parts.empty()) return {};
    std::vector<float> packed(static_cast<size_t>(count_of(slice.parts.front().pieces)));
    TRY(world_.receive(buffer_of(packed), 0));
    return write_mine(slice, slice.parts.front(), packed);
  }
  std::vector<float> values(static_cast<size_t>(slice.end - slice.begin));
  TRY(source->read(slice.tensor, slice.begin, values));
  std::vector<std::vector<float>> packed;
  packed.reserve(slice.parts.size());  // the sends point into it
  std::vector<comm::Work> works;
  for (const Part& part : slice.parts) {
    packed.push_back(pack(part.pieces, values.data(), slice.begin));
    if (part.rank == 0) {
      TRY(write_mine(slice, part, packed.back()));
    } else {
      works.push_back(world_.start_send(buffer_of(packed.back()), static_cast<int>(part.rank)));
    }
  }
  for (comm::Work& work : works) TRY(work.wait());
  return {};
}

std::vector<ValueRun> StateStream::runs_here(const StateTensor& tensor, const Part& part) const {
  CHECK(part.rank == world_.rank());
  std::vector<ValueRun> runs;
  for (const ShardRun& piece : part.pieces) {
    for (const ValueRun& run : mine_.runs(tensor.kind, piece.local, piece.count)) {
      if (!runs.empty() && runs.back().data + runs.back().count == run.data) {
        runs.back().count += run.count;
      } else {
        runs.push_back(run);
      }
    }
  }
  return runs;
}

Status StateStream::write_mine(const Slice& slice, const Part& part,
                               std::span<const float> packed) {
  const float* next = packed.data();
  return mine_.transfer.write(runs_here(slice.tensor, part),
                              [&](size_t, int64_t, std::span<float> to) {
                                std::copy_n(next, to.size(), to.data());
                                next += to.size();
                                return Status();
                              });
}

Status StateStream::read_all(const StateTensor& tensor, StateSource& source) {
  const Part part{0, layout_.pieces(tensor.parameter, 0)};
  int64_t next = 0;
  return mine_.transfer.write(runs_here(tensor, part),
                              [&](size_t, int64_t, std::span<float> to) -> Status {
                                TRY(source.read(tensor, next, to));
                                next += std::ssize(to);
                                return {};
                              });
}

}  // namespace lockstep::parallel
