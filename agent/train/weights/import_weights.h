#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/parallel/state_stream.h"
#include "agent/train/weights/weight_files.h"
#include "common/base/result.h"
#include "common/layout/model_design.h"
#include "common/layout/parameters.h"

namespace lockstep::train {

// The parameters in a safetensors file of Hugging Face's, or in several with an index
// (hugging_face.h, weight_files.h), exactly: F16 and BF16 widened, Conv1D's matrices transposed,
// parts packed. It gives the first rows of a longer table of positions. One thread.
class WeightsSource final : public parallel::StateSource {
 public:
  // kInvalid, blaming the configuration, where the files are another model's, or have a head that
  // is not the embedding for a model whose head is tied. Other errors, also of read(), blame the
  // data: kCorrupt where one is no safetensors file, else as storage says. Messages name the path.
  static Result<WeightsSource> open(const std::string& path, const ModelConfig& config);

  // Gives parameters alone: tensors of kind 0.
  Status read(const parallel::StateTensor& tensor, int64_t first, std::span<float> to) override;

 private:
  // A stored tensor that is a parameter, or some rows of it.
  struct Part {
    const TensorInfo* tensor = nullptr;
    int64_t begin = 0;  // element of the parameter
    int64_t end = 0;
    bool is_transposed = false;
  };
  explicit WeightsSource(WeightFiles files) : files_(std::move(files)) {}
  static Result<WeightsSource> open_files(const std::string& path, const ModelConfig& config);
  void add_parts(const Parameter& parameter, const std::vector<const TensorInfo*>& tensors);
  // Fills `to` with the part's elements from `first` on, counted from its beginning.
  Status read_part(const Part& part, int64_t first, std::span<float> to);
  Status transpose_part(const Part& part);

  WeightFiles files_;
  std::vector<std::vector<Part>> parts_;  // by the parameter's id
  std::vector<float> transposed_;         // a part's, until its last value is read
};

// Opens the weights that a job names. Messages begin with the field's path. kInvalid for a family
// that is no transformer.
Result<std::unique_ptr<parallel::StateSource>> open_weights(const std::string& path,
                                                            const ModelDesign& design);

// Returns the most memory of the host that a WeightsSource takes for such a model, in addition to
// the files' headers: the largest of Conv1D's matrices twice, and the values
// that it decodes at a time.
uint64_t import_bytes_max(const ModelConfig& config);

// Returns the error of a WeightsSource of such a file, as far as the headers and the first values
// of a head show it. `config` can be built.
Status check_weights(const std::string& path, const ModelConfig& config);

}  // namespace lockstep::train
