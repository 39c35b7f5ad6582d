#include "agent/comm/gpu/staging.h"

#include <algorithm>
#include <numeric>

#include "agent/comm/collectives.h"

namespace lockstep::comm {
namespace {

// Interval between looks at what is under way, while nothing moves.
constexpr Duration kPollIntervalMin = std::chrono::microseconds(10);
constexpr Duration kPollIntervalMax = std::chrono::milliseconds(1);

std::byte* bytes_of(const std::shared_ptr<void>& memory) {
  return static_cast<std::byte*>(memory.get());
}

}  // namespace

StagingBackend::StagingBackend(Options options, std::unique_ptr<Communicator> group)
    : options_(std::move(options)), group_(std::move(group)) {}

Result<std::unique_ptr<DeviceBackend>> StagingBackend::create(const Options& options) {
  std::vector<int> all(static_cast<size_t>(options.host->size()));
  std::iota(all.begin(), all.end(), 0);
  TRY_ASSIGN(std::unique_ptr<Communicator> group, options.host->sub_group(all));
  std::unique_ptr<StagingBackend> backend(new StagingBackend(options, std::move(group)));
  TRY(backend->make_streams());
  backend->worker_ = std::thread([raw = backend.get()] { raw->work(); });
  return std::unique_ptr<DeviceBackend>(std::move(backend));
}

Status StagingBackend::make_streams() {
  TRY_ASSIGN(stream_in_, options_.device->create_stream());
  TRY_ASSIGN(stream_out_, options_.device->create_stream());
  return {};
}

StagingBackend::~StagingBackend() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
}

Result<std::unique_ptr<DeviceBackend>> StagingBackend::sub_group(Communicator& host) {
  return create({.host = &host, .device = options_.device, .chunk_bytes = options_.chunk_bytes});
}

void StagingBackend::fail(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.has_value()) broken_ = error;
  }
  changed_.notify_all();
}

std::optional<Error> StagingBackend::broken() {
  const std::lock_guard lock(mutex_);
  return broken_;
}

StagingBackend::Lane StagingBackend::lane_of(const Call& call) {
  return traits(call.kind).is_message ? Lane{call.kind, call.rank} : Lane{Collective::kBarrier, 0};
}

// The host would refuse these calls part by part: checks them before anything is under way.
Status StagingBackend::check(const std::vector<DeviceCall>& calls) const {
  for (const DeviceCall& call : calls) {
    TRY(choose_algorithm({.kind = call.call.kind,
                          .algorithm = call.call.algorithm,
                          .rank = group_->rank(),
                          .size = group_->size(),
                          .count = call.call.buffer.count,
                          .type = call.call.buffer.type,
                          .hosts = &group_->hosts()}));
  }
  return {};
}

void StagingBackend::start(std::vector<DeviceCall> calls) {
  if (const Status status = check(calls); !status.ok()) {
    for (const DeviceCall& call : calls) call.operation->finish(status);
    return;
  }
  std::list<Job> made;
  for (DeviceCall& call : calls) {
    auto begin = options_.device->mark(call.call.buffer.stream);
    if (!begin.ok()) {
      // Otherwise the other ranks would wait for this one.
      group_->abort(begin.error().message);
      fail(begin.error());
      call.operation->finish(begin.error());
      continue;
    }
    Job& job = made.emplace_back();
    job.begin = std::move(begin).value();
    job.send_counts.assign(call.call.send_counts.begin(), call.call.send_counts.end());
    job.receive_counts.assign(call.call.receive_counts.begin(), call.call.receive_counts.end());
    call.call.send_counts = job.send_counts;
    call.call.receive_counts = job.receive_counts;
    job.chunks = plan_staging(call, group_->size(), options_.chunk_bytes);
    job.call = call;
  }
  {
    const std::lock_guard lock(mutex_);
    fresh_.splice(fresh_.end(), made);
  }
  changed_.notify_all();
}

void StagingBackend::work() {
  Duration interval = kPollIntervalMin;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (jobs_.empty()) {
        changed_.wait(lock, [this] { return stopping_ || !fresh_.empty(); });
      } else if (interval > kPollIntervalMin) {
        changed_.wait_for(lock, interval, [this] { return !fresh_.empty(); });
      }
      if (stopping_ && jobs_.empty() && fresh_.empty()) return;
      for (Job& job : fresh_) {
        lanes_[lane_of(job.call.call)].push_back(&job);
        if (!traits(job.call.call.kind).is_message) ++entered_;
      }
      jobs_.splice(jobs_.end(), fresh_);
    }
    interval = step_all() ? kPollIntervalMin : std::min(2 * interval, kPollIntervalMax);
  }
}

bool StagingBackend::step_all() {
  bool any = false;
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const std::optional<Error> error = broken();
    if (!error.has_value()) {
      const Result<bool> moved = step(*job);
      any = any || !moved.ok() || *moved;
      if (!moved.ok()) {
        group_->abort(moved.error().message);
        fail(moved.error());
        continue;
      }
    }
    const bool is_over = error.has_value() ? may_end(*job) : job->done == job->chunks.size();
    if (!is_over) {
      ++job;
      continue;
    }
    finish(*job, error.has_value() ? Status(*error) : Status());
    job = jobs_.erase(job);
    any = true;
  }
  return any;
}

// After a fault, only copies to the caller's memory are waited for.
bool StagingBackend::may_end(Job& job) {
  return std::all_of(std::begin(job.slots), std::end(job.slots), [](const Slot& slot) {
    if (slot.stage != Stage::kCopyingOut) return true;
    const Result<bool> passed = slot.mark->passed();
    return !passed.ok() || *passed;
  });
}

