#include "kernels/ops/attention.h"

#include <cmath>

#include "kernels/device/cuda/launch.cuh"
#include "kernels/ops/attention_geometry.h"
#include "kernels/ops/attention_plain.cuh"
#include "kernels/ops/attention_tiles.cuh"
#include "kernels/ops/cuda_ops.h"
#include "kernels/ops/dnn/dnn.h"

// Backward recomputes the probabilities from the log-sum-exp twice: for dq, whose blocks have
// queries, and for dk and dv, whose blocks have keys. This way one thread sums each value, in a
// fixed order.
namespace lockstep::kernels::cuda {

namespace {

void check_shape(const AttentionShape& shape) {
  CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0);
  CHECK(shape.head_dim > 0 && shape.head_dim <= kAttentionHeadDimMax);
}

bool is_empty(const AttentionShape& shape) {
  return shape.batch * shape.heads * shape.sequence == 0;
}

template <class T>
AttentionArgs<T> sizes_of(const AttentionShape& shape) {
  AttentionArgs<T> args;
  args.sequence = shape.sequence;
  args.heads = shape.heads;
  args.kv_heads = shape.kv_heads;
  args.head_dim = shape.head_dim;
  args.causal = shape.causal;
  args.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  return args;
}

template <class T>
AttentionArgs<T> kernel_args(const AttentionForward& op) {
  AttentionArgs<T> args = sizes_of<T>(op.shape);
  args.qkv = static_cast<const T*>(op.qkv.data);
  args.out = static_cast<T*>(op.out.data);
  args.lse = op.lse;
  return args;
}

// Backward only reads out and lse, so the const_casts are safe.
template <class T>
AttentionArgs<T> kernel_args(const AttentionBackward& op) {
  AttentionArgs<T> args = sizes_of<T>(op.shape);
  args.qkv = static_cast<const T*>(op.qkv.data);
  args.out = const_cast<T*>(static_cast<const T*>(op.out.data));
  args.dout = static_cast<const T*>(op.dout.data);
  args.dqkv = static_cast<T*>(op.dqkv.data);
  args.lse = const_cast<float*>(op.lse);
  args.delta = static_cast<float*>(op.workspace.data);
  return args;
}

template <int kD>
void forward_tiles(Stream& stream, const AttentionForward& op) {
  launch(stream, attention_forward_shape(op.shape), attention_forward_tiles<kD>,
         kernel_args<Bf16>(op));
}

template <class T>
void forward_plain(Stream& stream, const AttentionForward& op) {
  launch(stream, attention_plain_shape(op.shape, op.shape.heads, "attention_forward_plain"),
         attention_forward_plain<T>, kernel_args<T>(op), op.shape.batch);
}

template <class T>
void make_delta(Stream& stream, const AttentionBackward& op) {
  launch(stream, attention_plain_shape(op.shape, op.shape.heads, "attention_delta"),
         attention_delta<T>, kernel_args<T>(op), op.shape.batch);
}

template <int kD>
void backward_tiles(Stream& stream, const AttentionBackward& op) {
  make_delta<Bf16>(stream, op);
  launch(stream, attention_dq_shape(op.shape), attention_dq_tiles<kD>, kernel_args<Bf16>(op));
  launch(stream, attention_dkv_shape(op.shape), attention_dkv_tiles<kD>, kernel_args<Bf16>(op));
}

template <class T>
void backward_plain(Stream& stream, const AttentionBackward& op) {
  const AttentionShape& shape = op.shape;
  make_delta<T>(stream, op);
  launch(stream, attention_plain_shape(shape, shape.heads, "attention_dq_plain"),
         attention_dq_plain<T>, kernel_args<T>(op), shape.batch);
  launch(stream, attention_plain_shape(shape, shape.kv_heads, "attention_dkv_plain"),
         attention_dkv_plain<T>, kernel_args<T>(op), shape.batch);
}

void tell(Stream& stream, const Status& status) {
  if (!status.ok()) stream.fail(status.error());
}

}  // namespace

void attention_forward(Stream& stream, const AttentionForward& op) {
  if (is_empty(op.shape)) return;
  check_shape(op.shape);
  CHECK(op.qkv.dtype == op.out.dtype);
  if (op.by == AttentionBy::kCudnn) return tell(stream, dnn::attention_forward(stream, op));
  if (!attention_has_tiles(op.shape, op.qkv.dtype)) {
    op.qkv.dtype == DType::kF32 ? forward_plain<float>(stream, op)
                                : forward_plain<Bf16>(stream, op);
  } else {
    op.shape.head_dim == 64 ? forward_tiles<64>(stream, op) : forward_tiles<128>(stream, op);
  }
}

void attention_backward(Stream& stream, const AttentionBackward& op) {
  if (is_empty(op.shape)) return;
  check_shape(op.shape);
  CHECK(op.qkv.dtype == op.out.dtype && op.qkv.dtype == op.dout.dtype);
  CHECK(op.qkv.dtype == op.dqkv.dtype);
  if (op.by == AttentionBy::kCudnn) return tell(stream, dnn::attention_backward(stream, op));
  CHECK(op.workspace.bytes >= attention_workspace(op.shape, DeviceType::kCuda));
  if (!attention_has_tiles(op.shape, op.qkv.dtype)) {
    op.qkv.dtype == DType::kF32 ? backward_plain<float>(stream, op)
                                : backward_plain<Bf16>(stream, op);
  } else {
    op.shape.head_dim == 64 ? backward_tiles<64>(stream, op) : backward_tiles<128>(stream, op);
  }
}

}  // namespace lockstep::kernels::cuda
