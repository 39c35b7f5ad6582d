#include "agent/train/attention_choice.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "agent/train/random_fill.h"
#include "common/base/log.h"
#include "kernels/ops/dnn/dnn.h"

namespace lockstep::train {
namespace {

constexpr char kBy[] = "the measurement of attention";

// All that both passes read and write.
struct Tensors {
  kernels::Buffer qkv, out, lse, dout, dqkv, workspace;
};

Result<Tensors> make_tensors(kernels::Stream& stream, const kernels::AttentionShape& s,
                             size_t workspace) {
  const kernels::Device device = stream.device();
  const auto rows = static_cast<size_t>(s.batch * s.sequence);
  const size_t wide = rows * static_cast<size_t>(s.qkv_width()) * sizeof(kernels::Bf16);
  const size_t narrow = rows * static_cast<size_t>(s.width()) * sizeof(kernels::Bf16);
  Tensors t;
  TRY_ASSIGN(t.qkv, kernels::Buffer::allocate(device, wide, kBy));
  TRY_ASSIGN(t.dqkv, kernels::Buffer::allocate(device, wide, kBy));
  TRY_ASSIGN(t.out, kernels::Buffer::allocate(device, narrow, kBy));
  TRY_ASSIGN(t.dout, kernels::Buffer::allocate(device, narrow, kBy));
  TRY_ASSIGN(t.lse, kernels::Buffer::allocate(
                        device, rows * static_cast<size_t>(s.heads) * sizeof(float), kBy));
  TRY_ASSIGN(t.workspace, kernels::Buffer::allocate(device, workspace, kBy));
  TRY(fill_random(stream, t.qkv, kernels::DType::kBf16));
  TRY(fill_random(stream, t.dout, kernels::DType::kBf16));
  return t;
}

void run_both_passes(const kernels::OpTable& ops, kernels::Stream& stream,
                     const kernels::AttentionShape& shape, const Tensors& t,
                     kernels::AttentionBy by) {
  const auto view = [](const kernels::Buffer& buffer) {
    return kernels::View(buffer.data(), kernels::DType::kBf16);
  };
  ops.attention_forward(stream, {.qkv = view(t.qkv),
                                 .out = view(t.out),
                                 .lse = t.lse.f32(),
                                 .shape = shape,
                                 .workspace = t.workspace.workspace(),
                                 .by = by});
  ops.attention_backward(stream, {.dout = view(t.dout),
                                  .qkv = view(t.qkv),
                                  .out = view(t.out),
                                  .lse = t.lse.f32(),
                                  .dqkv = view(t.dqkv),
                                  .shape = shape,
                                  .workspace = t.workspace.workspace(),
                                  .by = by});
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Bytes of workspace of cuDNN's.
Result<size_t> prepare(const AttentionWish& wish) {
  if (wish.device.type == kernels::DeviceType::kCpu)
    return unavailable("[cudnn] expected a GPU, got none");
  if (wish.precision != kernels::Precision::kBf16) {
    return unavailable("[cudnn] expected precision bf16, got fp32");
  }
  TRY_ASSIGN(const size_t bytes, kernels::dnn::prepare_attention(wish.device, wish.shape));
  if (wish.room) TRY(wish.room(bytes));
  return bytes;
}

// Rank 0, where every rank can.
kernels::AttentionBy measured(const AttentionWish& wish, size_t workspace, const Clock& clock) {
  const auto time = [&]() -> Result<AttentionTimes> {
    TRY_ASSIGN(const kernels::OpTable* ops, kernels::device_ops(wish.device.type));
    TRY_ASSIGN(kernels::Stream stream, kernels::Stream::create(wish.device));
    return time_attention(*ops, stream, wish.shape, workspace, {}, clock);
  };
  const Result<AttentionTimes> times = time();
  if (!times.ok()) {
    log_info("using own attention kernels: cuDNN's could not be measured",
             {{"reason", times.error().message}});
    return kernels::AttentionBy::kOwn;
  }
  const kernels::AttentionBy by =
      times->cudnn < times->own ? kernels::AttentionBy::kCudnn : kernels::AttentionBy::kOwn;
  log_info("attention measured", {{"by", name_of(by)},
                                  {"ownSeconds", times->own},
                                  {"cudnnSeconds", times->cudnn},
                                  {"cudnnWorkspaceBytes", workspace}});
  return by;
}

kernels::AttentionBy chosen(const AttentionWish& wish, size_t workspace, const Clock& clock) {
  if (wish.setting == "cudnn") return kernels::AttentionBy::kCudnn;
  if (!wish.kept) return measured(wish, workspace, clock);
  log_info("using the attention chosen when this run began", {{"by", name_of(*wish.kept)}});
  return *wish.kept;
}

}  // namespace

const char* name_of(kernels::AttentionBy by) {
  return by == kernels::AttentionBy::kCudnn ? "cudnn" : "own";
}

std::optional<kernels::AttentionBy> attention_named(std::string_view name) {
  for (const kernels::AttentionBy by : {kernels::AttentionBy::kOwn, kernels::AttentionBy::kCudnn}) {
    if (name == name_of(by)) return by;
  }
  return {};
}

Result<AttentionTimes> time_attention(const kernels::OpTable& ops, kernels::Stream& stream,
                                      const kernels::AttentionShape& shape, size_t cudnn_workspace,
                                      const AttentionRounds& rounds, const Clock& clock) {
  const size_t own_workspace = kernels::attention_workspace(shape, stream.device().type);
  TRY_ASSIGN(const Tensors tensors,
             make_tensors(stream, shape, std::max(cudnn_workspace, own_workspace)));
  const auto seconds_of = [&](kernels::AttentionBy by) -> Result<double> {
    const TimePoint begin = clock.now();
    for (int i = 0; i < rounds.times; ++i) run_both_passes(ops, stream, shape, tensors, by);
    TRY(stream.synchronize());
    return to_seconds(clock.now() - begin) / rounds.times;
  };
  std::vector<double> own, cudnn;
  for (int round = 0; round <= rounds.rounds; ++round) {  // the first one to warm up
    TRY_ASSIGN(const double own_seconds, seconds_of(kernels::AttentionBy::kOwn));
    TRY_ASSIGN(const double cudnn_seconds, seconds_of(kernels::AttentionBy::kCudnn));
    if (round == 0) continue;
    own.push_back(own_seconds);
    cudnn.push_back(cudnn_seconds);
  }
  return AttentionTimes{.own = median(std::move(own)), .cudnn = median(std::move(cudnn))};
}

Result<kernels::AttentionBy> choose_attention(comm::Communicator& world, const AttentionWish& wish,
                                              const Clock& clock) {
  if (wish.setting == "own") return kernels::AttentionBy::kOwn;
  const Result<size_t> workspace = prepare(wish);
  if (!workspace.ok()) {
    log_info("cuDNN attention is not available", {{"reason", workspace.error().message}});
  }
  const int64_t can = workspace.ok() ? 1 : 0;
  TRY_ASSIGN(const std::vector<int64_t> able, world.all_gather_value(can));
  const auto lacks = std::ranges::find(able, 0);
  if (lacks != able.end()) {
    if (wish.setting == "auto") return kernels::AttentionBy::kOwn;
    return invalid("spec.train.attention: cudnn must work on every rank, but rank " +
                       std::to_string(lacks - able.begin()) +
                       " cannot use it (its log has the reason); set own or auto",
                   Blame::kConfig);
  }
  const kernels::AttentionBy mine =
      world.rank() == 0 ? chosen(wish, *workspace, clock) : kernels::AttentionBy::kOwn;
  TRY_ASSIGN(const std::vector<kernels::AttentionBy> all, world.all_gather_value(mine));
  return all.front();
}

}  // namespace lockstep::train
