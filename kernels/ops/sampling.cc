#include "kernels/ops/sampling.h"

#include <algorithm>
#include <cmath>

#include "kernels/ops/isa_table.h"

namespace lockstep::kernels {

namespace {

// The smallest logit in the top k, and how many logits equal to it are in the top k (the first
// ones).
struct Threshold {
  float logit = 0.0f;
  int64_t equals = 0;
};

Threshold threshold_of(const float* logits, const Sample& args, float* sorted) {
  const int64_t k = args.top_k;
  std::copy(logits, logits + args.vocabulary, sorted);
  std::nth_element(sorted, sorted + (k - 1), sorted + args.vocabulary, std::greater<>());
  const float logit = sorted[k - 1];
  const int64_t above = std::count_if(sorted, sorted + k, [&](float x) { return x > logit; });
  return {logit, k - above};
}

int32_t sample_row(const float* logits, float uniform, const Sample& args) {
  const float* highest = std::max_element(logits, logits + args.vocabulary);
  if (args.temperature <= 0.0f) return static_cast<int32_t>(highest - logits);
  float* weights = static_cast<float*>(args.workspace.data);
  Threshold threshold{.logit = -HUGE_VALF, .equals = args.vocabulary};
  if (args.top_k > 0 && args.top_k < args.vocabulary) {
    threshold = threshold_of(logits, args, weights);
  }
  double sum = 0.0;
  for (int64_t v = 0; v < args.vocabulary; ++v) {
    const bool counts =
        logits[v] > threshold.logit || (logits[v] == threshold.logit && threshold.equals-- > 0);
    weights[v] = counts ? std::exp((logits[v] - *highest) / args.temperature) : 0.0f;
    sum += static_cast<double>(weights[v]);
  }
  const double goal = static_cast<double>(uniform) * sum;
  double passed = 0.0;
  int32_t last = static_cast<int32_t>(highest - logits);
  for (int64_t v = 0; v < args.vocabulary; ++v) {
    if (weights[v] == 0.0f) continue;
    passed += static_cast<double>(weights[v]);
    last = static_cast<int32_t>(v);
    if (passed > goal) break;
  }
  return last;
}

}  // namespace

size_t sample_workspace(int64_t vocabulary) {
  return static_cast<size_t>(vocabulary) * sizeof(float);
}

void sample(Stream&, const Sample& args) {
  CHECK(args.rows == 0 || args.vocabulary > 0);
  CHECK(args.workspace.bytes >= sample_workspace(args.vocabulary));
  for (int64_t row = 0; row < args.rows; ++row) {
    args.tokens[row] = sample_row(args.logits.f32() + row * args.stride, args.uniforms[row], args);
  }
}

}  // namespace lockstep::kernels
