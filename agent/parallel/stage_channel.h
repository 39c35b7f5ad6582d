#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "agent/comm/communicator.h"
#include "common/base/result.h"
#include "kernels/device/device.h"
#include "kernels/ops/op_table.h"

namespace lockstep::parallel {

// One direction between two neighbouring stages: messages of up to `count` values, which the
// receiver takes in the order in which they are sent. Values are copied through buffers at each end
// (kChannelSlots), so that both ends compute while messages are on their way. On a GPU messages
// travel on a stream of their own. One thread.
class StageChannel {
 public:
  struct Options {
    std::unique_ptr<comm::Communicator> pair;  // of these two stages, for this channel alone
    bool sends = false;                        // else receives
    kernels::DType travelling = kernels::DType::kF32;
    // Two or more, of `count` values; memory of the stream's device.
    std::vector<kernels::Workspace> buffers;
  };
  // Memory, ops and stream outlive the channel. Both ends call it at the same place among their
  // channels. kUnavailable where the device is not; errors of the communicator.
  static Result<std::unique_ptr<StageChannel>> create(Options options, const kernels::OpTable& ops,
                                                      kernels::Stream& compute);
  ~StageChannel();

  // Sends values that are computed on the computing stream, which may change them afterwards. Waits
  // only for the message that had the buffer before.
  Status send(const kernels::ConstView& values, int64_t count);

  // Says how many values each of the next messages has. Starts to receive the first ones. The
  // messages announced before were received.
  Status announce(std::vector<int64_t> counts);
  // Waits for the next message. Work issued on the computing stream afterwards reads its values.
  Status receive(const kernels::View& values);

  // Waits for the results of everything under way. Returns the first error.
  Status wait();

 private:
  struct Slot {
    comm::Work work;
    bool is_busy = false;
    int64_t count = 0;      // values of a message that is received
    kernels::Event filled;  // by a copy or a message
    kernels::Event free;    // the message was sent, or its values were copied
  };
  StageChannel(Options options, const kernels::OpTable& ops, kernels::Stream& compute)
      : options_(std::move(options)),
        ops_(&ops),
        compute_(&compute),
        slots_(options_.buffers.size()) {}

  size_t after(size_t slot) const { return (slot + 1) % slots_.size(); }
  bool is_stream_ordered() const { return options_.pair->device_traits().is_stream_ordered; }
  comm::CommBuffer buffer(size_t slot, int64_t count) const;
  kernels::View view(size_t slot) const {
    return {options_.buffers[slot].data, options_.travelling};
  }
  Status meet();
  Status copy(const kernels::ConstView& from, const kernels::View& to, int64_t count);
  Status finish(Slot& slot);
  Status post();

  Options options_;
  const kernels::OpTable* ops_;
  kernels::Stream* compute_;
  kernels::Stream messages_;
  std::vector<Slot> slots_;
  size_t next_ = 0;               // slot of the next message
  std::vector<int64_t> counts_;   // of the announced messages
  size_t posted_ = 0;             // announced messages whose receive has begun
  std::deque<comm::Work> works_;  // stream-ordered ones, whose results are still to be had
};

}  // namespace lockstep::parallel
