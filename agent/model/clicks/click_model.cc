#include "agent/model/clicks/click_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/check.h"

namespace lockstep::model {

void ClickModel::forward(const ClickBatch& batch, const ClickParameters& parameters,
                         std::span<double> logits) {
  CHECK(logits.size() == batch.labels.size());
  sums_.assign(batch.labels.size() * factors_, 0.0);
  for (size_t row = 0; row < batch.labels.size(); ++row) {
    double logit = parameters.bias;
    double squares = 0;
    double* const sums = sums_.data() + row * factors_;
    for (uint32_t at = batch.row_begin[row]; at < batch.row_begin[row + 1]; ++at) {
      const uint32_t slot = batch.slots[at];
      const double x = batch.values[at];
      logit += parameters.weights[slot] * x;
      for (size_t f = 0; f < factors_; ++f) {
        const double term = parameters.factors[slot * factors_ + f] * x;
        sums[f] += term;
        squares += term * term;
      }
    }
    for (size_t f = 0; f < factors_; ++f) logit += 0.5 * sums[f] * sums[f];
    logits[row] = logit - 0.5 * squares;
  }
}

void ClickModel::backward(const ClickBatch& batch, const ClickParameters& parameters,
                          std::span<const double> logits, double scale, ClickGradients& gradients) {
  for (size_t row = 0; row < batch.labels.size(); ++row) {
    const double error = scale * (probability_of(logits[row]) - batch.labels[row]);
    const double* const sums = sums_.data() + row * factors_;
    gradients.bias += error;
    for (uint32_t at = batch.row_begin[row]; at < batch.row_begin[row + 1]; ++at) {
      const uint32_t slot = batch.slots[at];
      const double x = batch.values[at];
      gradients.weights[slot] += static_cast<float>(error * x);
      for (size_t f = 0; f < factors_; ++f) {
        const size_t i = slot * factors_ + f;
        gradients.factors[i] +=
            static_cast<float>(error * x * (sums[f] - parameters.factors[i] * x));
      }
    }
  }
}

double probability_of(double logit) {
  return logit >= 0 ? 1 / (1 + std::exp(-logit)) : std::exp(logit) / (1 + std::exp(logit));
}

// -log p = max(z, 0) - z y + log(1 + e^-|z|), which does not overflow.
double log_loss_sum(std::span<const float> labels, std::span<const double> logits) {
  double sum = 0;
  for (size_t row = 0; row < labels.size(); ++row) {
    const double z = logits[row];
    sum += std::max(z, 0.0) - z * labels[row] + std::log1p(std::exp(-std::abs(z)));
  }
  return sum;
}

// The sum of the clicks' ranks, where equal logits share the mean of their ranks.
double auc(std::span<const float> labels, std::span<const double> logits) {
  std::vector<uint32_t> order(labels.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](uint32_t row) { return logits[row]; });
  double clicks = 0;
  double ranks = 0;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    double clicks_here = 0;
    for (; end < order.size() && logits[order[end]] == logits[order[begin]]; ++end) {
      clicks_here += labels[order[end]] > 0 ? 1 : 0;
    }
    ranks += clicks_here * (static_cast<double>(begin + 1) + static_cast<double>(end)) / 2;
    clicks += clicks_here;
    begin = end;
  }
  const double others = static_cast<double>(labels.size()) - clicks;
  if (clicks == 0 || others == 0) return 0.5;
  return (ranks - clicks * (clicks + 1) / 2) / (clicks * others);
}

}  // namespace lockstep::model
