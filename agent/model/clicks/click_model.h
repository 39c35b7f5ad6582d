#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::model {

// Rows of a click log as a model reads them. Caller-owned.
struct ClickBatch {
  std::span<const float> labels;        // [rows]: 1 for a click, else 0
  std::span<const uint32_t> row_begin;  // [rows + 1]: first feature of each row, then their number
  std::span<const uint32_t> slots;      // [features]: which of the batch's keys it has
  std::span<const float> values;        // [features]
  std::span<const uint32_t> columns;    // [features]: of the log; read by hidden layers alone
};

// The parameters of a batch's keys. Caller-owned.
struct ClickParameters {
  float bias = 0;
  std::span<const float> weights;  // [keys]
  std::span<const float> factors;  // [keys, factors]; empty for a logistic regression
};

// As ClickParameters, to which gradients are added.
struct ClickGradients {
  double bias = 0;
  std::span<float> weights;
  std::span<float> factors;
};

// Logistic regression, and the factorization machine of second order, for the probability of a
// click:
//   z = bias + sum_i w_i x_i + 1/2 sum_f ((sum_i v_if x_i)^2 - sum_i v_if^2 x_i^2)
// A logistic regression has no factors v. Sums are in double precision, in the order of the
// features. Source: Rendle, "Factorization machines", ICDM 2010.
class ClickModel {
 public:
  explicit ClickModel(size_t factors) : factors_(factors) {}

  // Writes z for each row: logits is [rows].
  void forward(const ClickBatch& batch, const ClickParameters& parameters,
               std::span<double> logits);
  // Adds scale times the gradient of the summed log loss. `logits` are those of forward(), which
  // was called last with the same batch and parameters.
  void backward(const ClickBatch& batch, const ClickParameters& parameters,
                std::span<const double> logits, double scale, ClickGradients& gradients);

 private:
  size_t factors_;
  std::vector<double> sums_;  // [rows, factors]: sum_i v_if x_i
};

double probability_of(double logit);

// Returns the sum over the rows of -log p(label), in nats.
double log_loss_sum(std::span<const float> labels, std::span<const double> logits);

// Returns the area under the ROC curve: the probability that a click has a higher logit than a
// non-click, where equal ones count half. 0.5 if all labels are the same.
double auc(std::span<const float> labels, std::span<const double> logits);

}  // namespace lockstep::model
