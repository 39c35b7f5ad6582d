#pragma once

#include "kernels/device/dtype.h"
#include "kernels/ops/op_table.h"

// What an operation has to do: pure functions of the sizes and dtypes of its arguments, whose
// tensors are not read; those that are null don't count. Every operation of OpTable has one.
namespace lockstep::bench {

struct Work {
  // Of memory: each input read once and each output written once, what is added to both; no
  // workspace.
  double bytes = 0.0;
  // Of matrix products, whose factors are multiplied in `factors`; a multiplication with its
  // addition is two.
  double product_flops = 0.0;
  DType factors = DType::kF32;
  // All other arithmetic, which is fp32: each addition, multiplication, division, comparison, root,
  // exponential or tanh of the operation's formula is one, over all elements; statistics of rows
  // are left out.
  double other_flops = 0.0;

  bool operator==(const Work&) const = default;
};

// Rows of a table of embeddings count once, of as many tokens as there can be different ones.
Work work_of(const EmbeddingForward& args);
Work work_of(const EmbeddingBackward& args);
Work work_of(const LayerNormForward& args);
Work work_of(const LayerNormBackward& args);
Work work_of(const RmsNormForward& args);
Work work_of(const RmsNormBackward& args);
// Products of 2 M N K each: y; dx and dweight. Factors are bf16 by their dtype or the precision.
Work work_of(const MatmulForward& args);
Work work_of(const MatmulBackward& args);
Work work_of(const GeluForward& args);
Work work_of(const GeluBackward& args);
Work work_of(const SwigluForward& args);
Work work_of(const SwigluBackward& args);
Work work_of(const Rotary& args);
// Of the T(T+1)/2 pairs of a query and a key that it may see, for each head: forward 2 products of
// 2 HD (scores, out), backward 5 (scores again, dp, dv, dq, dk).
// Source: Dao, "FlashAttention-2", 2023, section 4.1, but for the diagonal, which is all counted.
Work work_of(const AttentionForward& args);
Work work_of(const AttentionBackward& args);
Work work_of(const Classifier& args);
Work work_of(const ClassifierMax& args);
Work work_of(const ClassifierSum& args);
Work work_of(const ClassifierFinish& args);
Work work_of(const AdamW& args);
Work work_of(const SquaredNorm& args);
Work work_of(const ClipScale& args);
Work work_of(const LossSum& args);
Work work_of(const Fill& args);
Work work_of(const Cast& args);
Work work_of(const Scale& args);
Work work_of(const Add& args);
// The softmax over all tokens; what finding the largest k costs is not counted.
Work work_of(const Sample& args);

}  // namespace lockstep::bench
