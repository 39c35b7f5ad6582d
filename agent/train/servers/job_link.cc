#include "agent/train/servers/job_link.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace lockstep::train {
namespace {

constexpr Duration kProbe = std::chrono::seconds(1);
// A server may get a view a moment later than a worker, or earlier.
constexpr Duration kOtherView = std::chrono::milliseconds(20);

template <class T>
Result<T> reply_of(const rpc::Call& call) {
  T value;
  if (call.head().size() != sizeof value) {
    return corrupt("[servers] a server answered with another head", Blame::kPeer);
  }
  std::memcpy(&value, call.head().data(), sizeof value);
  return value;
}

Status blaming_peer(const Status& status) {
  if (status.ok()) return status;
  const Code code = status.error().code;
  if (code == Code::kTimeout) return status.error().blaming(Blame::kPeerHung);
  if (status.error().blame != Blame::kUnknown) return status;
  return code == Code::kUnavailable ? status.error().blaming(Blame::kPeer) : status.error();
}

template <class Head>
std::vector<std::byte> copy_of(const Head& head) {
  const rpc::Bytes bytes = head_bytes(head);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

Result<std::unique_ptr<JobLink>> JobLink::create(const ServersRound& round) {
  TRY_ASSIGN(auto client, rpc::Client::create({.self = round.self}));
  std::unique_ptr<JobLink> link(new JobLink(std::move(client), round));
  for (const rpc::Client::ServerAddress& server : round.servers) {
    link->servers_.push_back(link->client_->add_server(server));
  }
  return link;
}

Status JobLink::connect(Duration at_most, const Clock& clock) {
  const TimePoint end = clock.now() + at_most;
  while (true) {
    std::vector<rpc::Call> calls = call_all(kHello, {.timeout = kProbe});
    const Status answered = wait_all(calls);
    if (answered.ok()) return answered;
    const Code code = answered.error().code;
    if (code != Code::kUnavailable && code != Code::kTimeout) return answered;
    if (clock.now() >= end) {
      return unavailable(
          answered.error().message + " (waited " +
              std::to_string(std::chrono::duration_cast<std::chrono::seconds>(at_most).count()) +
              " s for the servers)",
          Blame::kPeer);
    }
  }
}

// Calls to the pod that a server has left fail.
void JobLink::move_servers(const ServersView& view) {
  const std::lock_guard lock(servers_mutex_);
  std::vector<rpc::Client::ServerAddress> now = addresses_in(view, addresses_);
  for (size_t i = servers_.size(); i < now.size(); ++i) {
    servers_.push_back(client_->add_server(now[i]));
  }
  for (size_t i = 0; i < addresses_.size(); ++i) {
    if (now[i].address == addresses_[i].address) continue;
    servers_[i].leave("it moved to " + comm::to_string(now[i].address));
    servers_[i] = client_->add_server(now[i]);
  }
  addresses_ = std::move(now);
}

void JobLink::install(const ServersView& view) {
  {
    const std::lock_guard lock(mutex_);
    if (view.number <= view_.number) return;
    view_ = view;
    move_servers(view);
    for (SpreadCall& meeting : meetings_) meeting.follow(view_);
    if (report_) report_->follow(view_);
    if (leaving_) leaving_->follow(view_);
  }
  events_->notify();
}

ServersView JobLink::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

bool JobLink::may_pass(const Error& error) const {
  const bool is_of_view = error.code == Code::kUnavailable || error.code == Code::kConflict;
  return patience_ > Duration() && is_of_view && error.blame != Blame::kStorage;
}

bool JobLink::wait_for_view_after(int64_t number, Duration at_most) const {
  while (true) {
    const uint64_t seen = events_->count();
    if (view().number > number) return true;
    if (!events_->wait(seen, at_most)) return false;
  }
}

int64_t JobLink::culprit() {
  const ServersView now = view();
  int64_t silent = -1;
  std::vector<std::pair<int64_t, rpc::Call>> calls;
  for (size_t i = 0; i < now.servers.size(); ++i) {
    if (is_absent(now.servers[i].state)) continue;
    calls.emplace_back(first_rank_ + static_cast<int64_t>(i), call(i, kHello, {.timeout = kProbe}));
  }
  for (auto& [rank, call] : calls) {
    if (!call.wait().ok()) {
      silent = rank;
      continue;
    }
    const Result<HelloReply> reply = reply_of<HelloReply>(call);
    if (reply.ok() && reply->hangs > 0) return static_cast<int64_t>(reply->hangs) - 1;
  }
  return silent;
}

std::vector<rpc::Call> JobLink::call_all(const rpc::Method& method,
                                         const rpc::CallOptions& options) const {
  const ServersView now = view();
  std::vector<rpc::Call> calls;
  for (size_t i = 0; i < now.servers.size(); ++i) {
    if (!is_absent(now.servers[i].state)) calls.push_back(call(i, method, options));
  }
  return calls;
}

rpc::Call JobLink::call(size_t server, const rpc::Method& method, rpc::CallOptions options) const {
  options.on_done = [events = events_] { events->notify(); };
  const std::lock_guard lock(servers_mutex_);
  return servers_[server].call(method, options);
}

SpreadCall JobLink::spread(const rpc::Method& method, SpreadCall::Heads heads) const {
  return {std::move(heads), [this, &method](size_t server, const rpc::CallOptions& options) {
            return call(server, method, options);
          }};
}

Status JobLink::wait_all(std::vector<rpc::Call>& calls, std::optional<int64_t> in_view) const {
  while (true) {
    const uint64_t seen = events_->count();
    if (in_view && servers_changed_in(view()) != *in_view) {
      return conflict("[servers] there is another view");
    }
    bool are_done = true;
    for (rpc::Call& call : calls) {
      are_done = are_done && call.is_done();
      if (!call.is_done()) continue;
      TRY(blaming_peer(call.wait()));
    }
    if (are_done) return {};
    events_->wait(seen);
  }
}

Status JobLink::await(SpreadCall& call, Enough enough, const Take& take) {
  while (true) {
    const uint64_t seen = events_->count();
    Status failure;
    bool is_stuck = false;
    {
      const std::lock_guard lock(mutex_);
      const SpreadCall::Outcome outcome = call.outcome();
      failure = outcome.failure;
      const bool are_done = outcome.pending == 0;
      if (enough == Enough::kOne && outcome.answered > 0) return take(call, outcome);
      if (!failure.ok() && !may_pass(failure.error())) return blaming_peer(failure);
      if (enough != Enough::kOne && are_done && failure.ok()) return take(call, outcome);
      if (enough == Enough::kDoneAll && are_done) return take(call, outcome);
      is_stuck = enough == Enough::kOne ? are_done : !failure.ok() && enough == Enough::kAll;
    }
    if (!is_stuck) {
      events_->wait(seen);
    } else if (!events_->wait(seen, patience_)) {
      return blaming_peer(failure);
    }
  }
}

// Repeats what failed because a server is gone, or because there is another view.
template <class T, class Try>
Result<T> JobLink::again_in_later_views(const Try& attempt) const {
  Duration waited{};
  while (true) {
    const ServersView now = view();
    Result<T> done = attempt(now);
    if (done.ok() || !may_pass(done.error())) return done;
    const Duration most = done.error().code == Code::kConflict ? kOtherView : patience_;
    if (!wait_for_view_after(now.number, most)) waited += most;
    if (waited >= patience_) return done;
  }
}

Result<JobLink::Past> JobLink::come_back_in(const ServersView& view, int64_t since) {
  const ReturnCall head{.since = static_cast<uint64_t>(since)};
  std::vector<rpc::Call> calls;
  for (size_t i = 0; i < view.servers.size(); ++i) {
    if (is_absent(view.servers[i].state)) continue;
    calls.push_back(call(i, kReturn, {.head = head_bytes(head)}));
  }
  TRY(wait_all(calls, servers_changed_in(view)));
  Past past;
  for (const rpc::Call& call : calls) {
    TRY_ASSIGN(const ReturnReply reply, reply_of<ReturnReply>(call));
    if (reply.first > 0) past.first = reply.first - 1;
    past.step = std::max(past.step, reply.step);
    if (reply.meetings > past.meetings) {
      past.meetings = reply.meetings;
      past.met_step = reply.met_step;
      past.met_place = reply.met_place;
    }
    past.has_left = past.has_left || reply.has_left != 0;
    past.was_stopped = past.was_stopped || reply.has_left == 2;
    past.highest_clock = std::max(past.highest_clock, reply.highest_clock);
  }
  return past;
}

Result<JobLink::Past> JobLink::come_back(int64_t since) {
  return again_in_later_views<Past>(
      [&](const ServersView& view) { return come_back_in(view, since); });
}

// Others may still need the call of that meeting at a server that did not get it. In the first one
// workers tell each other where to begin, so all have passed it.
Status JobLink::go_on_after(const Past& past) {
  if (past.meetings > 1) {
    MeetCall head{.number = past.meetings - 1};
    head.values[kMeetStep] = static_cast<double>(past.met_step);
    head.values[kMeetPlace] = static_cast<double>(past.met_place);
    TRY(meet(head));
  }
  told_step_ = past.step;
  place_ = 0;
  met_ = past.meetings - past.met_since();
  called_before_ = past.meetings;
  return {};
}

// All workers have passed the meeting before this one once this one has an answer. Until then,
// others may still need this worker's call of it at another server.
Result<JobLink::Values> JobLink::meet(const Values& values) {
  const bool was_called = is_behind();
  MeetCall head{.number = met_++, .values = values};
  head.values[kMeetStep] = static_cast<double>(told_step_);
  head.values[kMeetPlace] = static_cast<double>(place_);
  if (head.number > 0) ++place_;
  return was_called ? Values{} : meet(head);
}

Result<JobLink::Values> JobLink::meet(const MeetCall& head) {
  SpreadCall* meeting = nullptr;
  {
    const std::lock_guard lock(mutex_);
    meetings_.push_back(spread(kMeet, {copy_of(head), copy_of(head)}));
    meeting = &meetings_.back();
    meeting->follow(view_);
  }
  MeetReply reply;
  TRY(await(*meeting, Enough::kOne, [&](SpreadCall&, const SpreadCall::Outcome& outcome) -> Status {
    TRY_ASSIGN(reply, reply_of<MeetReply>(*outcome.first));
    while (meetings_.size() > 1) meetings_.pop_front();
    return {};
  }));
  return reply.sums;
}

// Others may need the report at a server that joins later, so it is kept as one that does not wait.
Result<StepNews> JobLink::report_once(const StepReport& report) {
  StepReport kept = report;
  kept.waits = 0;
  StepReport leading = report;
  leading.leads = 1;
  SpreadCall* sent = nullptr;
  {
    const std::lock_guard lock(mutex_);
    report_.emplace(spread(kReportStep, {copy_of(leading), copy_of(kept)}));
    sent = &*report_;
    sent->follow(view_);
  }
  StepNews news;
  TRY(await(*sent, Enough::kAll,
            [&](SpreadCall& call, const SpreadCall::Outcome& outcome) -> Status {
              TRY_ASSIGN(news, reply_of<StepNews>(*outcome.leaders));
              for (const rpc::Call* const answer : call.answers()) {
                TRY_ASSIGN(const StepNews other, reply_of<StepNews>(*answer));
                news.stops = std::max(news.stops, other.stops);
                news.stop_at = std::max(news.stop_at, other.stop_at);
              }
              call.set_heads({copy_of(kept), copy_of(kept)});
              return {};
            }));
  return news;
}

Result<StepNews> JobLink::report(const StepReport& report) {
  told_step_ = report.step;
  place_ = 0;
  StepReport told = report;
  while (true) {
    told.stop_at = stop_at_;
    TRY_ASSIGN(const StepNews news, report_once(told));
    if (news.stop_at <= stop_at_) return news;
    stop_at_ = news.stop_at;
    told.waits = 0;
  }
}

Result<std::string_view> JobLink::storage_answer(const rpc::Call& call) {
  TRY_ASSIGN(const StorageReply reply, reply_of<StorageReply>(call));
  const std::string_view text(reinterpret_cast<const char*>(call.body().data()),
                              call.body().size());
  if (reply.failure == 0) return text;
  const auto code = static_cast<Code>(reply.failure - 1);
  return Error{code, std::string(text), Blame::kStorage};
}

Status JobLink::load(const std::string& manifest, uint64_t first) {
  const LoadCall head{.first = first};
  const rpc::Bytes body[] = {std::as_bytes(std::span(manifest))};
  std::vector<rpc::Call> calls = call_all(kLoadState, {.head = head_bytes(head), .body = body});
  TRY(wait_all(calls));
  for (const rpc::Call& call : calls) {
    const Result<std::string_view> answered = storage_answer(call);
    if (!answered.ok()) return answered.error();
  }
  return {};
}

Result<std::vector<ManifestFile>> JobLink::save_in(const ServersView& view,
                                                   std::string_view folder) {
  const int64_t number = servers_changed_in(view);
  const SaveCall head{.view = static_cast<uint64_t>(number)};
  const rpc::Bytes body[] = {std::as_bytes(std::span(folder))};
  std::vector<rpc::Call> calls;
  for (size_t i = 0; i < view.servers.size(); ++i) {
    if (!is_holding(view.servers[i].state)) continue;
    calls.push_back(call(i, kSaveState, {.head = head_bytes(head), .body = body}));
  }
  TRY(wait_all(calls, number));
  std::vector<ManifestFile> files;
  for (const rpc::Call& call : calls) {
    TRY_ASSIGN(const std::string_view text, storage_answer(call));
    TRY_ASSIGN(std::vector<ManifestFile> more, parse_files(text));
    std::ranges::move(more, std::back_inserter(files));
  }
  return files;
}

Result<std::vector<ManifestFile>> JobLink::save(std::string_view folder) {
  auto saved = again_in_later_views<std::vector<ManifestFile>>(
      [&](const ServersView& view) { return save_in(view, folder); });
  if (saved.ok() || !may_pass(saved.error())) return saved;
  return Error{saved.error().code, saved.error().message};
}

Status JobLink::leave(bool was_stopped) {
  const LeaveCall head{.stopped = was_stopped ? uint64_t{1} : uint64_t{0}};
  // Those that were started anew, and have not joined, end with the others.
  std::vector<rpc::Call> to_gone;
  SpreadCall* leaving = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < view_.servers.size(); ++i) {
      if (view_.servers[i].state != ServerState::kGone) continue;
      to_gone.push_back(call(i, kLeaveJob, {.head = head_bytes(head), .timeout = kProbe}));
    }
    leaving_.emplace(spread(kLeaveJob, {copy_of(head), copy_of(head)}));
    leaving = &*leaving_;
    leaving->follow(view_);
  }
  TRY(await(*leaving, Enough::kDoneAll,
            [](SpreadCall&, const SpreadCall::Outcome&) { return Status(); }));
  for (rpc::Call& call : to_gone) static_cast<void>(call.wait());
  return {};
}

}  // namespace lockstep::train
