#include "kernels/ops/cuda_ops.h"

#include "kernels/ops/blas/blas.h"

// An operation that is left out would be null.
#pragma GCC diagnostic error "-Wmissing-field-initializers"

namespace lockstep::kernels {

Result<const OpTable*> cuda_ops() {
  TRY(blas::available());
  static const OpTable kOps = {
      .embedding_forward = cuda::embedding_forward,
      .embedding_backward = cuda::embedding_backward,
      .layernorm_forward = cuda::layernorm_forward,
      .layernorm_backward = cuda::layernorm_backward,
      .rmsnorm_forward = cuda::rmsnorm_forward,
      .rmsnorm_backward = cuda::rmsnorm_backward,
      .matmul_forward = cuda::matmul_forward,
      .matmul_backward = cuda::matmul_backward,
      .gelu_forward = cuda::gelu_forward,
      .gelu_backward = cuda::gelu_backward,
      .pointwise_forward = cuda::pointwise_forward,
      .pointwise_backward = cuda::pointwise_backward,
      .swiglu_forward = cuda::swiglu_forward,
      .swiglu_backward = cuda::swiglu_backward,
      .rotary = cuda::rotary,
      .conv2d_forward = cuda::conv2d_forward,
      .conv2d_backward = cuda::conv2d_backward,
      .batchnorm_sums = cuda::batchnorm_sums,
      .batchnorm_moments = cuda::batchnorm_moments,
      .batchnorm_forward = cuda::batchnorm_forward,
      .batchnorm_backward_sums = cuda::batchnorm_backward_sums,
      .batchnorm_backward = cuda::batchnorm_backward,
      .batchnorm_running = cuda::batchnorm_running,
      .pool_forward = cuda::pool_forward,
      .pool_backward = cuda::pool_backward,
      .attention_forward = cuda::attention_forward,
      .attention_backward = cuda::attention_backward,
      .classifier = cuda::classifier,
      .classifier_hits = cuda::classifier_hits,
      .classifier_max = cuda::classifier_max,
      .classifier_sum = cuda::classifier_sum,
      .classifier_finish = cuda::classifier_finish,
      .squared_error = cuda::squared_error,
      .adamw = cuda::adamw,
      .sgd = cuda::sgd,
      .adagrad = cuda::adagrad,
      .ftrl = cuda::ftrl,
      .squared_norm = cuda::squared_norm,
      .clip_scale = cuda::clip_scale,
      .inverse_norm = cuda::inverse_norm,
      .loss_sum = cuda::loss_sum,
      .fill = cuda::fill,
      .cast = cuda::cast,
      .scale = cuda::scale,
      .dropout = cuda::dropout,
      .add = cuda::add,
      .copy_rows = cuda::copy_rows,
      .sample = cuda::sample,
  };
  return &kOps;
}

}  // namespace lockstep::kernels
