#include "agent/comm/gpu/nccl_backend.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "agent/comm/frame.h"
#include "agent/comm/message_text.h"

namespace lockstep::comm {
namespace {

constexpr Duration kPollIntervalMin = std::chrono::microseconds(10);
constexpr Duration kPollIntervalMax = std::chrono::milliseconds(1);
// Interval while nothing is under way.
constexpr Duration kPollIntervalIdle = std::chrono::seconds(1);

constexpr const char* kWhileForming =
    "while NCCL was initialising: start() waits until every rank of the group has called its first "
    "operation; all ranks must first use groups of the same ranks in the same order";

}  // namespace

NcclBackend::NcclBackend(const Options& options, std::unique_ptr<Communicator> group,
                         std::unique_ptr<ActivityReport> report)
    : options_(options),
      nccl_(*options.nccl),
      group_(std::move(group)),
      report_(std::move(report)) {}

Result<std::unique_ptr<DeviceBackend>> NcclBackend::create(const Options& given) {
  Options options = given;
  if (options.silence_limit == nullptr) {
    options.silence_limit = std::make_shared<std::atomic<Duration>>(Duration::zero());
  }
  std::vector<int> all(static_cast<size_t>(options.host->size()));
  std::iota(all.begin(), all.end(), 0);
  TRY_ASSIGN(std::unique_ptr<Communicator> group, options.host->sub_group(all));
  std::unique_ptr<NcclBackend> backend(
      new NcclBackend(options, std::move(group), options.host->make_report()));
  backend->watcher_ = std::thread([raw = backend.get()] { raw->watch(); });
  return std::unique_ptr<DeviceBackend>(std::move(backend));
}

NcclBackend::~NcclBackend() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

Result<std::unique_ptr<DeviceBackend>> NcclBackend::sub_group(Communicator& host) {
  Options options = options_;
  options.host = &host;
  return create(options);
}

void NcclBackend::set_silence_limit(Duration limit) {
  group_->set_silence_limit(limit);
  options_.silence_limit->store(limit);
}

Duration NcclBackend::limit() const {
  const Duration set = options_.silence_limit->load();
  return set > Duration::zero() ? set : options_.limit;
}

void NcclBackend::fail(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.has_value()) broken_ = error;
  }
  changed_.notify_all();
}

std::optional<Error> NcclBackend::broken() {
  const std::lock_guard lock(mutex_);
  return broken_;
}

// Breaks this side and, unless it is broken already, the communicator on the host. Returns the
// error that counts.
Error NcclBackend::break_all(const Error& error) {
  fail(error);
  const Error first = *broken();
  group_->abort(first.message);
  return first;
}

// ---- Issuing

// If issuing fails, issued work may still run: the thread aborts it before it reports the fault.
void NcclBackend::start(std::vector<DeviceCall> calls) {
  const std::lock_guard issuing(issue_mutex_);
  PendingList pending;
  if (const Status refused = prepare(calls, pending); !refused.ok()) {
    for (const DeviceCall& call : calls) call.operation->finish(refused);
    return;
  }
  if (const Status status = issue(pending); !status.ok()) break_all(status.error());
  {
    const std::lock_guard lock(mutex_);
    pending_.splice(pending_.end(), pending);
  }
  changed_.notify_all();
}

// Checks everything that can be refused before issuing anything.
Status NcclBackend::prepare(std::vector<DeviceCall>& calls, PendingList& pending) {
  for (const DeviceCall& call : calls) {
    Pending& one = pending.emplace_back();
    one.call = call;
    TRY_ASSIGN(one.plan, plan_nccl(call, group_->rank(), group_->size()));
    // The spans belong to the caller, and were read.
    one.call.call.send_counts = {};
    one.call.call.receive_counts = {};
  }
  return {};
}

