#include "agent/train/servers/job_link.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace lockstep::train {
namespace {

constexpr Duration kProbe = std::chrono::seconds(1);

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

}  // namespace

Result<std::unique_ptr<JobLink>> JobLink::create(const ServersRound& round) {
  TRY_ASSIGN(auto client, rpc::Client::create({.self = round.self}));
  std::unique_ptr<JobLink> link(new JobLink(std::move(client)));
  for (const rpc::Client::ServerAddress& server : round.servers) {
    link->servers_.push_back(link->client_->add_server(server));
    link->ranks_.push_back(server.rank);
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

int64_t JobLink::culprit() {
  std::vector<rpc::Call> calls = call_all(kHello, {.timeout = kProbe});
  int64_t silent = -1;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!calls[i].wait().ok()) {
      silent = ranks_[i];
      continue;
    }
    const Result<HelloReply> reply = reply_of<HelloReply>(calls[i]);
    if (reply.ok() && reply->hangs > 0) return static_cast<int64_t>(reply->hangs) - 1;
  }
  return silent;
}

std::vector<rpc::Call> JobLink::call_all(const rpc::Method& method,
                                         const rpc::CallOptions& options) const {
  std::vector<rpc::Call> calls;
  for (size_t i = 0; i < servers_.size(); ++i) calls.push_back(call(i, method, options));
  return calls;
}

rpc::Call JobLink::call(size_t server, const rpc::Method& method, rpc::CallOptions options) const {
  options.on_done = [done = done_] {
    ++*done;
    done->notify_all();
  };
  return servers_[server].call(method, options);
}

Status JobLink::wait_all(std::vector<rpc::Call>& calls) const {
  while (true) {
    const uint32_t before = *done_;
    bool are_done = true;
    for (rpc::Call& call : calls) {
      are_done = are_done && call.is_done();
      if (!call.is_done()) continue;
      TRY(blaming_peer(call.wait()));
    }
    if (are_done) return {};
    done_->wait(before);
  }
}

Result<JobLink::Values> JobLink::meet(const Values& values) {
  const MeetCall head{.number = meetings_++, .values = values};
  rpc::Call call = servers_.front().call(kMeet, {.head = head_bytes(head)});
  TRY(blaming_peer(call.wait()));
  TRY_ASSIGN(const MeetReply reply, reply_of<MeetReply>(call));
  return reply.sums;
}

Result<StepNews> JobLink::report(const StepReport& report) {
  StepReport to_others = report;
  to_others.waits = 0;
  std::vector<rpc::Call> calls;
  for (size_t i = 0; i < servers_.size(); ++i) {
    calls.push_back(call(i, kReportStep, {.head = head_bytes(i == 0 ? report : to_others)}));
  }
  TRY(wait_all(calls));
  TRY_ASSIGN(StepNews news, reply_of<StepNews>(calls.front()));
  for (const rpc::Call& call : std::span(calls).subspan(1)) {
    TRY_ASSIGN(const StepNews other, reply_of<StepNews>(call));
    news.stops = std::max(news.stops, other.stops);
  }
  return news;
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

Result<std::vector<ManifestFile>> JobLink::save(std::string_view folder) {
  const rpc::Bytes body[] = {std::as_bytes(std::span(folder))};
  std::vector<rpc::Call> calls = call_all(kSaveState, {.body = body});
  TRY(wait_all(calls));
  std::vector<ManifestFile> files;
  for (const rpc::Call& call : calls) {
    TRY_ASSIGN(const std::string_view text, storage_answer(call));
    TRY_ASSIGN(std::vector<ManifestFile> more, parse_files(text));
    std::ranges::move(more, std::back_inserter(files));
  }
  return files;
}

Status JobLink::leave(bool was_stopped) {
  const LeaveCall head{.stopped = was_stopped ? uint64_t{1} : uint64_t{0}};
  std::vector<rpc::Call> calls = call_all(kLeaveJob, {.head = head_bytes(head)});
  return wait_all(calls);
}

}  // namespace lockstep::train
