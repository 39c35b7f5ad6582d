#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "agent/model/clicks/click_layers.h"
#include "agent/model/clicks/click_model.h"
#include "agent/server/parameter_client.h"
#include "agent/train/clicks/click_rows.h"
#include "agent/train/clicks/key_order.h"
#include "common/api/training_job.h"
#include "common/base/clock.h"
#include "common/base/result.h"

namespace lockstep::train {

// Returns the hidden layers of a click model; nothing for a model without them.
std::optional<model::ClickLayers> click_layers(const ModelSpec& model);

// A worker's steps of a click model whose parameters are on servers: pulls what the rows need,
// computes, and pushes the gradients. While the servers take them, it pulls what the next step
// needs. One thread.
class ClickStep {
 public:
  // The client and the clock outlive it.
  ClickStep(server::ParameterClient& servers, const ModelSpec& model,
            const server::Encodings& encodings, const Clock& clock);

  // Gives the servers the initial values of the hidden layers, which are drawn as those of
  // nn.Linear.
  Status put_layers(uint64_t seed);

  struct Options {
    uint64_t clock = 0;  // steps that the worker has completed
    double scale = 1;    // of the gradient of the summed loss
    double learning_rate = 0;
  };
  struct Outcome {
    double loss_sum = 0;      // log loss over the rows, before the update
    bool is_late = false;     // the gradients counted for nothing
    uint64_t staleness = 0;   // staleness_of() the parameters
    double seconds_pull = 0;  // of waiting; forward and backward are the processor's
    double seconds_forward = 0;
    double seconds_backward = 0;
    double seconds_push = 0;
    double seconds_next = 0;  // of reading the next step's rows
  };
  // Reads the rows of the next step, which the next call of train() then gets; null if there is
  // none.
  using ReadNext = std::function<Result<const ClickRows*>()>;
  // There may be no rows: then it pushes nothing to every unit. Blocks for servers. Errors as
  // server::Transfer::wait(), and those of `read_next`, which may be empty.
  Result<Outcome> train(const ClickRows& rows, const Options& options,
                        const ReadNext& read_next = {});
  // Appends the logits of the rows.
  Status predict(const ClickRows& rows, uint64_t clock, std::vector<double>& logits);
  // The next call of train() gets other rows than were read.
  void forget_next() { next_clock_.reset(); }

 private:
  // The parameters that the rows of a step need.
  struct Parameters {
    std::vector<uint64_t> keys;   // of the rows, ascending, each once
    std::vector<uint32_t> slots;  // of each feature
    float bias = 0;
    std::vector<float> weights;
    std::vector<float> factors;
    std::vector<std::vector<float>> tensors;  // of the layers
    std::vector<server::Transfer> pulls;      // destroyed before the memory that they write
  };
  void begin_pull(const ClickRows& rows, uint64_t clock, Parameters& parameters);
  // Returns their staleness.
  static Result<uint64_t> finish_pull(uint64_t clock, Parameters& parameters);
  Status begin_next(const ReadNext& read_next, uint64_t clock);
  std::vector<server::Transfer> begin_push(const float& bias_gradient, const Options& options);
  void forward(const ClickRows& rows, std::span<double> logits);
  // Returns the bias's gradient.
  float backward(const ClickRows& rows, double scale);
  model::ClickBatch batch_of(const ClickRows& rows) const;
  model::ClickParameters parameters() const;
  std::vector<std::span<const float>> layer_parameters() const;

  server::ParameterClient& servers_;
  const size_t factors_;
  const server::Encodings encodings_;
  const Clock& clock_;
  model::ClickModel model_;
  std::optional<model::ClickLayers> layers_;
  KeyOrder key_order_;
  std::unique_ptr<Parameters> now_ = std::make_unique<Parameters>();
  std::unique_ptr<Parameters> next_ = std::make_unique<Parameters>();
  std::optional<uint64_t> next_clock_;  // with which next_ is pulled
  std::vector<float> weight_gradients_;
  std::vector<float> factor_gradients_;
  std::vector<std::vector<float>> tensor_gradients_;  // of the layers
  std::vector<double> logits_;
};

}  // namespace lockstep::train
