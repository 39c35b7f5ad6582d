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

}  // namespace lockstep::kernels::dnn
