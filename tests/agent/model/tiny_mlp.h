#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "agent/model/make_model.h"
#include "agent/model/passes.h"
#include "tests/agent/model/tiny_gpt.h"

namespace lockstep::test {

// An MLP, or another model of samples, on the CPU with its store, sink and memory, for
// micro-batches of up to `rows` samples.
struct TinyMlp {
  kernels::Stream stream;
  model::WholeTensor whole;
  model::ModelOptions options;
  ArenaStore store;
  ArenaSink sink;
  std::vector<std::byte> memory[5];
  std::unique_ptr<model::Model> model;
  std::unique_ptr<model::MicroBatch> training;
  std::unique_ptr<model::MicroBatch> evaluating;

  explicit TinyMlp(const ModelDesign& design, int64_t rows,
                   const kernels::OpTable& ops = kernels::cpu_ops(),
                   model::BatchSums* batch = nullptr, const model::DropoutOptions& dropout = {})
      : options{.design = design, .stage = whole_model(design), .dropout = dropout},
        store(design, options.stage),
        sink(store.arena()),
        model(model::make_model(options, ops, stream, whole, batch).value()) {
    const ActivationShape train{rows, 1, PassMode::kTrain};
    const ActivationShape evaluate{rows, 1, PassMode::kEvaluate};
    const model::ModelMemory bytes = memory_of(train);
    model->use_memory({.scratch = workspace(0, bytes.scratch),
                       .workspace = workspace(1, bytes.workspace),
                       .tables = workspace(2, bytes.tables)});
    training = model->new_micro_batch(train, workspace(3, bytes.activations)).value();
    evaluating =
        model->new_micro_batch(evaluate, workspace(4, memory_of(evaluate).activations)).value();
    store.initialise({}, 3);
  }

  model::ModelMemory memory_of(const ActivationShape& shape) const {
    return model::model_memory(options, {}, shape, kernels::DeviceType::kCpu);
  }
  // Adds to the sink's gradients and returns the sum of the losses.
  double forward_backward(const model::DeviceBatch& batch, double terms) {
    EXPECT_TRUE(
        training->begin({.batch = batch, .gradient_scale = static_cast<float>(1 / terms)}).ok());
    EXPECT_TRUE(model::forward_pass(*model, store, *training).ok());
    EXPECT_TRUE(model::backward_pass(*model, store, *training, sink).ok());
    return sum_of(training->losses());
  }
  // Returns the sum of the losses of an evaluating pass.
  double loss(const model::DeviceBatch& batch) {
    EXPECT_TRUE(evaluating->begin({.batch = batch}).ok());
    EXPECT_TRUE(model::forward_pass(*model, store, *evaluating).ok());
    return sum_of(evaluating->losses());
  }
  double sum_of(const model::MicroBatch::Terms& terms) {
    double sum = 0;
    kernels::cpu_ops().loss_sum(stream,
                                {.losses = terms.values, .count = terms.count, .sum = &sum});
    return sum;
  }

 private:
  kernels::Workspace workspace(size_t index, size_t bytes) {
    memory[index].resize(bytes);
    return {memory[index].data(), bytes};
  }
};

}  // namespace lockstep::test
