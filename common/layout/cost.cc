#include "common/layout/cost.h"

#include "common/layout/parameters.h"

namespace lockstep {

namespace {

// Elements of the matrices that one token is multiplied with, in blocks and head.
double matrix_elements(const ModelConfig& config) {
  const int64_t attention = config.width * (config.qkv_width() + config.width);
  const int64_t mlp = config.width * (config.hidden_in_width() + config.hidden_width());
  const int64_t transform = config.design().head_transform ? config.width * config.width : 0;
  return static_cast<double>(config.layers) * static_cast<double>(attention + mlp) +
         static_cast<double>(transform) +
         static_cast<double>(padded_vocabulary(config, 1)) * static_cast<double>(config.width);
}

}  // namespace

double flops_per_token(const ModelConfig& config, int64_t sequence, FlopsFormula formula) {
  const int64_t looked_up = config.tied ? 0 : config.vocabulary * config.width;
  const auto parameters = static_cast<double>(parameter_count(config) - looked_up);
  const double attention = static_cast<double>(config.layers) * static_cast<double>(config.width) *
                           static_cast<double>(sequence);
  switch (formula) {
    case FlopsFormula::kPalm:
      return 6 * parameters + 12 * attention;
    case FlopsFormula::kCausal:
      return 6 * parameters + (config.design().is_bidirectional ? 12 : 6) * attention;
    case FlopsFormula::kProducts:
      return 6 * matrix_elements(config);
  }
  return 0;
}

}  // namespace lockstep
