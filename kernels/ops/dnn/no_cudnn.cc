#include "kernels/ops/dnn/dnn.h"

namespace lockstep::kernels::dnn {

namespace {

Error cudnn_not_built() {
  return unavailable("[cudnn] this build has no cuDNN support");
}

}  // namespace

Status available() {
  return cudnn_not_built();
}

Result<size_t> prepare_attention(Device, const AttentionShape&) {
  return cudnn_not_built();
}

Status attention_forward(Stream&, const AttentionForward&) {
  return cudnn_not_built();
}

Status attention_backward(Stream&, const AttentionBackward&) {
  return cudnn_not_built();
}

Result<PreparedConv2d> prepare_conv2d(Device, const Conv2dUse&) {
  return cudnn_not_built();
}

Status conv2d_forward(Stream&, const Conv2dForward&) {
  return cudnn_not_built();
}

Status conv2d_inputs(Stream&, const Conv2dBackward&) {
  return cudnn_not_built();
}

Status conv2d_filters(Stream&, const Conv2dBackward&) {
  return cudnn_not_built();
}

}  // namespace lockstep::kernels::dnn
