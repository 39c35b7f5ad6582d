#include "kernels/ops/isa_table.h"

#include LOCKSTEP_ISA_HEADER
#include "kernels/ops/cpu_ops.h"

// An operation that is left out would be null.
#pragma GCC diagnostic error "-Wmissing-field-initializers"

namespace lockstep::kernels::LOCKSTEP_ISA {

const IsaTable kIsaTable = {
    .name = LOCKSTEP_ISA_NAME,
    .level = LOCKSTEP_ISA_LEVEL,
    .ops =
        {
            .embedding_forward = embedding_forward,
            .embedding_backward = embedding_backward,
            .layernorm_forward = layernorm_forward,
            .layernorm_backward = layernorm_backward,
            .rmsnorm_forward = rmsnorm_forward,
            .rmsnorm_backward = rmsnorm_backward,
            .matmul_forward = matmul_forward,
            .matmul_backward = matmul_backward,
            .gelu_forward = gelu_forward,
            .gelu_backward = gelu_backward,
            .pointwise_forward = pointwise_forward,
            .pointwise_backward = pointwise_backward,
            .swiglu_forward = swiglu_forward,
            .swiglu_backward = swiglu_backward,
            .rotary = rotary,
            .conv2d_forward = conv2d_forward,
            .conv2d_backward = conv2d_backward,
            .batchnorm_sums = batchnorm_sums,
            .batchnorm_moments = batchnorm_moments,
            .batchnorm_forward = batchnorm_forward,
            .batchnorm_backward_sums = batchnorm_backward_sums,
            .batchnorm_backward = batchnorm_backward,
            .batchnorm_running = batchnorm_running,
            .pool_forward = pool_forward,
            .pool_backward = pool_backward,
            .attention_forward = attention_forward,
            .attention_backward = attention_backward,
            .classifier = classifier,
            .classifier_hits = classifier_hits,
            .classifier_max = classifier_max,
            .classifier_sum = classifier_sum,
            .classifier_finish = classifier_finish,
            .squared_error = squared_error,
            .adamw = adamw,
            .sgd = sgd,
            .adagrad = adagrad,
            .ftrl = ftrl,
            .squared_norm = squared_norm,
            .clip_scale = lockstep::kernels::clip_scale,
            .inverse_norm = lockstep::kernels::inverse_norm,
            .loss_sum = lockstep::kernels::loss_sum,
            .fill = fill,
            .cast = cast,
            .scale = scale,
            .dropout = dropout,
            .add = add,
            .copy_rows = copy_rows,
            .sample = lockstep::kernels::sample,
        },
    .own_gemm = own_gemm,
    .fill_normal = fill_normal,
};

}  // namespace lockstep::kernels::LOCKSTEP_ISA
