#pragma once

#include "agent/model/attention_choice.h"
#include "agent/model/convolution_choice.h"

namespace lockstep::model {

// The kernels of a model where there is a choice. By default, our own.
struct KernelChoice {
  AttentionChoice attention = {};
  ConvolutionChoice convolutions = {};
};

}  // namespace lockstep::model
