#pragma once

#include "kernels/device/device.h"
#include "kernels/ops/adagrad.h"
#include "kernels/ops/adamw.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/batchnorm.h"
#include "kernels/ops/classifier.h"
#include "kernels/ops/clip_scale.h"
#include "kernels/ops/conv2d.h"
#include "kernels/ops/dropout.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/ftrl.h"
#include "kernels/ops/gelu.h"
#include "kernels/ops/inverse_norm.h"
#include "kernels/ops/layernorm.h"
#include "kernels/ops/loss_sum.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/pointwise.h"
#include "kernels/ops/pool.h"
#include "kernels/ops/rmsnorm.h"
#include "kernels/ops/rotary.h"
#include "kernels/ops/sampling.h"
#include "kernels/ops/sgd.h"
#include "kernels/ops/squared_error.h"
#include "kernels/ops/squared_norm.h"
#include "kernels/ops/swiglu.h"

namespace lockstep::kernels {

// The operations of one device. All tensors are row-major and dense. The caller owns every buffer;
// an op neither allocates nor synchronises nor knows ranks. Pointers are to memory of the stream's
// device, but for spans of tensors, which are read during the call. An argument that the header
// does not allow is a bug of ours and trips CHECK. Results are the same bits for the same
// arguments, device type and number of threads. Sizes may be 0 (nothing is done).
//
// On the CPU activations are fp32; bf16 enters through Precision and Cast. On CUDA the activations
// of a call and their gradients are all fp32 or all bf16, by the dtype of their views; weights and
// biases of norms, losses, statistics of rows and gradients of parameters are fp32; tables of
// embeddings are either. Stream::synchronize() reports failures on CUDA.
struct OpTable {
  void (*embedding_forward)(Stream&, const EmbeddingForward&);
  void (*embedding_backward)(Stream&, const EmbeddingBackward&);
  void (*layernorm_forward)(Stream&, const LayerNormForward&);
  void (*layernorm_backward)(Stream&, const LayerNormBackward&);
  void (*rmsnorm_forward)(Stream&, const RmsNormForward&);
  void (*rmsnorm_backward)(Stream&, const RmsNormBackward&);
  void (*matmul_forward)(Stream&, const MatmulForward&);
  void (*matmul_backward)(Stream&, const MatmulBackward&);
  void (*gelu_forward)(Stream&, const GeluForward&);
  void (*gelu_backward)(Stream&, const GeluBackward&);
  void (*pointwise_forward)(Stream&, const PointwiseForward&);
  void (*pointwise_backward)(Stream&, const PointwiseBackward&);
  void (*swiglu_forward)(Stream&, const SwigluForward&);
  void (*swiglu_backward)(Stream&, const SwigluBackward&);
  void (*rotary)(Stream&, const Rotary&);
  void (*conv2d_forward)(Stream&, const Conv2dForward&);
  void (*conv2d_backward)(Stream&, const Conv2dBackward&);
  void (*batchnorm_sums)(Stream&, const BatchNormSums&);
  void (*batchnorm_moments)(Stream&, const BatchNormMoments&);
  void (*batchnorm_forward)(Stream&, const BatchNormForward&);
  void (*batchnorm_backward_sums)(Stream&, const BatchNormBackwardSums&);
  void (*batchnorm_backward)(Stream&, const BatchNormBackward&);
  void (*batchnorm_running)(Stream&, const BatchNormRunning&);
  void (*pool_forward)(Stream&, const PoolForward&);
  void (*pool_backward)(Stream&, const PoolBackward&);
  void (*attention_forward)(Stream&, const AttentionForward&);
  void (*attention_backward)(Stream&, const AttentionBackward&);
  void (*classifier)(Stream&, const Classifier&);
  void (*classifier_hits)(Stream&, const ClassifierHits&);
  void (*classifier_max)(Stream&, const ClassifierMax&);
  void (*classifier_sum)(Stream&, const ClassifierSum&);
  void (*classifier_finish)(Stream&, const ClassifierFinish&);
  void (*squared_error)(Stream&, const SquaredError&);
  void (*adamw)(Stream&, const AdamW&);
  void (*sgd)(Stream&, const Sgd&);
  void (*adagrad)(Stream&, const Adagrad&);
  void (*ftrl)(Stream&, const Ftrl&);
  void (*squared_norm)(Stream&, const SquaredNorm&);
  void (*clip_scale)(Stream&, const ClipScale&);
  void (*inverse_norm)(Stream&, const InverseNorm&);
  void (*loss_sum)(Stream&, const LossSum&);
  void (*fill)(Stream&, const Fill&);
  void (*cast)(Stream&, const Cast&);
  void (*scale)(Stream&, const Scale&);
  void (*dropout)(Stream&, const Dropout&);
  void (*add)(Stream&, const Add&);
  void (*copy_rows)(Stream&, const CopyRows&);
  void (*sample)(Stream&, const Sample&);
};

// Those of a device type: cpu_ops(), or CUDA's. kUnavailable in a build without CUDA.
Result<const OpTable*> device_ops(DeviceType type);

// For the best instruction set of this CPU that cpu_level_cap() allows, chosen at the first call.
const OpTable& cpu_ops();
// Its name: "x86-64-v4", "x86-64-v3", "baseline".
const char* cpu_ops_isa();

}  // namespace lockstep::kernels