// Polls for the job's beginning. A stream that waited for it would also delay earlier jobs.
Result<bool> StagingBackend::step(Job& job) {
  if (!job.is_ready) {
    TRY_ASSIGN(job.is_ready, job.begin->passed());
    if (!job.is_ready) return false;
  }
  bool any = false;
  for (Slot& slot : job.slots) {
    if (slot.stage == Stage::kFree && job.begun < job.chunks.size()) {
      slot.chunk = job.begun++;
      TRY(copy_in(job, slot));
      any = true;
    }
    TRY_ASSIGN(const bool moved, step(job, slot));
    any = any || moved;
  }
  return any;
}

Result<bool> StagingBackend::step(Job& job, Slot& slot) {
  switch (slot.stage) {
    case Stage::kFree:
      return false;
    case Stage::kCopyingIn: {
      TRY_ASSIGN(const bool passed, slot.mark->passed());
      if (passed) slot.stage = Stage::kWaiting;
      return passed;
    }
    case Stage::kWaiting:
      return issue(job, slot);
    case Stage::kRunning: {
      if (!slot.work.test()) return false;
      TRY(slot.work.wait());
      slot.work = Work();
      TRY(copy_out(job, slot));
      return true;
    }
    case Stage::kCopyingOut: {
      TRY_ASSIGN(const bool passed, slot.mark->passed());
      if (!passed) return false;
      slot.stage = Stage::kFree;
      ++job.done;
      return true;
    }
  }
  return false;
}

Status StagingBackend::copy_in(Job& job, Slot& slot) {
  const StagingChunk& chunk = job.chunks[slot.chunk];
  if (slot.in.data == nullptr) {
    TRY_ASSIGN(slot.in, take_memory(job.chunks.front().input_bytes));
    TRY_ASSIGN(slot.out, take_memory(job.chunks.front().output_bytes));
  }
  for (const StagingCopy& copy : chunk.in) {
    TRY(options_.device->copy(stream_in_.get(), {.to = bytes_of(slot.in.data) + copy.host,
                                                 .from = job.call.memory.input + copy.device,
                                                 .bytes = copy.bytes}));
  }
  TRY_ASSIGN(slot.mark, options_.device->mark(stream_in_.get()));
  slot.stage = Stage::kCopyingIn;
  return {};
}

// Returns whether it was this chunk's turn.
bool StagingBackend::issue(Job& job, Slot& slot) {
  std::deque<Job*>& lane = lanes_[lane_of(job.call.call)];
  if (lane.front() != &job || job.issued != slot.chunk) return false;
  if (++job.issued == job.chunks.size()) lane.pop_front();
  const StagingChunk& chunk = job.chunks[slot.chunk];
  Call call = job.call.call;
  call.buffer = {.data = slot.out.data.get(),
                 .count = chunk.count,
                 .type = call.buffer.type,
                 .input = chunk.input_bytes > 0 ? slot.in.data.get() : nullptr};
  call.part = {.whole_count = job.call.call.buffer.count,
               .index = static_cast<uint32_t>(slot.chunk)};
  // Nothing in it is touched, but null would count as missing memory.
  if (call.buffer.data == nullptr) call.buffer.data = slot.in.data.get();
  if (!job.send_counts.empty()) call.buffer.input = slot.in.data.get();
  slot.work = group_->start(call);
  slot.stage = Stage::kRunning;
  return true;
}

// If a copy fails, earlier ones are under way: marks them, and may_end() waits for them.
Status StagingBackend::copy_out(Job& job, Slot& slot) {
  Status copied;
  for (const StagingCopy& copy : job.chunks[slot.chunk].out) {
    copied = options_.device->copy(stream_out_.get(), {.to = job.call.memory.output + copy.device,
                                                       .from = bytes_of(slot.out.data) + copy.host,
                                                       .bytes = copy.bytes});
    if (!copied.ok()) break;
  }
  TRY_ASSIGN(slot.mark, options_.device->mark(stream_out_.get()));
  slot.stage = Stage::kCopyingOut;
  return copied;
}

void StagingBackend::finish(Job& job, const Status& status) {
  std::erase(lanes_[lane_of(job.call.call)], &job);
  if (status.ok() && !traits(job.call.call.kind).is_message) ++completed_;
  for (Slot& slot : job.slots) slot.work = Work();
  give_back(job);
  job.call.operation->finish(status);
}

// Uses the smallest free block that is large enough.
Result<StagingBackend::Memory> StagingBackend::take_memory(size_t bytes) {
  const size_t wanted = staging_block_bytes(bytes);
  const auto found = memory_.lower_bound(wanted);
  if (found != memory_.end()) {
    Memory memory{.data = std::move(found->second), .bytes = found->first};
    memory_.erase(found);
    return memory;
  }
  TRY_ASSIGN(auto data, options_.device->allocate_pinned(wanted, "staging"));
  return Memory{.data = std::move(data), .bytes = wanted};
}

// After a fault a copy may still be under way.
void StagingBackend::give_back(Job& job) {
  for (Slot& slot : job.slots) {
    for (Memory* memory : {&slot.in, &slot.out}) {
      if (memory->data == nullptr) continue;
      if (slot.stage == Stage::kFree) {
        memory_.emplace(memory->bytes, std::move(memory->data));
      } else {
        quarantined_.push_back(std::move(memory->data));
      }
    }
  }
}

}  // namespace lockstep::comm
