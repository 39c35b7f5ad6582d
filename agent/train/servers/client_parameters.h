#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "agent/parallel/remote_parameters.h"
#include "agent/server/parameter_client.h"
#include "common/base/result.h"

namespace lockstep::train {

// The parameters of a model as the tensors of a catalog, whose indices are their ids. After an
// error every call fails with it.
class ClientParameters final : public parallel::RemoteParameters {
 public:
  // `encodings`: by id. The client outlives it.
  ClientParameters(server::ParameterClient& client, std::vector<server::Encodings> encodings)
      : client_(client),
        encodings_(std::move(encodings)),
        pulls_(encodings_.size()),
        pushes_(encodings_.size()) {}

  Status put(int64_t id, std::span<const float> values) override;
  void pull(int64_t id, int64_t clock, std::span<float> into) override;
  Status finish_pull(int64_t id) override;
  void push(const Push& push) override;
  Status finish_pushes() override;

  // Ends what is under way; memory is not used any more.
  void cancel();
  // Returns the largest staleness_of() a pull that was finished since the call before.
  uint64_t take_staleness();
  // Returns whether a push was late since the call before.
  bool take_lateness();

 private:
  struct Pull {
    uint64_t clock = 0;
    std::optional<server::Transfer> transfer;
  };
  void note(const Status& status) {
    if (failure_.ok()) failure_ = status;
  }

  server::ParameterClient& client_;
  const std::vector<server::Encodings> encodings_;
  std::vector<Pull> pulls_;                              // by id
  std::vector<std::optional<server::Transfer>> pushes_;  // likewise
  Status failure_;
  uint64_t staleness_ = 0;
  bool is_late_ = false;
};

}  // namespace lockstep::train
