#pragma once

#include <memory>
#include <optional>

#include "agent/train/clicks/click_log.h"
#include "agent/train/clicks/click_step.h"
#include "agent/train/servers/served_task.h"

namespace lockstep::train {

// A click model on a click log. Step s trains on the rows [s B, (s + 1) B) of the log, which begins
// anew when it is over; B is batch.global, and each rank has an equal share of them.
class ClickTask final : public ServedTask {
 public:
  // Errors blame the data.
  static Result<std::unique_ptr<ServedTask>> open(const Parts& parts);

  RunSettings settings() const override;
  Status begin_anew() override;
  Status begin_at(int64_t step) override;
  Result<Outcome> train(const Step& step) override;
  bool validates() const override { return !log_->validation().empty(); }
  Status validate(int64_t step, StepNumbers& numbers) override;

 private:
  ClickTask(const Parts& parts, std::shared_ptr<const ClickLog> log);
  int64_t share() const;  // rows of each rank in a step
  Status read(ClickRows& rows);

  Parts parts_;
  std::shared_ptr<const ClickLog> log_;
  ClickStep step_;
  std::optional<ClickReader> reader_;
  int64_t read_step_ = 0;  // the last step whose rows were read
  ClickRows rows_;
  ClickRows next_rows_;  // of the step after that of rows_
  Status next_failure_;  // to read them: the next step's
};

}  // namespace lockstep::train