Status NcclBackend::issue(PendingList& pending) {
  TRY(wait_formed());
  if (options_.check_mismatches) TRY(check_headers(pending));
  for (Pending& one : pending) {
    void* stream = one.call.call.buffer.stream;
    one.limit = one.call.call.limit > Duration::zero() ? one.call.call.limit : limit();
    TRY(take_scratch(one));
    TRY(run_local(one, one.plan.before));
    TRY_ASSIGN(one.begin, options_.device->mark(stream));
  }
  TRY(issue_steps(pending));
  TRY(wait_connected());
  for (Pending& one : pending) {
    TRY(run_local(one, one.plan.after));
    TRY_ASSIGN(one.end, options_.device->mark(one.call.call.buffer.stream));
  }
  return {};
}

Status NcclBackend::wait_formed() {
  TRY(group_->health());
  std::unique_lock lock(mutex_);
  if (!std::exchange(has_operation_, true)) changed_.notify_all();
  changed_.wait(lock, [this] { return formed_ || broken_.has_value(); });
  if (broken_.has_value()) return *broken_;
  return {};
}

Status NcclBackend::check_headers(const PendingList& pending) {
  for (const Pending& one : pending) {
    if (traits(one.call.call.kind).is_message) continue;
    TRY_ASSIGN(
        const std::vector<CallHeader> headers,
        group_->all_gather_value(header_of(one.call.call, one.call.operation->header.sequence)));
    const Status status = compare_headers(headers);
    if (!status.ok()) return conflict("[comm] " + status.error().message, Blame::kPeer);
  }
  return {};
}

// Issues all steps in one group, so that none waits for another. Ends every group that it begins.
Status NcclBackend::issue_steps(PendingList& pending) {
  const std::lock_guard lock(nccl_mutex_);
  if (comm_ == nullptr) return *broken();
  Status first = nccl_.begin_group();
  if (!first.ok()) return first;
  for (const Pending& one : pending) {
    for (const NcclStep& step : one.plan.steps) {
      if (!first.ok()) break;
      first = nccl_.issue(comm_, {.step = step,
                                  .from = at(one, step.from),
                                  .to = at(one, step.to),
                                  .stream = one.call.call.buffer.stream});
    }
  }
  const Status ended = nccl_.end_group();
  return first.ok() ? ended : first;
}

// Waits until NCCL has issued everything on the streams: first operations connect their ranks.
Status NcclBackend::wait_connected() {
  const TimePoint begin = now();
  const Duration limit_now = limit();
  for (Duration interval = kPollIntervalMin;; interval = std::min(2 * interval, kPollIntervalMax)) {
    if (const auto error = broken()) return *error;
    TRY(group_->health());
    {
      const std::lock_guard lock(nccl_mutex_);
      if (comm_ == nullptr) return *broken();
      TRY_ASSIGN(const bool busy, nccl_.in_progress(comm_));
      if (!busy) return {};
    }
    if (now() - begin >= limit_now) {
      return timed_out("[comm] NCCL has not connected the ranks after " + seconds_text(limit_now) +
                           ": pass sends and receives between two ranks to one call; all ranks "
                           "must first use groups of the same ranks in the same order",
                       Blame::kPeerHung);
    }
    std::this_thread::sleep_for(interval);
  }
}

std::byte* NcclBackend::at(const Pending& pending, NcclPlace place) const {
  switch (place.area) {
    case NcclArea::kInput:  // only read
      return const_cast<std::byte*>(pending.call.memory.input) + place.at;
    case NcclArea::kOutput:
      return pending.call.memory.output + place.at;
    case NcclArea::kScratch:
      return static_cast<std::byte*>(pending.scratch.get()) + place.at;
  }
  return nullptr;
}

Status NcclBackend::run_local(const Pending& pending, const std::vector<LocalStep>& steps) {
  CommDevice& device = *options_.device;
  void* stream = pending.call.call.buffer.stream;
  for (const LocalStep& step : steps) {
    const auto count = static_cast<size_t>(step.count);
    void* to = at(pending, step.to);
    const void* from = at(pending, step.from);
    switch (step.kind) {
      case LocalStep::Kind::kCopy:
        TRY(device.copy(stream,
                        {.to = to, .from = from, .bytes = count * data_type_bytes(step.type)}));
        break;
      case LocalStep::Kind::kToBoolean:
        TRY(device.to_boolean(stream, step.type, {.to = to, .from = from, .count = count}));
        break;
      case LocalStep::Kind::kDivide:
        TRY(device.divide(stream, step.type,
                          {.data = to, .count = count, .ranks = group_->size()}));
        break;
    }
  }
  return {};
}

