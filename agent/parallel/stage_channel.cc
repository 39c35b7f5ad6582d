#include "agent/parallel/stage_channel.h"

#include <algorithm>
#include <utility>

#include "agent/parallel/works.h"

namespace lockstep::parallel {

Result<std::unique_ptr<StageChannel>> StageChannel::create(Options options,
                                                           const kernels::OpTable& ops,
                                                           kernels::Stream& compute) {
  std::unique_ptr<StageChannel> channel(new StageChannel(std::move(options), ops, compute));
  TRY_ASSIGN(channel->messages_, kernels::Stream::create(compute.device()));
  for (Slot& slot : channel->slots_) {
    TRY_ASSIGN(slot.filled, kernels::Event::create(compute.device()));
    TRY_ASSIGN(slot.free, kernels::Event::create(compute.device()));
  }
  if (channel->is_stream_ordered()) TRY(channel->meet());
  return channel;
}

// The first operation of a group on GPUs waits until both ranks have called it, but messages that
// are announced early must not wait for one another.
Status StageChannel::meet() {
  const int peer = 1 - options_.pair->rank();
  return options_.sends ? options_.pair->send(buffer(0, 1), peer)
                        : options_.pair->receive(buffer(0, 1), peer);
}

// Messages use the buffers until they are over.
StageChannel::~StageChannel() {
  (void)wait();
  (void)messages_.synchronize();
}

comm::CommBuffer StageChannel::buffer(size_t slot, int64_t count) const {
  const bool is_bf16 = options_.travelling == kernels::DType::kBf16;
  return {.data = options_.buffers[slot].data,
          .count = count,
          .type = is_bf16 ? comm::DataType::kBf16 : comm::DataType::kF32,
          .device = messages_.device(),
          .stream = messages_.handle()};
}

Status StageChannel::copy(const kernels::ConstView& from, const kernels::View& to, int64_t count) {
  if (from.dtype != to.dtype) {
    ops_->cast(*compute_, {.x = from, .out = to, .count = count});
    return {};
  }
  return kernels::copy_bytes(
      *compute_, {.to = to.data,
                  .from = from.data,
                  .bytes = static_cast<size_t>(count) * kernels::dtype_bytes(to.dtype)});
}

// Results of works that a stream orders are kept for wait(). Takes those that are there, since many
// steps may pass without a wait().
Status StageChannel::finish(Slot& slot) {
  if (!slot.is_busy) return {};
  slot.is_busy = false;
  comm::Work work = std::exchange(slot.work, {});
  if (!is_stream_ordered()) return work.wait();
  works_.push_back(std::move(work));
  while (works_.front().test()) {
    TRY(works_.front().wait());
    works_.pop_front();
    if (works_.empty()) break;
  }
  return {};
}

Status StageChannel::send(const kernels::ConstView& values, int64_t count) {
  const size_t index = next_;
  next_ = after(next_);
  Slot& slot = slots_[index];
  TRY(finish(slot));
  TRY(slot.free.make_stream_wait(compute_->handle()));
  TRY(copy(values, view(index), count));
  TRY(slot.filled.record(compute_->handle()));
  TRY(slot.filled.make_stream_wait(messages_.handle()));
  slot.work = options_.pair->start_send(buffer(index, count), 1 - options_.pair->rank());
  slot.is_busy = true;
  return slot.free.record(messages_.handle());
}

Status StageChannel::announce(std::vector<int64_t> counts) {
  CHECK(posted_ == counts_.size() && std::ranges::none_of(slots_, &Slot::is_busy));
  counts_ = std::move(counts);
  posted_ = 0;
  next_ = 0;
  for (size_t i = 0; i < slots_.size(); ++i, next_ = after(next_)) TRY(post());
  return {};
}

// Begins to receive into the next slot.
Status StageChannel::post() {
  if (posted_ == counts_.size()) return {};
  Slot& slot = slots_[next_];
  slot.count = counts_[posted_++];
  TRY(slot.free.make_stream_wait(messages_.handle()));
  slot.work = options_.pair->start_receive(buffer(next_, slot.count), 1 - options_.pair->rank());
  slot.is_busy = true;
  return is_stream_ordered() ? slot.filled.record(messages_.handle()) : Status();
}

// Where messages take their place in the stream, the next one may already be behind this one there.
Status StageChannel::receive(const kernels::View& values) {
  Slot& slot = slots_[next_];
  CHECK(slot.is_busy);
  TRY(finish(slot));
  if (!is_stream_ordered()) TRY(slot.filled.record(messages_.handle()));
  TRY(slot.filled.make_stream_wait(compute_->handle()));
  TRY(copy(view(next_), values, slot.count));
  TRY(slot.free.record(compute_->handle()));
  TRY(post());
  next_ = after(next_);
  return {};
}

Status StageChannel::wait() {
  Status first;
  for (Slot& slot : slots_) {
    Status status = finish(slot);
    if (first.ok() && !status.ok()) first = std::move(status);
  }
  Status rest = wait_for(works_);
  return first.ok() ? rest : first;
}

}  // namespace lockstep::parallel
