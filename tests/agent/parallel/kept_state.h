// The state that ranks save, put together in host memory, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "agent/parallel/snapshot.h"
#include "agent/parallel/state_stream.h"
#include "common/layout/model_design.h"

namespace lockstep::parallel {

// A state in host memory, tensor by tensor.
class KeptState final : public StateSource {
 public:
  explicit KeptState(const ModelDesign& design) : table_(parameter_table(design)) {}
  // Adds what a rank saves, each element of which must be new.
  void add(const StateShare& share) {
    for (size_t kind = 0; kind < share.kinds.size(); ++kind) {
      for (const StateLayout::ShardPiece& piece : share.pieces) {
        std::vector<float>& kept = tensors_[{kind, piece.id}];
        kept.resize(static_cast<size_t>(table_[static_cast<size_t>(piece.id)].count()), NAN);
        for (const ShardRun& run : piece.runs) {
          for (int64_t i = 0; i < run.count; ++i) {
            float& value = kept[static_cast<size_t>(run.global + i)];
            EXPECT_TRUE(std::isnan(value)) << "saved twice";
            value = share.kinds[kind][static_cast<size_t>(run.local - share.shard_begin + i)];
          }
        }
      }
    }
  }
  Status read(const StateTensor& tensor, int64_t first, std::span<float> to) override {
    const std::vector<float>& kept = tensors_.at({tensor.kind, tensor.parameter.id});
    std::copy_n(kept.begin() + first, to.size(), to.begin());
    return {};
  }
  const auto& tensors() const { return tensors_; }
  bool is_whole() const {
    for (const auto& [key, values] : tensors_) {
      if (std::ranges::any_of(values, [](float value) { return std::isnan(value); })) return false;
    }
    return tensors_.size() == 3 * table_.size();
  }

 private:
  std::vector<Parameter> table_;
  std::map<std::pair<size_t, int64_t>, std::vector<float>> tensors_;
};

// The largest relative L2 distance of two states' parameters. The bias of attention's keys has no
// gradient but rounding.
inline double distance(const ModelDesign& design, const KeptState& a, const KeptState& b) {
  double largest = 0;
  for (const Parameter& parameter : parameter_table(design)) {
    if (parameter.name.ends_with("c_attn.bias")) continue;
    double difference = 0;
    double norm = 0;
    const auto& left = a.tensors().at({0, parameter.id});
    const auto& right = b.tensors().at({0, parameter.id});
    for (size_t i = 0; i < left.size(); ++i) {
      difference += std::pow(left[i] - right[i], 2);
      norm += std::pow(left[i], 2);
    }
    largest = std::max(largest, std::sqrt(difference / norm));
  }
  return largest;
}

}  // namespace lockstep::parallel
