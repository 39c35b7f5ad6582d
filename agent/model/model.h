#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent/model/device_batch.h"
#include "agent/model/generate_options.h"
#include "agent/model/grad_sink.h"
#include "agent/model/param_store.h"
#include "agent/model/pass_observer.h"
#include "common/base/result.h"
#include "common/layout/activations.h"
#include "common/layout/parameters.h"
#include "kernels/device/device.h"
#include "kernels/ops/matmul.h"

namespace lockstep::model {

// One pass of a micro-batch: forward, and in training backward.
struct PassInput {
  // Its pointers are caller-owned and stay valid until the pass is over.
  DeviceBatch batch;
  // Weight of each counted term of the loss in the gradient. 1 / terms of the global batch gives
  // the gradient of the mean loss.
  float gradient_scale = 1.0f;
  int64_t version = kLatestVersion;  // of the parameters that forward reads
  PassObserver* observer = nullptr;  // of the last block's backward; null: none
  // In training with dropout: the number of the first sample in the order of training. The samples
  // after it are the next ones.
  int64_t first_sample = 0;
};

// A micro-batch on its way through a stage of a model, from its forward to its backward, with the
// activations in between. Callers run the blocks one by one, forward in ascending and backward in
// descending order, and pass in what they read. Passes reuse its memory. Several micro-batches may
// be between forward and backward at the same time. It holds a reference to its model.
class MicroBatch {
 public:
  virtual ~MicroBatch() = default;

  // Starts a new pass. Allocates nothing for batches of up to the capacity's samples.
  virtual Status begin(const PassInput& input) = 0;
  // `parameters` are the block's, in the order of block_parameters().
  virtual Status forward(int64_t block, std::span<const ParamView> parameters) = 0;
  // Call after the whole forward, on a micro-batch that trains. Adds to the sink's buffers and
  // reports when each is complete.
  virtual Status backward(int64_t block, std::span<const ParamView> parameters, GradSink& sink) = 0;
  // The second part of a backward, if the model splits_backward (ModelOptions): the gradients of
  // the layers' matrices. Call after the whole backward(), with the blocks in descending order.
  // Together they add what backward() of another model adds. backward() may need the sink's buffers
  // for the other parameters. Only what this reports to the sink counts as ready. Reads no
  // parameters. kInternal for another model.
  virtual Status backward_weights(int64_t block, GradSink& sink);

  // The values that come from the stage before and go to the next one, in activation_dtype(), and
  // how many there are for the pass's samples. The input is filled before forward, the output is
  // valid after it. Unspecified at the ends of the model.
  virtual kernels::View stage_input() const { return {}; }
  virtual int64_t input_count() const { return 0; }
  virtual kernels::View stage_output() const { return {}; }
  virtual int64_t output_count() const { return 0; }
  // Their gradients, in memory that all micro-batches share: the output's is filled right before
  // backward, the input's is valid right after it.
  virtual kernels::View output_gradient() const { return {}; }
  virtual kernels::View input_gradient() const { return {}; }

  // Returns the version of the parameters of this pass.
  virtual int64_t version() const = 0;
  // Whether its passes have a backward (PassMode::kTrain).
  virtual bool trains() const = 0;

  // The terms of the loss in fp32, in device memory: their sum is the loss's. Valid after forward
  // when evaluating, and after the last block's backward when training. None on other stages than
  // the last one.
  struct Terms {
    const float* values = nullptr;  // null: none
    int64_t count = 0;
  };
  virtual Terms losses() const = 0;
  // 1 for each right answer, 0 for each wrong or uncounted one. Only when evaluating a model that
  // has_accuracy. Valid after forward.
  virtual Terms hits() const = 0;
  // The same for answers among the kTopAnswers most likely ones. None for other models.
  virtual Terms top_hits() const { return {}; }
};

// Caller-owned memory that all micro-batches of a model share (ModelMemory's parts).
struct SharedMemory {
  kernels::Workspace scratch;
  kernels::Workspace gathered;
  kernels::Workspace workspace;
  kernels::Workspace tables;
};

// The exact bytes that passes of a shape need. A model given this memory (use_memory()) allocates
// nothing.
struct ModelMemory {
  size_t activations = 0;  // per micro-batch
  size_t scratch = 0;      // once, like those below: gradients of activations
  size_t gathered = 0;     // rows of all shards, if each keeps a part of them
  size_t workspace = 0;    // of the operations, for this device and the current set_threads()
  size_t tables = 0;       // constants: a Llama's rotary embedding (kernels/ops/rotary.h)
  // Part of the scratch: the logits that a transformer computes at a time in training.
  int64_t logits_rows = 0;
  size_t logits_bytes = 0;
};

// Returns the type of activations and their gradients: bf16 on CUDA with Precision::kBf16, else
// fp32. Losses, the statistics of norms and attention, parameters and their gradients are always
// fp32.
kernels::DType activation_dtype(kernels::DeviceType device, kernels::Precision precision);

// A model, or consecutive blocks of one, as pure computation: it holds no parameters and no state
// of a micro-batch, and knows no ranks. agent/model/make_model.h makes one of any family. Passes
// allocate nothing. One thread at a time.
class Model {
 public:
  virtual ~Model() = default;

  virtual const Stage& stage() const = 0;
  // Returns the layout of the rank's parameters and gradients.
  virtual const ParameterArena& parameters() const = 0;

  // Uses caller-owned memory, which must outlive the model, as long as it is large enough. Call
  // before the first micro-batch is made.
  virtual void use_memory(const SharedMemory& memory) = 0;
  // Makes a micro-batch of up to shape.batch samples, in caller-owned memory of
  // ModelMemory::activations bytes that outlives it. Micro-batches may share memory if their passes
  // do not overlap. The model outlives them, and its address stays the same.
  virtual Result<std::unique_ptr<MicroBatch>> new_micro_batch(const ActivationShape& shape,
                                                              kernels::Workspace memory) = 0;

  // Continues a text (agent/model/transformer/generate.h). kInvalid for families without texts.
  virtual Result<std::vector<int32_t>> generate(ParamStore& store,
                                                const GenerateOptions& options) = 0;
};

}  // namespace lockstep::model
