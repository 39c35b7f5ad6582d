#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "agent/comm/gpu/device_communicator.h"
#include "agent/comm/gpu/gpu_links.h"
#include "agent/comm/reduce.h"
#include "kernels/device/nvml.h"
#include "tests/agent/comm/values.h"
#include "tests/agent/comm/worlds.h"
#include "tests/kernels/gpu_cases.h"

namespace lockstep::comm {
namespace {

using test::expect;

constexpr size_t kCount = 10'007;

// Values of a type, on the GPU and on the host.
struct Values {
  DataType type = DataType::kF32;
  std::vector<std::byte> host;
  kernels::Buffer device;
  kernels::Stream stream;

  static Result<Values> make(DataType type, kernels::Device device, const test::Draw& draw,
                             size_t count) {
    Values values{.type = type, .host = {}, .device = {}, .stream = {}};
    values.host.resize(count * data_type_bytes(type));
    for (size_t i = 0; i < count; ++i) {
      test::store(
          type, values.host.data(), i,
          test::draw(type, ReduceOp::kSum, {.seed = draw.seed, .rank = draw.rank, .index = i}));
    }
    TRY_ASSIGN(values.stream, kernels::Stream::create(device));
    TRY_ASSIGN(values.device, kernels::Buffer::allocate(device, values.host.size()));
    TRY(kernels::copy_bytes(
        values.stream,
        {.to = values.device.data(), .from = values.host.data(), .bytes = values.host.size()}));
    return values;
  }

  size_t count() const { return host.size() / data_type_bytes(type); }
  // Returns a buffer of the first `elements` values.
  CommBuffer buffer(size_t elements) const {
    return {.data = device.data(),
            .count = static_cast<int64_t>(elements),
            .type = type,
            .device = stream.device(),
            .stream = stream.handle()};
  }
  Result<std::vector<std::byte>> read() {
    std::vector<std::byte> bytes(host.size());
    TRY(kernels::copy_bytes(stream,
                            {.to = bytes.data(), .from = device.data(), .bytes = bytes.size()}));
    TRY(stream.synchronize());
    return bytes;
  }
  // Checks that the GPU has wanted(i) everywhere.
  Status expect_all(const std::string& what, const std::function<test::Value(size_t)>& wanted) {
    TRY_ASSIGN(const std::vector<std::byte> got, read());
    for (size_t i = 0; i < count(); ++i) {
      const test::Value is = test::load(type, got.data(), i);
      const test::Value should = wanted(i);
      TRY(expect(is == should, what + " at " + std::to_string(i) + ": " + std::to_string(is.real) +
                                   ", not " + std::to_string(should.real)));
    }
    return {};
  }
};

Status arithmetic_agrees_with_the_cpu() {
  const kernels::Device gpu{kernels::DeviceType::kCuda, 0};
  const auto device = make_comm_device(gpu);
  for (int i = 0; i < kDataTypes; ++i) {
    const auto type = static_cast<DataType>(i);
    TRY_ASSIGN(Values values, Values::make(type, gpu, {.seed = 1}, kCount));
    std::vector<std::byte> expected = values.host;
    TRY(device->divide(values.stream.handle(), type,
                       {.data = values.device.data(), .count = kCount, .ranks = 3}));
    divide_by_ranks(type, expected.data(), kCount, 3);
    TRY_ASSIGN(const std::vector<std::byte> divided, values.read());
    TRY(expect(divided == expected, std::string("division of ") + name_of(type)));
    TRY(device->to_boolean(
        values.stream.handle(), type,
        {.to = values.device.data(), .from = values.device.data(), .count = kCount}));
    reduce(type, ReduceOp::kLor,
           {.into = expected.data(), .a = expected.data(), .b = expected.data(), .count = kCount});
    TRY_ASSIGN(const std::vector<std::byte> truth, values.read());
    TRY(expect(truth == expected, std::string("truth of ") + name_of(type)));
  }
  return {};
}

test::Value given(uint64_t seed, int rank, size_t index) {
  return test::draw(DataType::kF32, ReduceOp::kSum, {.seed = seed, .rank = rank, .index = index});
}

// One rank's part: reductions of values that each rank draws itself, exact in any order.
Status reduce_by_rank(Communicator& comm, kernels::Device device) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kLor}) {
    const test::Draw own{.seed = 7, .rank = comm.rank()};
    TRY_ASSIGN(Values values, Values::make(DataType::kF32, device, own, kCount));
    TRY(comm.all_reduce(values.buffer(kCount), op));
    TRY(values.expect_all(std::string("all_reduce ") + name_of(op), [&](size_t i) {
      std::vector<test::Value> all;
      for (int rank = 0; rank < comm.size(); ++rank) all.push_back(given(own.seed, rank, i));
      return test::reduced(DataType::kF32, op, all);
    }));
  }
  return {};
}