// Scratch memory is kept until the end: freeing device memory waits for everything on the device,
// including operations that wait for this rank.
Status NcclBackend::take_scratch(Pending& pending) {
  if (pending.plan.scratch_bytes == 0) return {};
  {
    const std::lock_guard lock(mutex_);
    const auto found = scratch_.lower_bound(pending.plan.scratch_bytes);
    if (found != scratch_.end()) {
      pending.scratch_bytes = found->first;
      pending.scratch = std::move(found->second);
      scratch_.erase(found);
      return {};
    }
  }
  pending.scratch_bytes = std::bit_ceil(std::max<size_t>(pending.plan.scratch_bytes, 256));
  TRY_ASSIGN(pending.scratch, options_.device->allocate(pending.scratch_bytes, "communication"));
  return {};
}

void NcclBackend::give_back(Pending& pending) {
  if (pending.scratch == nullptr) return;
  const std::lock_guard lock(mutex_);
  scratch_.emplace(pending.scratch_bytes, std::move(pending.scratch));
}

// ---- Watching

void NcclBackend::watch() {
  form_on_first_operation();
  Duration interval = kPollIntervalMin;
  for (;;) {
    wait_for_work(interval);
    size_t before = 0;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ && pending_.empty()) break;
      before = pending_.size();
    }
    poll_once();
    const std::lock_guard lock(mutex_);
    const bool moved = pending_.size() < before || pending_.empty();
    interval = moved ? kPollIntervalMin : std::min(2 * interval, kPollIntervalMax);
  }
  shut_down();
}

void NcclBackend::form_on_first_operation() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return has_operation_ || stopping_ || broken_.has_value(); });
    if (!has_operation_ || broken_.has_value()) return;
  }
  const Status formed = form();
  if (!formed.ok()) {
    const Error& error = formed.error();
    break_all(error.with_message(error.message + " (" + kWhileForming + ")"));
  }
  {
    const std::lock_guard lock(mutex_);
    formed_ = formed.ok();
  }
  changed_.notify_all();
}

void NcclBackend::wait_for_work(Duration interval) {
  std::unique_lock lock(mutex_);
  if (!pending_.empty()) {
    changed_.wait_for(lock, interval);
    return;
  }
  const auto has_work = [this] {
    return stopping_ || !pending_.empty() || (broken_.has_value() && comm_ != nullptr);
  };
  // An aborted communicator has nothing more to report.
  if (comm_ == nullptr) {
    changed_.wait(lock, has_work);
  } else {
    changed_.wait_for(lock, kPollIntervalIdle, has_work);
  }
}

Status NcclBackend::form() {
  NcclId id{};
  if (group_->rank() == 0) {
    TRY_ASSIGN(id, nccl_.make_id());
  }
  TRY(group_->broadcast(
      {.data = id.data(), .count = static_cast<int64_t>(id.size()), .type = DataType::kU8}, 0));
  {
    const std::lock_guard lock(nccl_mutex_);
    TRY_ASSIGN(NcclApi::Comm comm, nccl_.init({.id = id,
                                               .rank = group_->rank(),
                                               .size = group_->size(),
                                               .device = options_.device->device().index}));
    const std::lock_guard state(mutex_);
    comm_ = comm;
  }
  const TimePoint begin = now();
  for (Duration interval = kPollIntervalMin;; interval = std::min(2 * interval, kPollIntervalMax)) {
    TRY(group_->health());
    {
      const std::lock_guard lock(nccl_mutex_);
      TRY_ASSIGN(const bool busy, nccl_.in_progress(comm_));
      if (!busy) return {};
    }
    std::unique_lock lock(mutex_);
    if (broken_.has_value()) return *broken_;
    if (now() - begin >= limit()) {
      return timed_out("[comm] not all ranks initialised NCCL within " + seconds_text(limit()),
                       Blame::kPeerHung);
    }
    changed_.wait_for(lock, interval);
  }
}

