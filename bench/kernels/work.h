#pragma once

#include "kernels/device/dtype.h"
#include "kernels/ops/op_table.h"

// The work of each op of OpTable. Pure functions of the sizes and dtypes of the arguments. They do
// not read the tensors, and null tensors do not count.
namespace lockstep::bench {

struct Work {
  // Memory traffic: each input is read once, each output written once; a tensor that is added to
  // counts twice. Excludes workspaces.
  double bytes = 0.0;
  // Flops of matrix products with factors of dtype `factors`; a multiply-add counts as two.
  double product_flops = 0.0;
  kernels::DType factors = kernels::DType::kF32;
  // All other arithmetic, in fp32. Each addition, multiplication, division, comparison, root,
  // exponential or tanh in the op's formula counts as one per element; row statistics do not count.
  double other_flops = 0.0;

  bool operator==(const Work&) const = default;
};

// Counts rows of an embedding table once, for the largest possible number of distinct tokens.
Work work_of(const kernels::EmbeddingForward& args);
Work work_of(const kernels::EmbeddingBackward& args);
Work work_of(const kernels::LayerNormForward& args);
Work work_of(const kernels::LayerNormBackward& args);
Work work_of(const kernels::RmsNormForward& args);
Work work_of(const kernels::RmsNormBackward& args);
// Counts products of 2 M N K each: y forward; dx and dweight backward. Factors are bf16 if their
// dtype or the precision is.
Work work_of(const kernels::MatmulForward& args);
Work work_of(const kernels::MatmulBackward& args);
Work work_of(const kernels::GeluForward& args);
Work work_of(const kernels::GeluBackward& args);
Work work_of(const kernels::PointwiseForward& args);
Work work_of(const kernels::PointwiseBackward& args);
Work work_of(const kernels::SwigluForward& args);
Work work_of(const kernels::SwigluBackward& args);
Work work_of(const kernels::Rotary& args);
// Counts the T(T+1)/2 pairs of a query and a key it may see, for each head: 2 products of 2 HD
// forward (scores, out), 5 backward (scores again, dp, dv, dq, dk).
// Source: Dao, "FlashAttention-2", 2023, section 4.1, except that we count the whole diagonal.
Work work_of(const kernels::AttentionForward& args);
Work work_of(const kernels::AttentionBackward& args);
// Counts 2 R S C/G products for each output value, padding included: y forward; dx and dweight
// backward.
Work work_of(const kernels::Conv2dForward& args);
Work work_of(const kernels::Conv2dBackward& args);
Work work_of(const kernels::BatchNormSums& args);
Work work_of(const kernels::BatchNormMoments& args);
Work work_of(const kernels::BatchNormForward& args);
Work work_of(const kernels::BatchNormBackwardSums& args);
Work work_of(const kernels::BatchNormBackward& args);
Work work_of(const kernels::BatchNormRunning& args);
Work work_of(const kernels::PoolForward& args);
Work work_of(const kernels::PoolBackward& args);
Work work_of(const kernels::Classifier& args);
Work work_of(const kernels::ClassifierHits& args);
Work work_of(const kernels::ClassifierMax& args);
Work work_of(const kernels::ClassifierSum& args);
Work work_of(const kernels::ClassifierFinish& args);
Work work_of(const kernels::SquaredError& args);
Work work_of(const kernels::AdamW& args);
Work work_of(const kernels::Sgd& args);
Work work_of(const kernels::Adagrad& args);
Work work_of(const kernels::Ftrl& args);
Work work_of(const kernels::SquaredNorm& args);
Work work_of(const kernels::ClipScale& args);
Work work_of(const kernels::InverseNorm& args);
Work work_of(const kernels::LossSum& args);
Work work_of(const kernels::Fill& args);
Work work_of(const kernels::Cast& args);
Work work_of(const kernels::Scale& args);
Work work_of(const kernels::Dropout& args);
Work work_of(const kernels::Add& args);
Work work_of(const kernels::CopyRows& args);
// Counts the softmax over all tokens, but not the search for the largest k.
Work work_of(const kernels::Sample& args);

}  // namespace lockstep::bench
