// The CPU ops, declared once per instruction set; include after LOCKSTEP_ISA_HEADER.
#pragma once

#include "kernels/ops/normal.h"
#include "kernels/ops/op_table.h"
#include "kernels/ops/own_gemm.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

void embedding_forward(Stream&, const EmbeddingForward&);
void embedding_backward(Stream&, const EmbeddingBackward&);
void layernorm_forward(Stream&, const LayerNormForward&);
void layernorm_backward(Stream&, const LayerNormBackward&);
void rmsnorm_forward(Stream&, const RmsNormForward&);
void rmsnorm_backward(Stream&, const RmsNormBackward&);
void matmul_forward(Stream&, const MatmulForward&);
void matmul_backward(Stream&, const MatmulBackward&);
void gelu_forward(Stream&, const GeluForward&);
void gelu_backward(Stream&, const GeluBackward&);
void pointwise_forward(Stream&, const PointwiseForward&);
void pointwise_backward(Stream&, const PointwiseBackward&);
void swiglu_forward(Stream&, const SwigluForward&);
void swiglu_backward(Stream&, const SwigluBackward&);
void rotary(Stream&, const Rotary&);
void conv2d_forward(Stream&, const Conv2dForward&);
void conv2d_backward(Stream&, const Conv2dBackward&);
void batchnorm_sums(Stream&, const BatchNormSums&);
void batchnorm_moments(Stream&, const BatchNormMoments&);
void batchnorm_forward(Stream&, const BatchNormForward&);
void batchnorm_backward_sums(Stream&, const BatchNormBackwardSums&);
void batchnorm_backward(Stream&, const BatchNormBackward&);
void batchnorm_running(Stream&, const BatchNormRunning&);
void pool_forward(Stream&, const PoolForward&);
void pool_backward(Stream&, const PoolBackward&);
void attention_forward(Stream&, const AttentionForward&);
void attention_backward(Stream&, const AttentionBackward&);
void classifier(Stream&, const Classifier&);
void classifier_hits(Stream&, const ClassifierHits&);
void classifier_max(Stream&, const ClassifierMax&);
void classifier_sum(Stream&, const ClassifierSum&);
void classifier_finish(Stream&, const ClassifierFinish&);
void squared_error(Stream&, const SquaredError&);
void adamw(Stream&, const AdamW&);
void sgd(Stream&, const Sgd&);
void adagrad(Stream&, const Adagrad&);
void ftrl(Stream&, const Ftrl&);
void squared_norm(Stream&, const SquaredNorm&);
void fill(Stream&, const Fill&);
void cast(Stream&, const Cast&);
void scale(Stream&, const Scale&);
void dropout(Stream&, const Dropout&);
void add(Stream&, const Add&);
void copy_rows(Stream&, const CopyRows&);

void own_gemm(const Gemm& args);
void fill_normal(const NormalFill& args);

}  // namespace lockstep::kernels::LOCKSTEP_ISA
