#include "agent/parallel/pushed_gradients.h"

namespace lockstep::parallel {

PushedGradients::PushedGradients(const ExchangeOptions& options, kernels::Stream& compute)
    : arena_(options.arena),
      table_(parameter_table(options.design)),
      parameters_(options.parameters),
      gradients_(options.gradients),
      remote_(*options.remote),
      compute_(compute) {}

void PushedGradients::expect_update(const UpdateRequest& request) {
  clock_ = request.step - 1;
  learning_rate_ = request.learning_rate;
}

void PushedGradients::begin_step(const kernels::OpTable& ops) {
  is_final_ = false;
  ops.fill(compute_, {.out = kernels::View(gradients_), .count = arena_.count});
}

const ArenaEntry& PushedGradients::entry_of(int64_t id) const {
  const ArenaEntry* entry = arena_.find(id);
  CHECK(entry != nullptr);
  return *entry;
}

float* PushedGradients::buffer(int64_t id) {
  return gradients_ + entry_of(id).offset;
}

Status PushedGradients::ready(int64_t id) {
  if (!is_final_) return {};
  const ArenaEntry& entry = entry_of(id);
  const bool is_statistic = table_[static_cast<size_t>(id)].is_statistic;
  remote_.push({.id = id,
                .clock = clock_,
                .learning_rate = is_statistic ? double{kStatisticRate} : learning_rate_,
                .gradient = {gradients_ + entry.offset, static_cast<size_t>(entry.count)}});
  return {};
}

Status PushedGradients::end_micro_batch() {
  is_final_ = false;
  return {};
}

Status PushedGradients::parameters_written(int64_t step) {
  if (step != 0) return internal("[exchange] expected that servers have the state of a checkpoint");
  for (const ArenaEntry& entry : arena_.entries) {
    TRY(remote_.put(entry.id, {parameters_ + entry.offset, static_cast<size_t>(entry.count)}));
  }
  return {};
}

}  // namespace lockstep::parallel
