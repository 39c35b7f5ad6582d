#include "tests/agent/parallel/exchange_ranks.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "agent/parallel/parameter_casts.h"
#include "common/layout/state_layout.h"
#include "kernels/device/device.h"

namespace lockstep::parallel {
namespace {

constexpr ModelConfig kConfig{1, 16, 1, 8, 50};  // with padding rows: the vocabulary has 50 tokens

// Returns values whose sum depends on the order of addition.
float drawn(int64_t rank, int64_t turn, int64_t index) {
  const auto mixed = static_cast<uint32_t>(rank * 7919 + turn * 104729 + 1) *
                     (2654435761U + 2 * static_cast<uint32_t>(index));
  return static_cast<float>(mixed % 100003) / 99991.0f - 0.5f;
}

Mesh mesh_of(const comm::Communicator& world) {
  return {.data = world.size()};
}

}  // namespace

ModelDesign exchanged_model() {
  return kConfig;
}

bool Exchanged::operator==(const Exchanged& other) const {
  const auto same_bits = [](kernels::Bf16 a, kernels::Bf16 b) { return a.bits == b.bits; };
  return norms == other.norms && parameters == other.parameters &&
         std::ranges::equal(copies, other.copies, same_bits);
}

struct ExchangeRank::Memory {
  kernels::Buffer parameters, gradients, made, copies, staging, values;
  std::array<kernels::Buffer, optim::kStatesMax> states;
  std::vector<float> drawn;  // on the host, while it is copied
  StepValues pinned;
  std::optional<StepScalars> scalars;
  std::optional<ParameterCasts> casts;
};

ExchangeRank::ExchangeRank(const ExchangeSetup& setup, comm::Communicator& world)
    : setup_(setup),
      world_(world),
      mesh_(mesh_of(world)),
      arena_(parameter_arena(exchanged_model(), whole_model(exchanged_model()))),
      groups_(RankGroups::create(world, mesh_groups(mesh_)).value()),
      ops_(kernels::device_ops(setup.device).value()),
      compute_(kernels::Stream::create(device()).value()),
      communication_(kernels::Stream::create(device()).value()),
      memory_(std::make_unique<Memory>()) {
  comm::Communicator& group = *groups_.of(Axis::kData).value();
  const ExchangeMemory plan =
      exchange_memory({.exchange = setup.exchange,
                       .arena = arena_,
                       .bucket_bytes = setup.bucket_bytes,
                       .optimizer = setup.optimizer,
                       .ranks = group.size(),
                       .rank = group.rank(),
                       .is_stream_ordered = group.device_traits().is_stream_ordered});
  const auto allocate = [&](uint64_t bytes) {
    return kernels::Buffer::allocate(device(), bytes).value();
  };
  Memory& memory = *memory_;
  memory.parameters = allocate(arena_bytes());
  memory.gradients = allocate(arena_bytes());
  memory.made = allocate(arena_bytes());
  memory.copies = allocate(setup.has_copies ? arena_bytes() / 2 : 0);
  memory.staging = allocate(plan.staging_bytes);
  memory.values = allocate(kStepScalarBytes);
  memory.scalars.emplace(
      StepScalars::Memory{.device = memory.values.data(), .pinned = &memory.pinned});
  ExchangeOptions options{.design = exchanged_model(),
                          .arena = arena_,
                          .bucket_bytes = setup.bucket_bytes,
                          .optimizer = setup.optimizer,
                          .parameters = memory.parameters.f32(),
                          .gradients = memory.gradients.f32(),
                          .staging = memory.staging.f32(),
                          .copies = static_cast<kernels::Bf16*>(memory.copies.data()),
                          .shared = setup.shared};
  const size_t kinds = optim::state_kinds(setup.optimizer).size();
  for (size_t i = 0; i < kinds && plan.state_bytes > 0; ++i) {
    memory.states[i] = allocate(plan.state_bytes / kinds);
    options.states[i] = memory.states[i].f32();
  }
  if (setup.has_copies) {
    options.casts = &memory.casts.emplace(
        exchanged_model(),
        ShardLayout(exchanged_model(), arena_, {.ranks = 1, .unit_bytes = setup.bucket_bytes}),
        setup.optimizer.rounding_seed, *ops_);
  }
  const auto share =
      StateLayout(exchanged_model(), mesh_).share(0, coordinates(mesh_, world.rank()).data);
  options.range = {share.begin, share.end};
  exchange_ = make_exchange(setup.exchange, options,
                            {.group = group,
                             .norm_groups = {},
                             .ops = *ops_,
                             .compute = compute_,
                             .communication = communication_})
                  .value();
  write_parameters();
}

// After a failure, work may still be pending.
ExchangeRank::~ExchangeRank() {
  (void)communication_.synchronize();
  (void)compute_.synchronize();
}

void ExchangeRank::write_parameters() {
  std::vector<float> values(static_cast<size_t>(arena_.count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = drawn(-1, 0, static_cast<int64_t>(i));
  EXPECT_TRUE(kernels::copy_bytes(
                  compute_,
                  {.to = memory_->parameters.data(), .from = values.data(), .bytes = arena_bytes()})
                  .ok());
  EXPECT_TRUE(compute_.synchronize().ok());
  EXPECT_TRUE(exchange_->parameters_written(0).ok());
}

Status ExchangeRank::add(int64_t first, int64_t last) {
  for (int64_t id = last; id >= first; --id) {
    const ArenaEntry& entry = *arena_.find(id);
    float* gradient = exchange_->buffer(id);
    ops_->add(compute_, {.a = kernels::ConstView(gradient),
                         .b = kernels::ConstView(memory_->made.f32() + entry.offset),
                         .out = kernels::View(gradient),
                         .count = entry.count});
    TRY(exchange_->ready(id));
  }
  return {};
}

Status ExchangeRank::make(int64_t micro_batch, float extra) {
  Memory& memory = *memory_;
  TRY(compute_.synchronize());
  memory.drawn.resize(static_cast<size_t>(arena_.count));
  for (size_t i = 0; i < memory.drawn.size(); ++i) {
    memory.drawn[i] = drawn(world_.rank(), micro_batch, static_cast<int64_t>(i));
  }
  memory.drawn.front() += extra;
  return kernels::copy_bytes(
      compute_, {.to = memory.made.data(), .from = memory.drawn.data(), .bytes = arena_bytes()});
}

Status ExchangeRank::backward(int64_t step, float extra) {
  memory_->scalars->clear(*ops_, compute_);
  exchange_->begin_step(*ops_);
  const int64_t last = arena_.entries.back().id;
  TRY(make(2 * step, extra));
  TRY(add(0, last));
  TRY(exchange_->end_micro_batch());
  exchange_->enable_reduction();
  TRY(make(2 * step + 1, 0));
  TRY(add(0, last));
  return exchange_->end_micro_batch();
}

Status ExchangeRank::finish(int64_t step) {
  TRY(exchange_->finish());
  TRY(update(step));
  TRY(exchange_->wait());
  TRY_ASSIGN(const StepValues values, memory_->scalars->read(compute_));
  norms_.push_back(values.norm());
  return {};
}

Status ExchangeRank::update(int64_t step) {
  return exchange_->update({.step = step,
                            .learning_rate = 0.01,
                            .clip_norm = setup_.clip_norm,
                            .values = memory_->scalars->on_device()});
}

Status ExchangeRank::step(int64_t step, float extra) {
  TRY(backward(step, extra));
  return finish(step);
}

Exchanged ExchangeRank::result() {
  Exchanged result{.norms = norms_,
                   .parameters = std::vector<float>(static_cast<size_t>(arena_.count))};
  result.copies.resize(memory_->copies.bytes() / sizeof(kernels::Bf16));
  EXPECT_TRUE(kernels::copy_bytes(compute_, {.to = result.parameters.data(),
                                             .from = memory_->parameters.data(),
                                             .bytes = arena_bytes()})
                  .ok());
  if (!result.copies.empty()) {
    EXPECT_TRUE(kernels::copy_bytes(compute_, {.to = result.copies.data(),
                                               .from = memory_->copies.data(),
                                               .bytes = memory_->copies.bytes()})
                    .ok());
  }
  EXPECT_TRUE(compute_.synchronize().ok());
  return result;
}

Exchanged exchanged(const ExchangeSetup& setup, comm::Communicator& world, int64_t steps) {
  ExchangeRank rank(setup, world);
  for (int64_t step = 1; step <= steps; ++step) {
    const Status status = rank.step(step);
    EXPECT_TRUE(status.ok()) << status.error().message;
    if (!status.ok()) break;
  }
  return rank.result();
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double differences = 0, squares = 0;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    differences += std::pow(double{a[i]} - b[i], 2);
    squares += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(differences / squares);
}

SharedFile::SharedFile() : fd_(::memfd_create("exchange-test", MFD_CLOEXEC)) {
  EXPECT_GE(fd_, 0);
}

SharedFile::~SharedFile() {
  ::close(fd_);
}

}  // namespace lockstep::parallel
