#pragma once

#include <cstdint>
#include <optional>

#include "agent/comm/communicator.h"
#include "agent/model/gpt.h"
#include "agent/parallel/compose.h"
#include "agent/train/data/batch_loader.h"
#include "agent/train/data/device_tokens.h"
#include "agent/train/exit_reason.h"
#include "common/base/result.h"

namespace lockstep::train {

// The mean loss over the validation part: every token of it once, in windows of one context that
// the ranks share. One thread.
class Validator {
 public:
  // All outlive it.
  struct Parts {
    parallel::Composition& model;
    comm::Communicator& world;
    const TokenSource& source;
    ExitReason& reason;
  };
  static Result<Validator> create(const DataSplit& split, int64_t rows, const Parts& parts);

  // Nats a token, the same bits on every rank; nothing where a rank was asked to stop meanwhile.
  Result<std::optional<double>> run();

 private:
  Validator(const DataSplit& split, int64_t rows, const Parts& parts, model::MicroBatch micro,
            TokenSlot slot)
      : split_(split),
        rows_(rows),
        parts_(parts),
        micro_(std::move(micro)),
        slot_(std::move(slot)) {}
  // Issues what adds the losses of a batch.
  Status add_batch(int64_t first_window);

  DataSplit split_;
  int64_t rows_;
  Parts parts_;
  model::MicroBatch micro_;
  TokenSlot slot_;
  TokenBatch batch_;
};

}  // namespace lockstep::train