// The copy is issued after the start of the operation, without waiting.
Status leave_its_stream_to_what_comes_later(Communicator& comm, kernels::Device device) {
  if (!comm.device_traits().is_stream_ordered) return {};
  const test::Draw own{.seed = 11, .rank = comm.rank()};
  TRY_ASSIGN(Values values, Values::make(DataType::kF32, device, own, kCount));
  Work work = comm.start_all_reduce(values.buffer(kCount), ReduceOp::kSum);
  const Status seen = values.expect_all("all_reduce, by its stream alone,", [&](size_t i) {
    std::vector<test::Value> all;
    for (int rank = 0; rank < comm.size(); ++rank) all.push_back(given(own.seed, rank, i));
    return test::reduced(DataType::kF32, ReduceOp::kSum, all);
  });
  TRY(work.wait());
  return seen;
}

// Gathers the blocks of every rank in order, then sends each back to its rank.
Status gather_and_exchange(Communicator& comm, kernels::Device device) {
  const auto n = static_cast<size_t>(comm.size());
  const test::Draw own{.seed = 9, .rank = comm.rank()};
  TRY_ASSIGN(Values all, Values::make(DataType::kF32, device, own, kCount * n));
  TRY(comm.all_gather(all.buffer(kCount)));
  const auto block_begin = [&](size_t rank) { return rank * kCount; };
  // In-place, a rank's block is the one in its slot.
  const auto block_of = [&](size_t rank, size_t i) {
    return given(own.seed, static_cast<int>(rank), block_begin(rank) + i);
  };
  TRY(all.expect_all("all_gather", [&](size_t i) { return block_of(i / kCount, i % kCount); }));
  TRY_ASSIGN(Values blocks, Values::make(DataType::kF32, device, own, kCount * n));
  TRY(comm.all_to_all(blocks.buffer(kCount)));
  const auto mine = static_cast<size_t>(comm.rank());
  return blocks.expect_all("all_to_all", [&](size_t i) {
    return given(own.seed, static_cast<int>(i / kCount), block_begin(mine) + i % kCount);
  });
}

Status reduce_and_gather(Communicator& comm, kernels::Device device) {
  TRY(reduce_by_rank(comm, device));
  TRY(leave_its_stream_to_what_comes_later(comm, device));
  return gather_and_exchange(comm, device);
}

// Runs ranks as threads, rank r on device_of(r).
Status world_of(int size, DeviceBackendKind backend, const std::function<int(int)>& device_of) {
  test::World hosts = test::make_world(test::Transport::kThreads, size);
  std::vector<Status> results(static_cast<size_t>(size));
  test::on_ranks(size, [&](int rank) {
    const auto at = static_cast<size_t>(rank);
    const kernels::Device device{kernels::DeviceType::kCuda, device_of(rank)};
    auto comm =
        make_device_communicator(std::move(hosts[at]), {.device = device, .backend = backend});
    results[at] = comm.ok() ? reduce_and_gather(**comm, device) : Status(comm.error());
    // No rank shall wait for one that has given up.
    if (comm.ok() && !results[at].ok()) (*comm)->abort(results[at].error().message);
  });
  for (const Status& status : results) TRY(status);
  return {};
}

Status two_ranks_share_one_gpu_by_way_of_host_memory() {
  return world_of(2, DeviceBackendKind::kAuto, [](int) { return 0; });
}

Status nccl_serves_one_rank() {
  return world_of(1, DeviceBackendKind::kNccl, [](int) { return 0; });
}

Status nccl_serves_a_rank_on_every_gpu() {
  return world_of(kernels::device_count(kernels::DeviceType::kCuda), DeviceBackendKind::kNccl,
                  [](int rank) { return rank; });
}

Status gpus_and_their_links_are_named() {
  const std::string text = gpus_text(look_at_gpus());
  TRY(expect(text != "none" && text.find("unknown GPU") == std::string::npos, text));
  TRY_ASSIGN(const kernels::DeviceInfo info, kernels::describe({kernels::DeviceType::kCuda, 0}));
  TRY_ASSIGN(const std::unique_ptr<kernels::Nvml> nvml, kernels::Nvml::load());
  TRY_ASSIGN(const kernels::GpuSample sample, nvml->sample(info.bus));
  return expect(sample.memory_used_bytes.has_value(), "NVML says no memory for " + info.bus);
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  using namespace lockstep;
  using namespace lockstep::comm;
  const std::vector<test::GpuCase> cases = {
      {"arithmetic agrees with the CPU", arithmetic_agrees_with_the_cpu},
      {"two ranks share one GPU by way of host memory",
       two_ranks_share_one_gpu_by_way_of_host_memory},
      {"NCCL serves one rank", nccl_serves_one_rank},
      {"NCCL serves a rank on every GPU", nccl_serves_a_rank_on_every_gpu},
      {"GPUs and their links are named", gpus_and_their_links_are_named},
  };
  return test::run_gpu_cases(cases, {argv, static_cast<size_t>(argc)});
}
