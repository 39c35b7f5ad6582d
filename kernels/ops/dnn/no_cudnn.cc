#include "kernels/ops/dnn/dnn.h"

namespace lockstep::dnn {

namespace {

Error none() {
  return unavailable("[cudnn] a build with cuDNN's headers, this one has none");
}

}  // namespace

Status available() {
  return none();
}

Result<size_t> prepare_attention(Device, const AttentionShape&) {
  return none();
}

Status attention_forward(Stream&, const AttentionForward&) {
  return none();
}

Status attention_backward(Stream&, const AttentionBackward&) {
  return none();
}

}  // namespace lockstep::dnn
