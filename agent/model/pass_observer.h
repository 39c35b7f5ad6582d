#pragma once

namespace lockstep::model {

// Follows the head's backward, which alternates between work of the forward pass and gradients, one
// chunk of rows after the other. A call says which of the two everything is that has been issued to
// the stream since the call before, or since the head's backward began. Must not wait for it. Used
// by one thread.
class PassObserver {
 public:
  virtual ~PassObserver() = default;

  // A chunk's logits and losses, and the gradients of the logits, which the losses' operation also
  // computes.
  virtual void head_forward_issued() = 0;
  // The gradients of a chunk's input and of the head's weights.
  virtual void head_backward_issued() = 0;
};

}  // namespace lockstep::model