// Operations that have reached their end succeed, even next to a fault.
void NcclBackend::poll_once() {
  PendingList polled;
  {
    const std::lock_guard lock(mutex_);
    polled.swap(pending_);
  }
  std::optional<Error> error;
  const TimePoint at = now();
  for (auto one = polled.begin(); one != polled.end();) {
    const Result<bool> passed = one->end == nullptr ? Result<bool>(false) : one->end->passed();
    if (passed.ok() && *passed) {
      report_begun(*one);
      report_completed(*one);
      give_back(*one);
      one->call.operation->finish({});
      one = polled.erase(one);
      continue;
    }
    const Status status = passed.ok() ? poll_pending(*one, at) : Status(passed.error());
    if (!status.ok() && !error.has_value()) error = status.error();
    ++one;
  }
  {
    // Before what was issued meanwhile.
    const std::lock_guard lock(mutex_);
    pending_.splice(pending_.begin(), polled);
  }
  if (const auto known = broken()) error = known;
  if (const Status host = group_->health(); !host.ok() && !error.has_value()) error = host.error();
  if (!error.has_value()) {
    const std::lock_guard lock(nccl_mutex_);
    const Result<bool> state = comm_ == nullptr ? Result<bool>(false) : nccl_.in_progress(comm_);
    if (!state.ok()) error = state.error();
  }
  if (error.has_value()) end_pending(break_all(*error));
}

void NcclBackend::report_begun(Pending& pending) {
  if (std::exchange(pending.is_running, true)) return;
  const Collective kind = pending.call.call.kind;
  if (!traits(kind).is_message) report_->enter(kind, ++entered_);
}

void NcclBackend::report_completed(const Pending& pending) {
  for (const NcclStep& step : pending.plan.steps) {
    report_->add(traffic_of(step, group_->hosts(), group_->rank()));
  }
  if (!traits(pending.call.call.kind).is_message) report_->complete(++completed_);
}

Status NcclBackend::poll_pending(Pending& pending, TimePoint when) {
  if (pending.begin == nullptr) return {};
  if (!pending.is_running) {
    pending.since = when;
    TRY_ASSIGN(const bool has_begun, pending.begin->passed());
    if (has_begun) report_begun(pending);
  }
  if (!pending.is_running || when - pending.since < pending.limit) return {};
  const char* together = traits(pending.call.call.kind).is_message
                             ? " (pass sends and receives between two ranks to one call)"
                             : "";
  return timed_out("[comm] " + operation_name(pending.call.operation->header) +
                       ": not finished on the GPU after " + seconds_text(pending.limit) +
                       ": a rank has not called it, or is stuck in it" + together,
                   Blame::kPeerHung);
}

// Keeps memory that the aborted operations might still touch until the end.
void NcclBackend::end_pending(const Error& error) {
  {
    const std::lock_guard lock(nccl_mutex_);
    NcclApi::Comm comm = nullptr;
    {
      const std::lock_guard state(mutex_);
      std::swap(comm, comm_);
    }
    if (comm != nullptr) nccl_.abort(comm);
  }
  PendingList ended;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(pending_);
    for (Pending& one : ended) {
      if (one.scratch != nullptr) scratch_.emplace(0, std::move(one.scratch));
    }
  }
  for (Pending& one : ended) one.call.operation->finish(error);
}

void NcclBackend::shut_down() {
  const std::lock_guard lock(nccl_mutex_);
  if (comm_ == nullptr) return;
  bool is_quiet = !broken().has_value() && group_->health().ok() && nccl_.finalize(comm_).ok();
  const TimePoint begin = now();
  const Duration limit_now = limit();
  for (Duration interval = kPollIntervalMin; is_quiet;
       interval = std::min(2 * interval, kPollIntervalMax)) {
    const Result<bool> busy = nccl_.in_progress(comm_);
    if (busy.ok() && !*busy) break;
    is_quiet = busy.ok() && group_->health().ok() && now() - begin < limit_now;
    std::this_thread::sleep_for(interval);
  }
  if (is_quiet) {
    nccl_.destroy(comm_);
  } else {
    nccl_.abort(comm_);
  }
  comm_ = nullptr;
}

}  // namespace lockstep::comm
